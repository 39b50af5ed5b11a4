"""Numbers about the server for Prometheus: GET /metrics."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from nextword.server.requests import EngineStats
from nextword.server.security import App, Message, Receive, Scope, Send

SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300)  # upper bounds of the histograms
ENGINE_GAUGES = {
    "running": "Requests that generate",
    "waiting": "Requests in the queue, or whose prompt is being read",
    "calls": "Other calls that wait",
    "rows": "Requests that may generate side by side",
    "queue": "Requests that may wait",
    "prefix_entries": "Prompts in the prefix cache",
    "prefix_bytes": "Bytes in the prefix cache",
}
ENGINE_COUNTERS = {
    "requests": "Finished generation requests",
    "cancelled": "Generation requests that were cancelled",
    "failed": "Generation requests that failed",
    "steps": "Steps of the network",
    "tokens": "Generated tokens",
    "prompt_tokens": "Tokens of prompts",
    "cached_tokens": "Tokens of prompts that came from the prefix cache",
    "prefix_lookups": "Lookups in the prefix cache",
    "prefix_hits": "Lookups in the prefix cache that found something",
}


disable_created_metrics()  # type: ignore[no-untyped-call]  # a series per counter that says when it began


class Metrics:
    """The server's numbers. Those of the engines are read when somebody asks for them."""

    def __init__(self, engines: Callable[[], Mapping[str, EngineStats]]) -> None:
        self.registry = CollectorRegistry()
        self.requests = Counter(
            "nextword_http_requests", "Answered requests", ["route", "method", "status"], registry=self.registry
        )
        self.seconds = Histogram(
            "nextword_http_request_seconds",
            "Seconds from a request's headers to the end of the answer",
            ["route"],
            buckets=SECONDS,
            registry=self.registry,
        )
        self.first_token_seconds = Histogram(
            "nextword_time_to_first_token_seconds",
            "Seconds from submission to the first token",
            ["model"],
            buckets=SECONDS,
            registry=self.registry,
        )
        self.active = Gauge("nextword_http_requests_active", "Requests in progress", registry=self.registry)
        self.registry.register(_EngineCollector(engines))

    def text(self) -> bytes:
        """The text format of Prometheus."""
        return generate_latest(self.registry)


class _EngineCollector(Collector):
    def __init__(self, engines: Callable[[], Mapping[str, EngineStats]]) -> None:
        self.engines = engines

    def collect(self) -> Iterable[Metric]:
        """One family for each number, with a sample for each model that is loaded."""
        stats = self.engines()
        for name, text in ENGINE_GAUGES.items():
            gauge = GaugeMetricFamily(f"nextword_engine_{name}", text, labels=["model"])
            for model, values in stats.items():
                gauge.add_metric([model], vars(values)[name])
            yield gauge
        for name, text in ENGINE_COUNTERS.items():
            counter = CounterMetricFamily(f"nextword_engine_{name}", text, labels=["model"])
            for model, values in stats.items():
                counter.add_metric([model], vars(values)[name])
            yield counter


class Measure:
    """ASGI middleware: count and time all requests, also those that are refused."""

    def __init__(self, app: App, metrics: Metrics) -> None:
        self.app, self.metrics = app, metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        status, start = 499, time.perf_counter()  # 499: the client left before the answer began

        async def watch(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        self.metrics.active.inc()
        try:
            await self.app(scope, receive, watch)
        finally:
            self.metrics.active.dec()
            route = _route_name(scope)
            method = scope["method"] if scope["method"] in ("GET", "POST", "HEAD", "OPTIONS") else "other"
            self.metrics.requests.labels(route, method, str(status)).inc()
            self.metrics.seconds.labels(route).observe(time.perf_counter() - start)


def _route_name(scope: Scope) -> str:
    """The route that answered, without names from the request: those would let strangers create labels."""
    route = scope.get("route")
    return str(route.path) if route is not None else "other"
