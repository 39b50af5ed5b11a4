"""BERT, RoBERTa and ALBERT: shared layers, files, frames, special tokens, and errors."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from nextword.core.errors import InvalidSetting, Unsupported
from nextword.core.protocols import Encoder, Infilling
from nextword.core.types import Encoding, Inputs, Vocabulary
from nextword.tokenizers.special_tokens import Marks
from tests.support.errors import raises
from tests.support.small_encoders import SLUGS, VOCABULARY, assert_close, make_encoder, make_inputs


def test_shared_layers_equal_unshared_layers_with_equal_weights() -> None:
    """Also checks the number of weights."""
    networks = {share: make_encoder("albert", sharing=share) for share in ("none", "attention", "feed-forward", "all")}
    counts = {share: sum(p.numel() for p in n.parameters()) for share, n in networks.items()}
    attend = 4 * (24 * 24 + 24) + 2 * 24
    feed = 24 * 40 + 40 + 40 * 24 + 24 + 2 * 24
    assert counts["attention"] == counts["all"] + 2 * feed
    assert counts["feed-forward"] == counts["all"] + 2 * attend
    assert counts["none"] == counts["all"] + 2 * (attend + feed)
    state = networks["all"].state_dict()
    inputs = make_inputs("albert", "segments")
    want = networks["all"].hidden(inputs, None)[0]
    for share in ("none", "attention", "feed-forward"):
        named = networks[share].state_dict()
        for name in named:
            where, _, rest = name.partition(".")
            i, _, end = rest.partition(".")
            source = f"{where}.0.{end}" if where in ("attending", "feeding") and i.isdigit() else name
            named[name] = state[source]
        networks[share].load_state_dict(named)
        for a, b in zip(networks[share].hidden(inputs, None)[0], want, strict=True):
            assert_close(a, b)
    with torch.no_grad():  # and unshared layers are independent
        networks["none"].attending[1].attention.out.weight.mul_(2.0)
    assert (networks["none"].hidden(inputs, None)[0][1] - want[1]).abs().max() == 0
    assert (networks["none"].hidden(inputs, None)[0][2] - want[2]).abs().max() > 1e-3


@pytest.mark.parametrize("slug", SLUGS)
def test_save_and_load_round_trips(slug: str, tmp_path: Path) -> None:
    network = make_encoder(slug).float()
    assert network.save(tmp_path) == ["model.safetensors"]
    again = type(network).load(tmp_path, network.config, VOCABULARY)
    inputs = make_inputs(slug, "padded")
    assert torch.equal(again.hidden(inputs, None)[0][-1], network.hidden(inputs, None)[0][-1])
    assert isinstance(again, Encoder)
    assert isinstance(again, Infilling)


def make_encoding(*ids: int) -> Encoding:
    n = len(ids)
    return Encoding(np.array(ids, np.int64), np.zeros((n, 2), np.int64), np.zeros(n, np.int64))


def test_frames_equal_expected_tokens() -> None:
    a, b = make_encoding(10, 11, 12), make_encoding(20, 21)
    for slug in ("bert", "albert"):
        framed = make_encoder(slug).frame(a, b)
        assert framed.ids.tolist() == [2, 10, 11, 12, 3, 20, 21, 3]
        assert framed.segments is not None
        assert framed.segments.tolist() == [0, 0, 0, 0, 0, 1, 1, 1]
        assert (framed.pooled_position, framed.text_spans) == (0, ((1, 4), (5, 7)))
    framed = make_encoder("roberta").frame(a, b)
    assert framed.ids.tolist() == [2, 10, 11, 12, 3, 3, 20, 21, 3]
    assert framed.segments is None
    single = make_encoder("bert").frame(make_encoding(*range(10, 40)))
    assert single.ids.tolist() == [2, *range(10, 24), 3]
    assert make_encoder("bert").frames("choose", [a, b, a])[1].ids.tolist() == [2, 10, 11, 12, 3, 10, 11, 12, 3]


def test_marks_are_found_by_names_of_bert_and_roberta() -> None:
    assert Marks.of(VOCABULARY) == Marks(cls=2, sep=3, mask=4, pad=1)
    special = {"<s>": 0, "<pad>": 1, "</s>": 2, "<unk>": 3, "<mask>": 50264}
    assert Marks.of(Vocabulary(50265, 0, special)) == Marks(cls=0, sep=2, mask=50264, pad=1)
    special = {"<pad>": 0, "<unk>": 1, "[CLS]": 2, "[SEP]": 3, "[MASK]": 4, "<s>": 7}  # the file of ALBERT
    assert Marks.of(Vocabulary(30000, 2, special)) == Marks(cls=2, sep=3, mask=4, pad=0)
    with raises(Unsupported, ability="mask"):
        Marks.of(Vocabulary(50257, 0, {"<|endoftext|>": 0}))


def test_text_longer_than_the_window_raises() -> None:
    network = make_encoder("bert")
    with raises(InvalidSetting, key="model.window"):
        network.hidden(Inputs(torch.zeros(1, 17, dtype=torch.long)), None)
    ids = torch.zeros(1, 40, dtype=torch.long)
    network.hidden(Inputs(ids, starts=torch.tensor([0, 16, 24, 40])), None)
    with raises(InvalidSetting, key="model.window"):
        network.hidden(Inputs(ids, starts=torch.tensor([0, 16, 33, 40])), None)


def test_unsupported_use_raises() -> None:
    with raises(InvalidSetting, key="model.sharing"):
        make_encoder("albert", sharing="half")
    with raises(InvalidSetting, key="model.width"):
        make_encoder("bert", width=10)
    roberta = make_encoder("roberta")
    assert roberta.next_sentence is None
    with raises(Unsupported, ability="pooled"):
        roberta.pooled(torch.zeros(1, 24, dtype=torch.float64))
