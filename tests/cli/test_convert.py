"""`nextword convert`: ARPA files to runs that work with every command, and runs to ARPA files that KenLM reads."""

from __future__ import annotations

import gzip
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nextword.conversion import convert
from nextword.conversion.arpa import spell_text, spell_tokens, tokenizer_beside
from nextword.lm.loading import load
from nextword.ngrams.arpa import read_arpa
from nextword.ngrams.layouts import open_layout
from nextword.tokenizers.subwords import names_of

from .conftest import BY_HAND, Cli, contents, sets

Js = Callable[..., Any]


@pytest.fixture(scope="module")
def cached(tmp_path_factory: pytest.TempPathFactory) -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NEXTWORD_CACHE", str(tmp_path_factory.getbasetemp() / "cache"))
        yield


@pytest.fixture(scope="module")
def bpe(cli: Cli, cached: None, data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("bpe") / "run"
    cli("train", "ngram/tiny", "--data", data, "--out", folder, "--set", "tokenizer.size=300")
    return folder


def scores(peer: Any, words: list[str]) -> np.ndarray:
    return np.array([score for score, _, _ in peer.full_scores(" ".join(words))]) * math.log(10)


def lines_of(data: Path) -> list[str]:
    return [*(data / "test.txt").read_text(encoding="utf-8").splitlines(), "a stranger went", "", "<eos> it's"]


# ---------------------------------------------------------------------------------------------- from an ARPA file


def test_convert_arpa_gives_a_run_that_can_be_evaluated(cli: Cli, js: Js, by_hand: Path, tmp_path: Path) -> None:
    shown = cli("convert", by_hand, tmp_path / "run").stdout
    assert f"nextword next {tmp_path / 'run'}" in shown
    assert "order 2: 4 1-grams · 1 2-grams" in shown
    (tmp_path / "text.txt").write_text("a b\nc\n")
    result = js("evaluate", tmp_path / "run", "--data", tmp_path / "text.txt")
    probabilities = [0.5, 0.2, 0.4, 0.3 * 0.5 / 0.9, 0.4]  # a | <s>; b; </s>; <unk> after <s>; </s>
    assert result["tokens"] == 5
    assert result["nats"] == pytest.approx(-sum(map(math.log, probabilities)), abs=1e-5)
    assert [row["tokens"] for row in result["conventions"]] == [5, 3, 4, 2]


def test_converted_run_works_with_every_command(cli: Cli, js: Js, by_hand: Path, data: Path, tmp_path: Path) -> None:
    run = tmp_path / "runs" / "hand"
    cli("convert", by_hand, run)
    guesses = {guess["text"]: guess["probability"] for guess in js("next", run, "")["guesses"]}
    assert guesses["a"] == pytest.approx(0.5, abs=1e-6)
    assert guesses["b"] == pytest.approx(0.2 * 0.5 / 0.9, abs=1e-6)
    assert set(js("generate", run, "--max-tokens", 20, "--seed", 1)["text"].split()) <= {"a", "b"}
    (answer,) = js("runs", "--folder", run.parent)
    assert (answer["slug"], answer["recipe"], answer["status"]) == ("ngram", "hand.arpa", "finished")
    assert "hand.arpa" in cli("runs", run).stdout
    (tmp_path / "lines.txt").write_text("a b\n")
    assert js("evaluate", run, "--data", tmp_path / "lines.txt", "--lines")[0]["tokens"] == 2
    assert "no vectors" in cli("embed", run, tmp_path / "lines.txt", fails=True).stderr
    assert "--data" in cli("evaluate", run, fails=True).stderr
    assert "--data" in cli("train", "--resume", "--out", run, fails=True).stderr
    compared = js("compare", run, "--data", data, "--out", tmp_path / "compare")
    assert compared["models"][0]["status"] == "done"


def test_converted_run_records_its_source(cli: Cli, by_hand: Path, tmp_path: Path) -> None:
    cli("convert", by_hand, tmp_path / "run")
    manifest = json.loads((tmp_path / "run" / "manifest.json").read_text())
    assert manifest["converted"]["from"] == "hand.arpa"
    assert len(manifest["converted"]["checksum"]) == 64
    assert "hand.arpa" in manifest["data"]["train"]
    assert "hand.arpa" in (tmp_path / "run" / "card.md").read_text()


@pytest.mark.parametrize("name", ["hand.arpa.gz", "hand.lm", "hand.LM.GZ", "no-suffix", "hand.txt", "odd.gz"])
def test_arpa_file_is_recognized_by_name_or_content(js: Js, tmp_path: Path, name: str) -> None:
    pack = gzip.compress if name.lower().endswith(".gz") else bytes
    (tmp_path / name).write_bytes(pack(f"made by hand\n\n{BY_HAND}".encode()))
    assert js("convert", tmp_path / name, tmp_path / "run")["ngrams"] == [4, 1]


def test_convert_arpa_notes_missing_entries(js: Js, by_hand: Path, tmp_path: Path) -> None:
    bare = BY_HAND.replace("1=5", "1=3").replace("-0.5228787\t<unk>\n", "").replace("-0.39794\t</s>\n", "")
    by_hand.write_text(bare.replace("\tb\t", "\tb\u00a0c\t"))
    unknown, end, spaced = js("convert", by_hand, tmp_path / "run")["notes"]
    assert "no <unk>" in unknown
    assert "no </s>" in end
    assert "1 word ('b\\xa0c')" in spaced


def test_lowercase_arpa_file_gives_a_lowercase_tokenizer(js: Js, by_hand: Path, tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("A\n")
    for lower, nats in (("true", math.log(2 / 0.4)), ("false", -math.log(0.3 * 0.5 / 0.9 * 0.4))):
        js("convert", by_hand, tmp_path / lower, "--set", f"tokenizer.lower={lower}")
        answer = js("evaluate", tmp_path / lower, "--data", tmp_path / "text.txt")["nats"]
        assert answer == pytest.approx(nats, abs=1e-5)


def test_convert_into_an_empty_folder_fills_it(
    cli: Cli, by_hand: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    cli("convert", by_hand, ".")
    assert load(".").score("a").nats == pytest.approx(math.log(2), abs=1e-5)
    files = {"card.md", "manifest.json", "model.json", "model.ngram", "recipe.toml", "tokenizer.json"}
    assert {path.name for path in Path().iterdir()} == files


# ---------------------------------------------------------------------------------------------- to an ARPA file


@pytest.mark.parametrize("name", ["out.arpa", "new/out.arpa.gz", "out.lm", "kenlm.arpa"])
def test_written_arpa_read_by_kenlm_gives_equal_scores(
    js: Js, words: Path, data: Path, tmp_path: Path, name: str
) -> None:
    kenlm = pytest.importorskip("kenlm")
    wanted = ("--set", "arpa.convention=kenlm") if name.startswith("kenlm") else ()
    result = js("convert", words, tmp_path / name, *wanted)
    assert result["order"] == 3
    assert result["size"] == (tmp_path / name).stat().st_size
    lm, peer = load(words), kenlm.Model(str(tmp_path / name))
    names, changed = spell_tokens(lm.tokenizer, 1)
    assert {names[id].rstrip("0123456789") for id in changed} == {"<s>#", "</s>#", "<UNK>#"}
    assert "3 words" in result["notes"][0]
    assert tokenizer_beside(tmp_path / name).is_file()  # without it, the plain names would be lost
    for line in lines_of(data):
        ids = lm.tokenizer.encode(line + "\n").ids
        spelled = [names[id] if id else "unheard-of" for id in ids[:-1]]
        np.testing.assert_allclose(-lm.token_nats([ids])[0], scores(peer, spelled), rtol=0, atol=1e-5)


def test_arpa_round_trip_keeps_every_probability(cli: Cli, js: Js, words: Path, data: Path, tmp_path: Path) -> None:
    cli("convert", words, tmp_path / "a.arpa")
    cli("convert", tmp_path / "a.arpa", tmp_path / "run")
    cli("convert", tmp_path / "run", tmp_path / "b.arpa")
    trie, names = read_arpa(tmp_path / "a.arpa")
    again, same = read_arpa(tmp_path / "b.arpa")
    assert same == names
    for level, other in zip(trie.levels, again.levels, strict=True):
        np.testing.assert_array_equal(level.words, other.words)
        np.testing.assert_allclose(level.log_probs, other.log_probs, rtol=1e-6, atol=3e-8)
    plain = "\n".join(lines_of(data)) + "\n"
    assert load(tmp_path / "run").score(plain).nats == pytest.approx(load(words).score(plain).nats, rel=1e-6)


def test_convert_between_two_files_needs_no_run(js: Js, by_hand: Path, tmp_path: Path) -> None:
    result = js("convert", by_hand, tmp_path / "out.arpa.xz", "--set", "arpa.convention=kenlm")
    assert (result["format"], result["ngrams"]) == ("an ARPA file", [4, 1])
    assert read_arpa(tmp_path / "out.arpa.xz")[1] == ["<unk>", "<eos>", "a", "b"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["hand.arpa", "out.arpa.xz"]


@pytest.mark.parametrize("kind", ["bpe", "bytes", "characters", "wordpiece", "unigram", "classic-bpe"])
def test_written_arpa_of_subwords_read_by_kenlm_gives_equal_scores(
    cli: Cli, js: Js, bpe: Path, data: Path, tmp_path: Path, kind: str
) -> None:
    kenlm = pytest.importorskip("kenlm")
    run = bpe
    if kind != "bpe":
        run, size = tmp_path / "run", "" if kind in ("bytes", "characters") else ", size=120"
        asked = ("--set", f'tokenizer={{kind="{kind}"{size}}}', "--set", "model.order=4")
        cli("train", "ngram/tiny", "--data", data, "--out", run, *asked)
    notes = js("convert", run, tmp_path / "out.arpa")["notes"]
    assert "Ġthe" in notes[-2]
    assert "out.tokenizer.json" in notes[-1]
    lm, peer = load(run), kenlm.Model(str(tmp_path / "out.arpa"))
    tokenizer: Any = lm.tokenizer
    boundary = tokenizer.begin if tokenizer.end is None else tokenizer.end
    names, _ = spell_tokens(tokenizer, boundary)
    assert len(set(names)) == len(names) == len(tokenizer)
    assert all(name.split() == [name] and name.isprintable() for name in names)
    unknown = [name for name in tokenizer.special if "unk" in name.lower()]
    assert [names[tokenizer.special[name]] for name in unknown] == ["<unk>"] * len(unknown)
    for text in [*lines_of(data), "a  b\tc\r\n\n d", "\x00\x7f ¡", "<s> <unk> </s>"]:
        ids = tokenizer.encode(text).ids
        spelled = spell_text(tokenizer, text).split()
        assert spelled == [names[id] for id in ids]
        nats = lm.token_nats([np.append(ids, boundary)])[0]
        np.testing.assert_allclose(-nats, scores(peer, spelled), rtol=1e-6, atol=1e-5, err_msg=text)
    cli("convert", tmp_path / "out.arpa", tmp_path / "again")  # with the tokenizer next to the file
    again = load(tmp_path / "again")
    for text in lines_of(data):
        ids = tokenizer.encode(text).ids
        assert again.tokenizer.encode(text).ids.tolist() == ids.tolist()
        np.testing.assert_allclose(again.token_nats([ids])[0], lm.token_nats([ids])[0], rtol=1e-6, atol=1e-6)


def test_arpa_of_subwords_is_read_with_a_given_tokenizer(
    cli: Cli, js: Js, bpe: Path, data: Path, tmp_path: Path
) -> None:
    cli("convert", bpe, tmp_path / "out.arpa.gz")
    cli("convert", tmp_path / "out.arpa.gz", tmp_path / "back")
    for place in ("back", "back/tokenizer.json"):  # its tokenizer serves other recipes
        out = tmp_path / f"run-{len(place)}"
        cli("train", "ngram/kn5", "--data", data, "--out", out, *sets(f"tokenizer={{load='{tmp_path / place}'}}"))
        assert (
            load(out).tokenizer.encode("the king went").ids.tolist()
            == load(bpe).tokenizer.encode("the king went").ids.tolist()
        )
    tokenizer_beside(tmp_path / "out.arpa.gz").rename(tmp_path / "elsewhere.json")
    bare = js("convert", tmp_path / "out.arpa.gz", tmp_path / "bare")
    assert "--tokenizer" in bare["warnings"][0]
    (tmp_path / "text.txt").write_text("castle river castle\n" * 30)  # each an <unk> of log10 p = -100
    assert "--tokenizer" in js("evaluate", tmp_path / "bare", "--data", tmp_path / "text.txt")["notes"][0]
    printed = cli("evaluate", tmp_path / "bare", "--data", tmp_path / "text.txt").stdout
    assert max(map(len, printed.splitlines()[:8])) <= 90
    listed = cli("runs", "--folder", tmp_path).stdout
    assert max(map(len, listed.splitlines())) <= 120 + len(str(tmp_path))
    for given in (bpe, tmp_path / "elsewhere.json"):
        target = tmp_path / f"from-{given.stem}"
        assert js("convert", tmp_path / "out.arpa.gz", target, "--tokenizer", given)["warnings"] == []
        assert js("evaluate", target, "--data", data / "test.txt")["bits_per_byte"] == pytest.approx(
            js("evaluate", bpe, "--data", data / "test.txt")["bits_per_byte"], rel=1e-6
        )


def test_arpa_of_another_tokenizer_is_rejected(cli: Cli, bpe: Path, words: Path, by_hand: Path, tmp_path: Path) -> None:
    cli("convert", bpe, tmp_path / "out.arpa")
    assert (
        "--tokenizer"
        in cli("convert", tmp_path / "out.arpa", tmp_path / "run", "--tokenizer", words, fails=True).stderr
    )
    assert not (tmp_path / "run").exists()
    cli("convert", by_hand, tmp_path / "run")
    assert (
        "own tokenizer" in cli("convert", tmp_path / "run", tmp_path / "x.arpa", "--tokenizer", bpe, fails=True).stderr
    )


def test_arpa_in_the_spelling_of_the_tokenizer_itself_is_read(cli: Cli, data: Path, tmp_path: Path) -> None:
    """lmplz estimates on the output of spm_encode, whose pieces begin with ▁; what it lacks gets the p of <unk>."""
    asked = ("--set", 'tokenizer={kind="unigram", size=120}', "--set", "model.order=2")
    cli("train", "ngram/tiny", "--data", data, "--out", tmp_path / "run", *asked)
    tokenizer: Any = load(tmp_path / "run").tokenizer
    pieces = {name: id for name, id in names_of(tokenizer.library).items() if id not in tokenizer.special.values()}
    a = next(name for name in pieces if name.startswith("▁") and len(name) > 1)
    b = next(name for name in pieces if "▁" not in name)
    text = BY_HAND.replace("\ta\t", f"\t{a}\t").replace("\tb\t", f"\t{b}\t").replace("<s> a", f"<s> {a}")
    (tmp_path / "spm.arpa").write_text(text)
    cli("convert", tmp_path / "spm.arpa", tmp_path / "again", "--tokenizer", tmp_path / "run")
    other = next(id for name, id in pieces.items() if name not in (a, b))
    nats = load(tmp_path / "again").token_nats([np.array([pieces[a], pieces[b], other, tokenizer.end])])[0]
    np.testing.assert_allclose(np.exp(-nats), [0.5, 0.2, 0.3, 0.4], atol=1e-5)


def test_tokenizer_next_to_an_arpa_file_is_not_overwritten(cli: Cli, bpe: Path, tmp_path: Path) -> None:
    (tmp_path / "out.tokenizer.json").write_text("mine")
    assert "overwrites" in cli("convert", bpe, tmp_path / "out.arpa", fails=True).stderr
    assert [path.name for path in tmp_path.iterdir()] == ["out.tokenizer.json"]


class Pieces:
    """A tokenizer that only has pieces."""

    kind = "bpe"

    def __init__(self, *pieces: bytes, special: dict[str, int]) -> None:
        self.pieces, self.special = pieces, special

    def __len__(self) -> int:
        return len(self.pieces)

    def piece(self, id: int) -> bytes:
        return self.pieces[id]


def test_arpa_names_of_pieces_are_distinct() -> None:
    pieces = (b" the", b"<s>", b"", b"", b"#2", b"\xc3", b"<s>#1", b"\n", b"<pad>", b"", b"")
    tokenizer: Any = Pieces(*pieces, special={"[UNK]": 3, "<pad>": 9, "<|endoftext|>": 10})
    names, changed = spell_tokens(tokenizer, 10)
    assert names == ["Ġthe", "<s>#1", "#2", "<unk>", "#2#4", "Ã", "<s>#1#6", "Ċ", "<pad>", "<pad>#9", "</s>"]
    assert changed == [1, 2, 4, 6, 9]


def test_convert_notes_orders_that_kenlm_cannot_read(js: Js, cli: Cli, data: Path, tmp_path: Path) -> None:
    cli("train", "ngram/kn5", "--data", data, "--out", tmp_path / "run", "--set", "model.order=1")
    notes = js("convert", tmp_path / "run", tmp_path / "out.arpa")["notes"]
    assert "orders 2 to 6" in notes[-1]


# ---------------------------------------------------------------------------------------------- another layout


def test_convert_run_to_other_layouts_and_bits(js: Js, cli: Cli, words: Path, data: Path, tmp_path: Path) -> None:
    before = contents(words)
    for name, bits in (("whole", 0), ("rounded", 8)):
        asked = ("--set", "model.layout=compact", "--set", f"model.bits={bits}")
        assert js("convert", words, tmp_path / name, *asked)["format"] == "a run folder"
    assert contents(words) == before
    test = (data / "test.txt").read_text(encoding="utf-8")
    mine, whole, rounded = (
        load(folder).score(test).nats for folder in (words, tmp_path / "whole", tmp_path / "rounded")
    )
    assert whole == pytest.approx(mine, rel=1e-7)
    assert rounded == pytest.approx(mine, rel=0.02)
    sizes = [(folder / "model.ngram").stat().st_size for folder in (words, tmp_path / "whole", tmp_path / "rounded")]
    assert sizes[0] > sizes[1] > sizes[2]
    assert (tmp_path / "whole" / "tokenizer.json").read_bytes() == (words / "tokenizer.json").read_bytes()
    old, new = (json.loads((folder / "manifest.json").read_text()) for folder in (words, tmp_path / "whole"))
    assert [new[key] for key in ("data", "texts", "recipe", "parameters")] == [
        old[key] for key in ("data", "texts", "recipe", "parameters")
    ]
    assert js("evaluate", tmp_path / "whole")["nats"] == pytest.approx(js("evaluate", words)["nats"], rel=1e-7)
    recipe = (tmp_path / "rounded" / "recipe.toml").read_text()
    assert 'layout = "compact"' in recipe
    assert "bits = 8" in recipe
    cli("convert", tmp_path / "whole", tmp_path / "again", "--set", "model.layout=fast")
    assert load(tmp_path / "again").score(test).nats == pytest.approx(mine, rel=1e-7)


def test_convert_arpa_to_the_compact_layout(js: Js, by_hand: Path, tmp_path: Path) -> None:
    js("convert", by_hand, tmp_path / "run", "--set", "model.layout=compact")
    assert type(open_layout(tmp_path / "run" / "model.ngram")).__name__ == "TrieLayout"
    assert load(tmp_path / "run").score("a b").nats == pytest.approx(-math.log(0.5 * 0.2), abs=1e-5)


# ---------------------------------------------------------------------------------------------- from Python


def test_convert_from_python_returns_facts(by_hand: Path, tmp_path: Path) -> None:
    output: list[tuple[str, float, float | None]] = []
    made = convert(by_hand, tmp_path / "run", progress=lambda *how_far: output.append(how_far))
    assert (made.target, made.facts) == (tmp_path / "run", {"order": 2, "ngrams": [4, 1]})
    assert {label for label, _, _ in output} == {"reading hand.arpa", "writing run"}
    convert(tmp_path / "run", tmp_path / "out.arpa")
    assert json.loads((tmp_path / "run" / "model.json").read_text())["weights"] == [1.0]
