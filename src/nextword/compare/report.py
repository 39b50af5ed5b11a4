"""The report of a comparison: one HTML page that carries everything it needs.

`render` takes what `nextword compare --json` prints. Fields may be null or missing: the page then shows a dash or
leaves the section out. Every piece of text is escaped, and the page forbids itself to load anything.

The learning curves of a report: what validation said of each model, against the time it had trained.

The part of a report that is about models which make a text from a source: their scores, and what they make.

Each example is a source with its reference, and under it what each model wrote, with the map of where it looked.
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from nextword.compare.translation import TRANSLATOR
from nextword.core.io import NAME, infinite
from nextword.html import charts
from nextword.html.charts import Axis, Point, Series, count, duration, escape, heat_map, number, perplexity, size, whole
from nextword.html.page import (
    NONE,
    Column,
    Model,
    amount,
    dated,
    document,
    hardest,
    impossible,
    listed,
    named,
    plain_name,
    table,
    told,
    under,
)


def learning_curves(
    models: Sequence[Model],
    marks: Mapping[int, int],
    key: str,
    write: Callable[[float], str],
    label: str,
    title: str,
) -> str:
    """`key` of what a validation says, told by `write`; models of which there is nothing to draw are named below."""
    series = []
    for m in models:
        points = [
            Point(seconds, value, note=f"{plain_name(m)}: {write(value)} after {duration(seconds)}")
            for event in m.get("curve") or []
            if (seconds := number(event.get("seconds"))) and (value := number(event.get(key))) and value < math.inf
        ]
        series.append(Series(plain_name(m), points, marks[id(m)]))
    every = [p for s in series for p in s.points]
    if not every:
        return ""
    x = Axis("time of training →", duration, log=charts.far([p.x for p in every], 8), time=True)
    y = Axis(label, log=charts.far([p.y for p in every], 4))
    draw = partial(charts.lines, series, x, y, title)
    without = listed([escape(s.name) for s in series if not s.points])
    missing = f'<p class="note">No curve: {without}.</p>' if without else ""
    return charts.twice(draw, (1040, 420), (344, 340)) + missing


TRANSLATION_METRICS = {"bleu": "BLEU", "bleu_lowercase": "BLEU, lower case", "chrf": "chrF"}
MAPS = """<p>Held-out sources, what should become of them, and what each model made of them, greedily. In a map the
words of the source stand across and those that were written down: the stronger the colour, the more the model looked at
the one as it wrote the other. A row adds up to one; ⏎ is the end of a text.</p>"""
BLEU = """<p class="note"><strong>BLEU</strong> counts how many runs of one to four words of what was written stand in
the reference, from 0 to 100: higher is better. <strong>Target token perplexity</strong> is how surprised a model is by
the references, being told the source; it compares only between models with the same tokenizer.</p>"""
TRANSLATION_SCORE = """Each model translates the held-out sources greedily; BLEU and chrF are sacrebleu's, of raw text against raw
text."""


class Translations:
    """Best first by BLEU; by what the targets cost where sacrebleu is not installed."""

    def __init__(self, models: Sequence[Model], examples: Sequence[Mapping[str, Any]]) -> None:
        self.metric = "bleu" if any(number(m.get("bleu")) is not None for m in models) else "token_perplexity"
        self.models = sorted(models, key=self._order)
        self.examples = list(examples)

    def _order(self, model: Model) -> float:
        value = number(model.get(self.metric))
        if value is None:
            return float("inf")
        return -value if self.metric == "bleu" else value

    def headline(self, data: str, title: str) -> tuple[str, str]:
        """What is best, and what is as good."""
        best = self.models[0]
        value = number(best.get(self.metric))
        if value is None:
            return f"On <em>{escape(data)}</em>, no model could be ranked.", ""
        low, high = (number(best.get(f"bleu_{end}")) for end in ("low", "high"))
        spread = f" ({low:.1f}–{high:.1f})" if low is not None and high is not None and self.metric == "bleu" else ""
        score = f"BLEU {value:.1f}" if self.metric == "bleu" else f"{perplexity(value)} perplexity"
        near = [
            f"<strong>{named(m)}</strong>"
            for m in self.models[1:]
            if low is not None and (other := number(m.get("bleu_high"))) is not None and other >= low
        ]
        close = f"But {listed(near)} {'is' if len(near) == 1 else 'are'} not clearly different." if near else ""
        verb = "translates best" if len(self.models) > 1 else "translates"
        return f"On <em>{escape(data)}</em>, <strong>{escape(title)}</strong> {verb}: {score}{spread}.", close

    def leaderboard(self, model: Column, marks: Mapping[int, int]) -> str:
        ends = [v for m in self.models for key in ("bleu", "bleu_low", "bleu_high") if (v := number(m.get(key)))]

        def bar(m: Model) -> str:
            value, low, high = (number(m.get(key)) for key in ("bleu", "bleu_low", "bleu_high"))
            if value is None or low is None or high is None:
                return NONE
            drawn = charts.interval(value, low, high, min(ends), max(ends), marks[id(m)])
            return f"{drawn}<small>{low:.1f}–{high:.1f}</small>"

        columns: list[Column] = [model]
        if ends:
            columns += [("BLEU", "n main", amount("BLEU", "{:.1f}".format, "bleu")[2]), ("Interval", "range", bar)]
        columns += [amount(label, "{:.1f}".format, key) for key, label in TRANSLATION_METRICS.items() if key != "bleu"]
        columns += [
            amount("Target token perplexity", perplexity, "token_perplexity"),
            amount("Parameters"),
            amount("On disk", size, "size"),
            amount("Training", duration, "seconds"),
            amount("Pairs translated", whole, "pairs"),
        ]
        shown = [c for c in columns if c[0] in ("Model", "Interval") or any(c[2](m) != NONE for m in self.models)]
        return table("Models from best to worst by BLEU", shown, self.models) + BLEU

    def curves(self, marks: Mapping[int, int]) -> str:
        return learning_curves(
            self.models,
            marks,
            "valid_perplexity",
            perplexity,
            "validation perplexity of the targets (lower is better)",
            "Perplexity of validation targets against time of training",
        )

    def texts(self) -> str:
        """The examples, one card each."""
        cards = [self._card(i, example) for i, example in enumerate(self.examples)]
        return f"{MAPS}{''.join(cards)}" if any(cards) else ""

    def _card(self, i: int, example: Mapping[str, Any]) -> str:
        made = [(m, (m.get("examples") or [])[i : i + 1]) for m in self.models]
        wrote = "".join(self._wrote(m, found[0]) for m, found in made if found)
        if not wrote:
            return ""
        pair = "".join(
            f'<dt>{name}</dt><dd dir="auto">{escape(example.get(key) or NONE)}</dd>'
            for name, key in (("Source", "source"), ("Reference", "target"))
        )
        return f'<article class="pairs"><dl>{pair}</dl>{wrote}</article>\n'

    def _wrote(self, model: Model, found: Mapping[str, Any]) -> str:
        said = escape(found.get("written") or NONE)
        text = f'<dl><dt>{named(model)}</dt><dd dir="auto"><strong>{said}</strong></dd></dl>'
        shares = found.get("map")
        if not shares:
            return text
        title = f"Where {plain_name(model)} looked"
        drawn = heat_map(shares["source"], shares["target"], shares["weights"], title)
        caption = f"<figcaption>{escape(title)}: the source across, what it wrote down</figcaption>"
        return f'{text}<figure class="maps" tabindex="0">{caption}{drawn}</figure>' if drawn else text


METRICS = ("bits_per_byte", "word_perplexity", "token_perplexity")
WRITES = ("generate", "next")  # what is done from left to right
# Where nothing hovers, title attributes cannot be read: the token last touched is told below its passage.
SCRIPT = """for (const panel of document.querySelectorAll('.panel')) {
  const said = panel.querySelector('.said'), quiet = said.textContent;
  const tell = e => {
    const at = e.target.closest('[title]');
    said.textContent = at ? `“${at.textContent.trim()}”: ${at.title}` : quiet;
  };
  panel.addEventListener('mouseover', tell);
  panel.addEventListener('click', tell);
}"""
BITS = """<p class="note"><strong>Bits per byte</strong> says how surprised a model is by text it has not seen: the bits
it would need to store each byte of that text, where plain storage takes 8. Lower is better, and unlike a perplexity it
does not depend on how the text is cut into words or tokens.</p>"""
LOSSY = """<h3>Not ranked: no bits per byte</h3><p>What a lossy tokenizer drops is never paid for, so bits per byte
would flatter these models. Their perplexities compare only with those of the same tokenizer.</p>"""
PSEUDO = """<h3>Not ranked: pseudo-likelihoods</h3><p>These models fill each gap from both sides. What that costs is a
pseudo-likelihood: not a likelihood of the text, as a rule much lower, and never to be compared with the numbers of
models that read from left to right.</p>"""
PASSAGE = """<p>A held-out passage. The stronger the colour of a token, the more bits it cost: the less the model had
expected it. One bit is a coin toss, ten bits a chance of one in a thousand.</p>"""
SCORE = """Each exact model reads the test text from left to right and pays −log₂ p bits for every token. The end of
each document is predicted and paid for too. Sums are divided once, at the end: by the bytes of the text, by its words,
by its tokens."""
INTERVAL = """95 % bootstrap: the held-out text is drawn again from itself, with replacement, many times. It tells what
another choice of held-out text would change, not what another seed would."""


def render(comparison: Mapping[str, Any]) -> str:
    """The whole page. Models are ranked by bits per byte, or by perplexity where no model has them."""
    page = _Page(comparison)
    sections = [
        ("leaderboard", "Leaderboard", page.leaderboard()),
        ("curves", "Learning curves", page.curves()),
        ("cost", "What it costs", page.costs()),
        ("passage", "One passage under each model", page.passage()),
        ("samples", "What each model writes", page.samples()),
        ("translations", "What becomes of a source", page.translations()),
        ("use", "Use the models", page.commands()),
        ("method", "How this was measured", page.method()),
    ]
    return document(
        f"{page.data}: nextword compare", page.headline(), sections, comparison.get("version") or "", SCRIPT
    )


class _Page:
    """The comparison, sorted into the models that can be ranked and those that cannot; one method a section."""

    def __init__(self, comparison: Mapping[str, Any]):
        self.all = comparison
        self.data = str(under(comparison, "data").get("name") or "this text")
        models: Sequence[Model] = [infinite(m) for m in comparison.get("models") or []]
        done = [m for m in models if (m.get("status") or "done") == "done"]
        exact = [m for m in done if m.get("kind") not in ("pseudo", TRANSLATOR)]
        translators = [m for m in done if m.get("kind") == TRANSLATOR]
        self.translated = Translations(translators, comparison.get("examples") or []) if translators else None
        # Perplexities compare only where all read the same tokens, so they rank only if no model has bits per byte.
        self.metric = next((k for k in METRICS if any(number(m.get(k)) is not None for m in exact)), METRICS[0])
        self.label = self.metric.replace("_", " ")
        self.ranked = sorted((m for m in exact if number(m.get(self.metric)) is not None), key=self._value)
        self.possible = [m for m in self.ranked if self._value(m) < math.inf]
        self.unranked = [m for m in exact if number(m.get(self.metric)) is None]
        self.pseudo = [m for m in done if m.get("kind") == "pseudo"]
        self.finished = self.ranked + self.unranked + self.pseudo
        self.finished += self.translated.models if self.translated else []
        self.unfinished = [m for m in models if (m.get("status") or "done") != "done"]
        self.marks = {id(m): i for i, m in enumerate(self.finished + self.unfinished)}
        best_high = self._interval(self.possible[0])[1] if self.possible else None
        lows = [(m, self._interval(m)[0]) for m in self.possible[1:]]
        self.close = [m for m, low in lows if low is not None and best_high is not None and low <= best_high]

    def _value(self, model: Model) -> float:
        return float(model[self.metric])

    def _interval(self, model: Model) -> tuple[float | None, float | None]:
        return number(model.get(f"{self.metric}_low")), number(model.get(f"{self.metric}_high"))

    def _write(self, value: float, decimals: int = 3) -> str:
        if value == math.inf:
            return NAME
        return f"{value:.{decimals}f}" if self.metric == "bits_per_byte" else perplexity(value)

    def _range(self, model: Model, decimals: int = 3) -> str:
        low, high = self._interval(model)
        if low is None or high is None or high == math.inf:
            return ""
        return f"{self._write(low, decimals)}–{self._write(high, decimals)}"

    # ------------------------------------------------------------------------------------------------ the top

    def headline(self) -> str:
        over = f'<p class="over">nextword compare{dated(self.all.get("created"))}</p>'
        if self.translated:
            best, near = self.translated.headline(self.data, self._title(self.translated.models[0]))
            return f'{over}<h1>{best}</h1><p class="lede">{near}</p>{self._setting()}'
        if not self.ranked:
            return f"{over}<h1>On <em>{escape(self.data)}</em>, no model could be ranked.</h1>{self._setting()}"
        if not self.possible:
            none = "the text is impossible under every model" if len(self.ranked) > 1 else "the text is impossible"
            lede = f'<p class="lede">{self._impossible()}</p>'
            return f"{over}<h1>On <em>{escape(self.data)}</em>, {none}.</h1>{lede}{self._setting()}"
        value, spread = self._value(self.ranked[0]), self._range(self.ranked[0], 2)
        says = []
        if self.metric == "bits_per_byte" and value < 8:
            says.append(f"It would compress the text to <strong>{value / 0.08:.0f}\u00a0%</strong> of its size.")
        elif self.metric == "bits_per_byte":
            says.append("That is no better than storing the text as it is (8 bits per byte).")
        if self.close:
            names = listed([f"<strong>{named(m)}</strong>" for m in self.close])
            says.append(f"But {names} {'is' if len(self.close) == 1 else 'are'} not clearly different.")
        says += [self._impossible()] if len(self.possible) < len(self.ranked) else []
        winner = escape(self._title(self.ranked[0]))
        return (
            f"{over}<h1>On <em>{escape(self.data)}</em>, the <strong>{winner}</strong> predicts best: "
            f"{self._write(value, 2)} {self.label}{f' ({spread})' if spread else ''}.</h1>"
            f'<p class="lede">{" ".join(says)}</p>{self._setting()}'
        )

    def _impossible(self) -> str:
        """What an infinite cost means, in words."""
        ruled_out = [m for m in self.ranked if self._value(m) == math.inf]
        said = [f"<strong>{named(m)}</strong>{f' ({impossible(m)})' * bool(m.get('impossible'))}" for m in ruled_out]
        return f"The text is impossible under {listed(said)}."

    def _setting(self) -> str:
        splits, budget = under(self.all, "data", "splits"), under(self.all, "budget")
        words, held = under(splits, "train").get("words"), under(splits, "test").get("bytes")
        says = [f"trained on {whole(words)} words"] if words else []
        says += [f"scored on {size(held)} of held-out text"] if held else []
        if budget.get("minutes"):
            where = f" on {escape(budget['device'])}" if budget.get("device") else ""
            says.append(f"{duration(60 * budget['minutes'])} for all{where}")
        models = len(self.marks)
        return f'<p class="setting">{models} model{"s" * (models != 1)}: {", ".join(says)}.</p>' if says else ""

    def _title(self, model: Model) -> str:
        """LSTM, of "LSTM (Hochreiter & Schmidhuber 1997)", unless two models are titled so."""
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
                self._named(),
                (label, "n main", lambda m: self._write(self._value(m))),
                ("Interval", "range", partial(self._bar, ends=ends)),
            ]
            columns += [column for column in self._measures(self.ranked) if column[0] != label]
            out += [table(f"Models from best to worst by {self.label}", columns, self.ranked), self._verdict()]
            out += [BITS] if self.metric == "bits_per_byte" else []
        elif self.translated:
            out.append(self.translated.leaderboard(self._named(), self.marks))
        elif not self.unfinished:
            out.append("<p>No model here has an exact likelihood, so there is nothing to rank.</p>")
        if self.unranked:
            columns = [self._named(), *self._measures(self.unranked)]
            out += [LOSSY, table("Models without bits per byte", columns, self.unranked)]
        if self.pseudo:
            columns = [self._named(), *self._measures(self.pseudo, "Pseudo ")]
            out += [PSEUDO, table("Models with pseudo-likelihoods", columns, self.pseudo)]
        if self.unfinished:
            columns = [self._named(), told("Status"), told("Reason", "error", "error")]
            out += ["<h3>Not finished</h3>", table("Models that failed or were skipped", columns, self.unfinished)]
        return "".join(out)

    def _verdict(self) -> str:
        best, names = named(self.ranked[0]), [named(m) for m in self.close]
        if names:
            be = "is" if len(names) == 1 else "are"
            return (
                f'<p class="verdict">≈ {listed(names)} {be} not clearly different from {best}: intervals overlap.</p>'
            )
        if len(self.possible) > 1 and all(map(self._range, self.possible)):
            return f'<p class="verdict">No interval overlaps that of {best}: its lead is clear on this text.</p>'
        return ""

    def _rank(self, model: Model) -> str:
        near = any(m is model for m in self.close)
        sign = "<abbr class='near' title='not clearly different from the best'>≈</abbr>" if near else ""
        return f"{1 + self.marks[id(model)]}{sign}"  # marks are given in the order of rank

    def _named(self) -> Column:
        def cell(model: Model) -> str:
            title = f"<small>{escape(model['title'])}</small>" if model.get("title") else ""
            return f'<span class="flag">{charts.key(self.marks[id(model)])}<span>{named(model)}{title}</span></span>'

        return "Model", "model", cell

    def _bar(self, model: Model, ends: Sequence[float]) -> str:
        span = min(ends, default=0), max(ends, default=0)
        if self._value(model) == math.inf:
            return "<small>impossible</small>"
        bar = charts.interval(self._value(model), *self._interval(model), *span, self.marks[id(model)])
        return f"{bar}<small>{self._range(model)}</small>"

    def _measures(self, models: Sequence[Model], prefix: str = "") -> list[Column]:
        """A column for everything that any of the models has a number for."""
        columns = [
            amount(prefix + "bits per byte", "{:.3f}".format, "bits_per_byte"),
            amount(prefix + "word perplexity", perplexity, "word_perplexity"),
            amount(prefix + "token perplexity", perplexity, "token_perplexity"),
            amount("Parameters"),
            amount("On disk", size, "size"),
            amount("Training", duration, "seconds"),
            amount("Tokens scored a second", whole, "tokens_per_second"),
        ]
        return [column for column in columns if any(column[2](m) != NONE for m in models)]

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
            "Bits per byte on the validation text against time of training",
        )

    def costs(self) -> str:
        out = []
        for key, write, label in (("seconds", duration, "time of training"), ("parameters", count, "parameters")):
            series = []
            for m in self.possible:
                if at := number(m.get(key)):
                    note = f"{plain_name(m)}: {self._write(self._value(m))} {self.label}, {write(at)}"
                    point = Point(at, self._value(m), *self._interval(m), note)
                    series.append(Series(plain_name(m), [point], self.marks[id(m)]))
            if series:
                log = charts.far([s.points[0].x for s in series], 3)
                axes = Axis(f"{label} →", write, log, key == "seconds"), Axis(f"{self.label} (lower is better)")
                draw = partial(charts.scatter, series, *axes, f"{self.label.capitalize()} against {label}")
                out.append(charts.twice(draw, (500, 380), (344, 320)))
        return f'<div class="pair">{"".join(out)}</div>' if out else ""

    # ------------------------------------------------------------------------------------------------ texts

    def passage(self) -> str:
        passage = under(self.all, "passage")
        tokens, bits = passage.get("tokens") or [], passage.get("surprisal") or {}
        sides = {id(m): " (sees both sides)" for m in self.pseudo}
        rows = [(named(m) + sides.get(id(m), ""), _costs(m, bits.get(plain_name(m)))) for m in self.finished]
        panels = "".join(
            f'<input type="radio" name="who" id="who{i}"{" checked" * (i == 0)}><label for="who{i}">{name}</label>'
            f'<div class="panel"><p class="who">{name}</p><p class="text" dir="auto">{charts.heat(tokens, costs)}</p>'
            f'<p class="said note" aria-live="polite">{hardest(tokens, costs)}</p></div>\n'
            for i, (name, costs) in enumerate(row for row in rows if row[1])
        )
        if not tokens or not panels:
            return ""
        return f'{PASSAGE}<fieldset class="tabs"><legend>Model</legend>{panels}</fieldset>{charts.heat_legend()}'

    def samples(self) -> str:
        cards = "".join(
            f"<article><h3>{charts.key(self.marks[id(m)])}{named(m)}</h3>"
            f'<p class="text" dir="auto">{escape(m["sample"])}</p></article>'
            for m in self.finished
            if m.get("sample")
        )
        return f'<div class="cards">{cards}</div>' if cards else ""

    def translations(self) -> str:
        return self.translated.texts() if self.translated else ""

    def commands(self) -> str:
        words = str(under(self.all, "passage").get("text") or "").split()[:4] or ["Once", "upon", "a", "time"]
        prompt, blank = shlex.quote(" ".join(words)), shlex.quote(" ".join([*words[:2], "___", *words[3:]]))
        out: list[str] = []
        for m in self.finished:
            if m.get("run"):
                run = shlex.quote(str(m["run"]))
                can = m.get("can") or WRITES
                lines = [f"nextword {name} {run} {prompt}" for name in WRITES if name in can]
                if m.get("kind") == "pseudo":  # sees both sides: fills a blank, writes no text
                    lines = [f"nextword next {run} {blank}"]
                if m.get("kind") == TRANSLATOR:  # makes a text from a source
                    lines = [
                        f"nextword generate {run} --file sources.txt --beam 5",
                        f"nextword evaluate {run} --beam 5",
                    ]
                else:
                    lines.append(f"nextword evaluate {run} --data my.txt")
                code = "\n".join(f"<code>{escape(line)}</code>" for line in lines)
                out.append(f"<details{' open' * (not out)}><summary>{named(m)}</summary><pre>{code}</pre></details>")
        return f"<p>Each model is a folder that every command takes.</p>{''.join(out)}" if out else ""

    def method(self) -> str:
        data, tokens, budget = (under(self.all, k) for k in ("data", "tokenizer", "budget"))
        lossless = {None: "", True: "lossless"}.get(tokens.get("lossless"), "lossy: no bits per byte")
        vocabulary = tokens.get("size") and f"{whole(tokens['size'])} tokens"
        each = tokens.get("bytes_per_token") and f"{tokens['bytes_per_token']:.2f} bytes a token"
        threads = budget.get("threads") and f"{budget['threads']} threads"
        facts: dict[str, list[Any]] = {
            "Score": [TRANSLATION_SCORE if self.translated else SCORE],
            "Interval": [INTERVAL],
            "Data": [data.get("name"), data.get("source")],
            "Tokenizer": [tokens.get("kind"), vocabulary, lossless, each],
            "Budget": [budget.get("minutes") and f"{duration(60 * budget['minutes'])} for all models"],
            "Machine": [budget.get("machine"), budget.get("device"), threads],
        }
        said = {k: escape(", ".join(str(part) for part in parts if part)) for k, parts in facts.items()}
        out = ["<dl>", *(f"<dt>{k}</dt><dd>{v}</dd>" for k, v in said.items() if v), "</dl>"]
        splits = [{"name": k, **v} for k, v in under(data, "splits").items() if v]
        columns = [told("Split", "name"), *map(amount, ("Documents", "Words", "Tokens", "Bytes"))]
        if splits:
            out.append(table("The text and its splits", columns, splits))
        columns = [
            ("Model", "", named),
            told("Likelihood", "kind"),
            ("Context", "", lambda m: f"{whole(m['context'])} tokens" if m.get("context") else "all before"),
            amount("Stride"),
            *(amount(f"{k.capitalize()} scored", whole, k) for k in ("tokens", "words", "bytes")),
            amount("Epochs", "{:.1f}".format),
            amount("Steps"),
            told("Stopped by", "stopped"),
            ("Settings", "config", lambda m: escape(", ".join(f"{k} = {v}" for k, v in under(m, "config").items()))),
        ]
        if self.finished:
            out.append(table("How each model was trained and scored", columns, self.finished))
        notes = "".join(f"<li>{escape(note)}</li>" for note in self.all.get("notes") or [])
        return "".join(out) + (f"<h3>Notes</h3><ul>{notes}</ul>" if notes else "")


def _costs(model: Model, bits: Sequence[float | None] | None) -> Sequence[float | None]:
    """Bits of each token; null is infinite where the model finds tokens impossible, and unknown where it does not."""
    return [math.inf if cost is None and model.get("impossible") else cost for cost in bits or []]
