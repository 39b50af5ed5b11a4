"""The playground: the pages in `web/`, served as they are. They use the same routes as any other client.

    /             index.html
    /web/…        its modules and styles, and page.css, the style of all reports

The pages load nothing from elsewhere and contain no code that was not written for them; their content security policy
holds them to it. They need no key: they have no secrets, and ask for the key before they call a route.
"""

from __future__ import annotations

import gzip
import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
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
    compressed: bytes
    media_type: str
    digest: str

    @classmethod
    def read(cls, item: Traversable, media_type: str) -> _File:
        content = item.read_bytes()
        return cls(content, gzip.compress(content, mtime=0), media_type, hashlib.sha256(content).hexdigest()[:16])

    def response(self, accepted: str, known: str) -> Response:
        """The file in an encoding that the client accepts; no content if it knows this version by its ETag."""
        is_compressed = "gzip" in accepted
        tag = f'"{self.digest}-gzip"' if is_compressed else f'"{self.digest}"'
        headers = {
            "content-security-policy": POLICY,
            "cache-control": "no-cache",
            "etag": tag,
            "vary": "accept-encoding",
        }
        if known == tag:
            return Response(status_code=304, headers=headers)
        if is_compressed:
            headers["content-encoding"] = "gzip"
        return Response(self.compressed if is_compressed else self.content, media_type=self.media_type, headers=headers)


@cache
def read_files() -> dict[str, _File]:
    """All files of the playground by their path below /web/."""
    found = dict(_walk(files("nextword.server").joinpath("web"), ""))
    found["page.css"] = _File.read(files("nextword.html").joinpath("page.css"), MEDIA_TYPES[".css"])
    return found


def _walk(folder: Traversable, prefix: str) -> Iterator[tuple[str, _File]]:
    for item in folder.iterdir():
        suffix = f".{item.name.rpartition('.')[2]}"
        if item.is_dir():
            yield from _walk(item, f"{prefix}{item.name}/")
        elif suffix in MEDIA_TYPES:
            yield prefix + item.name, _File.read(item, MEDIA_TYPES[suffix])


def make_router() -> APIRouter:
    """The routes of the playground's files, which are read once."""
    router = APIRouter(include_in_schema=False)
    found = read_files()

    def send(request: Request, path: str) -> Response:
        file = found.get(path)
        if file is None:
            raise HTTPException(404, "The playground has no such file.")
        return file.response(request.headers.get("accept-encoding", ""), request.headers.get("if-none-match", ""))

    @router.get("/")
    async def index(request: Request) -> Response:
        return send(request, "index.html")

    @router.get("/web/{path:path}")
    async def web(request: Request, path: str) -> Response:
        return send(request, path)

    return router
