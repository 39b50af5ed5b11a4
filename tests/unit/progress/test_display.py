"""Progress in a pseudo terminal, in a notebook, as plain lines, and not at all."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
import threading
import types
from pathlib import Path
from typing import Any

import pytest

import nextword as nw
from nextword.progress.display import Interrupt, Interrupted, ProgressDisplay, in_notebook, interruptible

SMALL: dict[str, Any] = {"tokenizer": {"kind": "bytes"}, "model": {"width": 8}, "steps": 6, "validate_every": 3}
TEXTS = [f"the cat sat on the mat number {i} ." for i in range(300)]
BAR = "━"


class FakeOutput:
    """The output of a cell: what was displayed, and every update of it."""

    def __init__(self) -> None:
        self.shown: list[str] = []

    def display(self, html: str, display_id: bool = False) -> FakeOutput:
        self.shown.append(html)
        return self

    update = display


@pytest.fixture
def cell(monkeypatch: pytest.MonkeyPatch) -> FakeOutput:
    """A notebook, as far as `in_notebook` and `Notebook` look."""
    output = FakeOutput()
    shell = type("ZMQInteractiveShell", (), {})()
    package: Any = types.ModuleType("IPython")
    package.get_ipython = lambda: shell
    package.display = types.ModuleType("IPython.display")
    package.display.HTML = str
    package.display.display = output.display
    monkeypatch.setitem(sys.modules, "IPython", package)
    monkeypatch.setitem(sys.modules, "IPython.display", package.display)
    return output


def test_a_pseudo_terminal_gets_a_bar(tmp_path: Path) -> None:
    script = (
        "import nextword as nw\n"
        f"nw.train('lstm/tiny', {TEXTS!r}, out={str(tmp_path / 'run')!r}, **{SMALL!r})\n"
        "print('done')\n"
    )
    (tmp_path / "script.py").write_text(script)
    master, slave = pty.openpty()
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "100", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, str(tmp_path / "script.py")]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=slave, env=environment)
    os.close(slave)
    seen = b""
    while True:
        try:
            part = os.read(master, 65536)
        except OSError:  # the other side is closed
            break
        if not part:
            break
        seen += part
    os.close(master)
    stdout, _ = process.communicate(timeout=60)
    text = seen.decode()
    assert process.returncode == 0, text
    assert BAR in text
    assert "step 3" in text
    assert "valid perplexity" in text
    assert stdout == b"done\n", "progress goes to standard error"


def test_a_pipe_gets_lines(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    nw.train("lstm/tiny", TEXTS, out=tmp_path / "run", **SMALL)
    out, err = capsys.readouterr()
    assert out == ""
    assert BAR not in err
    assert [line.split()[0] for line in err.splitlines()] == ["train:", "step", "step"]


def test_progress_false_shows_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = nw.train("lstm/tiny", TEXTS, out=tmp_path / "run", progress=False, **SMALL)
    nw.evaluate(run, progress=False)
    assert capsys.readouterr() == ("", "")


def test_a_notebook_gets_one_output_that_changes(
    cell: FakeOutput, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert in_notebook()
    nw.train("lstm/tiny", TEXTS, out=tmp_path / "run", **SMALL)
    assert capsys.readouterr() == ("", "")
    assert "step 6" not in cell.shown[0]
    assert "step 3" in cell.shown[-1]
    assert "step 6" in cell.shown[-1]
    assert "width:" not in cell.shown[-1], "the bar is gone"


def test_a_notebook_shows_the_bar_and_escapes_text(cell: FakeOutput, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nextword.progress.display.SECONDS_BETWEEN_UPDATES", 0)
    with ProgressDisplay(is_quiet=False) as display:
        display.print("[bold]<b>[/] line")
        display.update("phase", 1, 4, "loss < 3")
    assert "&lt;b&gt; line" in cell.shown[0]
    assert "width:25%" in cell.shown[1]
    assert "loss &lt; 3" in cell.shown[1]


def test_a_comparison_in_a_notebook(cell: FakeOutput, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nextword.progress.display.SECONDS_BETWEEN_UPDATES", 0)
    result = nw.compare(["ngram/tiny"], TEXTS * 3, 0.01, out=tmp_path / "compare")
    assert any("scoring the test text" in html for html in cell.shown)
    html = result._repr_html_()
    assert "ngram-tiny" in html
    assert "report.html" in html
    assert "ngram-tiny" in repr(result)


# ------------------------------------------------------------------------------------------------ Ctrl-C


def test_ctrl_c_saves_the_state_and_raises(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As if the user pressed Ctrl-C when training begins."""

    def on_event(self: object, event: Any) -> None:
        if event.kind == "begin":
            os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr("nextword.progress.training.TrainingDisplay.__call__", on_event)
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt) as interrupted:
        nw.train("lstm/tiny", TEXTS, out=tmp_path / "run", **SMALL)
    assert signal.getsignal(signal.SIGINT) == before
    assert isinstance(interrupted.value, Interrupted)
    assert "resume=True" in str(interrupted.value)
    run = interrupted.value.result
    assert not run.is_finished
    assert run.folder.has_state
    monkeypatch.undo()
    assert nw.train(resume=True, out=run, progress=False).is_finished


def test_other_threads_leave_signals_alone() -> None:
    before = signal.getsignal(signal.SIGINT)
    seen: list[object] = []

    def work() -> None:
        with interruptible() as interrupt:
            seen.append((isinstance(interrupt, Interrupt), signal.getsignal(signal.SIGINT)))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [(True, before)]
