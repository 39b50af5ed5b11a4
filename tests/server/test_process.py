"""`nextword serve` as a process: what it prints, how it ends, and what it refuses."""

from __future__ import annotations

import json
import re
import signal
import socket
from pathlib import Path

import httpx
import pytest
from click.testing import Result
from typer.testing import CliRunner

from nextword.cli import app
from nextword.cli.serve import example_commands, parse_size
from nextword.core.errors import InvalidSetting
from tests.cli.conftest import start

LONG = {"prompt": "the king", "max_tokens": 4000, "ignore_eos": True, "stream": True}
USAGE = {"stream_options": {"include_usage": True}}


def refuse(*words: str | Path) -> Result:
    """Run a command that must end with an error."""
    result = CliRunner().invoke(app, ["serve", *map(str, words)])
    assert result.exit_code == 1, result.output
    assert result.stderr.startswith("error:")
    return result


@pytest.mark.timeout(180)
def test_sigterm_lets_requests_finish(folders: dict[str, Path]) -> None:
    process = start("serve", folders["lstm"], "--port", "0", "--json")
    try:
        assert process.stdout is not None
        lines: list[str] = []
        while not lines or lines[-1] != "}\n":
            lines.append(process.stdout.readline())
            assert lines[-1], process.communicate()
        facts = json.loads("".join(lines))
        assert facts["models"] == {"lstm": str(folders["lstm"])}
        with httpx.Client(base_url=facts["address"], timeout=60) as client:
            assert client.get("/version").status_code == 200
            with client.stream("POST", "/v1/completions", json=LONG | USAGE) as answer:
                parts = answer.iter_lines()
                assert next(parts).startswith("data: ")
                process.send_signal(signal.SIGTERM)
                events = [line for line in parts if line]
            assert events[-1] == "data: [DONE]"
            assert json.loads(events[-2].removeprefix("data: "))["usage"]["completion_tokens"] == LONG["max_tokens"]
        _, errors = process.communicate(timeout=60)
        assert process.returncode == -signal.SIGTERM
        assert "Traceback" not in errors
    finally:
        process.kill()


@pytest.mark.timeout(180)
def test_folder_is_introduced_with_commands(folders: dict[str, Path]) -> None:
    process = start("serve", folders["lstm"].parent, "--port", "0")
    shown: list[str] = []
    try:
        assert process.stdout is not None
        while "Ctrl+C" not in "".join(shown[-1:]):
            shown.append(process.stdout.readline())
            assert shown[-1], process.communicate()
        (address,) = re.findall(r"Open (http://\S+)", "".join(shown))
        assert [entry["id"] for entry in httpx.get(f"{address}/v1/models", timeout=60).json()["data"]] == list(folders)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
    finally:
        process.kill()
    text = "".join(shown)
    assert process.returncode == 0
    assert "Traceback" not in errors
    assert all(name in text for name in folders)
    assert all(word in text for word in ("http://127.0.0.1:", "curl", "openai", "lm_eval", "/docs"))


def test_example_commands_use_what_a_model_can() -> None:
    for abilities, route in (
        (["generate"], "v1/completions"),
        (["fill", "embed"], "api/fill"),
        (["predict"], "api/predict"),
        (["embed"], "v1/embeddings"),
    ):
        curl, python, *rest = example_commands("http://127.0.0.1:8000", "mine", abilities, True)
        assert f"/{route}" in curl
        assert "NEXTWORD_API_KEY" in curl
        assert "NEXTWORD_API_KEY" in python
        assert len(rest) == (route == "v1/completions")


def test_other_machines_need_a_key(folders: dict[str, Path]) -> None:
    assert "--api-key" in refuse(folders["lstm"], "--host", "0.0.0.0").stderr


@pytest.mark.parametrize(
    "options",
    [
        ("--chat", "plian"),
        ("--cors", "*"),
        ("--memory", "much"),
        ("--memory", "-1GB"),
        ("--api-key", "with space"),
        ("--host", "no.such.host.invalid", "--api-key", "x"),
    ],
)
def test_wrong_options_are_errors(folders: dict[str, Path], options: tuple[str, ...]) -> None:
    refuse(folders["lstm"], "--port", "0", *options)


def test_port_in_use_is_an_error(folders: dict[str, Path]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        assert "--port" in refuse(folders["lstm"], "--port", str(taken.getsockname()[1])).stderr


def test_runs_must_exist_with_names_of_their_own(folders: dict[str, Path], tmp_path: Path) -> None:
    refuse(tmp_path / "nothing")
    refuse(tmp_path)
    refuse("starter/nope")
    (tmp_path / "lstm").symlink_to(folders["lstm"], target_is_directory=True)
    assert "lstm" in refuse(folders["lstm"], tmp_path / "lstm").stderr


def test_chat_templates_are_checked(folders: dict[str, Path], tmp_path: Path) -> None:
    template = tmp_path / "chat.jinja"
    for content in (b"{% for %}", b"{{ messages[0].nope.nope }}", b"\xff"):
        template.write_bytes(content)
        refuse(folders["lstm"], "--port", "0", "--chat", template)


@pytest.mark.parametrize(("text", "size"), [("8GB", 8 * 10**9), ("500 mb", 5 * 10**8), ("1.5k", 1500), ("7", 7)])
def test_sizes_are_parsed(text: str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["", "x", "0", "-1", "nan", "inf", "1XB", "1e99GB"])
def test_wrong_sizes_are_errors(text: str) -> None:
    with pytest.raises(InvalidSetting):
        parse_size(text)
