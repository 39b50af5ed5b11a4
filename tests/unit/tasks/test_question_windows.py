"""Passages in windows, character spans of tokens, answer spans, and answers decoded from them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from nextword.core.errors import InvalidSetting
from nextword.data.squad import Question, make_question
from nextword.models import model_class
from nextword.models.framing import add_missing_tokens
from nextword.tasks.question_answering import (
    BEST_SPANS,
    PassageBatches,
    QuestionAnsweringConfig,
    SpanHead,
    SpanObjective,
    best_spans,
    encode_questions,
    find_answers,
    no_answer_position,
    score_predictions,
    token_characters,
)
from nextword.tokenizers import vocabulary
from nextword.tokenizers.training import train_tokenizer
from tests.support.tiny_transfer import SHAPE, SHAPES, SPECS

TEXT = "the old king went far to see a new house in the land of the queen and then he came home again"
TRICKY = "Zürich – 東京 is far:\tthe “old” queen’s   house 😀 cost €5.30 (naïve)."


def make_network(slug: str) -> tuple[Any, Any]:
    tokenizer = train_tokenizer(SPECS[slug], [TEXT, TRICKY] * 5)
    cls = model_class(slug)
    torch.manual_seed(0)
    network = cls(cls.Config(**SHAPES.get(slug, SHAPE)), vocabulary(tokenizer, spellings=True))
    return add_missing_tokens(network).eval(), tokenizer


@pytest.mark.parametrize("kind", [*SPECS, "bytes", "characters"])
def test_token_spans_cover_all_characters(kind: str) -> None:
    """Each token matches the text at its span, and every character belongs to a token."""
    spec = SPECS.get(kind, {"kind": kind})
    tokenizer = train_tokenizer(spec, [TEXT, TRICKY] * 5)
    for text in (TEXT, TRICKY, ""):
        encoding = tokenizer.encode(text)
        result = token_characters(text, encoding)
        assert result.shape == (len(encoding), 2)
        raw = text.encode()
        covered = set()
        for (begin, end), (a, b) in zip(encoding.spans.tolist(), result.tolist(), strict=True):
            part = raw[begin:end].decode("utf-8", "ignore")
            assert part in text[a:b]
            assert len(text[a:b].encode()) - (end - begin) < 4  # at most the rest of one character more
            covered |= set(range(a, b))
        assert {i for i, letter in enumerate(text) if not letter.isspace()} <= covered


@pytest.mark.parametrize("slug", list(SPECS))
def test_encoded_answer_spans_decode_to_the_answers(slug: str) -> None:
    network, tokenizer = make_network(slug)
    words = TEXT.split()
    questions, golds = [], []
    for i in range(0, len(words) - 2, 2):
        answer = " ".join(words[i : i + 2])
        start = len(" ".join(words[:i])) + (i > 0)
        questions.append(make_question(str(i), "what went far ?", TEXT, [(answer, start)])[0])
        golds.append(answer)
    text, left = encode_questions(network, tokenizer, questions, PassageBatches(length=32, stride=6))
    assert left.lost == 0
    assert len(text.questions) == len(questions)
    result: dict[int, set[str]] = {}
    for window, (begin, end) in enumerate(text.targets.tolist()):
        if begin:
            result.setdefault(int(text.question_index[window]), set()).add(text.text(window, begin, end))
    assert result == {i: {gold} for i, gold in enumerate(golds)}


def test_answer_span_excludes_adjacent_tokens() -> None:
    """Tokens that end where the answer begins, or begin where it ends, are excluded."""
    network, tokenizer = make_network("bert")
    for answer in ("30", "€5.30", "naïve", "old", "queen", "東京"):
        question, _ = make_question("x", "what ?", TRICKY, [(answer, None)])
        text, _ = encode_questions(network, tokenizer, [question], PassageBatches(length=32))
        results = {text.text(i, *place) for i, place in enumerate(text.targets.tolist()) if place[0]}
        assert results == {answer}


def test_windows_overlap_and_hold_every_token() -> None:
    network, tokenizer = make_network("bert")
    tokens = len(tokenizer.encode(TEXT))
    layout = PassageBatches(length=24, stride=5, question=4)
    text, left = encode_questions(network, tokenizer, [Question("x", "what went far to see ?", TEXT)], layout)
    assert left == (1, 1, 0)  # the question is truncated, and the passage is split into windows
    sizes = np.diff(text.passage, axis=1)[:, 0]
    assert sizes[:-1].tolist() == [24 - 4 - 3] * (len(sizes) - 1)
    assert text.first_token.tolist() == [5 * i for i in range(len(sizes))]
    assert text.first_token[-1] + sizes[-1] == tokens
    assert text.first_token[-2] + sizes[-2] < tokens  # and no more windows than needed
    ids = tokenizer.encode(TEXT).ids
    for i in range(len(text)):
        row = text.ids[text.starts[i] : text.starts[i + 1]]
        a, b = text.passage[i]
        assert row[a:b].tolist() == ids[text.first_token[i] : text.first_token[i] + b - a].tolist()
    for pack in (True, False):
        batch = PassageBatches(pack=pack).batch(text, np.arange(len(text)), 0)
        assert batch.target_positions is not None
        for i, at in enumerate(batch.target_positions):  # positions are [CLS] and the passage
            row = batch.inputs.ids.flatten()[at[at >= 0]].tolist()
            size = int(sizes[i])
            assert row == [tokenizer.special["[CLS]"], *ids[text.first_token[i] : text.first_token[i] + size].tolist()]
    # short windows overlap by half
    text, _ = encode_questions(
        network, tokenizer, [Question("x", "what ?", TEXT)], PassageBatches(length=16, stride=128)
    )
    width = int(np.diff(text.passage, axis=1).max())
    assert np.diff(text.first_token).tolist() == [width // 2] * (len(text) - 1)


def test_window_without_the_whole_answer_has_no_target() -> None:
    network, tokenizer = make_network("bert")
    question, _ = make_question("x", "what ?", TEXT, [("home", TEXT.index("home"))])
    text, _ = encode_questions(network, tokenizer, [question], PassageBatches(length=16, stride=4))
    held = [bool(begin) for begin, _ in text.targets.tolist()]
    assert held[-1]
    assert not held[0]
    for window, (begin, end) in enumerate(text.targets.tolist()):
        a, b = text.passage[window]
        inside = "home" in text.text(window, 1, int(b - a)).split()
        assert bool(begin) == inside
        if begin:
            assert text.text(window, begin, end) == "home"


def test_absent_answers_are_excluded_from_training_only() -> None:
    network, tokenizer = make_network("bert")
    questions = [make_question(i, "what ?", TEXT, [(word, None)])[0] for i, word in (("a", "king"), ("b", "Seattle"))]
    for learn, units in ((True, 1), (False, 2)):
        text, left = encode_questions(network, tokenizer, questions, PassageBatches(length=32), learn)
        assert (len(text.questions), left.lost) == (units, 1)


@pytest.mark.parametrize(("slug", "at"), [("bert", 0), ("xlnet", -1), ("gpt1", -1)])
def test_no_answer_position_is_the_pooled_token(slug: str, at: int) -> None:
    """[CLS] at the start, or the last token of a network that reads left to right."""
    network, tokenizer = make_network(slug)
    text, _ = encode_questions(network, tokenizer, [Question("x", "what ?", "the king")], PassageBatches(length=32))
    assert text.pooled_position[0] == at % len(text.ids)
    assert not text.passage[0, 0] <= text.pooled_position[0] < text.passage[0, 1]


def test_no_answer_position_without_frame_is_last_question_token() -> None:
    from nextword.core.types import FramedText

    assert no_answer_position(FramedText(np.arange(7), 6, text_spans=((0, 3), (3, 7)))) == 2
    assert no_answer_position(FramedText(np.arange(7), 6, text_spans=((1, 3), (4, 6)))) == 6


@pytest.mark.parametrize("slug", ["bert", "lstm"])
def test_span_logits_of_packed_padded_and_single_windows_are_equal(slug: str) -> None:
    network, tokenizer = make_network(slug)
    headed = SpanHead(network, QuestionAnsweringConfig(dropout=0.0)).eval()
    torch.nn.init.normal_(headed.out.weight)
    questions = [Question(str(i), "what went ?", TEXT[: 20 + 9 * i]) for i in range(4)]
    text, _ = encode_questions(network, tokenizer, questions, PassageBatches(length=32))
    everyone = np.arange(len(text))
    with torch.no_grad():
        packed = headed(PassageBatches().batch(text, everyone, 0))
        padded = headed(PassageBatches(pack=False).batch(text, everyone, 0))
        torch.testing.assert_close(packed, padded, rtol=1e-4, atol=1e-5)
        for i in everyone:
            alone = headed(PassageBatches().batch(text, everyone[i : i + 1], 0))[0]
            torch.testing.assert_close(packed[i, : len(alone)], alone, rtol=1e-4, atol=1e-5)
            assert torch.isneginf(packed[i, len(alone) :]).all()
            assert len(alone) == 1 + np.diff(text.passage[i])[0]


# ------------------------------------------------------------------------------------------------ spans


def test_best_spans_equal_exhaustive_search() -> None:
    torch.manual_seed(1)
    logits = torch.randn(3, 9, 2).double()
    logits[1, 6:] = -torch.inf  # a shorter window
    for longest in (1, 3, 30):
        result = best_spans(logits, longest)
        assert result.shape == (3, 1 + 3 * BEST_SPANS)
        for row, outputs in zip(logits, result, strict=True):
            assert outputs[0] == row[0].sum()
            pairs = [
                (float(row[i, 0] + row[j, 1]), i, j)
                for i in range(1, 9)
                for j in range(i, min(9, i + longest))
                if torch.isfinite(row[i, 0] + row[j, 1])
            ]
            wanted = sorted(pairs, reverse=True)[:BEST_SPANS]
            spans = [s for s in outputs[1:].view(-1, 3).tolist() if np.isfinite(s[2])]
            assert [(score, begin, end) for begin, end, score in spans] == wanted


def test_span_loss_equals_mean_of_start_and_end_cross_entropies() -> None:
    network, tokenizer = make_network("bert")
    headed = SpanHead(network, QuestionAnsweringConfig(dropout=0.0)).eval()
    torch.nn.init.normal_(headed.out.weight)
    question, _ = make_question("x", "what ?", "the old king went", [("old king", 4)])
    text, _ = encode_questions(network, tokenizer, [question], PassageBatches(length=32))
    batch = PassageBatches().batch(text, np.array([0]), 0)
    with torch.no_grad():
        p = headed(batch).double().softmax(1)[0]
        loss = SpanObjective({"kind": "passages", "length": 32}).loss(headed, batch, None)
    begin, end = text.targets[0]
    assert float(loss.value) == pytest.approx(float(-(p[begin, 0].log() + p[end, 1].log()) / 2), rel=1e-5)
    assert end > begin > 0


def make_logits(text: Any, *rows: tuple[float, list[tuple[int, int, float]]]) -> np.ndarray:
    out = np.full((len(text), 1 + 3 * BEST_SPANS), -np.inf)
    for i, (none, spans) in enumerate(rows):
        out[i, 0] = none
        for k, span in enumerate(spans):
            out[i, 1 + 3 * k : 4 + 3 * k] = span
    return out


def make_two_windows(**more: Any) -> Any:
    """Make a question with two windows; the words 1 … are positions of the first."""
    network, tokenizer = make_network("bert")
    passage = "king went far to see house in land"
    question, _ = make_question("x", "what ?", passage, [("far", 10)])
    text, _ = encode_questions(network, tokenizer, [question], PassageBatches(length=10, stride=3))
    assert len(text) >= 2
    return replace(text.take(np.arange(2)), metrics=("answer_f1", "exact"), **more), passage.split()


def test_find_answers_takes_best_over_windows_and_merges_equal_texts() -> None:
    text, words = make_two_windows()
    begins = text.first_token.tolist()
    shift = begins[1] - begins[0]
    assert text.text(0, 1, 1) == words[0]
    word = text.text(1, 1, 1)  # also in the first window if it is long enough
    logits = make_logits(text, (9.0, [(1, 1, 2.0), (1, 2, 1.5)]), (5.0, [(1, 1, 3.0), (2, 2, -1.0)]))
    result = find_answers(text, logits)[0]
    assert result.text == result.best == word
    assert result.margin == 5.0 - 3.0  # the lowest no-answer score of all windows
    turned = make_logits(text, (5.0, [(1, 1, 2.0)]), (9.0, [(1, 1, 3.0)]))
    assert find_answers(text, turned)[0].margin == 5.0 - 3.0  # from either window
    texts = [other for other, _ in result.others]
    assert len(texts) == len(set(texts)) == 4
    odds = np.exp([3.0, 2.0, 1.5, -1.0])
    assert [share for _, share in result.others] == pytest.approx((odds / odds.sum()).tolist())
    assert result.no_answer == 0.0  # SQuAD 1.1 has no unanswerable questions
    if shift < np.diff(text.passage[0])[0]:
        twice = make_logits(text, (9.0, [(1 + shift, 1 + shift, 1.0)]), (5.0, [(1, 1, 3.0)]))
        assert find_answers(text, twice)[0].others == ((word, 1.0),)


def test_find_answers_above_threshold_predicts_no_answer() -> None:
    text, words = make_two_windows(has_unanswerable=True, threshold=0.5)
    rows = (9.0, [(1, 1, 2.0)]), (2.4, [(1, 1, 1.0)])
    result = find_answers(text, make_logits(text, *rows))[0]
    assert (result.text, result.best) == (words[0], words[0])  # better by only 0.4
    odds = np.exp([2.0, 1.0, 2.4])
    assert result.no_answer == pytest.approx(odds[2] / odds.sum())
    assert result.probability == pytest.approx(odds[0] / odds.sum())
    even = (9.0, [(1, 1, 2.0)]), (2.5, [(1, 1, 1.0)])
    assert find_answers(text, make_logits(text, *even))[0].text == words[0]  # the threshold for no answer is higher
    result = find_answers(replace(text, threshold=0.3), make_logits(text, *rows))[0]
    assert (result.text, result.best) == ("", words[0])
    assert result.probability == result.no_answer
    assert score_predictions(text, [result]) == {"answer_f1": 0.0, "exact": 0.0}


def test_find_answers_of_empty_passage_is_empty() -> None:
    network, tokenizer = make_network("bert")
    text, _ = encode_questions(
        network, tokenizer, [Question("x", "what ?", ""), Question("y", "", "king")], PassageBatches(length=32)
    )
    headed = SpanHead(network, QuestionAnsweringConfig()).eval()
    with torch.no_grad():
        for chosen in ([0], [0, 1]):
            spans = headed.best_spans(headed(PassageBatches().batch(text, np.array(chosen), 0)))
            assert spans.shape == (len(chosen), 1 + 3 * BEST_SPANS)
    results = find_answers(text, spans.double().numpy())
    assert [result.text for result in results] == ["", "king"]


@pytest.mark.parametrize(
    ("options", "key"),
    [({"kind": "rows"}, "batches.kind"), ({"stride": 0}, "batches.stride"), ({"strides": 3}, "batches.strides")],
)
def test_span_objective_with_invalid_batches_names_the_key(options: dict[str, Any], key: str) -> None:
    with pytest.raises(InvalidSetting) as error:
        SpanObjective(options)
    assert error.value.key == key
