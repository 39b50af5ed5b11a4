"""The part of a report that is about models which make a text from a source: their scores, and what they make.

Each example is a source with its reference, and under it what each model wrote, with the map of where it looked.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from nextword.compare.curves import learning_curves
from nextword.page import charts
from nextword.page.charts import duration, escape, number, perplexity, size, whole
from nextword.page.heat_map import heat_map
from nextword.page.pieces import NONE, Column, Model, amount, listed, named, plain_name, table

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
