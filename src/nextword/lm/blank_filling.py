"""Blank filling: words for the blanks of a text, blanks of any length, and exact likelihoods of what may stand in them.

    The ___ sat on the ___.       fill:    words for each blank                       masked models, XLNet, GLM
                                  infill:  The old cat sat on the mat.                GLM
                                  score_blanks, cloze: log p of given fillings        GLM
    Once upon a time [gMASK]      ___ or [MASK] is a few tokens; [sMASK] sentences, [gMASK] the rest of the text

`infill` fills blanks from left to right, each in sight of everything around it and of the fillings before it
(generation/infilling.py). A filling is one word or more, whether or not there are spaces around the blank.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from nextword.core.errors import InvalidSetting, invalid
from nextword.core.slices import end_slice, slice_tokens
from nextword.core.types import (
    EXACT,
    Decoding,
    Encoding,
    Greedy,
    Guess,
    Inputs,
    Prediction,
    Score,
    Stop,
    require_number,
)
from nextword.generation.beam_search import Hypothesis
from nextword.generation.infilling import (
    BLANK,
    HIDDEN,
    LINES,
    MOST,
    Filled,
    TextWithBlanks,
    WordPieces,
    align_part,
    check_infilling,
    crop_context,
    encode_part,
    fill_blanks,
    filling_nats,
    follows_letter,
    join_parts,
    likeliest_fillings,
    likeliest_words,
    split_pieces,
    unwritable_ids,
    with_end,
)
from nextword.lm.base import TextModel
from nextword.lm.embedding import BATCH_TOKENS, frame_ids
from nextword.tokenizers.special_tokens import MARKS, MASKS

MAX_GUESS_TOKENS = 16  # of a filling that `fill` guesses
BLANKS = re.compile("|".join((LINES.pattern, *map(re.escape, MASKS))))


class BlankFillingMixin(TextModel):
    """The methods of a text-level model that fill blanks."""

    room: int  # tokens of a text in one window

    # -------------------------------------------------------------------------------------------- words for blanks

    def fill(self, text: str, k: int = 10, tokens: bool = False) -> list[list[Guess]]:
        """For every blank `___` of the text, the k likeliest words, with all other blanks open.

        A blank is a word of its own, whether or not there are spaces around it. `tokens`: raw tokens instead of words.
        """
        parts = text.split(BLANK)
        if len(parts) == 1:
            example = f"The {BLANK} sat on the mat"
            raise invalid("text", text[:40], f'has no blank. Write {BLANK} for the missing word: "{example}".')
        return [self._fill_blank(parts[: i + 1], parts[i + 1 :], k, tokens) for i in range(len(parts) - 1)]

    def _fill_blank(self, left: Sequence[str], right: Sequence[str], k: int, tokens: bool) -> list[Guess]:
        """Guesses for the blank between two texts; each is a list of parts with further blanks between them."""
        if k < 1:
            raise invalid("k", k, "must be at least 1.")
        for part in (*left, *right):
            self._refuse_mask_token(part)
        before = encode_part(self.tokenizer, left[0], first=True)
        for part in left[1:]:
            before += [HIDDEN, *encode_part(self.tokenizer, part)]
        after = encode_part(self.tokenizer, right[0])
        for part in right[1:]:
            after += [HIDDEN, *encode_part(self.tokenizer, part)]
        room = min(self.room, self.network.window - 1) if self.can_infill else self.room
        before, after = (list(ids) for ids in crop_context(before, after, room - (1 if tokens else MOST)))
        if tokens:
            log_p = self._hidden_log_probs(np.array([[*before, HIDDEN, *after]]))
            return self._name_likeliest(log_p[0, before.count(HIDDEN)], k)
        bare = not follows_letter(left)
        if self.can_infill:
            return self._guess_spans(before, after, bare, k)
        words = likeliest_words(self._hidden_log_probs, before, after, self._word_pieces, k, bare=bare)
        return [Guess(word, p) for word, p in words]

    def _guess_spans(self, left: list[int], right: list[int], bare: bool, k: int) -> list[Guess]:
        """The k likeliest fillings of one blank; different tokenizations of a text count together."""
        marks = self.network.pieces
        ids = [marks.masks[0] if id == HIDDEN else id for id in (*left, HIDDEN, *right)]
        text = TextWithBlanks((marks.begin, *ids), (len(left) + 1,), (not bare,))
        fillings = likeliest_fillings(
            self.network,
            text,
            self._word_pieces.inner,
            2 * k,
            forbidden=unwritable_ids(self.tokenizer, marks.end),
            width=min(max(16, 2 * k), 64),
            length=min(MAX_GUESS_TOKENS, self.network.window - 1),
        )
        probabilities: dict[str, float] = {}
        for filling in fillings:
            words = self.tokenizer.decode(filling.ids[:-1]).strip()
            if words:
                probabilities[words] = probabilities.get(words, 0.0) + math.exp(filling.log_prob)
        ranked = sorted(probabilities.items(), key=lambda item: (-item[1], item[0]))
        return [Guess(words, min(p, 1.0)) for words, p in ranked[:k]]

    @torch.no_grad()
    def _hidden_log_probs(self, rows: np.ndarray) -> Tensor:
        """log p (B, hidden, V) at the HIDDEN positions of rows (B, T), equally many in each row."""
        device = self.network.device
        outputs = []
        for part in np.array_split(rows, min(len(rows), -(-rows.size // slice_tokens(BATCH_TOKENS)))):
            frame = frame_ids(self.network, part[0])
            ids = np.tile(frame.ids, (len(part), 1))
            ids[:, slice(*frame.text_spans[0])] = part
            at = torch.from_numpy(np.flatnonzero(ids == HIDDEN)).to(device)
            ids[ids == HIDDEN] = self._mask_id
            inputs = Inputs(torch.from_numpy(ids).to(device))
            if frame.segments is not None:
                inputs.segments = torch.from_numpy(np.tile(frame.segments, (len(part), 1))).to(device)
            outputs.append(self.network.fill(inputs, at).view(len(part), -1, len(self.tokenizer)).float())
            require_number(outputs[-1].max().item())
            end_slice()
        return torch.cat(outputs)

    @property
    def _mask_id(self) -> int:
        """The token that replaces a hidden one. A network without a mask token needs none: it does not look there."""
        special = self.tokenizer.special
        return next((special[name] for name in MARKS["mask"] if name in special), self.tokenizer.begin)

    @cached_property
    def _word_pieces(self) -> WordPieces:
        return WordPieces(self.tokenizer)

    def _refuse_mask_token(self, text: str) -> None:
        for name in MARKS["mask"]:
            if name in text and name in self.tokenizer.special:
                raise invalid("text", text[:40], f"contains {name} as plain letters. Write {BLANK} for a blank.")

    # -------------------------------------------------------------------------------------------- blanks of any length

    @property
    def can_infill(self) -> bool:
        return bool(self.network.generates_spans)

    def count_blanks(self, text: str) -> int:
        return len(BLANKS.findall(text))

    def infill_many(
        self, texts: Sequence[str], decoding: Decoding = Greedy(), stop: Stop = Stop(), n: int = 1
    ) -> list[list[Filled]]:
        """Each text with all blanks filled, one after the other; the n best of a beam, best first."""
        check_infilling(decoding, stop, n)
        split = [self._split_at_blanks(text) for text in texts]
        decoding = self._check_decoding(decoding)
        results = fill_blanks(
            self.network,
            [self._encode_blanks(parts, masks) for parts, masks in split],
            self._word_pieces.inner,
            decoding,
            stop.max_tokens,
            n,
            forbidden=unwritable_ids(self.tokenizer, self.network.pieces.end),
            min_tokens=stop.min_tokens,
        )
        return [
            [self._insert_fillings(parts, masks, filling) for filling in best]
            for (parts, masks), best in zip(split, results, strict=True)
        ]

    def score_blanks(self, text: str, fillings: Sequence[str | Sequence[str]]) -> list[Score]:
        """Exact log p of each filling, including the ends of its pieces. A filling is a text, or one text per blank."""
        parts, masks = self._split_at_blanks(text)
        encoded = self._encode_blanks(parts, masks)
        texts = [[filling] if isinstance(filling, str) else list(filling) for filling in fillings]
        for pieces in texts:
            if len(pieces) != len(masks):
                raise invalid("fillings", pieces, f"must be {len(masks)} texts, one per blank.")
        rows = [
            [
                encode_part(self.tokenizer, piece.strip(" "), first=not parts[0] and not i)
                for i, piece in enumerate(pieces)
            ]
            for pieces in texts
        ]
        nats = filling_nats(self.network, [encoded] * len(rows), rows)
        lossless = self.tokenizer.lossless
        return [
            Score(
                cost,
                sum(len(piece) + 1 for piece in row),
                sum(len(piece.split()) for piece in pieces),
                sum(len(piece.encode()) for piece in pieces),
                EXACT,
                lossless,
            )
            for cost, row, pieces in zip(nats, rows, texts, strict=True)
        ]

    @torch.no_grad()
    def filling_layers(self, text: str, filling: str) -> tuple[Encoding, list[Tensor]]:
        parts, masks = self._split_at_blanks(text)
        if len(masks) != 1:
            raise invalid("text", text[:40], "must have one blank.")
        encoded, marks = self._encode_blanks(parts, masks), self.network.pieces
        tokens = with_end(
            align_part(self.tokenizer, filling.strip(" "), first=not parts[0]), filling, marks.end, stripped=True
        )
        (place,), size = encoded.places, len(encoded.ids)
        read = [*encoded.ids, marks.begin, *tokens.ids[:-1].tolist()]
        positions = [(i, 0) for i in range(size)] + [(place, i + 1) for i in range(len(tokens))]
        ids, where = (torch.tensor([rows], device=self.device) for rows in (read, positions))
        inputs = Inputs(ids, positions=where)
        return tokens, [layer[0, size:] for layer in self.network.hidden(inputs, None)[0]]

    def cloze(self, text: str, answers: Mapping[str, str] | Sequence[str]) -> Prediction:
        """The label whose answer fits best into the blank; p(label) = p(answer) / Σ p(answers).

        Du et al. (2021), section 2.3. `answers` are {label: answer}, or answers that are their own labels.
        """
        named = answers if isinstance(answers, Mapping) else {answer: answer for answer in answers}
        if not named:
            raise InvalidSetting("There is no answer to choose from. Give some: {label: answer}.", key="answers")
        costs = [score.nats for score in self.score_blanks(text, list(named.values()))]
        weights = [math.exp(min(costs) - cost) for cost in costs]
        probabilities = {label: weight / sum(weights) for label, weight in zip(named, weights, strict=True)}
        return Prediction(max(probabilities, key=probabilities.__getitem__), probabilities)

    def num_unread(self, text: str) -> int:
        parts, masks = self._split_at_blanks(text)
        tokens = sum(len(encode_part(self.tokenizer, part, first=not i)) for i, part in enumerate(parts))
        return max(0, tokens - self._infill_room()) if len(masks) == 1 else 0

    def _infill_room(self) -> int:
        """Tokens around a single blank: the window, less the begin token and the mask."""
        return int(self.network.window) - 2

    def _split_at_blanks(self, text: str) -> tuple[list[str], list[str]]:
        """The parts of a text around its blanks, and the blanks as they are written."""
        if not self.can_infill:
            raise self.unsupported("infill")
        masks = BLANKS.findall(text)
        if not masks:
            others = f"{' or '.join(MASKS[1:])} for sentences and for the rest of a text"
            raise invalid("text", text[:40], f"has no blank. Write {BLANK} for a few words, {others}.")
        return BLANKS.split(text), masks

    def _encode_blanks(self, parts: Sequence[str], masks: Sequence[str]) -> TextWithBlanks:
        """The ids to read. Around a single blank the text is cropped to the window; with several, it must fit."""
        marks = self.network.pieces
        mask_ids = dict(zip(MASKS, marks.masks, strict=True))
        for part in parts:
            self._refuse_mask_token(part)
        sides: list[Sequence[int]] = [encode_part(self.tokenizer, part, first=not i) for i, part in enumerate(parts)]
        if len(masks) == 1:
            sides = [*crop_context(sides[0], sides[1], self._infill_room())]
        ids, positions = [marks.begin, *sides[0]], []
        for mask, side in zip(masks, sides[1:], strict=True):
            positions.append(len(ids))
            ids += [mask_ids[MASKS[0] if mask.startswith("_") else mask], *side]
        if len(ids) > self.network.window:
            problem = f"has {len(ids):,} tokens with its blanks, more than the window ({self.network.window:,})."
            raise invalid("text", join_parts(parts, masks)[:40], f"{problem} Shorten it far from the blanks.")
        after_letters = tuple(follows_letter(parts[: i + 1]) for i in range(len(masks)))
        return TextWithBlanks(tuple(ids), tuple(positions), after_letters)

    def _insert_fillings(self, parts: list[str], masks: list[str], filling: Hypothesis) -> Filled:
        blanks = [self.tokenizer.decode(ids).strip(" ") for ids in split_pieces(self.network, filling.ids)]
        text = join_parts(parts, [*blanks, *masks[len(blanks) :]])
        return Filled(text, tuple(blanks), filling.log_prob, len(filling.ids), filling.score, filling.complete)
