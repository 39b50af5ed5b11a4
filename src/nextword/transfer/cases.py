"""Examples on a transferred run's page: what was said and what is right, and the words, coloured by their weight.

    said 5 with 91.2%, right is 1
    the plot was dull but the music was great            blue: speaks for 5; orange: against it

Wherever words are coloured, a legend says what the colours are; what they add up to depends on what is said.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from nextword.corpora.tag_schemes import spans
from nextword.page.charts import escape

CASES = 12
LEVELS = 5  # of colour: f1 … f5 and g1 … g5 in page.css
LONG = "Words are not coloured: these texts are too long for them to be weighed."
WEIGHED = """<p>The colour of a word says {says}: integrated gradients over the embeddings of its tokens, in 16 steps or
64 from a text of blanks to the text itself. The weights of all words add up to {sum}. The strongest colour is the
greatest weight of its own text, so that colours of two texts do not compare. They tell what the network used, not what
is true, and not what would happen were the word another.</p>"""
OF_CLASSES = """how far the score of the class lies above the mean of all classes, less how far it does so with blanks
alone. Where a text of blanks is taken for a class already, even words of that class may speak against it"""
OF_NUMBERS = "the number that is said, less the one that is said of blanks alone, in the units of the labels"
OF_WRITTEN = """the mean of all numbers that may be written, by their probabilities, less the same of blanks alone, in
the units of the labels"""


def mistaken(task: Mapping[str, Any]) -> str:
    """The mistakes of a task, the worst first."""
    shown = task["mistakes"][:CASES]
    if not shown:
        return f"<p>None: all {task['examples']:,} examples are right.</p>"
    return _told(task, shown) + "".join(map(_case, shown))


def right(task: Mapping[str, Any]) -> str:
    """Some that are right."""
    shown = task["right_ones"]
    return _told(task, shown, before=task["mistakes"][:CASES]) + "".join(map(_case, shown))


def _told(task: Mapping[str, Any], shown: Sequence[Any], before: Sequence[Any] = ()) -> str:
    """What the colours of these examples mean, at length unless that was told `before`; or why they have none."""
    if _colours(shown):
        return ("" if _colours(before) else _weighed(task)) + _legend(task)
    how = task.get("attribution") or {}
    why = how.get("why") or (LONG if how.get("too_long") else "")
    return f'<p class="note">{escape(why)}</p>' if why and not before else ""


def _colours(shown: Sequence[Mapping[str, Any]]) -> bool:
    return any("weights" in one for one in shown)


def _weighed(task: Mapping[str, Any]) -> str:
    if not _of_numbers(task):
        return WEIGHED.format(says="how much it speaks for what was said, or against it", sum=OF_CLASSES)
    added = OF_WRITTEN if "numbers" in task else OF_NUMBERS
    return WEIGHED.format(says="by how much it raises the number that is said, or lowers it", sum=added)


def _of_numbers(task: Mapping[str, Any]) -> bool:
    return "mean_absolute_error" in task


def _case(one: Mapping[str, Any]) -> str:
    """One example: what was said and what is right, and its text, word by word."""
    if "error" in one:
        verdict = f"said <strong>{one['predicted']:.4g}</strong>, right is <strong>{one['label']:g}</strong>"
    elif one["label"] == one["predicted"]:
        verdict = f"<strong>{escape(one['predicted'])}</strong> with {one['probability']:.1%}"
    else:
        verdict = (
            f"said <strong>{escape(one['predicted'])}</strong> with {one['probability']:.1%}, right is "
            f"<strong>{escape(one['label'])}</strong>"
            + (f" ({one['probability_of_label']:.1%})" if "probability_of_label" in one else "")
        )
    texts = [one[key] for key in ("text", "second") if key in one]
    body = "".join(f'<p class="text" dir="auto">{part}</p>' for part in _coloured(one, texts))
    return f'<article class="case"><p class="verdict">{verdict}</p>{body}</article>'


def _coloured(one: Mapping[str, Any], texts: Sequence[str]) -> list[str]:
    if "weights" not in one:
        return [escape(text) or "(empty)" for text in texts]
    most = max((abs(w) for weights in one["weights"] for w in weights if w is not None), default=0.0) or 1.0
    return [
        " ".join(_word(word, weight, most) for word, weight in zip(words, weights, strict=True)) or "(empty)"
        for words, weights in zip(one["words"], one["weights"], strict=True)
    ]


def _word(word: str, weight: float | None, most: float) -> str:
    if weight is None:
        return f'<span class="unread" title="not read: the text was cut before it">{escape(word)}</span>'
    level = round(LEVELS * abs(weight) / most)
    css = f' class="{"f" if weight > 0 else "g"}{level}"' if level else ""
    return f'<span{css} title="{weight:+.3f}">{escape(word)}</span>'


def _legend(task: Mapping[str, Any]) -> str:
    down, up = ("lowers it", "raises it") if _of_numbers(task) else ("against", "for it")
    levels = range(1, LEVELS + 1)
    against = "".join(f'<span class="g{n}">{down if n == LEVELS else "&nbsp;&nbsp;"}</span>' for n in levels[::-1])
    towards = "".join(f'<span class="f{n}">{up if n == LEVELS else "&nbsp;&nbsp;"}</span>' for n in levels)
    return f'<p class="legend"><span class="unit">what was said:</span>{against}<span>&nbsp;0&nbsp;</span>{towards}</p>'


# ------------------------------------------------------------------------------------------------ tags


def sentences(task: Mapping[str, Any]) -> str:
    """Those with most wrong, each as it is tagged and as it was."""
    if not task["mistakes"]:
        return f"<p>None: all {task['examples']:,} sentences are right.</p>"
    of_spans = "types" in task
    cases = []
    for one in task["mistakes"][:CASES]:
        lines = [("right", one["tags"]), ("said", one["said"])]
        body = "".join(
            f'<p class="verdict">{name}</p><p class="text" dir="auto">{_marked(one["words"], tags, of_spans)}</p>'
            for name, tags in lines
        )
        cases.append(f'<article class="case">{body}</article>')
    return "".join(cases)


def _marked(words: Sequence[str], tags: Sequence[str], of_spans: bool) -> str:
    shown = [escape(word) for word in words]
    if not of_spans:
        return " ".join(f"{word}<sub>{escape(tag)}</sub>" for word, tag in zip(shown, tags, strict=True))
    out, at = [], 0
    for span in spans(tags):
        out += [
            *shown[at : span.start],
            f"<mark>{' '.join(shown[span.start : span.end])}<sub>{escape(span.type)}</sub></mark>",
        ]
        at = span.end
    return " ".join([*out, *shown[at:]])
