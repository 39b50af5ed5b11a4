"""Prompted tasks: prompts, shots, scoring rules, and independence of batching."""

from __future__ import annotations

import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from nextword.core.errors import DataError, InvalidSetting, MissingFile, NextwordError, UnknownName, Unsupported
from nextword.core.types import EXACT, Piece, Score, Vocabulary
from nextword.evaluation.few_shot import (
    draw_shots,
    evaluate_task,
    fill_template,
    fit_prompts,
    make_question,
    shot_pool,
    write_prompt,
)
from nextword.evaluation.prompt_tasks import load_task, read_examples, task_names
from nextword.lm.completion import _check_greedy_by_steps, context_window, score_completions
from nextword.lm.loading import wrap_network
from nextword.metrics.classification import f1, mcc
from nextword.metrics.intervals import accuracy_with_interval, bootstrap_metric, wilson
from nextword.metrics.text_generation import bleu_with_interval
from nextword.models import model_class
from nextword.tokenizers.training import train_tokenizer

BYTES = train_tokenizer({"kind": "bytes"}, ["x"])
WORDS = train_tokenizer({"kind": "words"}, ["the cat sat on the mat and the dog lay by the door yes no"])

TASK = """
title = "Is it a cat?"
data = "."
layout = { test = ["test.jsonl"], train = ["train.jsonl"] }
reader = "jsonl"
fields = { animal = "animal", label = "label" }
split = "test"
context = "The {animal} is a cat:"
choices = [" no", " yes"]
gold = "label"
labels = { "0" = 0, "1" = 1 }
answer_context = "answer:"
separator = "\\n"
"""


@pytest.fixture
def cats(tmp_path: Path) -> Path:
    (tmp_path / "cats.toml").write_text(TASK)
    for split, animals in {"test": ["tom", "rex", "kit", "ox"], "train": ["tib", "fox", "tom", "lion", "cow"]}.items():
        rows = [f'{{"animal": "{a}", "label": {int(a in ("tom", "kit", "tib", "lion"))}}}\n' for a in animals]
        (tmp_path / f"{split}.jsonl").write_text("".join(rows))
    return tmp_path / "cats.toml"


class FixedModel:
    """A model whose costs are a function of (given, text) and which generates a fixed text."""

    kind = EXACT
    network = SimpleNamespace(is_backward=False, has_hidden_states=False)

    tokenizer = BYTES
    context = stride = None

    def __init__(self, cost: Any = None, writes: Any = None, can: tuple[str, ...] = ("score", "generate")) -> None:
        self.cost, self.writes, self.can = cost, writes, frozenset(can)
        self.requests: list[tuple[str, str]] = []

    def score_many(self, texts: Any, given: Any) -> list[Score]:
        self.requests += zip(given, texts, strict=True)
        return [Score(self.cost(g, t), len(t), 1, len(t)) for g, t in zip(given, texts, strict=True)]

    def generate_many(self, prompts: Any, how: Any, stop: Any) -> list[list[Piece]]:
        return [[Piece(self.writes(prompt), (), 0.0, "stop")] for prompt in prompts]


def network(slug: str = "gpt2", tokenizer: Any = BYTES, seed: int = 0, **config: Any) -> Any:
    torch.manual_seed(seed)
    cls = model_class(slug)
    default = {"width": 16, "layers": 2, "heads": 2, "window": 64, "dropout": 0.0} if slug == "gpt2" else {"width": 16}
    model = cls(cls.Config(**{**default, **config}), Vocabulary(len(tokenizer), tokenizer.begin, tokenizer.special))
    with torch.no_grad():
        for weight in model.parameters():
            weight.mul_(5)  # distributions far from uniform
    return wrap_network(model.eval(), tokenizer)


# ------------------------------------------------------------------------------------------------ tasks


def test_every_task_file_is_complete() -> None:
    names = task_names()
    assert {"lambada", "lambada-blank", "story-cloze", "rte", "cola", "sst-2", "multi30k", "arithmetic"} <= set(names)
    for name in names:
        task = load_task(name)
        assert task.name == name
        # the space belongs to the completion
        assert all(choice.startswith(" ") for choice in task.choices or (task.answer,))
        assert not task.context.endswith(" ")
        for result in task.published:
            assert {"model", "shots", "value", "source"} <= set(result)


def test_load_task_variant_changes_only_its_keys() -> None:
    plain, blank = load_task("lambada"), load_task("lambada-blank")
    assert blank.context == "{before} ____. →"
    assert (plain.rule, plain.data, plain.answer) == (blank.rule, blank.data, blank.answer)
    assert not {result["value"] for result in plain.published} & {result["value"] for result in blank.published}


@pytest.mark.parametrize(
    ("change", "key"),
    [
        ('rule = "word"', "rule"),
        ('metric = "acuracy"', "metric"),
        ('shots_from = "test"', "split"),
        ('answer = " x"', "answer"),
    ],
)
def test_load_task_with_an_invalid_value_is_rejected(cats: Path, change: str, key: str) -> None:
    cats.write_text(f"{change}\n{TASK}")
    with pytest.raises(InvalidSetting) as error:
        load_task(str(cats))
    assert error.value.key == key


def test_load_task_with_an_unknown_key_or_broken_toml_is_rejected(cats: Path) -> None:
    cats.write_text(f'contxt = "x"\n{TASK}')
    with pytest.raises(UnknownName) as unknown:
        load_task(str(cats))
    assert unknown.value.name == "contxt"
    cats.write_text("rule = ")
    with pytest.raises(DataError) as broken:
        load_task(str(cats))
    assert broken.value.path == str(cats)


def test_load_task_with_an_unknown_name_suggests_the_nearest() -> None:
    with pytest.raises(UnknownName, match="lambada") as unknown:
        load_task("lamdaba")
    assert unknown.value.name == "lamdaba"
    with pytest.raises(MissingFile) as missing:
        load_task("none.toml")
    assert missing.value.path == "none.toml"


def test_fill_template_keeps_braces_of_the_data() -> None:
    assert fill_template("{a}: {b}", {"a": "{b}", "b": "x.y[0]"}, "t") == "{b}: x.y[0]"
    with pytest.raises(InvalidSetting) as error:
        fill_template("{c}", {"a": "1"}, "t")
    assert error.value.key == "c"


# ------------------------------------------------------------------------------------------------ prompts


def test_write_prompt_puts_shots_before_the_question(cats: Path) -> None:
    task = load_task(str(cats))
    pool = [make_question(task, example) for example in read_examples(task, "train")]
    question = make_question(task, read_examples(task, "test")[1])
    assert write_prompt(task, pool[:2], question) == ("The tib is a cat: yes\nThe fox is a cat: no\nThe rex is a cat:")


def test_draw_shots_depends_on_seed_and_index_and_avoids_the_questions(cats: Path) -> None:
    task = load_task(str(cats))
    questions = [make_question(task, example) for example in read_examples(task, "test")]
    pool = shot_pool(task, [make_question(task, example) for example in read_examples(task, "train")], questions, 4)
    assert all("tom" not in question.context for question in pool)  # it occurs in both splits
    assert draw_shots(pool, 3, 0, 1) == draw_shots(pool, 3, 0, 1)
    assert len({tuple(draw_shots(pool, 3, 0, i)) for i in range(20)}) > 5
    assert len(set(draw_shots(pool, 4, 0, 0))) == 4
    with pytest.raises(InvalidSetting) as error:
        shot_pool(task, pool, questions, 5)
    assert (error.value.key, error.value.value) == ("shots", 5)


def test_fit_prompts_drops_shots_from_the_front(cats: Path) -> None:
    task = load_task(str(cats))
    lm = network(window=64)
    assert context_window(lm) == 64
    question = make_question(task, {"animal": "rex", "label": "0"})  # 17 bytes, 4 for the longest choice, 22 per shot
    shots = [make_question(task, {"animal": f"a{i}", "label": "1"}) for i in range(4)]
    (prompt,) = fit_prompts(lm, task, [shots], [question])
    assert prompt.text == write_prompt(task, shots[2:], question)
    assert (prompt.shots, prompt.slides) == (2, False)
    assert (
        len(BYTES.encode(prompt.text + " yes"))
        <= 64
        < len(BYTES.encode(write_prompt(task, shots[1:], question) + " yes"))
    )
    long = make_question(task, {"animal": "x" * 70, "label": "0"})
    assert fit_prompts(lm, task, [shots], [long])[0].slides
    with pytest.raises(InvalidSetting, match=r"88 .*64") as error:
        fit_prompts(lm, task, [shots], [long], "error")
    assert error.value.key == "task.overflow"
    unbounded = network("lstm")
    assert context_window(unbounded) is None
    assert fit_prompts(unbounded, task, [shots], [long])[0].shots == 4


# ------------------------------------------------------------------------------------------------ likelihood


@pytest.mark.parametrize("slug", ["gpt2", "lstm"])
def test_score_completions_equals_score(slug: str) -> None:
    lm = network(slug)
    given = ["", "a b", "a b", "x" * 100, "the cat sat", "é"]
    texts = [" q", " c", " d", " end of a longer one", "", "tude"]
    scores = score_completions(lm, texts, given, greedy=True)
    for text, before, score in zip(texts, given, scores, strict=True):
        single = lm.score(text, before)
        assert score.nats == pytest.approx(single.nats, abs=1e-4)
        assert (score.tokens, score.bytes) == (single.tokens, single.bytes)
        assert score_completions(lm, [text], [before], greedy=True)[0].nats == pytest.approx(score.nats, abs=1e-4)


SHAPES = {  # causal networks; windows, if any, are shorter than the texts below
    "gpt1": {"width": 16, "layers": 2, "heads": 2, "window": 64},
    "gpt2": {},
    "gpt3": {"width": 16, "layers": 2, "heads": 2, "window": 64},
    "lstm": {},
    "rnn": {},
    "awd-lstm": {"embedding": 12, "width": 16, "layers": 2},
    "nplm": {"embedding": 8, "width": 16},
    "xlnet": {"width": 16, "layers": 2, "heads": 2},
    "glm": {"width": 16, "layers": 2, "heads": 2, "window": 64},
}


@pytest.mark.parametrize("slug", list(SHAPES))
@pytest.mark.parametrize("prefix_length", [10, 40, 700], ids=lambda n: f"{n} shared tokens")
def test_score_completions_reads_a_shared_prefix_once(
    slug: str, prefix_length: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    lm = network(slug, **SHAPES[slug])
    prefix = "".join(f"{i} and so on. " for i in range(200))[:prefix_length]
    given = [prefix + text for text in ("one", "two of them", "", "x" * 90, "one")]
    texts = [" yes", " no", " y", "", " a longer answer"]
    tokens_read: list[int] = []
    inner = lm.network.hidden
    monkeypatch.setattr(
        lm.network, "hidden", lambda inputs, state: tokens_read.append(inputs.ids.numel()) or inner(inputs, state)
    )
    batched = score_completions(lm, texts, given, greedy=True)
    batched_tokens, single = sum(tokens_read), []
    tokens_read.clear()
    for text, before in zip(texts, given, strict=True):
        single += score_completions(lm, [text], [before], greedy=True)
    assert [score.nats for score in batched] == pytest.approx([score.nats for score in single], rel=1e-4, abs=1e-4)
    assert [score.greedy for score in batched] == [score.greedy for score in single]
    if prefix_length == 700:
        assert batched_tokens < sum(tokens_read) / 2


@pytest.mark.parametrize("slug", ["gpt2", "lstm"])
def test_score_completions_marks_the_cheapest_word_as_greedy(slug: str) -> None:
    lm = network(slug, WORDS, seed=3)
    words = [f" {word}" for word in WORDS.words]
    num_greedy = 0
    for given in ["the", "the cat", "no dog", "mat the cat sat", "yes", "by the door"]:
        scores = score_completions(lm, words, [given] * len(words), greedy=True)
        cheapest = min(range(len(words)), key=lambda i: scores[i].nats)
        greedy = [i for i, score in enumerate(scores) if score.greedy]
        assert greedy in ([cheapest], [])  # none if <unk> or <eos> is likeliest
        num_greedy += len(greedy)
        encodings = WORDS.encode_batch([given + word for word in words])
        positions = [np.array([len(encoding) - 1]) for encoding in encodings]
        assert _check_greedy_by_steps(lm.network, encodings, positions) == [score.greedy for score in scores]
    assert num_greedy
    first = next(iter(lm.generate("the cat")))
    scores = score_completions(lm, [first.text, " the cat"], ["the cat"] * 2, greedy=True)
    assert scores[0].nats == pytest.approx(-first.log_prob, abs=1e-4)


def test_score_completions_of_unknown_words_are_never_greedy() -> None:
    lm = network("lstm", WORDS)
    with torch.no_grad():
        lm.network.readout.bias[WORDS.special["<unk>"]] = 100.0  # <unk> is always likeliest
    known, unknown = score_completions(lm, [" mat", " zebra"], ["the cat sat on the"] * 2, greedy=True)
    assert (unknown.unknown, unknown.greedy) == (True, False)
    assert unknown.nats < 1e-3
    assert not known.unknown


# ------------------------------------------------------------------------------------------------ rules


def choose(cats: Path, cost: Any, **changes: Any) -> Any:
    return evaluate_task(FixedModel(cost), load_task(str(cats), **changes))


def test_rules_sum_token_and_byte_normalize_length_differently(cats: Path) -> None:
    # " no" has 3 bytes and costs 4 nats, " yes" has 4 bytes and costs 5: the sum prefers no, the byte rule yes
    cost = lambda given, text: {" no": 4.0, " yes": 5.0}[text]  # noqa: E731
    assert choose(cats, cost).first["predicted"] == " no"
    assert choose(cats, cost, rule="byte").first["predicted"] == " yes"
    assert choose(cats, cost, rule="token").first["predicted"] == " yes"  # each byte is a token here


def test_rule_unconditional_compares_with_the_answer_context(cats: Path) -> None:
    def cost(given: str, text: str) -> float:
        return {" no": 1.0, " yes": 6.0}[text] if given == "answer:" else {" no": 2.0, " yes": 5.0}[text]

    assert choose(cats, cost).first["predicted"] == " no"
    assert choose(cats, cost, rule="unconditional").first["predicted"] == " yes"


def test_evaluate_task_reports_accuracy_baselines_and_interval(cats: Path) -> None:
    oracle = lambda given, text: float(("tom" in given or "kit" in given) != (text == " yes"))  # noqa: E731
    result = choose(cats, oracle)
    assert (result.value, result.count, result.of) == (1.0, 4, 4)
    assert result.baselines == {"majority": 0.5, "chance": 0.5}
    assert (result.low, result.high) == wilson(4, 4)
    assert result.ties == 0
    constant = choose(cats, lambda given, text: 1.0)
    assert constant.ties == 4
    impossible = choose(cats, lambda given, text: math.inf, rule="unconditional")
    assert impossible.ties == 4


def test_evaluate_task_uses_the_same_shots_for_a_sample(cats: Path) -> None:
    task = load_task(str(cats))
    every, some, once = FixedModel(lambda g, t: 1.0), FixedModel(lambda g, t: 1.0), FixedModel(lambda g, t: 1.0)
    result = evaluate_task(every, task, 2, seed=5)
    assert (result.shots, result.dropped, result.drawn) == (2, 0, "item")
    assert all(given.count("\n") == 2 for given, _ in every.requests)
    assert evaluate_task(some, task, 2, seed=5, limit=2).count == 2
    assert set(some.requests) < set(every.requests)
    evaluate_task(once, task, 2, seed=5, drawn="once")
    assert len({given.rpartition("\n")[0] for given, _ in once.requests}) == 1


def test_rule_word_reports_the_perplexity_of_the_answers() -> None:
    task = load_task("lambada")
    lm = network("gpt2", seed=1)
    passages = ["it was the end", "he saw a dog", "she ran a mile"]
    given = [dict(zip(("before", "last"), passage.rsplit(" ", 1), strict=True)) for passage in passages]
    result = evaluate_task(lm, task, given=([], given))
    nats = [lm.score(" " + example["last"], example["before"]).nats for example in given]
    assert result.perplexity == pytest.approx(math.exp(np.mean(nats)), rel=1e-4)
    assert result.value == 0.0


def test_rule_generate_compares_with_the_answer() -> None:
    task = load_task("arithmetic")
    given = ([], [{"sum": f"{i} plus 1", "result": str(i + 1)} for i in range(10)])
    right = FixedModel(writes=lambda prompt: f" {eval(prompt[prompt.rindex('is') + 3 : -4].replace('plus', '+'))}")
    assert evaluate_task(right, task, given=given).value == 1.0
    constant = evaluate_task(FixedModel(writes=lambda prompt: " 3 "), task, given=given)
    assert constant.value == pytest.approx(0.1)
    assert constant.baselines == {"majority": 0.1}


def test_evaluate_task_rejects_invalid_requests(cats: Path) -> None:
    task = load_task(str(cats))
    with pytest.raises(Unsupported) as no_score:
        evaluate_task(FixedModel(can=("embed",)), task)
    assert no_score.value.ability == "score"
    with pytest.raises(Unsupported) as no_generate:
        evaluate_task(FixedModel(can=("score",)), load_task("arithmetic"))
    assert no_generate.value.ability == "generate"
    for options in ({"shots": -1}, {"limit": 0}, {"drawn": "twice"}, {"overflow": "cut"}, {"shots": 5}):
        with pytest.raises(NextwordError):
            evaluate_task(FixedModel(lambda g, t: 1.0), task, **options)


# ------------------------------------------------------------------------------------------------ metrics


def test_wilson_equals_the_textbook_interval() -> None:
    low, high = wilson(8, 10)  # Wilson (1927) for 8 of 10, as in textbooks
    assert (low, high) == (pytest.approx(0.4902, abs=1e-4), pytest.approx(0.9433, abs=1e-4))
    assert wilson(0, 10)[0] == 0.0
    assert wilson(10, 10)[1] == pytest.approx(1.0)
    assert accuracy_with_interval([True, False]).value == 0.5


def test_mcc_and_f1_equal_sklearn() -> None:
    metrics = pytest.importorskip("sklearn.metrics", reason="scikit-learn is absent: nothing to compare with")
    rng = np.random.default_rng(0)
    for classes in (2, 4):
        gold, predicted = rng.integers(0, classes, 200), rng.integers(0, classes, 200)
        assert mcc(gold, predicted) == pytest.approx(metrics.matthews_corrcoef(gold, predicted))
    gold, predicted = rng.integers(0, 2, 200), rng.integers(0, 2, 200)
    assert f1(gold, predicted, 1) == pytest.approx(metrics.f1_score(gold, predicted))
    assert mcc(np.array([0, 1, 1]), np.array([1, 1, 1])) == 0.0
    result = bootstrap_metric(mcc, gold.tolist(), predicted.tolist())
    assert result.low < result.value < result.high


def test_bleu_with_interval_has_sacrebleus_signature() -> None:
    pytest.importorskip("sacrebleu", reason="SACREBLEU ABSENT: BLEU is not tested")
    lines = ["the cat sat on the mat .", "a dog lay by the door ."]
    result, signature = bleu_with_interval(lines, lines)
    assert result.value == pytest.approx(100.0)
    assert "tok:13a" in signature
    assert bleu_with_interval(["no word", "in common"], lines)[0].value < 1.0
