"""A number in words: one of few strings, from the least to the greatest that is learnt, in equal steps.

    stsb sentence1: … sentence2: … ──encoder──▶ memory      log p(2.4 end)  −3.1       2.57 is learnt as "2.6", and the
                                   begin ──decoder──▶      log p(2.6 end)  −0.4       number of the likeliest string is
                                                           log p(2.8 end)  −1.7       what is said

Raffel et al. (2020, section 2.4): scores are rounded to the nearest increment of 0.2 and written; what is written is
read as a number again. Where the paper lets the network write, here the strings are compared, as with classes
(worded.py). The strings are multiples of the step. Within the network a number is the place of its string, so that
(number − center) / spread, with the least number and the step, is on the same scale.
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import numpy as np
import torch
from torch import Tensor

from nextword.contract import Batch
from nextword.contract_errors import NextwordError
from nextword.corpora.task_rows import multiple, rounded
from nextword.heads.worded import Worded

STEPS = 25  # between the least number and the greatest: STS-B has so many, from 0 to 5 by 0.2
MOST = 1000  # strings: every one is scored for every text
DIGITS = "For the numbers of {} take a run whose tokenizer knows digits, or a recipe with a head, as bert/finetune."


class Numbered(Worded):
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
