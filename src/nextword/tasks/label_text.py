"""A label in words: no head at all, but what a network that makes texts from sources pays for writing each label.

    classify: a fine film end ──encoder──▶ memory        log p(positive end)  −0.2      one number for every label,
                                 begin ──decoder──▶      log p(negative end)  −1.9      and the greatest is said

Raffel et al., "Exploring the Limits of Transfer Learning with a Unified Text-to-Text Transformer" (2020): a task is a
text with a prefix, its answer another text, and what is learnt is to write that. So the loss is −log p(label, end) over
the whole vocabulary (objectives/task.py), and nothing is drawn anew. Where the paper lets the network write, and counts
what is no label as wrong, here the labels alone are compared. Numbers are written too (numbered.py).

A number in words: one of few strings, from the least to the greatest that is learnt, in equal steps.

    stsb sentence1: … sentence2: … ──encoder──▶ memory      log p(2.4 end)  −3.1       2.57 is learnt as "2.6", and the
                                   begin ──decoder──▶      log p(2.6 end)  −0.4       number of the likeliest string is
                                                           log p(2.8 end)  −1.7       what is said

Raffel et al. (2020, section 2.4): scores are rounded to the nearest increment of 0.2 and written; what is written is
read as a number again. Where the paper lets the network write, here the strings are compared, as with classes
(worded.py). The strings are multiples of the step. Within the network a number is the place of its string, so that
(number − center) / spread, with the least number and the step, is on the same scale.

A run that writes its labels in words (heads/worded.py), on strings: `predict` and `explain` as of any classifier.

What stands for the labels of a task where they are written, or asked of a language model: the strings of numbers,
and the tokens of either, which have to differ.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from nextword.batching.examples import Bucketed, Examples, joined
from nextword.core import pytree
from nextword.core.errors import NextwordError, Unsupported
from nextword.core.protocols import Tokenizer
from nextword.core.types import Batch, FramedText, Inputs
from nextword.data.text_to_text import multiple, rounded
from nextword.models import model_class
from nextword.run_folder import RunFolder
from nextword.tasks.attribution import attributed, of_words
from nextword.tasks.base import ModelWithHead
from nextword.tasks.classification import Classifier, Explained, open_headed
from nextword.tasks.settings import WORDS, Settings
from nextword.tokenizers.loading import load_tokenizer
from nextword.training.device import to_device

TEXT, SECOND = "{text}", "{second}"
ASKED = ("classify: {text}", "classify sentence1: {text} sentence2: {second}")  # of one text, and of two
WRITTEN = 4096  # tokens of labels that are compared at once: each needs a number for every word of the vocabulary
READ = 1 << 14  # and of their sources, which every label of a text has in its memory
KNOWN = 'Give words that the tokenizer knows: --set \'task.words={ A = "bad", B = "good" }\'.'
Spelled = tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class WordedConfig:
    model: Any  # the network's class
    settings: Any  # its Config
    spelled: Spelled  # tokens of each label, its end included
    frozen: bool = False
    weights: tuple[float, ...] = ()  # of the classes in the loss; none: all alike
    features: str = ""
    chunk: int = 0


class LabelTextModel(ModelWithHead):
    """What it says is log p of every label (n, labels)."""

    is_stateful = False
    recordable = False
    ids: Tensor  # (labels, tokens of the longest)
    sizes: Tensor

    def __init__(self, config: WordedConfig, network: Any) -> None:
        check_writes(type(network))
        super().__init__(config, network)
        longest = max(map(len, config.spelled))
        ids = torch.tensor([[*one, *[0] * (longest - len(one))] for one in config.spelled])
        self.register_buffer("ids", ids, persistent=False)
        self.register_buffer("sizes", torch.tensor([len(one) for one in config.spelled]), persistent=False)
        self.weights: Tensor | None
        self.register_buffer("weights", torch.tensor(config.weights) if config.weights else None, persistent=False)

    @property
    def device(self) -> torch.device:
        return self.encoder.device

    def forward(self, batch: Batch) -> Tensor:
        return self.said(self.every(batch))

    def said(self, every: Tensor) -> Tensor:
        """What is said, of log p of every label."""
        return every

    def every(self, batch: Batch) -> Tensor:
        """log p of every label (n, labels)."""
        n, labels = len(batch.targets), len(self.config.spelled)
        places = torch.arange(labels, device=self.ids.device)
        return self._paid(batch.inputs, places.repeat(n), labels).view(n, labels)

    def written(self, batch: Batch) -> Tensor:
        """log p of the right label of each example (n,)."""
        return self._paid(batch.inputs, batch.targets, 1)

    def _paid(self, source: Inputs, chosen: Tensor, each: int) -> Tensor:
        """log p of the chosen labels, `each` of them for a source; a source is read once."""
        n = len(source.ids)
        first, state = self.encoder.start(n, source)
        rows = torch.arange(n, device=chosen.device).repeat_interleave(each)
        ids = torch.cat([first[rows].unsqueeze(1), self.ids[chosen]], 1)
        if each == 1:
            return self._scored(ids, chosen, state)
        size = max(1, min(WRITTEN // ids.shape[1], READ // source.ids.shape[1]))
        parts = zip(ids.split(size), chosen.split(size), rows.split(size), strict=True)
        return torch.cat([self._scored(some, own, pytree.take(state, whose)) for some, own, whose in parts])

    def _scored(self, ids: Tensor, chosen: Tensor, state: Any) -> Tensor:
        log_p, _ = self.encoder.score(ids, self.sizes[chosen] + 1, state)
        return log_p.float().sum(1)

    # -------------------------------------------------------------------------------------------- for attribution

    def layer(self, inputs: Inputs) -> Tensor:
        """There is no one layer that is read: `judge` begins with the texts."""
        return inputs.ids

    def judge(self, h: Tensor, batch: Batch) -> Tensor:
        return self(batch)


# ------------------------------------------------------------------------------------------------ texts


def check_writes(network: type) -> None:
    """Or an error: a network of this class makes texts from sources."""
    if not getattr(network, "is_conditional", False):
        raise Unsupported(
            f"[task] classifier = '{WORDS}' has a label written from a text, and {network.__name__} makes no "
            "text from a source. Transfer a run of t5 or seq2seq, or take another recipe, as bert/finetune."
        )


def spelled(tokenizer: Tokenizer, labels: Sequence[str], words: Any, advice: str = KNOWN) -> Spelled:
    """The tokens of each label, or of the words that stand for it, and the end of a text.

    `advice`: what to do where the tokenizer cannot tell two of them apart.
    """
    strange = [name for name in words if name not in labels]
    if strange:
        raise NextwordError(f"[task] words names {strange[0]!r}; the labels are {', '.join(labels[:8])}.")
    texts = [str(words.get(label, label)) for label in labels]
    found = tuple((*one.ids.tolist(), end_of(tokenizer)) for one in tokenizer.encode_batch(texts))
    for i, one in enumerate(found):
        same = next((labels[k] for k in range(i) if found[k] == one), None)
        if same is not None:
            raise NextwordError(
                f"The labels {same!r} and {labels[i]!r} are written with the same tokens, so that none can be told "
                f"from the other. {advice}"
            )
    return found


def end_of(tokenizer: Tokenizer) -> int:
    """What ends a source, and what is written: of vocabularies of words the line end."""
    return tokenizer.end if tokenizer.end is not None else int(tokenizer.encode("\n").ids[0])


def sources(asks: str, texts: Sequence[str], seconds: Sequence[str] | None) -> list[str]:
    """What is read of each example: the texts, put into the template."""
    asks = asks or ASKED[seconds is not None]
    for mark, wanted in ((TEXT, True), (SECOND, seconds is not None)):
        if asks.count(mark) != wanted:
            raise NextwordError(
                f"[task] asks = {asks!r}: expected {TEXT} in it once"
                + f" and {SECOND} once" * (seconds is not None)
                + f", as in {ASKED[seconds is not None]!r}."
            )
    if seconds is None:
        return [asks.replace(TEXT, text) for text in texts]
    parts = re.split(f"({re.escape(TEXT)}|{re.escape(SECOND)})", asks)
    rows = ({TEXT: a, SECOND: b} for a, b in zip(texts, seconds, strict=True))
    return ["".join(row.get(part, part) for part in parts) for row in rows]


def framed_words(
    tokenizer: Tokenizer, given: Sequence[str], labels: np.ndarray | None = None, length: int = 0
) -> tuple[Examples, int]:
    """Sources as such a network reads them, with the end behind each, and how many were cut to `length` tokens."""
    end, cut, frames = end_of(tokenizer), 0, []
    for one in tokenizer.encode_batch(list(given)):
        room = length - 1 if length else len(one.ids)
        cut += len(one.ids) > room
        ids = np.append(one.ids[:room], end).astype(np.int64)
        frames.append(FramedText(ids, len(ids) - 1))
    return joined(frames, np.zeros(len(given), np.int64) if labels is None else labels), cut


STEPS = 25  # between the least number and the greatest: STS-B has so many, from 0 to 5 by 0.2
MOST = 1000  # strings: every one is scored for every text
DIGITS = "For the numbers of {} take a run whose tokenizer knows digits, or a recipe with a head, as bert/finetune."


class Numbered(LabelTextModel):
    """What it says is the place of the likeliest string (n, 1); labels are places as well."""

    def said(self, every: Tensor) -> Tensor:
        return every.argmax(1, keepdim=True).float()

    def judge(self, h: Tensor, batch: Batch) -> Tensor:
        """The mean place by the strings' shares (n, 1): what is said has no gradient, and this goes along with it."""
        shares = self.every(batch).softmax(1)
        return shares @ torch.arange(shares.shape[1], dtype=shares.dtype, device=shares.device).unsqueeze(1)


def numbers_of(step: float, worded: bool, data: Any) -> tuple[str, ...]:
    """What is written for the numbers of the training rows; none where it is not numbers that are written."""
    if not worded or data.kind != "regress":
        if step:
            what = "numbers are read off a head" if data.kind == "regress" else f"{data.name} is of kind {data.kind}"
            raise NextwordError(f"[task] step = {step:g} is of numbers that are written, and {what}. Leave it out.")
        return ()
    return strings(data.splits["train"].labels or (), step, data.name)


def strings(labels: Sequence[str], step: float = 0.0, name: str = "The data") -> tuple[str, ...]:
    """All multiples of the step from the least label to the greatest; `step` 0: the usual one."""
    by = Decimal(str(step)) if step else usual_step(labels)
    ends = [multiple(one, by) for one in (min(labels, key=Decimal), max(labels, key=Decimal))]
    number = ends[1] - ends[0] + 1
    if not 2 <= number <= MOST:
        many = "all of them would be the same" if number == 1 else f"there would be {number:,} of them"
        raise NextwordError(
            f"{name}: numbers from {min(labels, key=Decimal)} to {max(labels, key=Decimal)} are written in steps of "
            f"{by:f}, and {many}. Choose a {'smaller' if number == 1 else 'larger'} one, so that there are 2 to "
            f"{MOST:,}: --set task.step={usual_step(labels):f}"
        )
    return tuple(rounded(i * by, by) for i in range(ends[0], ends[1] + 1))


def usual_step(labels: Sequence[str]) -> Decimal:
    """The least of … 0.1, 0.2, 0.5, 1, 2 … of which at most STEPS lie between the least label and the greatest; but no
    finer than the labels are: 1 for stars from 1 to 5."""
    numbers = [Decimal(one) for one in labels]
    span = max(numbers) - min(numbers)
    power = (span / STEPS).adjusted()
    some = (Decimal(m).scaleb(power + more) for more in (0, 1) for m in (1, 2, 5))
    by = next(one for one in some if span <= STEPS * one)
    finest = min((int(one.normalize().as_tuple().exponent) for one in numbers if one), default=0)
    return max(by, Decimal(1).scaleb(finest))


def places(labels: Sequence[str], numbers: Sequence[str]) -> np.ndarray:
    """The place of the nearest string of each label (n,); of one beyond the last, the last."""
    by = Decimal(numbers[1]) - Decimal(numbers[0])
    first = multiple(numbers[0], by)
    found = [min(max(multiple(one, by) - first, 0), len(numbers) - 1) for one in labels]
    return np.array(found, np.int64)


def scale_of(numbers: Sequence[str]) -> tuple[float, float]:
    """The number of the first place, and what there is from one to the next."""
    return float(numbers[0]), float(Decimal(numbers[1]) - Decimal(numbers[0]))


def in_words(numbers: Sequence[str]) -> list[str]:
    """A note on what is written."""
    if not numbers:
        return []
    by = Decimal(numbers[1]) - Decimal(numbers[0])
    shown = f"{', '.join(numbers[:2])} … {numbers[-1]}" if len(numbers) > 3 else ", ".join(numbers)
    return [f"numbers are written, the nearest of {len(numbers)}: {shown}, in steps of {by:f} (--set task.step)"]


def open_writer(run: RunFolder, device: torch.device, precision: str = "fp32") -> Writer:
    """Of a run whose files have been checked."""
    headed, tokenizer, settings = open_headed(run, device, precision)
    length = int(run.recipe.phases[-1].batches.get("length", Bucketed.length))
    return Writer(headed, tokenizer, settings, length, str(run.path))


class Writer(Classifier):
    """Of a run that writes its labels (heads/worded.py): texts are read in the words of the task around them."""

    def said(
        self,
        texts: Sequence[str],
        seconds: Sequence[str] | None = None,
        progress: Callable[[int, int], None] | None = None,
        notes: list[str] | None = None,
    ) -> np.ndarray:
        found, cut = framed_words(self.tokenizer, sources(self.settings.asks, texts, seconds), None, self.length)
        self.tell_cut(cut, len(texts), notes)
        return self.said_of(found, progress)

    def _explained(self, texts: tuple[str, ...], label: str) -> Explained:
        """Words of the task around the texts stay as they are; those of the texts fade in.

        Of numbers it is the mean by the strings' shares that is explained (heads/numbered.py), in the labels' units.
        """
        second = [texts[1]] if len(texts) > 1 else None
        source = sources(self.settings.asks, [texts[0]], second)[0]
        example, _ = framed_words(self.tokenizer, [source], None, self.length)
        encoding = self.tokenizer.encode(source)
        words, marked = tuple(text.split() for text in texts), sources(self.settings.asks, [TEXT], second and [SECOND])
        whose, at = np.full(len(source.split()) + 1, -1), 0
        for word in marked[0].split():
            i = next((k for k, mark in enumerate((TEXT, SECOND)) if mark in word), None)
            size = 1 if i is None else len(words[i])
            whose[at : at + size] = -1 if i is None else i
            at += size
        owner = whose[np.minimum(encoding.words[: len(example.ids) - 1], len(whose) - 1)]
        own = np.append(owner >= 0, False)
        numbers = bool(self.settings.numbers)
        scale, base = (self.settings.spread, self.settings.center) if numbers else (1.0, 0.0)
        output = 0 if numbers else list(self.settings.labels).index(label)
        found = attributed(self.headed, example, own, output, partial(to_device, device=self.device))
        weights = []
        for i, some in enumerate(words):
            mine = np.flatnonzero(owner == i)
            inside = encoding.words[mine] - np.flatnonzero(whose == i)[:1] if len(mine) else mine
            weights.append(of_words(scale * found.tokens[mine], inside, len(some)))
        said, blank = (scale * one + base for one in (found.said, found.blank))
        return Explained(label, words, tuple(weights), said, blank, scale * found.gap)


OF_TEXTS = ("classify", "pair", "regress")


def in_words_of(asked: Settings, data: Any, run: RunFolder | None) -> tuple[tuple[str, ...], list[list[int]]]:
    """The strings of numbers, where the task is of those, and the tokens of what is written; or nothing."""
    numbers = numbers_of(asked.step, asked.worded or asked.prompted, data)
    if not asked.worded and not (asked.prompted and numbers and run):
        return numbers, []
    if data.kind not in OF_TEXTS or run is None:
        what = f"{data.name} is of kind {data.kind}" if run else "there is no run to transfer"
        raise NextwordError(
            f"[task] classifier = '{WORDS}' writes classes of texts, or numbers, and {what}. Take another recipe."
        )
    if asked.worded:
        check_writes(model_class(run.recipe.slug))
    tokenizer = load_tokenizer(run.path / "tokenizer.json")
    found = spelled(tokenizer, numbers or data.labels, asked.words, DIGITS.format(data.name) if numbers else KNOWN)
    return numbers, [list(one) for one in found] if asked.worded else []  # lists, as TOML has them
