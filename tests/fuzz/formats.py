"""Every format that nextword reads: how to make a small valid sample, and how to read it.

`use` runs in the sample's folder (a copy, damaged or not) and returns values to compare. A format is `sealed` if its
checksums must notice any change: then damage is refused or changes nothing.
"""

from __future__ import annotations

import bz2
import contextlib
import csv
import gzip
import io
import json
import lzma
import os
import random
import shutil
import struct
import tarfile
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

import nextword
from nextword import run_folder
from nextword.conversion import convert
from nextword.conversion.base import create_run
from nextword.core.errors import Unsupported
from nextword.core.types import Greedy, Stop
from nextword.models import model_class
from nextword.recipe import Recipe, load_recipe
from nextword.run_folder import checksum
from nextword.tokenizers import vocabulary
from nextword.tokenizers.training import train_tokenizer
from tests.support.tiny_questions import draw_endings, make_squad
from tests.support.tiny_tagged import draw_sentence as draw_tagged
from tests.support.tiny_transfer import SHAPES, draw_color_pairs, draw_color_texts, draw_sentence, write_table

RUN = Path("run")
TEXT = "the old king went to the far house and saw a river"
SPECS: dict[str, dict[str, Any]] = {
    "words": {"kind": "words", "size": 200},
    "bpe": {"kind": "bpe", "size": 300},
    "wordpiece": {"kind": "wordpiece", "size": 120},
    "unigram": {"kind": "unigram", "size": 120, "sentinels": 4},
    "lexicon": {"kind": "lexicon", "size": 200},
}
SMALL: dict[str, Any] = {"width": 16, "layers": 1, "heads": 2, "window": 24, "dropout": 0.0}
NETWORKS: dict[str, tuple[str, dict[str, Any]]] = {  # slug → tokenizer, settings
    "nplm": ("words", {"context": 3, "embedding": 8, "width": 12}),
    "lstm": ("words", {"width": 12, "layers": 1}),
    "awd-lstm": ("bpe", {"embedding": 10, "width": 12, "layers": 2}),
    "gpt2": ("bpe", SMALL),
    "bert": ("wordpiece", SMALL),
    "t5": ("unigram", {**SHAPES["t5"], "width": 16, "layers": 1, "heads": 2, "ffn_width": 24}),
    "seq2seq": ("words", {**SHAPES["seq2seq"], "width": 12, "embedding": 8, "encoder_width": 8}),
    "elmo": ("lexicon", {**SHAPES["elmo"], "width": 8, "cell_size": 12}),
    "xlnet": ("wordpiece", {**SHAPES["xlnet"], "width": 16, "layers": 1, "ffn_width": 24}),
    "glm": ("bpe", SMALL),
    "word2vec": ("lexicon", {"width": 8}),
}


@dataclass(frozen=True)
class Format:
    name: str
    build: Callable[[Path], None]  # fills an empty folder
    use: Callable[[], object]  # reads it from the current directory
    only: Sequence[str] = ()  # the files to damage; empty: all
    sealed: bool = False
    reseal: Callable[[Path], None] | None = None  # write the checksums anew, as a stranger would


# ------------------------------------------------------------------------------------------------ run folders


def texts(n: int = 60, seed: int = 3) -> list[str]:
    draw = random.Random(seed)
    return [draw_sentence(draw, "red") for _ in range(n)]


def build_run(folder: Path, slug: str, **more: Any) -> None:
    kind, model = NETWORKS[slug]
    changes = [f"tokenizer={_inline(SPECS[kind])}", f"model={_inline(model)}", "phase.0.steps=1"]
    recipe = load_recipe(f"{slug}/tiny", changes)
    tokenizer = train_tokenizer(SPECS[kind], texts())
    cls = model_class(slug)
    torch.manual_seed(1)
    network = cls(cls.Config(**recipe.model), vocabulary(tokenizer, spellings=True))
    create_run(folder, recipe, tokenizer, lambda place: network, **more)
    _write_log(folder)


def _inline(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key} = {_inline(part)}" for key, part in value.items()) + "}"
    return json.dumps(value)


def _write_log(folder: Path) -> None:
    """The same events every time, so that a seed damages the same byte."""
    evaluation = {"split": "test", "nats": 100.0, "bits_per_byte": 1.5, "token_perplexity": 9.0, "tokens": 40}
    place = {"phase": "train", "index": 0, "seconds": 1.0}
    events = [
        {"event": "step", **place, "step": 1, "epoch": 0.5, "loss": 2.0, "rate": 0.1},
        {"event": "valid", **place, "step": 1, "epoch": 1.0, "loss": 2.0, "perplexity": 7.4},
        {"event": "evaluate", **place, "step": 1, "epoch": 1.0, **evaluation},
    ]
    (folder / "log.jsonl").write_text("".join(json.dumps(event) + "\n" for event in events))


def reseal(folder: Path) -> None:
    """Write the checksums of a run folder anew."""
    path = folder / RUN / "manifest.json"
    if not path.is_file():
        return
    try:
        manifest = json.loads(path.read_text())
        for name in manifest["files"]:
            if (folder / RUN / name).is_file():
                manifest["files"][name] = [checksum(folder / RUN / name)]
        path.write_text(json.dumps(manifest))
    except (OSError, ValueError, TypeError, KeyError, RecursionError, AttributeError):
        return


def use_model(run: Path = RUN) -> object:
    """Everything the model in a run folder can do, and what its folder says about it."""
    opened = nextword.Run(run)
    said = [repr(opened), opened._repr_html_()]
    assert said
    return use_abilities(nextword.load(run, device="cpu"))


def use_abilities(lm: Any) -> list[object]:
    """What a model says to a few texts."""
    values: list[object] = [sorted(lm.can)]
    for ability, call in (
        ("score", lambda: lm.score(TEXT).nats),
        ("next", lambda: [(guess.text, guess.probability) for guess in lm.next("the old", k=3)]),
        ("generate", lambda: lm.generate("the old king", Greedy(), Stop(max_tokens=4)).text),
        ("fill", lambda: [(guess.text, guess.probability) for guess in lm.fill("the ___ king", k=2)[0]]),
        ("embed", lambda: lm.embed(["the old king"]).double().abs().sum().item()),
        ("predict", lambda: list(map(str, lm.predict(_examples(lm))))),
    ):
        if ability in lm.can:
            try:
                values.append(call())
            except Unsupported as error:
                values.append(str(error))
    return values


def _examples(lm: Any) -> list[Any]:
    kinds = {"Tagging": [TEXT.split()], "QuestionAnswering": [("what follows red ?", "went to red house")]}
    return kinds.get(type(vars(lm).get("task")).__name__, [TEXT])


def run_format(slug: str) -> Format:
    return Format(f"run/{slug}", lambda folder: build_run(folder / RUN, slug), use_model, sealed=True, reseal=reseal)


def build_ngram_run(folder: Path, *changes: str) -> None:
    (folder / "my.txt").write_text("\n".join(texts(200)) + "\n")
    settings = [f"tokenizer={_inline(SPECS['words'])}", "model.order=3", *changes]
    recipe = load_recipe("ngram/tiny", settings).with_data([str(folder / "my.txt")])
    nextword.train(recipe, out=folder / RUN, progress=False)
    (folder / RUN / "recipe.toml").write_text(
        (folder / RUN / "recipe.toml").read_text().replace(str(folder / "my.txt"), "my.txt")
    )
    _write_log(folder / RUN)
    (folder / "my.txt").unlink()
    reseal(folder)


def build_compact(folder: Path) -> None:
    build_ngram_run(folder)
    convert(folder / RUN, folder / "compact", ["model.layout=compact", "model.bits=8"])
    _keep_as_run(folder, "compact")


def build_rounded(folder: Path) -> None:
    build_run(folder / RUN, "bert")
    convert(folder / RUN, folder / "int8", to="int8")
    _keep_as_run(folder, "int8")


def _keep_as_run(folder: Path, name: str) -> None:

    shutil.rmtree(folder / RUN)
    (folder / name).rename(folder / RUN)


def build_classifier(folder: Path) -> None:
    build_run(folder / "bert", "bert")
    write_table(folder / "color.csv", ["text", "label"], draw_color_texts(40))
    _fine_tune(folder, "bert/finetune", "color.csv", "phase.0.batches.rows=8")


def build_tagger(folder: Path) -> None:
    write_conll(folder)
    changes = [
        "tokenizer.size=100",
        "model.width=8",
        "model.vector_width=6",
        "model.character_width=4",
        "model.filters=[[3, 4]]",
    ]
    _fine_tune(folder, "tagger/tiny", "train.conll", *changes, from_="")


def build_reader(folder: Path) -> None:
    build_run(folder / "bert", "bert")
    (folder / "squad.json").write_text(json.dumps(make_squad(30)))
    sizes = [f"phase.0.batches.{key}={n}" for key, n in (("rows", 8), ("length", 24), ("stride", 8), ("question", 8))]
    _fine_tune(folder, "bert/span", "squad.json", *sizes)


def _fine_tune(folder: Path, recipe: str, data: str, *changes: str, from_: str = "bert") -> None:

    settings = ["phase.0.precision=fp32", *changes, "phase.0.steps=2"]
    with contextlib.chdir(folder):
        nextword.transfer(recipe, from_, data, out=RUN, progress=False, changes=settings)
    for path in folder.iterdir():
        if path.name != RUN.name:
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    for name in ("report.html", "card.md"):
        (folder / RUN / name).unlink(missing_ok=True)


# ------------------------------------------------------------------------------------------------ training states


def build_state(folder: Path) -> None:

    (folder / "my.txt").write_text("\n".join(texts(120)) + "\n")
    phase = {
        "steps": 6,
        "log_every": 1,
        "save_every": 0,
        "validate_every": 3,
        "batches": "{kind='rows', rows=4, length=8}",
    }
    changes = ['tokenizer={kind="bytes"}', "model.width=8", *(f"phase.0.{key}={value}" for key, value in phase.items())]
    with contextlib.chdir(folder):
        for event in nextword.train("lstm/tiny", "my.txt", out=RUN, changes=changes, device="cpu", events=True):
            if event.kind == "step" and event.step == 4:
                break
    log = folder / RUN / "log.jsonl"
    events = [json.loads(line) | {"seconds": 1.0} for line in log.read_text().splitlines()]
    log.write_text(
        "".join(
            json.dumps(event | ({"tokens_per_second": 1.0} if "tokens_per_second" in event else {})) + "\n"
            for event in events
        )
    )


def use_state() -> object:
    """Resume to the end. Where it resumes from does not count: a damaged state gives way to the one before."""
    for _ in nextword.train(resume=True, out=RUN, device="cpu", events=True):
        pass
    log = nextword.Run(RUN).folder.read_log()
    events = {(event["event"], event.get("step"), event.get("loss")) for event in log if event["event"] != "begin"}
    return [checksum(RUN / "model.safetensors"), sorted(map(str, events))]


# ------------------------------------------------------------------------------------------------ models of others


def build_arpa(folder: Path, name: str = "model.arpa") -> None:
    build_ngram_run(folder)
    convert(folder / RUN, folder / name)

    shutil.rmtree(folder / RUN)


def use_converted(source: str) -> Callable[[], object]:
    def use() -> object:
        convert(source, "out")
        return use_model(Path("out"))

    return use


def build_hugging_face(folder: Path, slug: str, pickled: bool = False) -> None:

    build_run(folder / RUN, slug)
    convert(folder / RUN, folder / "hf", to="huggingface")
    shutil.rmtree(folder / RUN)
    if pickled:
        from safetensors.torch import load_file

        torch.save(load_file(str(folder / "hf/model.safetensors")), folder / "hf/pytorch_model.bin")
        (folder / "hf/model.safetensors").unlink()


def build_elmo(folder: Path) -> None:

    build_run(folder / RUN, "elmo")
    convert(folder / RUN, folder / "elmo", to="elmo")
    shutil.rmtree(folder / RUN)


def build_sentencepiece(folder: Path) -> None:
    """A unigram model in protobuf, written by hand: see tokenizers/loading.py."""
    pieces = [("<pad>", 0.0, 3), ("</s>", 0.0, 3), ("<unk>", 0.0, 2)]
    words = sorted({f"▁{word}" for text in texts() for word in text.split()} | set("▁abcdefghijklmnopqrstuvwxyz"))
    pieces += [(word, -3.0 - i / 10, 1) for i, word in enumerate(words)]
    data = b"".join(
        _field(1, _field(1, text.encode()) + b"\x15" + struct.pack("<f", score) + b"\x18" + bytes([kind]))
        for text, score, kind in pieces
    )
    trainer = b"\x18\x01" + bytes([(42 << 3) & 0x7F | 0x80, 42 << 3 >> 7, 1])  # unigram; eos_id = 1
    data += _field(2, trainer) + _field(3, _field(1, b"identity"))
    (folder / "spiece.model").write_bytes(data)


def _field(number: int, content: bytes) -> bytes:
    size, length = b"", len(content)
    while length > 127:
        size, length = size + bytes([length & 127 | 128]), length >> 7
    return bytes([number << 3 | 2]) + size + bytes([length]) + content


def use_tokenizer() -> object:
    from nextword.tokenizers.loading import load_tokenizer

    tokenizer = load_tokenizer(Path("spiece.model"), 2)
    encoding = tokenizer.encode(TEXT + " naïve")
    return [encoding.ids.tolist(), tokenizer.decode(encoding.ids), len(tokenizer), tokenizer.end]


def build_vectors(folder: Path, name: str, has_header: bool) -> None:
    draw = np.random.default_rng(0)
    words = sorted({word for text in texts() for word in text.split()})
    rows = [f"{word} " + " ".join(f"{x:.4f}" for x in draw.normal(size=6)) for word in words]
    lines = [f"{len(words)} 6", *rows] if has_header else rows
    data = ("\n".join(lines) + "\n").encode()
    (folder / name).write_bytes(gzip.compress(data, mtime=0) if name.endswith(".gz") else data)


def use_vectors(name: str) -> Callable[[], object]:
    def use() -> object:
        from nextword.data.word_vectors import read_vectors

        vectors = read_vectors(name)
        convert(name, "out")
        lm = nextword.load("out", device="cpu")
        return [len(vectors), vectors.width, lm.nearest(next(iter(vectors.words)), k=2)]

    return use


# ------------------------------------------------------------------------------------------------ texts and tables

PROSE = "\n".join(
    [
        " = The King = ",
        "",
        *texts(20),
        "",
        " = = A Part = = ",
        "",
        *texts(20, 4),
        "",
        " = The River = ",
        "",
        *texts(20, 5),
        "",
    ]
)


def use_corpus(*names: str) -> Callable[[], object]:
    """Read all splits, and prepare the ids of one of them twice: the second time from the cache."""

    def use() -> object:
        from nextword.batching.token_stream import prepare
        from nextword.data.opening import describe_reading, open_corpus, open_unsplit

        values: list[object] = []
        for name in names:
            describe_reading(name)
            corpus = open_unsplit(name)
            tokenizer = train_tokenizer({"kind": "bytes"}, ["x"])
            one, two = (prepare(corpus, "test", tokenizer) for _ in range(2))
            assert len(one) == len(two)
            split = open_corpus(name)
            found = [(document.id, document.text) for part in split.splits for document in split.documents(part)]
            values.append([int(one.ids.sum()), len(one), len(found), sum(len(text) for _, text in found)])
        return values

    return use


def build_texts(folder: Path) -> None:
    (folder / "my.txt").write_text("\n\n".join(texts(40)) + "\n")
    (folder / "wiki.txt").write_text(PROSE)
    (folder / "end.txt").write_text("<|endoftext|>".join(texts(30)))
    (folder / "doc.txt").write_text(
        "".join(f'<doc id="{i}" url="u" title="T{i}">\n{text}\n</doc>\n' for i, text in enumerate(texts(20)))
    )
    (folder / "wide.txt").write_bytes("\n".join(texts(20)).encode("utf-16"))


def build_compressed(folder: Path) -> None:
    import zstandard

    data = ("\n\n".join(texts(40)) + "\n").encode()
    (folder / "a.txt.gz").write_bytes(gzip.compress(data, mtime=0))
    (folder / "b.txt.bz2").write_bytes(bz2.compress(data))
    (folder / "c.txt.xz").write_bytes(lzma.compress(data))
    (folder / "d.txt.zst").write_bytes(zstandard.ZstdCompressor(write_checksum=True).compress(data))


def build_json_lines(folder: Path) -> None:
    rows = [
        {"id": i, "text": text, "label": "red", "meta": {"n": [1, 2.5, None, True]}} for i, text in enumerate(texts(40))
    ]
    (folder / "my.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


def build_tables(folder: Path) -> None:
    write_table(folder / "color.csv", ["text", "label"], draw_color_texts(60))
    write_table(folder / "pair.csv", ["premise", "hypothesis", "label"], draw_color_pairs(60))
    rows = [f"{i}\t{text}\t{label}" for i, (text, label) in enumerate(draw_color_texts(60))]
    (folder / "color.tsv").write_text("\n".join(["id\ttext\tlabel", *rows]) + "\n")
    out = io.StringIO()
    csv.writer(out, delimiter=";", quoting=csv.QUOTE_ALL).writerows(
        [("text", "score"), *((text, i / 7) for i, text in enumerate(texts(60)))]
    )
    (folder / "score.csv").write_bytes(out.getvalue().encode("cp1252"))
    (folder / "rows.jsonl").write_text(
        "".join(json.dumps({"text": text, "label": label}) + "\n" for text, label in draw_color_texts(60))
    )


def use_tables() -> object:
    from nextword.data.opening import open_corpus
    from nextword.tasks.text_data import read_text_data

    values: list[object] = []
    for name in ("color.csv", "pair.csv", "color.tsv", "score.csv", "rows.jsonl"):
        data = read_text_data(name)
        values.append(
            [name, data.kind, data.labels, {split: (len(rows), rows.labels) for split, rows in data.splits.items()}]
        )
        if name in ("color.csv", "color.tsv"):
            values.append(sum(len(document.text) for document in open_corpus(name).documents("train")))
    return values


def build_choices(folder: Path) -> None:
    rows = draw_endings(40)
    (folder / "choice.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    table = [(row["context"], *row["choices"], row["label"]) for row in rows]
    write_table(folder / "choice.csv", ["context", "ending0", "ending1", "ending2", "label"], table)
    for split in ("train", "dev"):
        (folder / "exams" / split / "high").mkdir(parents=True)
        for i in range(4):
            content = {
                "article": texts(4)[i],
                "questions": ["who went ?", "what _ ?"],
                "options": [["a", "b", "c", "d"]] * 2,
                "answers": ["A", "C"],
                "id": f"high{i}.txt",
            }
            (folder / "exams" / split / "high" / f"{i}.txt").write_text(json.dumps(content))


def use_choices() -> object:
    from nextword.tasks.text_data import read_text_data

    values: list[object] = []
    for name in ("choice.jsonl", "choice.csv", "exams"):
        data = read_text_data(name)
        values.append([data.kind, {split: (len(rows), rows.labels) for split, rows in data.splits.items()}])
    return values


def write_conll(folder: Path) -> None:
    draw = random.Random(0)
    sentences = [draw_tagged(draw) for _ in range(30)]
    (folder / "train.conll").write_text(
        "\n".join("".join(f"{word} {tag}\n" for word, tag in words) for words in sentences)
    )


def build_conll(folder: Path) -> None:
    write_conll(folder)
    draw = random.Random(1)
    blocks = []
    for i in range(20):
        words = draw_tagged(draw)
        rows = [
            f"{n}\t{word}\t{word.lower()}\t{'NOUN' if n % 2 else 'VERB'}\tNN\tNumber=Sing\t{n - 1}\tdep\t_\t_"
            for n, (word, _) in enumerate(words, 1)
        ]
        blocks.append("\n".join([f"# sent_id = {i}", f"# text = {' '.join(word for word, _ in words)}", *rows]))
    (folder / "ud.conllu").write_text("\n\n".join(blocks) + "\n\n")
    trees = [f"(S (NP (DT the) (NN {draw_tagged(draw)[0][0]})) (VP (VBD went) (. .)))" for _ in range(20)]
    (folder / "tree.mrg").write_text("\n".join(trees) + "\n")
    old = ["-DOCSTART- -X- O O", ""]
    for _ in range(15):
        old += [*(f"{word} NN I-NP {tag}" for word, tag in draw_tagged(draw)), ""]
    (folder / "old.txt").write_text("\n".join(old))


def use_conll() -> object:
    from nextword.data.conll import read_trees
    from nextword.data.files import read_lines
    from nextword.tasks.datasets.tagged import read_tags

    values: list[object] = []
    for name, column, scheme in (
        ("train.conll", "", "BIOES"),
        ("ud.conllu", "upos", "raw"),
        ("old.txt", "", "BIO"),
    ):
        data = read_tags(name, column, scheme)
        values.append([name, data.labels, {split: (len(text), text.words) for split, text in data.splits.items()}])
    values.append([sentence.words for sentence in read_trees("tree.mrg", read_lines("tree.mrg"))])
    return values


def build_questions(folder: Path) -> None:
    (folder / "one.json").write_text(json.dumps(make_squad(30)))
    (folder / "two.json").write_text(json.dumps(make_squad(30, seed=1, without=0.4, version="v2.0")))
    rows = []
    for paragraph in make_squad(30, seed=2)["data"][0]["paragraphs"]:
        question = paragraph["qas"][0]
        answers = {key: [question["answers"][0][key]] for key in ("text", "answer_start")}
        rows.append({"question": question["question"], "context": paragraph["context"], "answers": answers})
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    table = [(row["question"], row["context"], row["answers"]["text"][0]) for row in rows]
    write_table(folder / "rows.csv", ["question", "context", "answer"], table)


def use_questions() -> object:
    from nextword.tasks.datasets.questions import read_questions

    values: list[object] = []
    for name in ("one.json", "two.json", "rows.jsonl", "rows.csv"):
        data = read_questions(name)
        values.append(
            {split: [(q.id, q.answers, q.place) for q in questions.all] for split, questions in data.splits.items()}
        )
    return values


def _pairs() -> list[tuple[str, str]]:
    return [(text, " ".join(reversed(text.split()))) for text in texts(60)]


def build_parallel(folder: Path) -> None:
    (folder / "both").mkdir()
    for split, begin, end in (("train", 0, 40), ("valid", 40, 50), ("test", 50, 60)):
        for side, language in ((0, "en"), (1, "de")):
            (folder / "both" / f"{split}.{language}").write_text(
                "".join(pair[side] + "\n" for pair in _pairs()[begin:end])
            )
    (folder / "pairs.tsv").write_text("".join(f"{a}\t{b}\n" for a, b in _pairs()))
    (folder / "pairs.jsonl").write_text("".join(json.dumps({"article": a, "summary": b}) + "\n" for a, b in _pairs()))
    sgm = "".join(f'<seg id="{i}"> {{}} </seg>\n' for i in range(12))
    for side, language in ((0, "en"), (1, "de")):
        head = f'<srcset setid="x" srclang="any"><doc docid="1">\n{sgm}</doc></srcset>\n'
        (folder / f"news.{language}.sgm").write_text(head.format(*(pair[side] for pair in _pairs()[:12])))


def use_parallel(*specs: str) -> Callable[[], object]:
    def use() -> object:
        from nextword.data.parallel import open_parallel

        values: list[object] = []
        for spec in specs:
            corpus = open_parallel(spec, unsplit=spec.startswith("news"))
            values.append([[(d.source, d.text) for d in corpus.documents(split)] for split in corpus.splits])
        return values

    return use


def build_archives(folder: Path) -> None:
    build_parallel(folder)
    files = sorted((folder / "both").iterdir())
    with zipfile.ZipFile(folder / "pairs.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        for file in files:
            archive.writestr(zipfile.ZipInfo(file.name), file.read_bytes())
    for name, mode in (("pairs.tar", "w"), ("pairs.tgz", "w:gz")):
        raw = io.BytesIO()
        with tarfile.open(fileobj=raw, mode=mode.partition(":")[0]) as archive:  # type: ignore[call-overload]
            for file in files:
                info = tarfile.TarInfo(file.name)
                info.size = file.stat().st_size
                archive.addfile(info, io.BytesIO(file.read_bytes()))
        (folder / name).write_bytes(gzip.compress(raw.getvalue(), mtime=0) if mode == "w:gz" else raw.getvalue())

    for path in folder.iterdir():
        if path.name not in ("pairs.zip", "pairs.tar", "pairs.tgz"):
            shutil.rmtree(path) if path.is_dir() else path.unlink()


def use_archives() -> object:
    """Read pairs from each archive, and install each as a data set of the catalog."""
    from dataclasses import replace

    from nextword.data.catalog import find_entry, install

    values = [use_parallel(f"{name}:en-de")() for name in ("pairs.zip", "pairs.tar", "pairs.tgz")]
    entry = find_entry("multi30k")
    assert entry is not None
    layout = {"train": ("train.en + train.de",), "valid": ("valid.en + valid.de",), "test": ("test.en + test.de",)}
    for name in ("pairs.zip", "pairs.tgz"):
        place = install(replace(entry, layout=layout, sha256={}), Path(name))
        values.append(sorted((str(path.relative_to(place)), path.stat().st_size) for path in place.rglob("*")))
    return values


# ------------------------------------------------------------------------------------------------ TOML


def build_recipes(folder: Path) -> None:
    from nextword.recipe import recipe_toml

    for slug, name in (
        ("lstm", "tiny"),
        ("gpt2", "tiny"),
        ("ngram", "tiny"),
        ("bert", "finetune"),
        ("awd-lstm", "tiny"),
        ("tagger", "tiny"),
    ):
        recipe = load_recipe(f"{slug}/{name}")
        (folder / f"{slug}.toml").write_text(recipe_toml(recipe))
    (folder / "child.toml").write_text('extends = "lstm/tiny"\n[model]\nwidth = 16\nlayers = 1\n')


def use_recipes() -> object:
    """Read recipes, and start training with those that train a language model; on a tiny text, one step."""
    values: list[object] = []
    Path("my.txt").write_text("\n".join(texts(40)) + "\n")
    for path in sorted(Path().glob("*.toml")):
        recipe = load_recipe(path)
        values.append(repr(recipe.phases))
        small = [] if recipe.slug == "ngram" else ["phase.0.steps=1"]
        if recipe.task is None and _is_small(recipe):
            changed = load_recipe(path, small).with_data(["my.txt"])
            events = list(nextword.train(changed, out=f"run-{path.stem}", device="cpu", events=True))
            values.append([event.kind for event in events])
    return values


def _is_small(recipe: Recipe) -> bool:
    """Whether training takes no time: a recipe may ask for a network, or for batches, that keep any machine busy."""
    tables = [recipe.model, *({**phase.batches, "accumulate": phase.accumulate} for phase in recipe.phases)]
    return all(value <= 512 for table in tables for value in table.values() if isinstance(value, (int, float)))


PROMPT = """
title = "color"
data = "."
reader = "csv"
layout = { train = ["color.csv"], valid = ["color.csv"] }
split = "valid"
fields = { text = "text", label = "label" }
context = "{text} Color:"
choices = [" red", " blue"]
gold = "label"
labels = { red = 0, blue = 1 }
"""


def build_toml_data(folder: Path) -> None:
    (folder / "a.txt").write_text("\n\n".join(texts(300)) + "\n")
    (folder / "b.txt").write_text("\n\n".join(texts(300, 9)) + "\n")
    (folder / "mixture.toml").write_text(
        'bytes = 2000\n[[source]]\ndata = "a.txt"\nweight = 0.6\n[[source]]\ndata = "b.txt"\nweight = 0.4\n'
    )
    (folder / "pairs.tsv").write_text("".join(f"{a}\t{b}\n" for a, b in _pairs()))
    write_table(folder / "color.csv", ["text", "label"], draw_color_texts(40))
    (folder / "tasks.toml").write_text(
        'temperature = 2.0\nlimit = 1000\n[[task]]\nname = "reverse"\nprefix = "reverse: "\ndata = "pairs.tsv:1-2"\n'
        'metrics = ["bleu"]\n[[task]]\nname = "again"\nprefix = "again: "\ndata = "pairs.tsv:2-1"\nrate = 0.25\n'
    )
    (folder / "prompt.toml").write_text(PROMPT)


def use_toml_data() -> object:
    from nextword.data.opening import open_corpus
    from nextword.data.parallel import open_parallel
    from nextword.evaluation.prompt_tasks import load_task, read_examples

    mixed = open_corpus("mixture.toml")
    values: list[object] = [[sum(len(d.text) for d in mixed.documents(split)) for split in mixed.splits]]
    values.append([(d.source, d.text) for d in open_parallel("tasks.toml").documents("train")][:5])
    values.append(read_examples(load_task("prompt.toml"), "valid")[:5])
    return values


# ------------------------------------------------------------------------------------------------ the cache


def build_cache(folder: Path) -> None:
    from nextword.batching.token_stream import prepare
    from nextword.data.opening import open_unsplit

    (folder / "my.txt").write_text("\n\n".join(texts(40)) + "\n")

    before = os.environ.get("NEXTWORD_CACHE")
    os.environ["NEXTWORD_CACHE"] = str(folder / "cache")
    with contextlib.chdir(folder):
        prepare(open_unsplit("my.txt"), "test", train_tokenizer({"kind": "bytes"}, ["x"]))
    if before is not None:
        os.environ["NEXTWORD_CACHE"] = before


def use_cache() -> object:
    """Ids from the cache: damaged ones are prepared again."""
    from nextword.batching.token_stream import prepare
    from nextword.data.opening import open_unsplit

    stream = prepare(open_unsplit("my.txt"), "test", train_tokenizer({"kind": "bytes"}, ["x"]))
    return [
        stream.ids.tolist(),
        stream.marks.tolist(),
        stream.documents.tolist(),
        stream.bytes,
        stream.words,
        stream.lines,
    ]


FORMATS = {
    format.name: format
    for format in (
        *map(run_format, NETWORKS),
        Format("run/ngram-fast", build_ngram_run, use_model, sealed=True, reseal=reseal),
        Format("run/ngram-compact", build_compact, use_model, sealed=True, reseal=reseal),
        Format("run/rounded", build_rounded, use_model, sealed=True, reseal=reseal),
        Format("run/classifier", build_classifier, use_model, sealed=True, reseal=reseal),
        Format("run/tagger", build_tagger, use_model, sealed=True, reseal=reseal),
        Format("run/reader", build_reader, use_model, sealed=True, reseal=reseal),
        Format(
            "state",
            build_state,
            use_state,
            ("state.safetensors", "state.json", "checksums.json", "model.safetensors", "manifest.json"),
            sealed=True,
        ),
        Format("arpa", build_arpa, use_converted("model.arpa")),
        Format("arpa.gz", lambda folder: build_arpa(folder, "model.arpa.gz"), use_converted("model.arpa.gz")),
        Format("huggingface/gpt2", lambda folder: build_hugging_face(folder, "gpt2"), use_converted("hf")),
        Format("huggingface/bert", lambda folder: build_hugging_face(folder, "bert"), use_converted("hf")),
        Format("huggingface/t5", lambda folder: build_hugging_face(folder, "t5"), use_converted("hf")),
        Format(
            "huggingface/pickle", lambda folder: build_hugging_face(folder, "gpt2", pickled=True), use_converted("hf")
        ),
        Format("elmo-hdf5", build_elmo, use_converted("elmo")),
        Format("sentencepiece", build_sentencepiece, use_tokenizer),
        Format("vectors/glove", lambda folder: build_vectors(folder, "g.txt", False), use_vectors("g.txt")),
        Format("vectors/word2vec", lambda folder: build_vectors(folder, "w.vec", True), use_vectors("w.vec")),
        Format("vectors/gz", lambda folder: build_vectors(folder, "w.vec.gz", True), use_vectors("w.vec.gz")),
        Format("text", build_texts, use_corpus("my.txt", "wiki.txt", "end.txt", "doc.txt", "wide.txt")),
        Format("compressed", build_compressed, use_corpus("a.txt.gz", "b.txt.bz2", "c.txt.xz", "d.txt.zst")),
        Format("json-lines", build_json_lines, use_corpus("my.jsonl")),
        Format("tables", build_tables, use_tables),
        Format("choices", build_choices, use_choices),
        Format("conll", build_conll, use_conll),
        Format("questions", build_questions, use_questions),
        Format(
            "parallel",
            build_parallel,
            use_parallel("both:en-de", "pairs.tsv:1-2", "pairs.jsonl:article-summary", "news:en-de"),
        ),
        Format("archives", build_archives, use_archives),
        Format("recipes", build_recipes, use_recipes),
        Format("toml-data", build_toml_data, use_toml_data),
        Format("cache", build_cache, use_cache, ("ids.bin", "marks.bin", "documents.bin", "stream.json"), sealed=True),
    )
}


def build_sample(format: Format, folder: Path) -> None:
    """Fill a folder with the format's sample: the same bytes every time, so that a seed means the same damage."""
    commit, run_folder.git_commit = run_folder.git_commit, lambda: "none"
    try:
        folder.mkdir(parents=True)
        format.build(folder)
    finally:
        run_folder.git_commit = commit
