"""The report of a comparison: one HTML page for any result."""

from __future__ import annotations

import math
import re
from html.parser import HTMLParser
from typing import Any

import pytest

from nextword.comparison.report import render

WORDS = "In the beginning, God created the heavens and the earth. The earth was formless and empty."


def curve(seconds: float, end: float, start: float = 5.0) -> list[dict[str, Any]]:
    """A falling curve; validation is measured at every other event."""
    out = []
    for i in range(1, 31):
        bits = end + (start - end) * math.exp(-i / 6)
        valid = round(bits + 0.02, 4) if i % 2 == 0 else None
        at = {"seconds": seconds * i / 30, "step": 30 * i, "tokens": 21000 * i}
        out.append({**at, "train_bits_per_byte": bits, "valid_bits_per_byte": valid})
    return out


def model(name: str, bits: float, **more: Any) -> dict[str, Any]:
    full = {
        "slug": name, "name": name, "title": f"{name.upper()} (Someone 1997)", "run": f"runs/compare/{name}",
        "kind": "exact", "status": "done", "error": None, "stopped": "minutes", "context": None, "stride": None,
        "bits_per_byte": bits, "bits_per_byte_low": bits - 0.03, "bits_per_byte_high": bits + 0.03,
        "word_perplexity": 2 ** (bits * 5.3), "token_perplexity": 2 ** (bits * 3.6),
        "nats": 571234.5, "tokens": 105000, "words": 71300, "bytes": 411072,
        "parameters": 1234567, "size": 5012345, "seconds": 61.2, "tokens_per_second": 15000.0,
        "epochs": 3.2, "steps": 900, "config": {"width": 256, "layers": 2}, "curve": curve(61.2, bits),
        "sample": f"And the king said to {name}, Behold, I will give thee the land.\n\nSo they went up to the city.",
    }  # fmt: skip
    return full | more


def comparison(*models: dict[str, Any], **more: Any) -> dict[str, Any]:
    tokens = re.findall(r"\s?[\w]+|[,.]", WORDS)
    size = {"bytes": 3312345, "words": 604321, "tokens": 890123, "documents": 934}
    full = {
        "version": "0.1.0",
        "created": "2026-11-15T10:00:00",
        "data": {
            "name": "web",
            "source": "World English Bible",
            "splits": {"train": size, "valid": size, "test": size},
        },
        "tokenizer": {"kind": "bpe", "size": 4096, "lossless": True, "bytes_per_token": 3.9},
        "budget": {"minutes": 5.0, "device": "cpu", "threads": 2, "machine": "a small machine"},
        "models": list(models),
        "passage": {
            "text": WORDS,
            "tokens": tokens,
            "surprisal": {
                m.get("name"): [(7 * i + 3 * j) % 17 + 0.25 for i in range(len(tokens))] for j, m in enumerate(models)
            },
        },
        "notes": ["The n-gram counts every document once."],
    }
    return full | more


FOUR = [
    model("gru", 2.05, parameters=1100000, seconds=58.0),
    model("lstm", 2.01, title="LSTM (Hochreiter & Schmidhuber 1997; Zaremba et al. 2014)"),
    model("nplm", 2.482, context=5, parameters=812345, seconds=40.5),
    model("rnn", 2.31, parameters=640000, tokens_per_second=21000.4),
]


class Page(HTMLParser):
    """Checks that every tag is closed in order; collects text, ids, and references."""

    VOID = frozenset({"meta", "link", "input", "br", "hr", "img"})

    def __init__(self, html: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.words: list[str] = []
        self.feed(html)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open[-1:] not in (["style"], ["script"]):
            self.words.append(data)

    @property
    def text(self) -> str:
        return re.sub(r"\s+", " ", " ".join(self.words))


def rows(html: str) -> list[list[str]]:
    """The text of every table cell, row by row."""
    return [
        [re.sub(r"<[^>]*>", " ", cell).strip() for cell in re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row, re.S)]
        for row in re.findall(r"<tr>(.*?)</tr>", html, re.S)
    ]


# ------------------------------------------------------------------------------------------------ the page


def test_headline_states_the_result():
    text = Page(render(comparison(*FOUR))).text
    assert "On web , the LSTM predicts best: 2.01 bits per byte (1.98–2.04)." in text
    assert "It would compress the text to 25 % of its size." in text  # 2.01 of 8 bits
    assert (
        "4 models: trained on 604,321 words, scored on 3.31 MB of held-out text, 5 min of training for all on cpu."
        in text
    )


def test_headline_states_what_the_budget_leaves_open():
    some = [model("lstm", 2.01, epochs=0.6), model("gru", 2.4, curve=curve(58.0, 2.4, 2.4)), FOUR[2]]
    text = Page(render(comparison(*some))).text
    assert (
        "Of 3 networks, 3 were cut short by the clock, 1 saw less than one pass of the text (lstm) and 2 were still "
        "improving at the end (lstm, nplm). More time may change the order."
    ) in text


def test_headline_names_no_winner_after_a_few_steps():
    hasty = [model("lstm", 2.01, steps=4), model("gru", 2.4, steps=9)]
    text = Page(render(comparison(model("ngram", 1.9, stopped="counted"), *hasty))).text
    assert "On web , there is no winner." in text
    assert "lstm and gru had time for 4 to 9 steps only" in text
    assert "best:" not in text
    assert "lead is clear" not in text


def test_mixture_and_warnings_are_shown():
    parts = [{"name": "ngram", "weight": 0.6}, {"name": "lstm", "weight": 0.4}]
    mixture = {"models": parts, "bits_per_byte": 1.9, "gain": 0.11, "best_single": "lstm"}
    text = Page(render(comparison(*FOUR, mixture=mixture, warnings=["The text is small."]))).text
    assert "Mixture of 60 % ngram and 40 % lstm: 1.900 bits per byte, 0.110 less than lstm alone." in text
    assert "The text is small." in text


def test_text_without_spaces_is_counted_in_characters():
    given = comparison(*(m | {"word_perplexity": None} for m in FOUR))
    for split in given["data"]["splits"]:
        given["data"]["splits"][split] = given["data"]["splits"][split] | {"characters": 423369, "words": 7}
    given["passage"] |= {"text": "细数十年梦，十处旧欢如昨。春风吹又生，离离原上草。"}
    html = render(given)
    assert "trained on 423,369 characters" in Page(html).text
    assert "Characters" in [cell for row in rows(html) for cell in row]
    assert not [cell for row in rows(html) for cell in row if cell.startswith("Words")]
    assert "nextword generate runs/compare/lstm 细数十年梦，十处\n" in html.replace("&#x27;", "").replace(
        "</code>", "\n"
    )


def test_leaderboard_lists_models_from_best_to_worst():
    table = rows(render(comparison(*FOUR)))
    ranked = table[1:5]
    assert [row[0].split()[0] for row in ranked] == ["1", "2", "3", "4"]
    assert [row[1].split()[0] for row in ranked] == ["lstm", "gru", "rnn", "nplm"]
    assert ranked[0][2:] == ["2.010", "1.980–2.040", "1,610", "150.7", "1,234,567", "5.01 MB", "1 min 1 s", "15,000"]
    assert ranked[2][-1] == "21,000"


def test_models_with_overlapping_intervals_are_marked():
    html = render(comparison(*FOUR))  # lstm up to 2.04, gru from 2.02, rnn from 2.28
    assert "gru is not clearly different from lstm: intervals overlap." in Page(html).text
    assert [row[0].replace(" ", "") for row in rows(html)[1:5]] == ["1", "2≈", "3", "4"]
    both = Page(render(comparison(*FOUR, model("gpt1", 2.06)))).text
    assert "gru and gpt1 are not clearly different from lstm" in both
    apart = Page(render(comparison(FOUR[1], FOUR[2]))).text
    assert "not clearly different" not in apart
    assert "No interval overlaps that of lstm" in apart


def test_without_intervals_no_model_is_marked():
    none = {"bits_per_byte_low": None, "bits_per_byte_high": None}
    text = Page(render(comparison(model("lstm", 2.01, **none), model("gru", 2.02, **none)))).text
    assert "overlap" not in text.replace("overlaps that", "")
    assert "2.01 bits per byte." in text


def test_page_loads_nothing():
    html = render(comparison(*FOUR))
    links = [
        value or "" for name, value in Page(html).attributes if name in {"src", "href", "srcset", "action", "data"}
    ]
    assert links
    assert all(link.startswith("#") or link == "data:," for link in links)
    assert not re.search(r"https?://|url\(|@import|<img|<iframe", html)
    assert "default-src 'none'" in html


def test_sections_are_linked_and_labeled():
    page = Page(render(comparison(*FOUR)))
    ids = [value for name, value in page.attributes if name == "id"]
    assert len(ids) == len(set(ids))
    refers = [
        (value or "").lstrip("#") for name, value in page.attributes if name in {"href", "for", "aria-labelledby"}
    ]
    assert {link for link in refers if link != "data:,"} <= set(ids)
    assert {"header", "nav", "main", "footer", "h1"} <= set(page.tags)
    html = render(comparison(*FOUR))
    assert all("aria-label=" in svg or "aria-hidden" in svg for svg in re.findall(r"<svg[^>]*>", html))
    assert "lstm ends at" in html  # charts have a text description


def test_text_is_escaped_everywhere():
    evil = "<script>alert('x')</script>&\"\x00\ud800"
    bad = model(evil, 2.0, title=evil, run=evil, sample=evil, config={evil: evil}, stopped=evil)
    failed = model(evil, 2.0, status="failed", error=evil)
    given = comparison(bad, failed, notes=[evil], created=evil, version=evil)
    given["data"] |= {"name": evil, "source": evil}
    given["budget"] |= {"machine": evil, "device": evil}
    given["tokenizer"]["kind"] = evil
    given["passage"] = {"text": evil, "tokens": [evil, " b"], "surprisal": {evil: [3.0, 1.0]}}
    html = render(given)
    page = Page(html)
    assert page.tags.count("script") == 1  # the script of the page
    assert "<script>alert" not in html
    assert "<script>alert('x')</script>" in page.text  # shown as text
    html.encode("utf-8")
    assert "\x00" not in html


# ------------------------------------------------------------------------------------------------ what may be missing


def test_empty_comparison_renders():
    assert "no model could be ranked" in Page(render({})).text
    assert "no model could be ranked" in Page(render({"models": [], "data": None, "passage": None, "notes": None})).text


def test_model_with_few_fields_renders():
    text = Page(render({"models": [{"slug": "ngram", "bits_per_byte": 2.5}]})).text
    assert "On this text , the ngram predicts best: 2.50 bits per byte." in text


@pytest.mark.parametrize("field", sorted(set(FOUR[0]) - {"slug"}))
def test_any_field_of_a_model_may_be_null(field):
    for models in ([FOUR[0], FOUR[1] | {field: None}], [{k: v for k, v in FOUR[1].items() if k != field}]):
        assert not re.search(r"\b(None|nan)\b", Page(render(comparison(*models))).text)


@pytest.mark.parametrize("field", sorted(comparison()))
def test_any_field_of_the_comparison_may_be_null(field):
    assert not re.search(r"\b(None|nan)\b", Page(render(comparison(*FOUR, **{field: None}))).text)


def test_infinite_numbers_are_shown_as_infinity():
    text = Page(render(comparison(*FOUR, model("rnn2", math.inf, word_perplexity=math.inf, parameters=math.nan)))).text
    assert "∞" in text
    assert "nan" not in text


NOTHING = {"bits_per_byte": None, "bits_per_byte_low": None, "bits_per_byte_high": None, "word_perplexity": None,
           "token_perplexity": None, "nats": None, "lossless": True, "impossible": 3, "tokens": 1200}  # fmt: skip


def test_impossible_text_is_explained():
    """As in `compare --json`: null, and the number of impossible tokens."""
    html = render(comparison(*FOUR, model("mle", 2.0, **NOTHING)))
    text = Page(html).text
    assert "the LSTM predicts best: 2.01 bits per byte" in text
    assert "The text is impossible under mle (3 of 1,200 tokens have probability 0)." in text
    (row,) = (row for row in rows(html) if row[0] == "5")
    assert row[1].startswith("mle")
    assert row[2:6] == ["∞", "impossible", "∞", "∞"]
    assert "gru is not clearly different from lstm" in text
    assert not re.search(r"\b(inf|nan)\b", text)
    apart = Page(render(comparison(FOUR[1], FOUR[2], model("mle", 2.0, **NOTHING)))).text
    assert "No interval overlaps that of lstm" in apart


def test_text_impossible_for_all_models_has_no_best_model():
    for models in ([model("mle", 2.0, **NOTHING)], [model("mle", 2.0, **NOTHING), model("other", 2.0, **NOTHING)]):
        text = Page(render(comparison(*models))).text
        every = " under every model" * (len(models) > 1)
        assert f"On web , the text is impossible{every}." in text
        assert "predicts best" not in text
        assert "not clearly different" not in text
        assert not re.search(r"\b(inf|nan)\b", text)


def test_passage_marks_impossible_tokens():
    given = comparison(model("mle", 2.0, **NOTHING), model("lstm", 2.0))
    given["passage"] = {"text": "a b c", "tokens": ["a", " b", " c"]}
    given["passage"]["surprisal"] = {"mle": [2.0, None, 4.0], "lstm": [1.0, None, 3.0]}
    html = render(given)
    assert (
        html.count('<span class="surprisal-7" title="∞ bits, impossible">b</span>') == 1
    )  # nothing is known about the lstm
    text = Page(html).text
    assert "“b” is impossible under this model; the rest costs 3.00 bits per token." in text
    assert "2.00 bits per token on average; the most surprising is “c” with 3.0." in text
    given["passage"]["surprisal"]["mle"] = [None, None, 4.0]
    message = "2 tokens are impossible under this model, first “a”; the rest costs 4.00 bits per token."
    assert message in Page(render(given)).text


def test_failed_model_is_shown_with_its_error_and_not_ranked():
    html = render(comparison(*FOUR, model("elmo", 0.5, status="failed", error="the loss became NaN at step 120")))
    assert "the LSTM predicts best" in re.sub("<.*?>", "", html)
    shown = next(row for row in rows(html) if row[1:2] == ["failed"])
    assert shown[0].startswith("elmo")
    assert shown[2] == "the loss became NaN at step 120"
    assert "nextword generate runs/compare/elmo" not in html


def test_pseudo_likelihoods_are_never_ranked():
    html = render(comparison(*FOUR, model("bert", 0.61, kind="pseudo")))
    assert "the LSTM predicts best" in re.sub("<.*?>", "", html)
    assert len([row for row in rows(html) if row[0][:1].isdigit()]) == 4
    assert "Pseudo bits per byte" in html
    assert "0.610" in html
    assert "bert ends at" not in html
    assert "bert: 0.61" not in html  # not in a chart either
    assert "nextword next runs/compare/bert &#x27;In the ___ God&#x27;" in html
    assert "nextword generate runs/compare/bert" not in html
    alone = Page(render(comparison(model("bert", 0.61, kind="pseudo")))).text
    assert "No model has an exact likelihood" in alone


def test_backward_model_has_no_generate_command():
    html = render(comparison(*FOUR, model("ulmfit", 2.2, can=["embed", "score"])))
    assert "nextword evaluate runs/compare/ulmfit --data my.txt" in html
    assert "nextword generate runs/compare/lstm" in html
    assert not re.search("nextword (generate|next) runs/compare/ulmfit", html)


def test_lossy_model_among_lossless_ones_is_not_ranked():
    html = render(comparison(*FOUR, model("words", 1.0, bits_per_byte=None, word_perplexity=98.7)))
    assert "Not ranked: no bits per byte" in html
    assert "98.7" in html
    assert len([row for row in rows(html) if row[0][:1].isdigit()]) == 4


def test_lossy_models_are_ranked_by_word_perplexity():
    lossy = [m | {"bits_per_byte": None, "curve": []} for m in FOUR]
    text = Page(render(comparison(*lossy, tokenizer={"kind": "words", "size": 10000, "lossless": False}))).text
    assert "the LSTM predicts best: 1,610 word perplexity." in text
    assert "compress" not in text


def test_models_with_the_same_title_are_shown_by_name():
    small, large = model("lstm-small", 2.2, title="LSTM (1997)"), model("lstm-large", 2.0, title="LSTM (1997)")
    assert "the lstm-large predicts best" in Page(render(comparison(small, large))).text
