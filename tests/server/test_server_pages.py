"""The schema, the reference page made from it, and the numbers for Prometheus."""

from __future__ import annotations

import base64
import hashlib
import re
from html.parser import HTMLParser

from prometheus_client.parser import text_string_to_metric_families

from nextword import __version__
from tests.support.running_server import Running

NATIVE = (
    "score next fill generate beam predict explain tag answer choose translate embed nearest project attention layers "
    "gates gradients saliency"
)
OPENAI = "completions chat/completions embeddings models"
SERVER = "tokenize detokenize tokenizer_info health metrics version"
ROUTES = {
    *(f"/api/{name}" for name in NATIVE.split()),
    *(f"/v1/{name}" for name in OPENAI.split()),
    *(f"/{name}" for name in SERVER.split()),
}


class Page(HTMLParser):
    """The elements of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.links: list[str] = []
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.links += [value or "" for name, value in attrs if name in ("href", "src", "action")]

    def handle_data(self, data: str) -> None:
        self.text += data


def test_schema_has_every_route(server: Running) -> None:
    paths = server.client.get("/openapi.json").json()["paths"]
    assert paths.keys() >= ROUTES
    for path in ROUTES:
        for operation in paths[path].values():
            assert operation["summary"]
            assert operation["description"]
            assert {"4XX", "5XX"} <= operation["responses"].keys()


def test_reference_page_has_every_route_and_field(server: Running) -> None:
    answer = server.client.get("/docs")
    page, schema = Page(answer.text), server.client.get("/openapi.json").json()
    for path in ROUTES:
        assert path in page.text
    fields = {name for part in schema["components"]["schemas"].values() for name in part.get("properties", ())}
    assert {"temperature", "logprobs", "echo", "n_best", "layers"} <= fields
    assert all(name in page.text for name in ("temperature", "logprobs", "echo", "n_best", "layers"))


def test_reference_page_loads_nothing_from_elsewhere(server: Running) -> None:
    answer = server.client.get("/docs")
    page = Page(answer.text)
    assert all(link.startswith(("#", "/", "data:")) for link in page.links), page.links
    assert not {"script", "iframe", "object", "embed"} & set(page.tags)
    assert "@import" not in answer.text
    assert "url(" not in answer.text


def test_policy_of_the_reference_page_allows_its_style(server: Running) -> None:
    answer = server.client.get("/docs")
    (style,) = re.findall(r"<style>(.*?)</style>", answer.text, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    policy = answer.headers["content-security-policy"]
    assert f"'sha256-{digest}'" in policy
    assert "script-src 'none'" in policy


def test_version_is_that_of_the_package(server: Running) -> None:
    assert server.client.get("/version").json() == {"version": __version__}


def test_metrics_count_requests_and_tokens(server: Running) -> None:
    def read() -> dict[tuple[str, ...], float]:
        families = text_string_to_metric_families(server.client.get("/metrics").text)
        return {(s.name, *sorted(s.labels.values())): s.value for family in families for s in family.samples}

    server.post("/m/gpt2/v1/completions", {"prompt": "the", "max_tokens": 1})
    before = read()
    server.post("/m/gpt2/v1/completions", {"prompt": "the king", "max_tokens": 3, "ignore_eos": True})
    server.post("/m/gpt2/v1/completions", {"prompt": "the king", "nope": 3}, 400)
    server.client.get("/a/path/that/is/not/there")
    after = read()
    path = "/v1/completions"
    for name, *labels, change in (
        ("nextword_http_requests_total", "200", path, "POST", 1),
        ("nextword_http_requests_total", "400", path, "POST", 1),
        ("nextword_engine_tokens_total", "gpt2", 3),
        ("nextword_engine_requests_total", "gpt2", 1),
        ("nextword_time_to_first_token_seconds_count", "gpt2", 1),
    ):
        key = (str(name), *sorted(map(str, labels)))
        assert after[key] - before.get(key, 0) == change, key
    assert not [key for key in after if "/a/path/that/is/not/there" in key]
