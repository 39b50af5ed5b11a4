"""The playground: the pages in `web/`, served as they are. They use the same routes as any other client.

    /             index.html
    /web/…        its modules and styles, and page.css, the style of all reports

The pages load nothing from elsewhere and contain no code that was not written for them; their content security policy
holds them to it. They need no key: they have no secrets, and ask for the key before they call a route.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.resources import files
from importlib.resources.abc import Traversable

from fastapi import APIRouter, Request, Response
from starlette.exceptions import HTTPException

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data: blob:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
MEDIA_TYPES = {".html": "text/html", ".js": "text/javascript", ".css": "text/css"}


@dataclass(frozen=True)
class _File:
    content: bytes
    media_type: str

    @property
    def tag(self) -> str:
        """Its ETag: a browser keeps the file, and asks whether it has changed."""
        return f'"{hashlib.sha256(self.content).hexdigest()[:16]}"'


def _read_files() -> dict[str, _File]:
    """All files of the playground by their path below /web/."""
    found = dict(_walk(files("nextword.server").joinpath("web"), ""))
    found["page.css"] = _File(files("nextword.html").joinpath("page.css").read_bytes(), MEDIA_TYPES[".css"])
    return found


def _walk(folder: Traversable, prefix: str) -> Iterator[tuple[str, _File]]:
    for item in folder.iterdir():
        suffix = f".{item.name.rpartition('.')[2]}"
        if item.is_dir():
            yield from _walk(item, f"{prefix}{item.name}/")
        elif suffix in MEDIA_TYPES:
            yield prefix + item.name, _File(item.read_bytes(), MEDIA_TYPES[suffix])


def make_router() -> APIRouter:
    """The routes of the playground's files, which are read once."""
    router = APIRouter(include_in_schema=False)
    found = _read_files()

    def send(request: Request, path: str) -> Response:
        file = found.get(path)
        if file is None:
            raise HTTPException(404, "The playground has no such file.")
        headers = {"content-security-policy": POLICY, "cache-control": "no-cache", "etag": file.tag}
        if request.headers.get("if-none-match") == file.tag:
            return Response(status_code=304, headers=headers)
        return Response(file.content, media_type=file.media_type, headers=headers)

    @router.get("/")
    async def index(request: Request) -> Response:
        return send(request, "index.html")

    @router.get("/web/{path:path}")
    async def web(request: Request, path: str) -> Response:
        return send(request, path)

    return router
