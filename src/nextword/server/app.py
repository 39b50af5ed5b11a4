"""The application: its routes and middleware, and the process that serves it.

create_app(service, access)     a FastAPI application, for any ASGI server
listen(host, port)              a socket
serve(app, socket)              uvicorn, with time limits on connections and a graceful end
"""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import FrameType

import uvicorn
from fastapi import APIRouter, FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.responses import PlainTextResponse

from nextword import __version__
from nextword.core.errors import CannotWrite, describe_os_error, in_command_line
from nextword.server import job_routes, lens_routes, native_routes, openai_routes, playground
from nextword.server.metrics import Measure
from nextword.server.reference import policy_of, reference_page
from nextword.server.replies import JsonRoute, Reply, ServiceOf, get_service, refuse
from nextword.server.schema import ErrorReply
from nextword.server.security import MAX_HEADERS, Access, ClientGone, Guard, TimedProtocol, is_loopback
from nextword.server.service import Service

DRAIN_SECONDS = 30  # for requests to finish after SIGTERM
KEEP_ALIVE_SECONDS = 15  # of a connection between two requests
CLIENT_GONE = 499  # nginx's status for a client that closed the connection; nobody receives it
MODEL_PREFIX = "/m/{model_name}"  # before every route: the model is part of the path
DESCRIPTION = (
    "Language models over HTTP: OpenAI's API for its clients, and nextword's own routes. If several models are served, "
    "name one in the field `model`, or put `/m/NAME` before the path of a route."
)

router = APIRouter(route_class=JsonRoute, tags=["server"])


@router.get("/health", summary="Is the server ready?", responses={503: {"description": "Not ready."}})
async def health(service: ServiceOf) -> Response:
    """200 and "ok", or 503 while the only model is loaded and while the server shuts down."""
    return Reply({"status": service.status}, 200 if service.status == "ok" else 503)


@router.get("/version", summary="Version of nextword")
async def version() -> Response:
    """The version of the program."""
    return Reply({"version": __version__})


@router.get("/metrics", summary="Numbers for Prometheus", response_class=PlainTextResponse)
async def metrics(service: ServiceOf) -> Response:
    """Requests, times, queues, tokens and caches, in the text format of Prometheus."""
    return PlainTextResponse(service.metrics.text(), media_type="text/plain; version=0.0.4")


def create_app(service: Service, access: Access) -> FastAPI:
    """The application for these models."""

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        in_command_line.set(False)  # errors name fields, not options
        service.preload()
        yield
        service.close(0)

    app = FastAPI(
        title="nextword",
        version=__version__,
        description=DESCRIPTION,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        lifespan=lifespan,
        responses={
            "4XX": {"model": ErrorReply, "description": "The request is wrong, or refused."},
            "5XX": {"model": ErrorReply, "description": "The server cannot answer now."},
        },
    )
    if not is_loopback(access.host):
        service.jobs = None  # training is for the user of this machine
    app.state.service = service
    routers = [openai_routes.router, native_routes.router, lens_routes.router]
    if service.chat is not None:
        routers.append(openai_routes.chat_router)
    app.include_router(router)
    app.include_router(job_routes.router)
    app.include_router(playground.make_router())
    for one in routers:
        app.include_router(one)
        app.include_router(one, prefix=MODEL_PREFIX, include_in_schema=False)
    page = reference_page(app.openapi())
    policy = policy_of(page)

    @app.get("/docs", include_in_schema=False)
    async def docs() -> Response:
        return Response(page, media_type="text/html", headers={"content-security-policy": policy})

    for kind in (HTTPException, RequestValidationError):
        app.add_exception_handler(kind, _refuse)
    app.add_exception_handler(ClientGone, _note_departure)
    app.add_middleware(Guard, access=access)
    if access.origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=access.origins,
            allow_methods=("GET", "POST"),
            allow_headers=("authorization", "content-type"),
        )
    app.add_middleware(Measure, metrics=service.metrics)
    return app


async def _refuse(request: Request, error: Exception) -> Response:
    return refuse(error, get_service(request))


async def _note_departure(_: Request, error: Exception) -> Response:
    return Response(status_code=CLIENT_GONE)


# ------------------------------------------------------------------------------------------------ the process


def listen(host: str, port: int) -> socket.socket:
    """A socket that listens; port 0: any that is free."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=1024)
    except (OSError, OverflowError) as error:
        reason = describe_os_error(error)[0] if isinstance(error, OSError) else "there is no such port"
        raise CannotWrite(f"Cannot listen on {host}, port {port}: {reason}. Choose another --port.") from None


class Server(uvicorn.Server):
    """uvicorn's server, which tells the service when it is to end, so that /health tells others."""

    def __init__(self, config: uvicorn.Config, service: Service) -> None:
        super().__init__(config)
        self.service = service

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self.service.is_draining = True
        if self.service.jobs is not None:
            self.service.jobs.begin_shutdown()
        super().handle_exit(sig, frame)


def make_server(app: FastAPI, drain_seconds: int = DRAIN_SECONDS) -> Server:
    """A server for `server.run([socket])`, which blocks until SIGINT or SIGTERM."""
    config = uvicorn.Config(
        app,
        http=TimedProtocol,
        loop="asyncio",
        ws="none",
        lifespan="on",
        log_config=None,
        log_level="error",  # strangers could fill the log with warnings
        access_log=False,
        proxy_headers=False,
        server_header=False,
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=drain_seconds,
        h11_max_incomplete_event_size=MAX_HEADERS,
    )
    return Server(config, app.state.service)
