"""Character CNN: words are batched by length, which does not change their vectors."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from nextword.core.types import Vocabulary
from nextword.layers.char_cnn import EDGES, PADDING, CharacterCNN

FILTERS = [[1, 3], [2, 4], [6, 5]]


def make_cnn(words: list[bytes], longest: int = 50) -> CharacterCNN:
    torch.manual_seed(2)
    vocabulary = Vocabulary(len(words), 0, pieces=words, special={"<unk>": 0})
    return CharacterCNN(7, vocabulary, FILTERS, 4, 1, longest).double()


def run_by_definition(cnn: CharacterCNN, letters: Tensor) -> Tensor:
    """Apply every filter at every position, padding included, with all words padded to `longest`."""
    padded = F.pad(letters.long(), (0, cnn.longest - letters.shape[1]), value=PADDING)
    x = cnn.characters(padded)
    result = []
    for layer in cnn.filters:
        size = layer.weight.shape[-1]  # type: ignore[index]
        places = [x[:, p : p + size].transpose(1, 2).flatten(1) for p in range(cnn.longest - size + 1)]
        values = [place @ layer.weight.flatten(1).t() + layer.bias for place in places]  # type: ignore[operator]
        result.append(torch.stack(values).amax(0))
    return torch.cat(result, 1)


@pytest.mark.parametrize("longest", [9, 12, 20, 50])
def test_char_cnn_of_words_of_any_length_equals_definition(longest: int) -> None:
    generator = torch.Generator().manual_seed(3)
    sizes = [0, *range(1, 60), EDGES[0] - 2, EDGES[0] - 1]
    words = [bytes(torch.randint(97, 123, (size,), generator=generator).tolist()) for size in sizes]
    cnn = make_cnn([b"<unk>", *words], longest)
    letters = cnn.spellings[torch.randperm(len(words) + 1, generator=generator)]
    want, got = run_by_definition(cnn, letters), cnn._max_pool(letters)
    torch.testing.assert_close(got, want)
    weights = torch.linspace(-1, 1, got.numel(), dtype=got.dtype).view_as(got)
    parameters = [cnn.characters.weight, *cnn.filters.parameters()]
    gradients = [torch.autograd.grad((y * weights).sum(), parameters) for y in (want, got)]
    for a, b in zip(*gradients, strict=True):
        torch.testing.assert_close(a, b)


def test_char_cnn_of_no_words_returns_no_rows() -> None:
    cnn = make_cnn([b"<unk>", b"a", b"antidisestablishmentarianism"])
    assert cnn(torch.tensor([], dtype=torch.long)).shape == (0, 7)
