"""ELMo commands: word vectors, two perplexities, and conversion to its file format and back."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from typer.testing import CliRunner

from nextword.cli import app
from nextword.recipe import load_recipe
from nextword.training.train import train_events


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "elmo"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NEXTWORD_CACHE", str(tmp_path_factory.getbasetemp() / "cache"))
        list(train_events(load_recipe("elmo/tiny", ["phase.0.steps=4"]), folder, device="cpu"))
    return folder


def test_embed_words_writes_one_tensor_per_line(run: Path, tmp_path: Path) -> None:
    lines = tmp_path / "lines.txt"
    lines.write_text("The value, of it.\nxyzzyqq\n\n", encoding="utf-8")
    given = [str(run), str(lines), "--words", "--layer", "all", "--json"]
    answer = CliRunner().invoke(app, ["embed", *given])
    assert answer.exit_code == 0, answer.output
    message = json.loads(answer.stdout)
    assert {key: message[key] for key in ("texts", "words", "width", "layer")} == {
        "texts": 3, "words": 7, "width": 64, "layer": "all",
    }  # fmt: skip
    with safe_open(str(tmp_path / "lines.safetensors"), "pt") as file:
        assert json.loads(file.metadata()["words"]) == [["The", "value", ",", "of", "it", "."], ["xyzzyqq"], []]
        assert file.get_tensor("0").shape == (3, 6, 64)
        assert file.get_tensor("1").shape == (3, 1, 64)
    row = CliRunner().invoke(app, ["embed", *given[:3], "--layer", "1", "--out", str(tmp_path / "one.safetensors")])
    assert row.exit_code == 0, row.output
    with safe_open(str(tmp_path / "one.safetensors"), "pt") as file:
        assert file.get_tensor("0").shape == (6, 64)


def test_embed_words_of_subword_model_averages_their_pieces(tmp_path: Path) -> None:
    import nextword

    list(train_events(load_recipe("bert/tiny", ["phase.0.steps=2"]), tmp_path / "bert", device="cpu"))
    lm = nextword.load(tmp_path / "bert", device="cpu")
    (answer,) = lm.embed_words(["unbelievable things"])
    encoding = lm.tokenizer.encode("unbelievable things")
    assert answer.words == ["unbelievable", "things"]
    with torch.no_grad():
        frame = lm.network.frame(encoding)
        from nextword.lm.embedding import pack_frames

        h = lm.network.encode(pack_frames([frame], lm.network.device))[0][-1][0]
    start, _ = frame.text_spans[0]
    first = torch.from_numpy(encoding.words == 0)
    torch.testing.assert_close(answer.vectors[0], h[start : start + len(encoding)][first].mean(0))


def test_embed_words_with_conflicting_options_fails(run: Path, tmp_path: Path) -> None:
    lines = tmp_path / "lines.txt"
    lines.write_text("a\n", encoding="utf-8")
    for more, message in (
        (["--words", "--query", "a"], "--words"),
        (["--words", "--out", "x.npy"], "safetensors"),
        (["--words", "--pool", "first"], "--pool"),
        (["--layer", "all"], "--words"),
    ):
        answer = CliRunner().invoke(app, ["embed", str(run), str(lines), *more])
        assert answer.exit_code != 0
        assert message in str(answer.exception) + answer.output
    asked = CliRunner().invoke(app, ["embed", str(run), "--nearest", "value"])
    assert "embed RUN FILE --words" in str(asked.exception) + asked.output  # it reads letters, and has no table


def test_evaluate_elmo_reports_both_directions(run: Path, tmp_path: Path) -> None:
    text = tmp_path / "text.txt"
    text.write_text("The value of an expression is a number.\n" * 20, encoding="utf-8")
    answer = CliRunner().invoke(app, ["evaluate", str(run), "--data", str(text), "--json", "--device", "cpu"])
    assert answer.exit_code == 0, answer.output
    message = json.loads(answer.stdout)
    assert message["forward_perplexity"] == message["token_perplexity"]
    assert message["backward_perplexity"] > 1
    assert message["backward_perplexity"] != message["forward_perplexity"]
    assert any("backward" in note for note in message["notes"])
    log = [json.loads(line) for line in (run / "log.jsonl").read_text().splitlines()]
    valid = [line for line in log if line["event"] == "valid"][-1]
    both = (valid["forward_perplexity"] * valid["backward_perplexity"]) ** 0.5
    assert valid["perplexity"] == pytest.approx(both, rel=1e-4)


def test_train_with_score_limit_scores_part_of_the_held_out_text(tmp_path: Path) -> None:
    given = [
        "--out",
        str(tmp_path / "run"),
        "--set",
        "phase.0.steps=2",
        "--set",
        "phase.0.eval_tokens=300",
        "--device",
        "cpu",
    ]
    answer = CliRunner().invoke(app, ["train", "elmo/tiny", *given, "--json"])
    assert answer.exit_code == 0, answer.output
    result = json.loads(answer.stdout)
    assert result["scored"] == result["tokens"] >= 300
    assert any("the first" in note for note in result["notes"])
    assert result["backward_perplexity"] > 1


def test_convert_to_elmo_format_round_trips(run: Path, tmp_path: Path) -> None:
    pytest.importorskip("h5py", reason="HDF5 is not written without h5py")
    import nextword

    for source, target, more in ((run, "theirs", ["--to", "elmo"]), (tmp_path / "theirs", "again", [])):
        answer = CliRunner().invoke(app, ["convert", str(source), str(tmp_path / target), *more])
        assert answer.exit_code == 0, answer.output
    words = [["The", "value", "xyzzyqq"]]
    before, after = (
        nextword.load(path, device="cpu").embed_words(words, "all")[0] for path in (run, tmp_path / "again")
    )
    torch.testing.assert_close(after.vectors, before.vectors)
    card = (tmp_path / "again" / "card.md").read_text()  # it has no softmax: what the card says to do must work
    assert "nextword embed" in card
    assert not any(word in card for word in ("generate", "evaluate", "bits_per_byte"))
