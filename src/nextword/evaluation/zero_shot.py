"""Labels for texts from a model that was never shown one: which label would it write after the text?

    The match ended two to one. This text is about ▁▁▁.        sports  −2.1    weather  −5.4    nats a token

Each label is put into a template behind the text, and what the model pays for it, and for what follows it in the
template, is its score. Scores are log p a token, so that long labels are not punished, or with `calibrate` log p less
log p of the same label after the template alone (Holtzman et al. 2021; the `unconditional` rule of Brown et al. 2020):
so labels that are likely anyway win nothing. Probabilities are the softmax of the scores: shares among these labels.

    reads from left to right       log p(label and the rest | text, beginning of the template)
    sees both sides                the same as a pseudo-likelihood: each token hidden in turn
    writes what is missing (T5)    log p(label) where a sentinel stands in the template
    makes a text from a source     log p(label) as the target of the text and the template's beginning

With solved examples ahead of the text, each in the same template, a model may learn from its prompt what is asked
(in-context, Brown et al. 2020): nothing of it is trained.

    The vote was close. This text is about politics.⏎⏎The match ended two to one. This text is about ▁▁▁.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import zip_longest
from typing import Any

import numpy as np

from nextword.contract import EXACT, NextwordError, Prediction, Unsupported
from nextword.evaluation.prompts import window_of
from nextword.evaluation.tasks.completions import likelihoods
from nextword.heads.settings import Settings

TEMPLATE = "This text is about {label}."
LABEL, TEXT = "{label}", "{text}"
APART = "\n\n"  # between examples
Solved = Sequence[tuple[str, str]]  # texts with their labels
AT_ONCE = 128  # texts
Costs = tuple[np.ndarray, np.ndarray]  # nats and tokens (texts, labels)


class ZeroShot:
    """A language model as a classifier: `predict` texts, as of a run that carries a head. `solved`: examples that stand
    before every text."""

    can = frozenset({"predict"})
    pairs = False

    def __init__(
        self,
        lm: Any,
        labels: Sequence[str],
        template: str = TEMPLATE,
        calibrate: bool = False,
        name: str = "",
        solved: Solved = (),
    ) -> None:
        names = [label.strip() for label in labels]
        if len(names) < 2 or not all(names) or len(set(names)) < len(names):
            raise NextwordError(
                f"--labels {','.join(labels)}: expected two labels or more, none empty and none twice, as "
                '"sports,politics,weather".'
            )
        if template.count(LABEL) != 1 or template.count(TEXT) > 1:
            raise NextwordError(
                f"--template {template!r}: expected {LABEL} in it once, and {TEXT} at most once before it, as "
                f"{TEMPLATE!r}; without {TEXT} it comes after the text."
            )
        if "score" not in getattr(lm, "can", ()):
            raise Unsupported(
                f"{name or 'This run'} gives no text a probability, so no label can be scored. Take a language model, "
                "or transfer this run to labelled texts (`nextword transfer`)."
            )
        before, after = template.split(LABEL)
        if TEXT in after:
            raise NextwordError(f"--template {template!r}: {TEXT} has to come before {LABEL}.")
        self.lm, self.name, self.calibrate = lm, name, calibrate
        self.before, self.after = before if TEXT in before else f"{TEXT} {before}", after
        self.solved = tuple(solved)
        self.ahead = "".join(f"{self._asked(text)} {label}{self.after}{APART}" for text, label in self.solved)
        metrics = ("accuracy", "macro_f1")
        self.settings = Settings(kind="classify", frame="classify", labels=tuple(names), metrics=metrics)
        self._alone: Costs | None = None

    def predict(
        self,
        given: Sequence[str],
        progress: Callable[[int, int], None] | None = None,
        notes: list[str] | None = None,
    ) -> list[Prediction]:
        """The best label of each text, and the share of every label."""
        labels, found = self.settings.labels, []
        for at in range(0, len(given), AT_ONCE):
            for row in shares(self.scores(given[at : at + AT_ONCE])).tolist():
                found.append(Prediction(labels[int(np.argmax(row))], dict(zip(labels, row, strict=True))))
            if progress:
                progress(min(at + AT_ONCE, len(given)), len(given))
        if notes is not None:
            notes += self._told(given)
        return found

    def scores(self, texts: Sequence[str]) -> np.ndarray:
        """(texts, labels): what decides, the higher the better."""
        nats, tokens = self._costs(texts)
        if not self.calibrate:
            return -nats / np.maximum(tokens, 1)
        if self._alone is None:
            self._alone = self._costs([""])
        return self._alone[0] - nats

    def _asked(self, text: str) -> str:
        """A text in the template, up to where the label stands."""
        return self.before.replace(TEXT, text).strip()

    def _costs(self, texts: Sequence[str]) -> Costs:
        prompts = [self.ahead + self._asked(text) for text in texts for _ in self.settings.labels]
        labels = [label for _ in texts for label in self.settings.labels]
        found = _paid(self.lm, prompts, labels, self.after)
        nats, tokens = (np.array(column, np.float64).reshape(len(texts), -1) for column in zip(*found, strict=True))
        return nats, tokens

    def _told(self, texts: Sequence[str]) -> list[str]:
        lm, notes = self.lm, []
        exact = getattr(lm, "kind", EXACT) == EXACT
        window = window_of(lm) if exact else lm.room
        if window is not None and getattr(lm, "goes_on", True):
            given = [self.ahead + self._asked(text) for text in texts] if self.solved else list(texts)
            long = sum(len(one) > window for one in lm.tokenizer.encode_batch(given))
            if long:
                what = "texts, with the examples ahead of them," if self.solved else "texts"
                lost = ", so that the first examples fall away" if self.solved else ""
                said = f"{long:,} of {len(texts):,} {what} are longer than the window of {window:,} tokens"
                notes.append(f"{said}: of those the end is read{lost}")
        unknown = {id for name, id in lm.tokenizer.special.items() if "unk" in name.lower()}
        put = [f"{label}{self.after}" if getattr(lm, "goes_on", True) else label for label in self.settings.labels]
        odd = [repr(one) for one in put if unknown.intersection(lm.tokenizer.encode(one).ids.tolist())]
        if odd:
            notes.append(
                f"the model's vocabulary lacks words of {', '.join(odd)}: they are scored as unknown words (perhaps "
                "what follows {label} in the template needs a space before it)"
            )
        return notes


def drawn(texts: Sequence[str], labels: Sequence[str], shots: int, seed: int) -> list[tuple[str, str]]:
    """So many examples, by lot, class after class so that each has its share, in an order by lot."""
    draw = np.random.default_rng([seed, len(texts)])
    order = draw.permutation(len(texts)).tolist()
    classes = [[i for i in order if labels[i] == label] for label in dict.fromkeys(labels[i] for i in order)]
    turns = [i for some in zip_longest(*classes) for i in some if i is not None][:shots]
    return [(texts[i], labels[i]) for i in draw.permutation(turns).tolist()]


def _paid(lm: Any, prompts: Sequence[str], labels: Sequence[str], after: str) -> list[tuple[float, int]]:
    """Nats and tokens of each label behind its prompt, by what the model offers."""
    if getattr(lm, "mends", False):
        filled = lm.score_fillings([(prompt + " ", after) for prompt in prompts], labels)
        return [(one.nats, one.tokens) for one in filled]
    if not getattr(lm, "goes_on", True):
        return [(one.nats, one.tokens) for one in lm.score_many(labels, prompts)]
    texts = [f"{' ' * bool(prompt)}{label}{after}" for prompt, label in zip(prompts, labels, strict=True)]
    if getattr(lm, "kind", EXACT) == EXACT:
        return [(one.nats, one.tokens) for one in likelihoods(lm, texts, prompts)]
    return [(one.nats, one.tokens) for one in lm.score_many(texts, prompts)]


def shares(scores: np.ndarray) -> np.ndarray:
    """Softmax of each row; where no label is possible at all, all have the same share."""
    best = scores.max(1, keepdims=True)
    odds = np.exp(np.where(np.isfinite(best), scores - np.where(np.isfinite(best), best, 0.0), 0.0))
    return odds / odds.sum(1, keepdims=True)
