"""The files of the playground over HTTP, and what may be in them."""

from __future__ import annotations

import re
import socket
from posixpath import join, normpath

import pytest

from nextword.server.playground import POLICY, read_files
from nextword.server.security import Access
from tests.support.running_server import KEY, Running, run_server

FILES = {path: file.content.decode() for path, file in read_files().items()}
MOST_BYTES = 300_000  # that a browser receives if somebody opens every page
SVG = "http://www.w3.org/2000/svg"  # a name, not an address
# What makes code or markup of text
PARSERS = r"\beval\(|new Function|innerHTML|outerHTML|insertAdjacentHTML|document\.write|DOMParser|srcdoc|setHTML"


def get_raw(server: Running, target: str) -> bytes:
    """The answer to a request whose target no client has normalized."""
    host, _, port = server.address.removeprefix("http://").partition(":")
    with socket.create_connection((host, int(port)), timeout=30) as connection:
        connection.sendall(f"GET {target} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode())
        return b"".join(iter(lambda: connection.recv(1 << 16), b""))


# ------------------------------------------------------------------------------------------------ over HTTP


def test_every_file_is_served_with_its_type_and_policy(server: Running) -> None:
    types = {"html": "text/html", "js": "text/javascript", "css": "text/css"}
    assert {"index.html", "app.js", "app.css", "page.css"} <= FILES.keys()
    for path, content in FILES.items():
        answer = server.client.get(f"/web/{path}")
        assert (answer.status_code, answer.text) == (200, content)
        assert answer.headers["content-type"].startswith(types[path.rpartition(".")[2]])
        assert answer.headers["content-security-policy"] == POLICY
        assert answer.headers["x-content-type-options"] == "nosniff"


def test_files_are_compressed_for_clients_that_read_it(server: Running) -> None:
    tags = set()
    for accepted, encoding in (("gzip, deflate, br", "gzip"), ("identity", None)):
        answer = server.client.get("/web/app.js", headers={"accept-encoding": accepted})
        assert answer.headers.get("content-encoding") == encoding
        assert answer.headers["vary"] == "accept-encoding"
        assert answer.text == FILES["app.js"]
        tags.add(answer.headers["etag"])
    assert len(tags) == 2


def test_first_page_is_at_the_root(server: Running) -> None:
    answer = server.client.get("/")
    assert answer.text == FILES["index.html"]
    assert answer.headers["content-security-policy"] == POLICY


def test_policy_forbids_other_origins_and_inline_code() -> None:
    rules = dict(rule.strip().split(" ", 1) for rule in POLICY.split(";"))
    assert rules["default-src"] == rules["base-uri"] == rules["frame-ancestors"] == "'none'"
    assert rules["script-src"] == rules["style-src"] == rules["connect-src"] == "'self'"
    assert "unsafe" not in POLICY


def test_browser_asks_whether_a_file_has_changed(server: Running) -> None:
    first = server.client.get("/web/app.js")
    assert first.headers["cache-control"] == "no-cache"
    again = server.client.get("/web/app.js", headers={"if-none-match": first.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")
    assert again.headers["etag"] == first.headers["etag"]
    assert again.headers["content-security-policy"] == POLICY
    other = server.client.get("/web/app.css", headers={"if-none-match": first.headers["etag"]})
    assert other.status_code == 200


@pytest.mark.parametrize(
    "target",
    [
        "/web/../app.py",
        "/web/%2e%2e/app.py",
        "/web/..%2fapp.py",
        "/web/..%5capp.py",
        "/web/core/../../app.py",
        "/web//etc/passwd",
        "/web/%2Fetc%2Fpasswd",
        "/web/app.js%00.html",
        "/web/./app.js",
        "/web/core",
        "/web/",
        "/web/README.md",
        "/web/package.json",
        "/web/pages/nope.js",
        "/index.html",
        "/web/../v1/models",
        "/web/%2e%2e/v1/models",
    ],
)
def test_nothing_else_is_served(server: Running, target: str) -> None:
    assert get_raw(server, target).startswith(b"HTTP/1.1 404")


def test_pages_need_no_key_and_routes_do(server: Running) -> None:
    with run_server({"ngram": server.folders["ngram"]}, access=Access(key=KEY)) as locked:
        for path in ("/", "/web/app.js", "/web/page.css"):
            assert locked.client.get(path, headers={"authorization": ""}).status_code == 200
        for path in ("/v1/models", "/metrics", "/webs/app.js", "/web"):
            assert locked.client.get(path, headers={"authorization": ""}).status_code == 401
        for target in ("/web/../v1/models", "/web/..%2fv1/models"):
            assert get_raw(locked, target).startswith(b"HTTP/1.1 404")


# ------------------------------------------------------------------------------------------------ the files


def test_all_files_together_are_light() -> None:
    sizes = {path: len(file.compressed) for path, file in read_files().items()}
    assert sum(sizes.values()) <= MOST_BYTES, sorted(sizes.items(), key=lambda item: -item[1])


def test_files_refer_to_no_other_origin_and_parse_no_text() -> None:
    for path, content in FILES.items():
        source = content.replace(SVG, "")
        assert not re.findall(r"\w+:?//[\w.-]+\.\w+|[\"'(]//\w", source), path
        assert not re.findall(r"@import|\burl\((?!#|\"data:)", source), path
        assert not re.findall(PARSERS, source), path


def test_modules_that_a_module_imports_exist() -> None:
    missing = set()
    for path, source in FILES.items():
        assert not re.findall(r"\bimport\s*\(\s*[^\"\s]", source), path  # saved pages need to know the names
        assert not re.findall(r"^import .*\"(?![./])[^\"]+\";$", source, re.MULTILINE), path
        names = re.findall(r"(?:\bfrom\s*|\bimport\s*\(?\s*)\"([./][^\"]+)\"", source)
        folder = path.rpartition("/")[0]
        missing |= {normpath(join(folder, name)) for name in names} - FILES.keys()
    assert not missing


def test_page_has_no_inline_code_and_its_files_exist() -> None:
    page = FILES["index.html"]
    assert not re.findall(r"<script(?![^>]*\bsrc=)|<style|\bstyle=|\bon\w+=", page)
    links = re.findall(r'(?:href|src)="([^"]+)"', page)
    assert {link.removeprefix("/web/") for link in links if link != "data:,"} <= FILES.keys()
    styles = {path for path in FILES if path.endswith(".css")}
    assert styles == {link.removeprefix("/web/") for link in links if link.endswith(".css")}
