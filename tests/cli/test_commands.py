"""Train a model on a text and use it with every command."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file
from typer.testing import CliRunner

from nextword import recipe
from nextword.cli import COMMANDS, app

from .conftest import QUICK, Cli, sentences

Js = Callable[..., Any]
NUMBERS = ("slug", "kind", "bits_per_byte", "word_perplexity", "token_perplexity", "nats", "tokens", "words", "bytes")
NUMBERS += ("context", "stride", "parameters", "seconds")


def test_train_prints_result_and_next_commands(cli: Cli, text: Path, tmp_path: Path) -> None:
    shown = cli("train", "lstm/tiny", "--data", text, "--out", tmp_path / "run", *QUICK).stdout
    assert "bits/byte" in shown
    assert "nextword generate" in shown
    assert "bits/byte" in (tmp_path / "run" / "card.md").read_text(encoding="utf-8")


def test_train_json_has_the_common_result_keys(js: Js, text: Path, tmp_path: Path) -> None:
    result = js("train", "gru/tiny", "--data", text, "--out", tmp_path / "run", *QUICK)
    assert set(NUMBERS) <= result.keys()
    assert (result["slug"], result["kind"], result["split"]) == ("gru", "exact", "test")


def test_train_with_same_seed_gives_same_model(js: Js, text: Path, tmp_path: Path) -> None:
    for name, seed in (("a", "7"), ("b", "7"), ("c", "8")):
        js("train", "lstm/tiny", "--data", text, "--out", tmp_path / name, "--seed", seed, *QUICK)
    a, b, c = ((tmp_path / name / "model.safetensors").read_bytes() for name in "abc")
    assert a == b
    assert a != c


def test_train_from_recipe_of_a_run_gives_same_model(cli: Cli, trained: Path, tmp_path: Path) -> None:
    cli("train", trained / "recipe.toml", "--out", tmp_path / "again")
    again = (tmp_path / "again" / "model.safetensors").read_bytes()
    assert again == (trained / "model.safetensors").read_bytes()


def test_train_default_folder_is_named_after_the_recipe(
    cli: Cli, text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    cli("train", "rnn/tiny", "--data", text, *QUICK)
    assert (tmp_path / "runs" / "rnn-tiny" / "model.safetensors").is_file()
    assert "runs/rnn-tiny" in cli("runs").stdout


def test_names_with_brackets_are_printed_verbatim(cli: Cli, text: Path, tmp_path: Path) -> None:
    data, out = tmp_path / "text[b].txt", tmp_path / "run[/b]"
    shutil.copy(text, data)
    shown = cli("train", "lstm/tiny", "--data", data, "--out", out, *QUICK).stdout
    assert f"nextword generate {out} --max-tokens" in shown
    assert "text[b].txt" in shown
    assert "run[/b]" in cli("runs", "--folder", tmp_path).stdout
    assert "text[b].txt" in cli("evaluate", out).stdout


def test_train_reads_standard_input(js: Js, cli: Cli, text: Path, tmp_path: Path) -> None:
    result = js("train", "lstm/tiny", "--data", "-", "--out", tmp_path / "run", *QUICK, stdin=text.read_bytes())
    assert result["data"].startswith("stdin")
    assert js("evaluate", tmp_path / "run")["nats"] == pytest.approx(result["nats"])  # the text is still known


def test_runs_lists_results_and_survives_broken_folders(cli: Cli, js: Js, run: Path) -> None:
    (answer,) = js("runs", "--folder", run.parent)
    assert answer["run"] == str(run)
    assert (answer["slug"], answer["recipe"], answer["status"]) == ("lstm", "lstm/tiny", "finished")
    assert answer["bits_per_byte"] > 0
    assert js("runs", run) == answer
    assert "nextword generate" in cli("runs", run).stdout
    assert js("runs", "--folder", run.parent / "nowhere") == []
    assert "nextword train" in cli("runs", "--folder", run.parent / "nowhere").stdout


def test_runs_lists_a_damaged_folder_as_unreadable(js: Js, cli: Cli, run: Path) -> None:
    broken = run.parent / "broken"
    broken.mkdir()
    (broken / "manifest.json").write_text("{")
    answer = {Path(facts["run"]).name: facts["status"] for facts in js("runs", "--folder", run.parent)}
    assert answer["run"] == "finished"
    assert answer["broken"] == "unreadable"
    result = cli("runs", "--folder", run.parent)
    assert "broken" in result.stdout
    assert "manifest.json" in result.stderr


def test_table_of_runs_stays_narrow_with_long_names_and_errors(
    js: Js, cli: Cli, run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A long path of the text, many metrics and a damaged run must not widen the table; --json has all of it."""
    monkeypatch.chdir(run.parent)
    manifest = json.loads((run / "manifest.json").read_text())
    long = f"{'folder/' * 40}my.txt"
    result = {"data": long, "metric": "metric 0", "dev": {f"metric {i}": 0.5 for i in range(40)}}
    task = shutil.copytree(run, run.parent / "task")
    (task / "log.jsonl").unlink()
    (task / "manifest.json").write_text(json.dumps(manifest | {"result": result}))
    (run.parent / "broken").mkdir()
    (run.parent / "broken" / "manifest.json").write_text("{")
    shown = cli("runs", "--folder", ".").stdout
    assert max(map(len, shown.splitlines())) <= 120
    assert "my.txt" in shown
    rows = {row["run"]: row for row in js("runs", "--folder", ".")}
    assert (rows["task"]["data"], len(rows["task"]["task"])) == (long, 40)
    assert "manifest.json" in rows["broken"]["error"]


def test_evaluate_repeats_the_result_of_training(js: Js, run: Path) -> None:
    lines = [json.loads(line) for line in (run / "log.jsonl").read_text(encoding="utf-8").splitlines()]
    trained = next(line for line in lines if line["event"] == "evaluation")
    result = js("evaluate", run)
    assert set(NUMBERS) <= result.keys()
    assert result["nats"] == pytest.approx(trained["nats"])
    assert (result["context"], result["stride"]) == (None, None)
    assert result["bits_per_byte_low"] <= result["bits_per_byte"] <= result["bits_per_byte_high"]


def test_evaluate_on_other_splits_and_texts(js: Js, cli: Cli, run: Path, text: Path, tmp_path: Path) -> None:
    splits = {split: js("evaluate", run, "--split", split)["bytes"] for split in ("train", "valid", "test")}
    assert sum(splits.values()) == len(text.read_bytes())
    other = tmp_path / "other.txt"
    other.write_text("\n".join(sentences(300, seed=9)), encoding="utf-8")
    whole = js("evaluate", run, "--data", other)
    assert whole["bytes"] == len(other.read_bytes())
    piped = js("evaluate", run, "--data", "-", stdin=other.read_bytes())
    assert piped["nats"] == pytest.approx(whole["nats"])
    assert "bits/byte" in cli("evaluate", run, "--data", other).stdout


def test_evaluate_with_less_context_reports_it_and_costs_more(js: Js, run: Path) -> None:
    long, short = js("evaluate", run), js("evaluate", run, "--context", 8, "--stride", 4)
    assert (short["context"], short["stride"], short["tokens"]) == (8, 4, long["tokens"])
    assert js("evaluate", run, "--context", 8)["stride"] == 4


def test_evaluate_lines_of_a_file_and_of_standard_input(js: Js, cli: Cli, run: Path, tmp_path: Path) -> None:
    lines = [*sentences(3), "", "zqxj zqxj"]
    file = tmp_path / "lines.txt"
    file.write_text("\n".join(lines), encoding="utf-8")
    rows = js("evaluate", run, "--lines", "--data", file)
    assert [row["text"] for row in rows] == [line for line in lines if line]
    assert all({"nats", "tokens", "bits_per_byte", "token_perplexity"} <= row.keys() for row in rows)
    piped = js("evaluate", run, "--lines", "--data", "-", stdin=file.read_bytes())
    assert [row["nats"] for row in piped] == pytest.approx([row["nats"] for row in rows])
    assert lines[0] in cli("evaluate", run, "--lines", "--data", file).stdout.replace("\n", " ")


def test_next_ranks_words_and_tokens(js: Js, cli: Cli, run: Path) -> None:
    words = js("next", run, "the king of", "-k", 3)["guesses"]
    tokens = js("next", run, "the king of", "-k", 3, "--tokens")["guesses"]
    for guesses in (words, tokens):
        assert len(guesses) == 3
        chances = [guess["probability"] for guess in guesses]
        assert chances == sorted(chances, reverse=True)
        assert all(0 < chance <= 1 for chance in chances)
    assert all(len(guess["text"]) <= 5 for guess in tokens)  # bytes, or the name of an end
    assert "%" in cli("next", run, "the king of").stdout


def test_generate_with_same_seed_repeats(js: Js, cli: Cli, run: Path) -> None:
    def write(*more: str | int) -> str:
        return cli("generate", run, "The king", "--max-tokens", 30, *more).stdout

    assert write("--seed", 3) == write("--seed", 3) != write("--seed", 4)
    assert write("--temperature", 0) == write("--temperature", 0)
    assert write("--beam", 3) == write("--beam", 3)
    for how in (("--seed", 3), ("--temperature", 0), ("--beam", 3), ("--top-k", 5, "--top-p", 0.9, "--seed", 1)):
        result = js("generate", run, "The king", "--max-tokens", 30, *how)
        assert result["prompt"] == "The king"
        assert result["tokens"] <= 30
        assert result["nats"] > 0
        assert "The king" + result["text"] + "\n" == write(*how)


def test_generate_stops_before_a_string(js: Js, run: Path) -> None:
    free = js("generate", run, "--max-tokens", 60, "--seed", 5)
    mark = free["text"][20:22]
    stopped = js("generate", run, "--max-tokens", 60, "--seed", 5, "--stop", mark)
    assert stopped["text"] == free["text"][: free["text"].index(mark)]
    assert stopped["reason"] == "stop"
    assert free["reason"] in ("length", "end")


@pytest.mark.parametrize("given", ["é\\n", "\\x", "\\"])
def test_generate_accepts_backslashes_in_stop_strings(cli: Cli, run: Path, given: str) -> None:
    cli("generate", run, "--max-tokens", 4, "--stop", given)


def test_generate_from_a_file_of_prompts(js: Js, cli: Cli, run: Path, tmp_path: Path) -> None:
    file = tmp_path / "prompts.txt"
    file.write_text("The king\nÅngström\n", encoding="utf-8")
    results = js("generate", run, "--file", file, "--max-tokens", 5, "--temperature", 0)
    assert [result["prompt"] for result in results] == ["The king", "Ångström"]
    shown = cli("generate", run, "--file", file, "--max-tokens", 5, "--temperature", 0).stdout
    assert shown == "".join(result["prompt"] + result["text"] + "\n" for result in results)


def test_embed_writes_vectors_and_searches_lines(js: Js, cli: Cli, run: Path, tmp_path: Path) -> None:
    file = tmp_path / "lines.txt"
    file.write_text("\n".join(sentences(5)), encoding="utf-8")
    facts = js("embed", run, file)
    vectors = np.load(tmp_path / "lines.npy")
    assert (facts["file"], facts["texts"], facts["width"]) == (str(tmp_path / "lines.npy"), 5, 16)
    assert vectors.shape == (5, 16)
    cli("embed", run, file, "--out", tmp_path / "v.safetensors")
    np.testing.assert_array_equal(load_file(tmp_path / "v.safetensors")["vectors"], vectors)
    cli("embed", run, file, "--out", tmp_path / "first.npy", "--layer", 0)
    assert not np.array_equal(np.load(tmp_path / "first.npy"), vectors)
    answer = js("embed", run, file, "--query", sentences(5)[3], "-k", 2)
    assert answer["lines"][0]["line"] == 4
    assert answer["lines"][0]["similarity"] == pytest.approx(1, abs=1e-4)
    assert sentences(5)[3] in cli("embed", run, file, "--query", sentences(5)[3]).stdout.replace("\n", " ")
    output = cli("embed", run, file, "--clusters", 2, "-k", 1).stdout
    assert output.count("cluster") == 2
    assert sum(map(len, js("embed", run, file, "--clusters", 2)["clusters"])) == 5


def test_papers_lists_models_and_details(js: Js, cli: Cli) -> None:
    rows = js("papers")
    assert {"lstm", "gru", "rnn", "nplm"} <= {row["slug"] for row in rows}
    lstm = js("papers", "lstm")
    assert lstm == next(row for row in rows if row["slug"] == "lstm")
    assert {"title", "authors", "year", "can", "recipes"} <= lstm.keys()
    assert "lstm/tiny" in [entry["name"] for entry in lstm["recipes"]]
    assert "Hochreiter" in cli("papers", "lstm").stdout
    assert "lstm/tiny" in cli("papers").stdout


def test_papers_record_writes_the_result_into_the_recipe(
    js: Js, run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipes = Path(shutil.copytree(recipe.RECIPES, tmp_path / "recipes"))
    monkeypatch.setattr(recipe, "RECIPES", recipes)
    before = (recipes / "lstm" / "tiny.toml").read_text(encoding="utf-8")
    measured = js("papers", "--record", run)["measured"]
    text = (recipes / "lstm" / "tiny.toml").read_text(encoding="utf-8")
    assert text.startswith(before.rstrip())
    loaded = recipe.load_recipe("lstm/tiny")
    assert loaded.measured == measured
    assert measured["bits_per_byte"] > 0
    assert (recipes / "lstm" / measured["log"]).is_file()
    log = run / "log.jsonl"
    kept = log.read_text(encoding="utf-8")
    slow = {"event": "adapted", "data": "another text", "split": "test", "seconds": 1e6}
    log.write_text(f"{kept}{json.dumps(slow)}\n", encoding="utf-8")
    again = js("papers", "--record", run)["measured"]  # in place of the first, not beside it
    log.write_text(kept, encoding="utf-8")
    assert again["seconds"] == measured["seconds"]  # an evaluation's time is not training's
    assert (recipes / "lstm" / "tiny.toml").read_text(encoding="utf-8").count("[measured]") == 1


def test_look_lists_studies(js: Js, cli: Cli) -> None:
    rows = js("look")
    assert rows
    assert all({"study", "claim", "source"} <= row.keys() for row in rows)
    assert rows[0]["study"] in cli("look").stdout


def test_version_and_help(cli: Cli) -> None:
    from nextword import __version__

    assert cli("--version").stdout == f"nextword {__version__}\n"
    shown = cli("--help").stdout
    assert all(name in shown for name in COMMANDS)


@pytest.mark.parametrize("command", COMMANDS)
def test_help_has_an_example(cli: Cli, command: str) -> None:
    shown = cli(command, "--help").stdout
    assert "Example" in shown
    assert f" nextword {command}" in shown.split("Example", 1)[1]
    assert "--json" in shown


def test_mistyped_command_line_is_a_usage_error() -> None:
    for words in (["trian"], ["train", "--sed", "3"], ["next"], ["generate", "run", "--max-tokens", "many"]):
        result = CliRunner().invoke(app, words)
        assert result.exit_code == 2
        assert "Try 'nextword" in result.stderr


def test_search_filters_models_data_sets_and_tasks(js: Js, cli: Cli) -> None:
    assert [row["slug"] for row in js("papers", "--search", "SCHMIDHUBER")] == ["lstm"]  # an author
    assert "bert" in [row["slug"] for row in js("papers", "--search", "bidirectional transformers")]
    by_kind = js("data", "--search", "Translation")
    assert {row["kind"] for row in by_kind} == {"translation"}
    assert len(by_kind) < len(js("data"))
    assert {row["name"] for row in js("data", "tasks", "--search", "snli entail")} == {"SNLI"}
    assert "sst-2" in cli("data", "--search", "sst").stdout
    for words, command, near in (
        ("LSMT", ("papers",), "'lstm'"),
        ("schmidhuber transformer", ("papers",), "1 of 2 words"),
        ("tanslation", ("data",), "'translation'"),
        ("qqqqq", ("data", "tasks"), "Leave --search out"),
    ):
        assert near in " ".join(cli(*command, "--search", words, fails=True).stderr.split())
    assert "--search" in cli("data", "ptb", "--search", "ptb", fails=True).stderr
