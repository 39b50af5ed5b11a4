"""Each route of /api gives what the Python call gives, under the keys of the command's --json."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest

from nextword import lens
from nextword.core.types import Beam, Contrastive, Greedy, Sample, Stop
from nextword.evaluation.seq2seq import max_target_length
from nextword.lens import LensResult
from nextword.lm.base import TextModel
from nextword.tasks.in_context import TEMPLATE, zero_shot_class
from tests.support.running_server import Running

Models = Callable[[str], TextModel]
TEXT = "the king of a land"


def close(answer: Any, expected: Any) -> None:
    """Equal, numbers up to the rounding of batches of another size; infinities are null."""
    if isinstance(expected, dict):
        assert answer.keys() == expected.keys()
        for key, value in expected.items():
            close(answer[key], value)
    elif isinstance(expected, (list, tuple)):
        assert len(answer) == len(expected)
        for a, b in zip(answer, expected, strict=True):
            close(a, b)
    elif isinstance(expected, float) and not math.isfinite(expected):
        assert answer is None
    elif isinstance(expected, float):
        assert answer == pytest.approx(expected, rel=1e-4, abs=1e-5)
    else:
        assert answer == expected


# ------------------------------------------------------------------------------------------------ language models


@pytest.mark.parametrize("name", ["gpt2", "lstm", "ngram", "glm", "bert"])
def test_score_equals_score_many(server: Running, models: Models, name: str) -> None:
    answer = server.post(f"/m/{name}/api/score", {"texts": [TEXT, "bread"], "given": ["", "we have no "]})["scores"]
    for row, score in zip(answer, models(name).score_many([TEXT, "bread"], ["", "we have no "]), strict=True):
        close({key: row[key] for key in vars(score)}, vars(score))
        close(row["bits_per_byte"], score.bits_per_byte())
        close(row["word_perplexity"], score.word_perplexity())


def test_score_of_seq2seq_needs_sources(server: Running, models: Models) -> None:
    answer = server.post("/m/seq2seq/api/score", {"texts": [TEXT], "given": ["land a of"]})["scores"][0]
    close(answer["nats"], models("seq2seq").score(TEXT, "land a of").nats)
    server.post("/m/seq2seq/api/score", {"texts": [TEXT]}, 400)
    server.post("/m/gpt2/api/score", {"texts": [TEXT], "given": ["a", "b"]}, 400)
    server.post("/m/word2vec/api/score", {"texts": [TEXT]}, 400)


@pytest.mark.parametrize("tokens", [False, True])
@pytest.mark.parametrize("name", ["gpt2", "lstm", "ngram", "glm"])
def test_next_equals_next(server: Running, models: Models, name: str, tokens: bool) -> None:
    answer = server.post(f"/m/{name}/api/next", {"text": TEXT, "k": 4, "tokens": tokens})
    close(answer["guesses"], [vars(guess) for guess in models(name).next(TEXT, k=4, tokens=tokens)])
    assert answer["text"] == TEXT


def test_blanks_are_filled_with_words(server: Running, models: Models) -> None:
    text = "the ___ of a ___"
    expected = [[vars(guess) for guess in blank] for blank in models("bert").fill(text, 3)]
    close(server.post("/m/bert/api/fill", {"text": text, "k": 3})["blanks"], expected)
    answer = server.post("/m/bert/api/next", {"text": text, "k": 3})
    close((answer["blanks"], answer["guesses"]), (expected, expected[0]))
    server.post("/m/lstm/api/fill", {"text": text}, 400)
    server.post("/m/bert/api/fill", {"text": "no blank"}, 400)


@pytest.mark.parametrize(
    ("settings", "decoding"),
    [
        ({"temperature": 0}, Greedy()),
        ({"seed": 3}, Sample(0.8, seed=3)),
        ({"seed": 3, "typical_p": 0.8, "no_repeat_ngram": 2}, Sample(0.8, seed=3, typical=0.8, no_repeat=2)),
        ({"contrastive": 0.6, "top_k": 3}, Contrastive(3, 0.6)),
        ({"beam": 3, "length_penalty": 0.5}, Beam(3, 0.5)),
        ({"temperature": 0, "bias": {"id:5": 2.0, "e": None}}, Greedy(bias={5: 2.0, "e": -math.inf})),
    ],
)
def test_generate_equals_generate(server: Running, models: Models, settings: Any, decoding: Any) -> None:
    body = {"prompt": TEXT, "max_tokens": 10, **settings}
    pieces = models("lstm").generate(TEXT, decoding, Stop(10)).pieces
    answer = server.post("/m/lstm/api/generate", body)
    expected = {
        "prompt": TEXT,
        "text": "".join(piece.text for piece in pieces),
        "tokens": sum(len(piece.ids) for piece in pieces),
        "nats": -sum(piece.log_prob for piece in pieces),
        "reason": pieces[-1].reason,
    }
    close(answer, expected)
    *events, last = server.events("/m/lstm/api/generate", body | {"stream": True})
    assert last == answer
    assert "".join(event["piece"] for event in events) == answer["text"]


def test_generate_takes_several_prompts(server: Running, models: Models) -> None:
    prompts = [TEXT, "bread", "all people"] * 3
    answer = server.post("/m/gpt2/api/generate", {"prompt": prompts, "seed": 2, "max_tokens": 5})["generations"]
    expected = [models("gpt2").generate(p, Sample(0.8, seed=2 + i), Stop(5)).text for i, p in enumerate(prompts)]
    assert [row["text"] for row in answer] == expected


@pytest.mark.parametrize("name", ["gpt2", "ngram"])
def test_ids_follow_the_prompt(server: Running, models: Models, name: str) -> None:
    """A text that is continued from its ids is the text that would have been generated at once."""
    body = {"prompt": TEXT, "temperature": 0, "max_tokens": 8, "stream": True}
    *events, whole = server.events(f"/m/{name}/api/generate", body)
    ids = [id for event in events[:3] for id in event["ids"]]
    *rest, _ = server.events(f"/m/{name}/api/generate", {**body, "ids": ids, "max_tokens": 8 - len(ids)})
    assert [event["ids"] for event in rest] == [event["ids"] for event in events[3:]]
    assert whole["tokens"] == 8
    server.post(f"/m/{name}/api/generate", {"prompt": [TEXT, TEXT], "ids": ids}, 400)
    server.post("/m/seq2seq/api/generate", {"prompt": TEXT, "ids": ids}, 400)
    server.post("/m/glm/api/generate", {"prompt": "the ___", "ids": ids}, 400)


def test_reasons_are_those_of_the_command(server: Running, models: Models) -> None:
    end = f"id:{models('gpt2').tokenizer.end}"
    answer = server.post("/m/gpt2/api/generate", {"prompt": TEXT, "temperature": 0, "bias": {end: 1000.0}})
    assert (answer["reason"], answer["text"]) == ("end", "")
    answer = server.post("/m/lstm/api/generate", {"prompt": TEXT, "temperature": 0, "stop": [" "]})
    assert answer["reason"] == "stop"


def test_n_best_has_ranks_and_scores(server: Running, models: Models) -> None:
    body = {"prompt": TEXT, "beam": 4, "n_best": 2, "max_tokens": 5}
    best = models("gpt2").n_best(TEXT, Beam(4), Stop(5), 2)
    expected = [
        {"rank": i, "text": c.text, "score": c.score, "tokens": c.tokens, "complete": c.complete, "nats": -c.log_prob}
        for i, c in enumerate(best, 1)
    ]
    close(server.post("/m/gpt2/api/generate", body), {"prompt": TEXT, "best": expected})


def test_blanks_in_a_prompt_are_infilled(server: Running, models: Models) -> None:
    text = "the ___ of a ___"
    filled = models("glm").infill(text, Greedy(), Stop(12))[0]
    answer = server.post("/m/glm/api/generate", {"prompt": text, "max_tokens": 12})
    assert (answer["text"], answer["blanks"]) == (filled.text, list(filled.blanks))
    best = server.post("/m/glm/api/generate", {"prompt": text, "max_tokens": 12, "beam": 3, "n_best": 2})["best"]
    expected = models("glm").infill(text, Beam(3), Stop(12), 2)
    assert [row["text"] for row in best] == [one.text for one in expected]


def test_translate_searches(server: Running, models: Models) -> None:
    lm: Any = models("seq2seq")
    stop = Stop(max_target_length(lm, [TEXT]))
    answer = server.post("/m/seq2seq/api/translate", {"source": TEXT})
    assert answer == {"source": TEXT, "text": lm.generate(TEXT, Greedy(), stop).text.lstrip()}
    best = lm.n_best(TEXT, Beam(3, 0.6), stop, 2)
    answer = server.post("/m/seq2seq/api/translate", {"source": [TEXT], "beam": 3, "n_best": 2, "length_penalty": 0.6})
    assert [row["text"] for row in answer["translations"][0]["best"]] == [candidate.text for candidate in best]
    server.post("/m/gpt2/api/translate", {"source": TEXT}, 400)
    server.post("/m/seq2seq/api/translate", {"source": TEXT, "n_best": 2}, 400)


# ------------------------------------------------------------------------------------------------ tasks


def test_predict_gives_labels_with_probabilities(server: Running, models: Models) -> None:
    lm = models("topics")
    answer = server.post("/m/topics/api/predict", {"examples": [TEXT, "bread"]})
    expected = [{"predicted": p.label, "probabilities": dict(p.probabilities)} for p in lm.predict([TEXT, "bread"])]
    close(answer, {"labels": list(lm.task.config.labels), "predictions": expected})  # type: ignore[attr-defined]
    server.post("/m/topics/api/predict", {"examples": [[TEXT, "pair"]]}, 400)
    server.post("/m/topics/api/predict", {"examples": [TEXT], "labels": ["a", "b"]}, 400)
    server.post("/m/topics/api/predict", {"examples": [TEXT], "task": "other"}, 400)


def test_predict_chooses_labels_with_a_language_model(server: Running, models: Models) -> None:
    for name in ("gpt2", "bert", "ngram"):
        lm = models(name)
        answer = server.post(f"/m/{name}/api/predict", {"examples": [TEXT], "labels": ["bread", "land"]})
        (expected,) = zero_shot_class(lm)(lm, ["bread", "land"], TEMPLATE).predict([TEXT])
        close(answer["predictions"][0]["probabilities"], dict(expected.probabilities))
    for body in ({}, {"labels": ["one"]}, {"template": "x {label}"}, {"labels": ["a", "b"], "template": "no mark"}):
        server.post("/m/gpt2/api/predict", {"examples": [TEXT], **body}, 400)


def test_tag_marks_words(server: Running, models: Models) -> None:
    sentences = ["mister Karo lives in Velopolis", ["met", "Ann"]]
    answer = server.post("/m/tags/api/tag", {"sentences": sentences})["sentences"]
    for row, tagged in zip(answer, models("tags").predict(sentences), strict=True):
        assert (row["words"], row["tags"]) == (list(tagged.words), list(tagged.tags))  # type: ignore[attr-defined]
        assert [" ".join(row["words"][s["start"] : s["end"]]) for s in row["spans"]] == [
            s["text"] for s in row["spans"]
        ]
    server.post("/m/topics/api/tag", {"sentences": sentences}, 400)


def test_answer_finds_spans(server: Running, models: Models) -> None:
    question = {"question": "what follows red ?", "context": "we saw red bread and water"}
    (row,) = server.post("/m/answers/api/answer", {"questions": [question]})["answers"]
    (expected,) = models("answers").predict([tuple(question.values())])
    close((row["predicted"], row["probability"]), (expected.text, expected.probability))  # type: ignore[attr-defined]
    assert row["predicted"] in question["context"]
    server.post("/m/topics/api/answer", {"questions": [question]}, 400)


def test_choose_finds_the_right_candidate(server: Running, models: Models) -> None:
    example = {"context": "went to king", "choices": ["saw king", "saw bread", "saw land"]}
    (row,) = server.post("/m/choices/api/choose", {"examples": [example]})["predictions"]
    (expected,) = models("choices").predict([("went to king", example["choices"])])
    close(row, {"predicted": int(expected.label), "probabilities": list(expected.probabilities.values())})
    server.post("/m/choices/api/choose", {"examples": [{**example, "choices": ["one"]}]}, 400)
    server.post("/m/topics/api/choose", {"examples": [example]}, 400)


def test_embed_gives_vectors_of_texts_and_words(server: Running, models: Models) -> None:
    answer = server.post("/m/bert/api/embed", {"texts": [TEXT], "layer": "mean", "pool": "first"})
    close(answer["vectors"], models("bert").embed([TEXT], "mean", "first").tolist())
    assert answer["layers"] == len(models("bert").network.widths)
    words = server.post("/m/gpt2/api/embed", {"texts": [TEXT], "words": True})["texts"][0]
    expected = models("gpt2").embed_words([TEXT])[0]
    close((words["words"], words["vectors"]), (expected.words, expected.vectors.tolist()))


# ------------------------------------------------------------------------------------------------ the lens

View = Callable[[TextModel], LensResult]
VIEWS: list[tuple[str, str, dict[str, Any], View]] = [
    ("explain", "gpt2", {"text": TEXT, "k": 2}, lambda lm: lens.explain_text(lm, TEXT, k=2)),
    ("explain", "ngram", {"text": TEXT}, lambda lm: lens.explain_text(lm, TEXT)),
    ("explain", "bert", {"text": TEXT}, lambda lm: lens.explain_text(lm, TEXT)),
    ("explain", "seq2seq", {"text": TEXT, "source": "land"}, lambda lm: lens.explain_text(lm, TEXT, "land")),
    ("attention", "gpt2", {"text": TEXT, "layers": [-1]}, lambda lm: lens.read_attention(lm, TEXT, layers=[-1])),
    ("attention", "bert", {"text": TEXT, "heads": [1]}, lambda lm: lens.read_attention(lm, TEXT, heads=[1])),
    ("attention", "seq2seq", {"text": TEXT, "source": "land"}, lambda lm: lens.read_attention(lm, TEXT, "land")),
    ("layers", "gpt2", {"text": TEXT, "k": 2}, lambda lm: lens.predict_by_layer(lm, TEXT, k=2)),
    ("layers", "bert", {"text": "the ___ of a land"}, lambda lm: lens.predict_by_layer(lm, "the ___ of a land")),
    ("gates", "lstm", {"text": TEXT}, lambda lm: lens.trace_gates(lm, TEXT)),
    ("gates", "lstm", {"text": TEXT, "layers": [-1]}, lambda lm: lens.trace_gates(lm, TEXT, [-1])),
    ("gradients", "lstm", {"text": TEXT}, lambda lm: lens.trace_gradient(lm, TEXT)),
    ("gradients", "lstm", {"text": TEXT, "every": True}, lambda lm: lens.trace_gradients(lm, TEXT)),
    ("saliency", "lstm", {"text": TEXT, "target": "s"}, lambda lm: lens.attribute_word(lm, TEXT, "s")),
    (
        "saliency",
        "gpt2",
        {"text": TEXT, "method": "gradient_x_input"},
        lambda lm: lens.attribute_word(lm, TEXT, method="gradient_x_input"),
    ),
    ("nearest", "word2vec", {"query": "king - bread", "k": 3}, lambda lm: lens.find_neighbors(lm, "king - bread", k=3)),
    (
        "nearest",
        "bert",
        {"query": "a king", "texts": ["bread", "the king"]},
        lambda lm: lens.find_neighbors(lm, "a king", ["bread", "the king"]),
    ),
    (
        "project",
        "word2vec",
        {"items": ["king", "bread", "land"], "of": "words"},
        lambda lm: lens.project_vectors(lm, ["king", "bread", "land"], "words"),
    ),
    (
        "beam",
        "gpt2",
        {"prompt": TEXT, "beam": 2, "max_tokens": 4},
        lambda lm: lens.trace_beam(lm, TEXT, Beam(2), Stop(4)),
    ),
    (
        "distribution",
        "gpt2",
        {"prompt": TEXT, "ids": [5, 9], "k": 4, "temperature": 0.7, "top_k": 6, "top_p": 0.9, "chosen": 11},
        lambda lm: lens.show_decoding(lm, TEXT, Sample(0.7, 6, 0.9), 4, [5, 9], 11),
    ),
    (
        "distribution",
        "ngram",
        {"prompt": TEXT, "min_p": 0.1, "repetition_penalty": 1.5},
        lambda lm: lens.show_decoding(lm, TEXT, Sample(0.8, min_p=0.1, repetition=1.5)),
    ),
    (
        "distribution",
        "seq2seq",
        {"prompt": TEXT, "ids": [5]},
        lambda lm: lens.show_decoding(lm, TEXT, Greedy(), ids=[5]),
    ),
]


@pytest.mark.parametrize(("route", "name", "body", "view"), VIEWS, ids=[f"{v[0]}-{v[1]}" for v in VIEWS])
def test_views_equal_those_of_the_lens(
    server: Running, models: Models, route: str, name: str, body: dict[str, Any], view: View
) -> None:
    answer = server.post(f"/m/{name}/api/{route}", body)
    close(answer, {**view(models(name)).as_dict(), "model": name})


def test_distribution_refuses_what_is_no_token(server: Running) -> None:
    for name in ("gpt2", "seq2seq"):
        server.post(f"/m/{name}/api/distribution", {"prompt": TEXT, "ids": [10**6]}, 400)
        server.post(f"/m/{name}/api/distribution", {"prompt": TEXT, "chosen": 10**6}, 400)
    server.post("/m/gpt2/api/distribution", {"prompt": TEXT, "ids": [1] * 20_000}, 400)
    server.post("/m/bert/api/distribution", {"prompt": TEXT}, 400)


def test_distribution_refuses_long_translations(server: Running) -> None:
    server.post("/m/seq2seq/api/distribution", {"prompt": TEXT, "ids": [3] * 513}, 400)


def test_explain_attributes_the_label_of_a_classifier(server: Running, models: Models) -> None:
    (expected,) = models("topics").explain([TEXT], ["bad"])  # type: ignore[attr-defined]
    close(server.post("/m/topics/api/explain", {"text": TEXT, "label": "bad"}), vars(expected))
    server.post("/m/topics/api/explain", {"text": TEXT, "label": "nope"}, 400)
    server.post("/m/gpt2/api/explain", {"text": TEXT, "label": "bad"}, 400)


def test_views_that_a_model_lacks_are_explained(server: Running) -> None:
    for route, name in (("attention", "lstm"), ("layers", "ngram"), ("gates", "gpt2"), ("saliency", "ngram")):
        error = server.post(f"/m/{name}/api/{route}", {"text": TEXT}, 400)["error"]
        assert error["code"] == "unsupported"
        assert error["message"]
    assert server.post("/m/gpt2/api/nearest", {"query": "king"}, 400)["error"]["code"] == "unsupported"


# ------------------------------------------------------------------------------------------------ limits


@pytest.mark.parametrize(
    ("route", "body"),
    [
        ("generate", {"prompt": TEXT, "nope": 1}),
        ("generate", {"prompt": TEXT, "beam": 64, "max_tokens": 8192}),
        ("generate", {"prompt": TEXT, "n_best": 2}),
        ("generate", {"prompt": TEXT, "beam": 2, "temperature": 1.0}),
        ("generate", {"prompt": TEXT, "beam": 2, "contrastive": 0.5}),
        ("generate", {"prompt": [TEXT, TEXT], "stream": True}),
        ("generate", {"prompt": TEXT, "min_tokens": 7, "max_tokens": 6}),
        ("generate", {"prompt": TEXT, "bias": {"the king": 1.0}}),
        ("generate", {"prompt": "x" * 3000, "overflow": "error"}),
        ("score", {"texts": ["the king of a land " * 20_000] * 15}),
        ("score", {"texts": []}),
        ("next", {"text": TEXT, "k": 0}),
        ("next", {"text": "x " * 20_000}),
        ("explain", {"text": "x " * 5000}),
        ("attention", {"text": "x " * 600}),
        ("beam", {"prompt": TEXT, "beam": 64, "max_tokens": 1000}),
        ("embed", {"texts": [TEXT], "pool": "nope"}),
        ("predict", {"examples": ["x"] * 512, "labels": [str(i) for i in range(64)]}),
    ],
)
def test_too_much_and_nonsense_is_refused(server: Running, route: str, body: dict[str, Any]) -> None:
    error = server.post(f"/m/gpt2/api/{route}", body, 400)["error"]
    assert error["type"] == "invalid_request_error"


def test_pseudo_likelihoods_of_long_texts_are_refused(server: Running) -> None:
    server.post("/m/bert/api/score", {"texts": ["the king " * 1500]}, 400)
