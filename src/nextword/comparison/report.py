"""The HTML report of a comparison: one self-contained page.

`render` takes what `nextword compare --json` prints. Fields may be null or missing: the page then shows a dash or
leaves the section out. All text is escaped, and the page forbids itself to load anything.

    leaderboard · learning curves · cost · one passage under each model · samples · translations · commands · method

The passage is colored by surprisal (html/charts.py). A comparison of sequence-to-sequence models has its own
leaderboard (BLEU) and shows what each model makes of some sources, with attention maps.
"""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from html import unescape
from typing import Any

from nextword.comparison.limits import describe_limits, describe_no_winner, find_winner
from nextword.comparison.mixture import describe_mixture
from nextword.comparison.translation import TRANSLATOR
from nextword.core.io import INFINITY, restore_infinities
from nextword.data.segmentation import opening_words
from nextword.html import charts
from nextword.html.charts import Axis, Point, Series, attention_map, surprisal_legend, surprisal_text
from nextword.html.formatting import (
    as_number,
    escape,
    format_count,
    format_duration,
    format_integer,
    format_perplexity,
    format_size,
)
from nextword.html.page import (
    DASH,
    Column,
    Model,
    describe_hardest_token,
    describe_impossible,
    document,
    format_date,
    get_table,
    html_name,
    html_table,
    join_names,
    number_column,
    plain_name,
    text_column,
)


def learning_curves(
    models: Sequence[Model],
    marks: Mapping[int, int],
    key: str,
    write: Callable[[float], str],
    label: str,
    title: str,
) -> str:
    """The curve of `key` over training time, formatted by `write`; models without a curve are named below."""
    series = []
    for m in models:
        points = [
            Point(seconds, value, note=f"{plain_name(m)}: {write(value)} after {format_duration(seconds)}")
            for event in m.get("curve") or []
            if (seconds := as_number(event.get("seconds")))
            and (value := as_number(event.get(key)))
            and value < math.inf
        ]
        series.append(Series(plain_name(m), points, marks[id(m)]))
    every = [p for s in series for p in s.points]
    if not every:
        return ""
    x = Axis("training time →", format_duration, log=charts.needs_log_axis([p.x for p in every], 8), time=True)
    y = Axis(label, log=charts.needs_log_axis([p.y for p in every], 4))
    draw = partial(charts.line_chart, series, x, y, title)
    without = join_names([escape(s.name) for s in series if not s.points])
    missing = f'<p class="note">No curve: {without}.</p>' if without else ""
    return charts.responsive_figure(draw, (1040, 420), (344, 340)) + missing


TRANSLATION_METRICS = {"bleu": "BLEU", "bleu_lowercase": "BLEU, lower case", "chrf": "chrF"}
EXAMPLES_NOTE = """<p>Held-out sources, their references, and what each model wrote (greedy decoding). In an attention
map the source words are columns and the written words rows: the stronger the color, the more the model attended to the
source word as it wrote the other. A row sums to one; ⏎ is the end of a text.</p>"""
BLEU_NOTE = """<p class="note"><strong>BLEU</strong> is the share of sequences of one to four written words that also
occur in the reference, from 0 to 100: higher is better. <strong>Target token perplexity</strong> measures how well a
model predicts the references given the source; it compares only models with the same tokenizer.</p>"""
TRANSLATION_SCORE_NOTE = """Each model translates the held-out sources with greedy decoding; sacrebleu computes BLEU
and chrF on detokenized text."""


class Translations:
    """The sections about sequence-to-sequence models; best first by BLEU, or by perplexity without sacrebleu."""

    def __init__(self, models: Sequence[Model], examples: Sequence[Mapping[str, Any]]) -> None:
        self.metric = "bleu" if any(as_number(m.get("bleu")) is not None for m in models) else "token_perplexity"
        self.models = sorted(models, key=self._order)
        self.best = find_winner(self.models) or self.models[0]
        self.examples = list(examples)

    def _order(self, model: Model) -> float:
        value = as_number(model.get(self.metric))
        if value is None:
            return float("inf")
        return -value if self.metric == "bleu" else value

    def headline(self, data: str, title: str) -> tuple[str, str]:
        """The best model, and those not clearly different; no best model if the budget trained hardly any."""
        best = find_winner(self.models)
        if best is None:
            return f"On <em>{escape(data)}</em>, there is no winner.", escape(describe_no_winner(self.models))
        value = as_number(best.get(self.metric))
        if value is None:
            return f"On <em>{escape(data)}</em>, no model could be ranked.", ""
        low, high = (as_number(best.get(f"bleu_{end}")) for end in ("low", "high"))
        spread = f" ({low:.1f}–{high:.1f})" if low is not None and high is not None and self.metric == "bleu" else ""
        score = f"BLEU {value:.1f}" if self.metric == "bleu" else f"{format_perplexity(value)} perplexity"
        highs = [(m, as_number(m.get("bleu_high"))) for m in self.models if m is not best]
        overlapping = [m for m, other in highs if low is not None and other is not None and other >= low]
        near = [f"<strong>{html_name(m)}</strong>" for m in overlapping]
        close = f"But {join_names(near)} {'is' if len(near) == 1 else 'are'} not clearly different." if near else ""
        verb = "translates best" if len(self.models) > 1 else "translates"
        return f"On <em>{escape(data)}</em>, <strong>{escape(title)}</strong> {verb}: {score}{spread}.", close

    def leaderboard(self, model: Column, marks: Mapping[int, int]) -> str:
        ends = [v for m in self.models for key in ("bleu", "bleu_low", "bleu_high") if (v := as_number(m.get(key)))]

        def bar(m: Model) -> str:
            value, low, high = (as_number(m.get(key)) for key in ("bleu", "bleu_low", "bleu_high"))
            if value is None or low is None or high is None:
                return DASH
            drawn = charts.interval_bar(value, low, high, min(ends), max(ends), marks[id(m)])
            return f"{drawn}<small>{low:.1f}–{high:.1f}</small>"

        columns: list[Column] = [model]
        if ends:
            columns += [
                ("BLEU", "n main", number_column("BLEU", "{:.1f}".format, "bleu")[2]),
                ("Interval", "range", bar),
            ]
        columns += [
            number_column(label, "{:.1f}".format, key) for key, label in TRANSLATION_METRICS.items() if key != "bleu"
        ]
        columns += [
            number_column("Target token perplexity", format_perplexity, "token_perplexity"),
            number_column("Parameters"),
            number_column("On disk", format_size, "size"),
            number_column("Training", format_duration, "seconds"),
            number_column("Pairs translated", format_integer, "pairs"),
        ]
        shown = [c for c in columns if c[0] in ("Model", "Interval") or any(c[2](m) != DASH for m in self.models)]
        return html_table("Models from best to worst by BLEU", shown, self.models) + BLEU_NOTE

    def curves(self, marks: Mapping[int, int]) -> str:
        return learning_curves(
            self.models,
            marks,
            "valid_perplexity",
            format_perplexity,
            "validation perplexity of the targets (lower is better)",
            "Perplexity of validation targets over training time",
        )

    def examples_section(self) -> str:
        """The examples, one card each."""
        cards = [self._card(i, example) for i, example in enumerate(self.examples)]
        return f"{EXAMPLES_NOTE}{''.join(cards)}" if any(cards) else ""

    def _card(self, i: int, example: Mapping[str, Any]) -> str:
        outputs = [(m, (m.get("examples") or [])[i : i + 1]) for m in self.models]
        written = "".join(self._output(m, output[0]) for m, output in outputs if output)
        if not written:
            return ""
        pair = "".join(
            f'<dt>{name}</dt><dd dir="auto">{escape(example.get(key) or DASH)}</dd>'
            for name, key in (("Source", "source"), ("Reference", "target"))
        )
        return f'<article class="pairs"><dl>{pair}</dl>{written}</article>\n'

    def _output(self, model: Model, output: Mapping[str, Any]) -> str:
        written = escape(output.get("written") or DASH)
        text = f'<dl><dt>{html_name(model)}</dt><dd dir="auto"><strong>{written}</strong></dd></dl>'
        attention = output.get("map")
        if not attention:
            return text
        title = f"Attention of {plain_name(model)}"
        drawing = attention_map(attention["source"], attention["target"], attention["weights"], title)
        caption = f"<figcaption>{escape(title)}: source words across, written words down</figcaption>"
        return f'{text}<figure class="maps" tabindex="0">{caption}{drawing}</figure>' if drawing else text


METRICS = ("bits_per_byte", "word_perplexity", "token_perplexity")
GENERATING = ("generate", "next")  # abilities of left-to-right models
# Touch screens have no tooltips: the script shows the title of the token last touched below its passage.
TOUCH_SCRIPT = """for (const panel of document.querySelectorAll('.panel')) {
  const note = panel.querySelector('.hovered'), initial = note.textContent;
  const show = event => {
    const token = event.target.closest('[title]');
    note.textContent = token ? `“${token.textContent.trim()}”: ${token.title}` : initial;
  };
  panel.addEventListener('mouseover', show);
  panel.addEventListener('click', show);
}"""
BITS_NOTE = """<p class="note"><strong>Bits per byte</strong> measures how well a model predicts unseen text: the bits
it would need to store each byte of it, where plain storage takes 8. Lower is better. Unlike a perplexity, it does not
depend on how the text is split into words or tokens.</p>"""
LOSSY_NOTE = """<h3>Not ranked: no bits per byte</h3><p>A lossy tokenizer drops part of the text, which would make bits
per byte look too good. The perplexities of these models compare only with those of the same tokenizer.</p>"""
PSEUDO_NOTE = """<h3>Not ranked: pseudo-likelihoods</h3><p>These models predict each token from both sides. The result
is a pseudo-likelihood, usually much lower than a likelihood; do not compare it with the numbers of left-to-right
models.</p>"""
PASSAGE_NOTE = """<p>A held-out passage. The stronger the color of a token, the higher its surprisal in bits: the less
the model expected it. One bit is a coin toss, ten bits a chance of one in a thousand.</p>"""
MIXTURE_NOTE = """<p class="note">A <strong>mixture</strong> gives every token the weighted mean of two probabilities,
λ p₁ + (1 − λ) p₂. The weights were fitted to the validation text, and the score is that of the test text.</p>"""
SCORE_NOTE = """Each exact model reads the test text from left to right; every token costs −log₂ p bits, also the end of
each document. The sum is divided once, at the end: by the bytes, words or tokens of the text."""
INTERVAL_NOTE = """95 % bootstrap interval over blocks of the held-out text. It reflects the choice of held-out text,
not the training seed."""


def render(comparison: Mapping[str, Any]) -> str:
    """The whole page. Models are ranked by bits per byte, or by perplexity if no model has bits per byte."""
    page = _Page(comparison)
    sections = [
        ("leaderboard", "Leaderboard", page.leaderboard()),
        ("curves", "Learning curves", page.curves()),
        ("cost", "Cost", page.costs()),
        ("passage", "One passage under each model", page.passage()),
        ("samples", "Samples", page.samples()),
        ("translations", "Translations", page.translations()),
        ("use", "Use the models", page.commands()),
        ("method", "How this was measured", page.method()),
    ]
    return document(
        f"{page.data}: nextword compare", page.headline(), sections, comparison.get("version") or "", TOUCH_SCRIPT
    )


def describe_winner(comparison: Mapping[str, Any]) -> str:
    """The headline of the report as plain text: which model predicts best, and how well."""
    return unescape(re.sub("<[^>]+>", "", re.findall("<h1>(.*?)</h1>", _Page(comparison).headline(), re.S)[0]))


class _Page:
    """The models, sorted into those that can be ranked and those that cannot; one method per section."""

    def __init__(self, comparison: Mapping[str, Any]):
        self.all = comparison
        self.data = str(get_table(comparison, "data").get("name") or "this text")
        models: Sequence[Model] = [restore_infinities(m) for m in comparison.get("models") or []]
        done = [m for m in models if (m.get("status") or "done") == "done"]
        exact = [m for m in done if m.get("kind") not in ("pseudo", TRANSLATOR)]
        translators = [m for m in done if m.get("kind") == TRANSLATOR]
        self.translated = Translations(translators, comparison.get("examples") or []) if translators else None
        # Perplexities compare only over the same tokens, so they rank models only if none has bits per byte.
        self.metric = next((k for k in METRICS if any(as_number(m.get(k)) is not None for m in exact)), METRICS[0])
        self.label = self.metric.replace("_", " ")
        has_characters = get_table(comparison, "data", "splits", "train").get("characters")
        self.unit = "Characters" if has_characters else "Words"  # characters in scripts without spaces
        self.ranked = sorted((m for m in exact if as_number(m.get(self.metric)) is not None), key=self._value)
        self.possible = [m for m in self.ranked if self._value(m) < math.inf]
        self.best = find_winner(self.possible)
        self.unranked = [m for m in exact if as_number(m.get(self.metric)) is None]
        self.pseudo = [m for m in done if m.get("kind") == "pseudo"]
        self.finished = self.ranked + self.unranked + self.pseudo
        self.finished += self.translated.models if self.translated else []
        self.unfinished = [m for m in models if (m.get("status") or "done") != "done"]
        self.marks = {id(m): i for i, m in enumerate(self.finished + self.unfinished)}
        best_high = self._interval(self.best)[1] if self.best else None
        lows = [(m, self._interval(m)[0]) for m in self.possible if m is not self.best]
        self.close = [m for m, low in lows if low is not None and best_high is not None and low <= best_high]

    def _value(self, model: Model) -> float:
        return float(model[self.metric])

    def _interval(self, model: Model) -> tuple[float | None, float | None]:
        return as_number(model.get(f"{self.metric}_low")), as_number(model.get(f"{self.metric}_high"))

    def _format(self, value: float, decimals: int = 3) -> str:
        if value == math.inf:
            return INFINITY
        return f"{value:.{decimals}f}" if self.metric == "bits_per_byte" else format_perplexity(value)

    def _range(self, model: Model, decimals: int = 3) -> str:
        low, high = self._interval(model)
        if low is None or high is None or high == math.inf:
            return ""
        return f"{self._format(low, decimals)}–{self._format(high, decimals)}"

    # ------------------------------------------------------------------------------------------------ the top

    def headline(self) -> str:
        over = f'<p class="over">nextword compare{format_date(self.all.get("created"))}</p>'
        if self.translated:
            best, near = self.translated.headline(self.data, self._title(self.translated.best))
            return f'{over}<h1>{best}</h1><p class="lede">{self._join(near, self._limits())}</p>{self._setting()}'
        if not self.ranked:
            return f"{over}<h1>On <em>{escape(self.data)}</em>, no model could be ranked.</h1>{self._setting()}"
        if not self.possible:
            none = "the text is impossible under every model" if len(self.ranked) > 1 else "the text is impossible"
            lede = f'<p class="lede">{self._impossible()}</p>'
            return f"{over}<h1>On <em>{escape(self.data)}</em>, {none}.</h1>{lede}{self._setting()}"
        if self.best is None:
            lede = self._join(escape(describe_no_winner(self.possible)), self._limits())
            start = f"{over}<h1>On <em>{escape(self.data)}</em>, there is no winner.</h1>"
            return f'{start}<p class="lede">{lede}</p>{self._setting()}'
        value, spread = self._value(self.best), self._range(self.best, 2)
        says = []
        if self.metric == "bits_per_byte" and value < 8:
            says.append(f"It would compress the text to <strong>{value / 0.08:.0f}\u00a0%</strong> of its size.")
        elif self.metric == "bits_per_byte":
            says.append("That is no better than storing the text uncompressed (8 bits per byte).")
        if self.close:
            names = join_names([f"<strong>{html_name(m)}</strong>" for m in self.close])
            says.append(f"But {names} {'is' if len(self.close) == 1 else 'are'} not clearly different.")
        says += [self._impossible()] if len(self.possible) < len(self.ranked) else []
        says = [self._limits(), *says]
        winner = escape(self._title(self.best))
        return (
            f"{over}<h1>On <em>{escape(self.data)}</em>, the <strong>{winner}</strong> predicts best: "
            f"{self._format(value, 2)} {self.label}{f' ({spread})' if spread else ''}.</h1>"
            f'<p class="lede">{self._join(*says)}</p>{self._setting()}'
        )

    def _limits(self) -> str:
        """What the budget leaves open."""
        budget = get_table(self.all, "budget")
        return escape(describe_limits(self.finished, more_time=bool(budget.get("minutes"))))

    @staticmethod
    def _join(*sentences: str) -> str:
        return " ".join(filter(None, sentences))

    def _impossible(self) -> str:
        """Why a cost is infinite."""
        ruled_out = [m for m in self.ranked if self._value(m) == math.inf]
        names = [
            f"<strong>{html_name(m)}</strong>{f' ({describe_impossible(m)})' * bool(m.get('impossible'))}"
            for m in ruled_out
        ]
        return f"The text is impossible under {join_names(names)}."

    def _setting(self) -> str:
        splits, budget = get_table(self.all, "data", "splits"), get_table(self.all, "budget")
        train, held = get_table(splits, "train"), get_table(splits, "test").get("bytes")
        unit = self.unit.lower()
        says = [f"trained on {format_integer(train[unit])} {unit}"] if train.get(unit) else []
        says += [f"scored on {format_size(held)} of held-out text"] if held else []
        if budget.get("minutes"):
            where = f" on {escape(budget['device'])}" if budget.get("device") else ""
            says.append(f"{format_duration(60 * budget['minutes'])} of training for all{where}")
        models = len(self.marks)
        return f'<p class="setting">{models} model{"s" * (models != 1)}: {", ".join(says)}.</p>' if says else ""

    def _title(self, model: Model) -> str:
        """The title without its citation ("LSTM"), or the name if two models have the same title."""
        titles = [str(m.get("title") or "").split(" (")[0] for m in (model, *self.finished)]
        return titles[0] if titles[0] and titles.count(titles[0]) == 2 else plain_name(model)

    # ------------------------------------------------------------------------------------------------ tables

    def leaderboard(self) -> str:
        out = []
        if self.ranked:
            ends = [v for m in self.ranked for v in (*self._interval(m), self._value(m)) if v and math.isfinite(v)]
            label = self.label.capitalize()
            columns: list[Column] = [
                ("<abbr title='rank'>#</abbr>", "n rank", self._rank),
                self._model_column(),
                (label, "n main", lambda m: self._format(self._value(m))),
                ("Interval", "range", partial(self._bar, ends=ends)),
            ]
            columns += [column for column in self._measures(self.ranked) if column[0] != label]
            out += [html_table(f"Models from best to worst by {self.label}", columns, self.ranked), self._verdict()]
            out += [self._mixture()]
            out += [BITS_NOTE] if self.metric == "bits_per_byte" else []
        elif self.translated:
            out.append(self.translated.leaderboard(self._model_column(), self.marks))
        elif not self.unfinished:
            out.append("<p>No model has an exact likelihood, so there is nothing to rank.</p>")
        if self.unranked:
            columns = [self._model_column(), *self._measures(self.unranked)]
            out += [LOSSY_NOTE, html_table("Models without bits per byte", columns, self.unranked)]
        if self.pseudo:
            columns = [self._model_column(), *self._measures(self.pseudo, "Pseudo ")]
            out += [PSEUDO_NOTE, html_table("Models with pseudo-likelihoods", columns, self.pseudo)]
        if self.unfinished:
            columns = [self._model_column(), text_column("Status"), text_column("Reason", "error", "error")]
            out += ["<h3>Not finished</h3>", html_table("Models that failed or were skipped", columns, self.unfinished)]
        return "".join(out)

    def _verdict(self) -> str:
        if self.best is None:
            return ""
        best, names = html_name(self.best), [html_name(m) for m in self.close]
        if names:
            close = f"{join_names(names)} {'is' if len(names) == 1 else 'are'} not clearly different from {best}"
            return f'<p class="verdict">≈ {close}: intervals overlap.</p>'
        if len(self.possible) > 1 and all(map(self._range, self.possible)):
            return f'<p class="verdict">No interval overlaps that of {best}: its lead is clear on this text.</p>'
        return ""

    def _mixture(self) -> str:
        """The mixture of two models, in a sentence and how it was made."""
        if not (mixture := describe_mixture(self.all.get("mixture"))):
            return ""
        return f'<p class="verdict">{escape(mixture)}</p>{MIXTURE_NOTE}'

    def _rank(self, model: Model) -> str:
        near = any(m is model for m in self.close)
        sign = "<abbr class='near' title='not clearly different from the best'>≈</abbr>" if near else ""
        return f"{1 + self.marks[id(model)]}{sign}"  # marks are assigned by rank

    def _model_column(self) -> Column:
        def cell(model: Model) -> str:
            title = f"<small>{escape(model['title'])}</small>" if model.get("title") else ""
            key = charts.model_key(self.marks[id(model)])
            return f'<span class="flag">{key}<span>{html_name(model)}{title}</span></span>'

        return "Model", "model", cell

    def _bar(self, model: Model, ends: Sequence[float]) -> str:
        span = min(ends, default=0), max(ends, default=0)
        if self._value(model) == math.inf:
            return "<small>impossible</small>"
        bar = charts.interval_bar(self._value(model), *self._interval(model), *span, self.marks[id(model)])
        return f"{bar}<small>{self._range(model)}</small>"

    def _measures(self, models: Sequence[Model], prefix: str = "") -> list[Column]:
        """A column for every measure that any of the models has."""
        columns = [
            number_column(prefix + "bits per byte", "{:.3f}".format, "bits_per_byte"),
            number_column(prefix + "word perplexity", format_perplexity, "word_perplexity"),
            number_column(prefix + "token perplexity", format_perplexity, "token_perplexity"),
            number_column("Parameters"),
            number_column("On disk", format_size, "size"),
            number_column("Training", format_duration, "seconds"),
            number_column("Tokens scored per second", format_integer, "tokens_per_second"),
        ]
        return [column for column in columns if any(column[2](m) != DASH for m in models)]

    # ------------------------------------------------------------------------------------------------ charts

    def curves(self) -> str:
        if self.translated:
            return self.translated.curves(self.marks)
        return learning_curves(
            self.ranked,
            self.marks,
            "valid_bits_per_byte",
            "{:.3f}".format,
            "validation bits per byte (lower is better)",
            "Bits per byte on the validation text over training time",
        )

    def costs(self) -> str:
        out = []
        for key, write, label in (
            ("seconds", format_duration, "training time"),
            ("parameters", format_count, "parameters"),
        ):
            series = []
            for m in self.possible:
                if at := as_number(m.get(key)):
                    note = f"{plain_name(m)}: {self._format(self._value(m))} {self.label}, {write(at)}"
                    point = Point(at, self._value(m), *self._interval(m), note)
                    series.append(Series(plain_name(m), [point], self.marks[id(m)]))
            if series:
                log = charts.needs_log_axis([s.points[0].x for s in series], 3)
                axes = Axis(f"{label} →", write, log, key == "seconds"), Axis(f"{self.label} (lower is better)")
                draw = partial(charts.scatter_chart, series, *axes, f"{self.label.capitalize()} against {label}")
                out.append(charts.responsive_figure(draw, (500, 380), (344, 320)))
        return f'<div class="pair">{"".join(out)}</div>' if out else ""

    # ------------------------------------------------------------------------------------------------ texts

    def passage(self) -> str:
        passage = get_table(self.all, "passage")
        tokens, bits = passage.get("tokens") or [], passage.get("surprisal") or {}
        sides = {id(m): " (bidirectional)" for m in self.pseudo}
        rows = [(html_name(m) + sides.get(id(m), ""), _costs(m, bits.get(plain_name(m)))) for m in self.finished]
        panels = "".join(
            f'<input type="radio" name="who" id="who{i}"{" checked" * (i == 0)}><label for="who{i}">{name}</label>'
            f'<div class="panel"><p class="who">{name}</p>'
            f'<p class="text" dir="auto">{surprisal_text(tokens, costs)}</p>'
            f'<p class="hovered note" aria-live="polite">{describe_hardest_token(tokens, costs)}</p></div>\n'
            for i, (name, costs) in enumerate(row for row in rows if row[1])
        )
        if not tokens or not panels:
            return ""
        return f'{PASSAGE_NOTE}<fieldset class="tabs"><legend>Model</legend>{panels}</fieldset>{surprisal_legend()}'

    def samples(self) -> str:
        cards = "".join(
            f"<article><h3>{charts.model_key(self.marks[id(m)])}{html_name(m)}</h3>"
            f'<p class="text" dir="auto">{escape(m["sample"])}</p></article>'
            for m in self.finished
            if m.get("sample")
        )
        return f'<div class="cards">{cards}</div>' if cards else ""

    def translations(self) -> str:
        return self.translated.examples_section() if self.translated else ""

    def commands(self) -> str:
        opening = opening_words(str(get_table(self.all, "passage").get("text") or "")) or "Once upon a time"
        words = opening.split()
        is_one = len(words) < 3  # a script without spaces
        hidden = f"{opening[:2]}___{opening[4:]}" if is_one else " ".join([*words[:2], "___", *words[3:]])
        prompt, blank = shlex.quote(opening), shlex.quote(hidden)
        out: list[str] = []
        for m in self.finished:
            if m.get("run"):
                run = shlex.quote(str(m["run"]))
                can = m.get("can") or GENERATING
                lines = [f"nextword {name} {run} {prompt}" for name in GENERATING if name in can]
                if m.get("kind") == "pseudo":  # fills blanks, generates nothing
                    lines = [f"nextword next {run} {blank}"]
                if m.get("kind") == TRANSLATOR:
                    lines = [
                        f"nextword generate {run} --file sources.txt --beam 5",
                        f"nextword evaluate {run} --beam 5",
                    ]
                else:
                    lines.append(f"nextword evaluate {run} --data my.txt")
                code = "\n".join(f"<code>{escape(line)}</code>" for line in lines)
                out.append(
                    f"<details{' open' * (not out)}><summary>{html_name(m)}</summary><pre>{code}</pre></details>"
                )
        return f"<p>Every model is a run folder, which all commands accept.</p>{''.join(out)}" if out else ""

    def method(self) -> str:
        data, tokens, budget = (get_table(self.all, k) for k in ("data", "tokenizer", "budget"))
        lossless = {None: "", True: "lossless"}.get(tokens.get("lossless"), "lossy: no bits per byte")
        vocabulary = tokens.get("size") and f"{format_integer(tokens['size'])} tokens"
        each = tokens.get("bytes_per_token") and f"{tokens['bytes_per_token']:.2f} bytes per token"
        threads = budget.get("threads") and f"{budget['threads']} threads"
        facts: dict[str, list[Any]] = {
            "Score": [TRANSLATION_SCORE_NOTE if self.translated else SCORE_NOTE],
            "Interval": [INTERVAL_NOTE],
            "Data": [data.get("name"), data.get("source")],
            "Tokenizer": [tokens.get("kind"), vocabulary, lossless, each],
            "Budget": [budget.get("minutes") and f"{format_duration(60 * budget['minutes'])} for all models"],
            "Machine": [budget.get("machine"), budget.get("device"), threads],
        }
        filled = {k: escape(", ".join(str(part) for part in parts if part)) for k, parts in facts.items()}
        out = ["<dl>", *(f"<dt>{k}</dt><dd>{v}</dd>" for k, v in filled.items() if v), "</dl>"]
        splits = [{"name": k, **v} for k, v in get_table(data, "splits").items() if v]
        columns = [text_column("Split", "name"), *map(number_column, ("Documents", self.unit, "Tokens", "Bytes"))]
        if splits:
            out.append(html_table("The text and its splits", columns, splits))
        scored = ("tokens", "words", "bytes") if self.unit == "Words" else ("tokens", "bytes")
        columns = [
            ("Model", "", html_name),
            text_column("Likelihood", "kind"),
            ("Context", "", lambda m: f"{format_integer(m['context'])} tokens" if m.get("context") else "unlimited"),
            number_column("Stride"),
            *(number_column(f"{k.capitalize()} scored", format_integer, k) for k in scored),
            number_column("Epochs", "{:.1f}".format),
            number_column("Steps"),
            text_column("Stopped by", "stopped"),
            (
                "Settings",
                "config",
                lambda m: escape(", ".join(f"{k} = {v}" for k, v in get_table(m, "config").items())),
            ),
        ]
        if self.finished:
            out.append(html_table("How each model was trained and scored", columns, self.finished))
        texts = [*(self.all.get("warnings") or []), *(self.all.get("notes") or [])]
        notes = "".join(f"<li>{escape(note)}</li>" for note in texts)
        return "".join(out) + (f"<h3>Notes</h3><ul>{notes}</ul>" if notes else "")


def _costs(model: Model, bits: Sequence[float | None] | None) -> Sequence[float | None]:
    """Bits of each token; null means infinite if the model has impossible tokens, otherwise unknown."""
    return [math.inf if cost is None and model.get("impossible") else cost for cost in bits or []]
