"""Readouts compared with the linear layer and cross-entropy of torch: values, gradients and memory."""

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nextword.core.types import IGNORE
from nextword.kernels import triton_kernels as kernels
from nextword.layers.output import softmax
from nextword.layers.output.base import Readout
from nextword.layers.output.softmax import FullSoftmax, TiedSoftmax, linear_cross_entropy, total_cross_entropy

WIDTH, SIZE = 16, 101


@pytest.fixture(autouse=True)
def few_rows_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(softmax.HELD, "cpu", 64 * SIZE)  # so that 700 rows are eleven chunks
    monkeypatch.setitem(softmax.PLAIN, "cpu", -1)


def operands(rows: int, dtype: torch.dtype = torch.float32, seed: int = 0) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    g = torch.Generator().manual_seed(seed)
    h = torch.randn(rows, WIDTH, generator=g, dtype=dtype)
    weight = torch.randn(SIZE, WIDTH, generator=g, dtype=dtype)
    bias = torch.randn(SIZE, generator=g, dtype=dtype)
    return h, weight, bias, torch.randint(SIZE, (rows,), generator=g)


def torchs(h: Tensor, weight: Tensor, bias: Tensor | None, targets: Tensor) -> Tensor:
    return F.cross_entropy(F.linear(h, weight, bias), targets, reduction="none")


def summed(h: Tensor, weight: Tensor, bias: Tensor | None, targets: Tensor) -> Tensor:
    return linear_cross_entropy(h, weight, bias, targets).sum()


def gradients(f, *tensors: Tensor | None) -> list[Tensor]:  # type: ignore[no-untyped-def]
    leaves = [None if t is None else t.clone().requires_grad_() for t in tensors]
    f(*leaves).backward()
    return [t.grad for t in leaves if t is not None]


@pytest.mark.parametrize("rows", [1, 3, 64, 65, 700])
@pytest.mark.parametrize("with_bias", [True, False])
def test_values_and_gradients_equal_torch(rows: int, with_bias: bool) -> None:
    h, weight, bias, targets = operands(rows)
    b = bias if with_bias else None
    expected = torchs(h, weight, b, targets)
    torch.testing.assert_close(linear_cross_entropy(h, weight, b, targets), expected)
    torch.testing.assert_close(total_cross_entropy(h, weight, b, targets), expected.sum())
    wanted = gradients(lambda *x: torchs(*x, targets).sum() / 7, h, weight, b)
    for ours in (summed, total_cross_entropy):
        for got, want in zip(gradients(lambda *x, f=ours: f(*x, targets) / 7, h, weight, b), wanted, strict=True):
            torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    "device", ["cpu", pytest.param("cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU"))]
)
@pytest.mark.parametrize("plain", [True, False])
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_fused_path_is_used_only_for_many_logits(
    device: str, plain: bool, precision: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(softmax.PLAIN, device, 1 << 30 if plain else -1)
    monkeypatch.setitem(softmax.HELD, device, 64 * SIZE)
    h, weight, bias, targets = (t.to(device) for t in operands(200))
    targets[::5] = IGNORE
    each = torchs(h, weight, bias, targets)
    tolerance = {"rtol": 1e-4, "atol": 1e-5} if precision == "fp32" else {"rtol": 0.05, "atol": 0.1}
    torch.testing.assert_close(linear_cross_entropy(h, weight, bias, targets, precision), each, **tolerance)
    wanted = gradients(lambda *x: torchs(*x, targets).sum(), h, weight, bias)
    got = gradients(lambda *x: total_cross_entropy(*x, targets, precision), h, weight, bias)
    for a, b in zip(got, wanted, strict=True):
        torch.testing.assert_close(a, b, **tolerance)


def test_per_token_gradients_equal_torch() -> None:
    h, weight, bias, targets = operands(130)
    upstream = torch.linspace(-2, 3, 130)
    wanted = gradients(lambda *x: (torchs(*x, targets) * upstream).sum(), h, weight, bias)
    got = gradients(lambda *x: (linear_cross_entropy(*x, targets) * upstream).sum(), h, weight, bias)
    for a, b in zip(got, wanted, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)


def test_gradients_pass_gradcheck() -> None:
    h, weight, bias, targets = operands(5, torch.float64)
    targets[2] = IGNORE
    leaves = [t.requires_grad_() for t in (h, weight, bias)]
    assert torch.autograd.gradcheck(lambda *x: linear_cross_entropy(*x, targets), leaves)


@pytest.mark.parametrize("frozen", [0, 1, 2])
def test_frozen_operand_gets_no_gradient(frozen: int) -> None:
    *tensors, targets = operands(70)
    wanted = gradients(lambda *x: torchs(*x, targets).sum(), *tensors)
    for f in (summed, total_cross_entropy):
        leaves = [t.clone().requires_grad_(i != frozen) for i, t in enumerate(tensors)]
        f(*leaves, targets).backward()
        for i, (leaf, want) in enumerate(zip(leaves, wanted, strict=True)):
            if i == frozen:
                assert leaf.grad is None
            else:
                torch.testing.assert_close(leaf.grad, want, rtol=1e-4, atol=1e-5)


def test_ignored_targets_have_zero_loss_and_gradient() -> None:
    h, weight, bias, targets = operands(90)
    targets[::3] = IGNORE
    h[0] = float("nan")  # what stands where nothing is predicted must not matter to the values
    assert (linear_cross_entropy(h, weight, bias, targets)[::3] == 0).all()
    assert total_cross_entropy(h, weight, bias, targets).isfinite()
    h[0] = 0
    wanted = gradients(lambda *x: torchs(*x, targets).sum(), h, weight, bias)
    for got, want in zip(gradients(lambda *x: total_cross_entropy(*x, targets), h, weight, bias), wanted, strict=True):
        torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5)


def test_empty_batch_has_zero_loss() -> None:
    h, weight, bias, targets = operands(0)
    assert linear_cross_entropy(h, weight, bias, targets).shape == (0,)
    for f in (summed, total_cross_entropy):
        for grad in gradients(lambda *x, f=f: f(*x, targets), h, weight, bias):
            assert (grad == 0).all()


def test_strided_rows_equal_contiguous_rows() -> None:
    h, weight, bias, targets = operands(66)
    strided = h.t().contiguous().t()
    assert not strided.is_contiguous()
    for f in (summed, total_cross_entropy):
        torch.testing.assert_close(f(strided, weight, bias, targets), f(h, weight, bias, targets))
        got = gradients(lambda *x, f=f: f(*x, targets), strided, weight, bias)
        wanted = gradients(lambda *x, f=f: f(*x, targets), h, weight, bias)
        for a, b in zip(got, wanted, strict=True):
            torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)


def test_extreme_logits_stay_finite() -> None:
    """Scores of ±1000: exp of either is no float. The unlikely word costs the difference, 2000 nats, to the digit."""
    weight = torch.tensor([[1000.0], [-1000.0], [0.0]])
    nll = linear_cross_entropy(torch.ones(3, 1), weight, None, torch.tensor([0, 1, 2]))
    assert nll.tolist() == [0.0, 2000.0, 1000.0]
    assert total_cross_entropy(torch.ones(1, 1).requires_grad_(), weight, None, torch.tensor([1])).item() == 2000.0


def test_loss_equals_hand_computation() -> None:
    """Two words scored log 3 and 0: p = 3/4 and 1/4. dL/dh of the second is Σ p z_w − z_2 = 3/4 log 3."""
    weight = torch.tensor([[3.0], [1.0]]).log()
    h = torch.ones(1, 1, requires_grad=True)
    loss = total_cross_entropy(h, weight, None, torch.tensor([1]))
    loss.backward()
    assert loss.item() == pytest.approx(torch.tensor(4.0).log().item())
    assert h.grad is not None
    assert h.grad.item() == pytest.approx(0.75 * torch.tensor(3.0).log().item())


def test_bf16_total_is_close_to_float32() -> None:
    h, weight, bias, targets = operands(200)
    wanted = [torchs(h, weight, bias, targets), *gradients(lambda *x: torchs(*x, targets).sum(), h, weight, bias)]

    def near(got: Tensor, want: Tensor) -> bool:
        return got.dtype == want.dtype and ((got - want).norm() / want.norm()).item() < 0.02

    assert near(linear_cross_entropy(h, weight, bias, targets, "bf16"), wanted[0])
    got = gradients(lambda *x: total_cross_entropy(*x, targets, "bf16"), h, weight, bias)
    assert all(near(a, b) for a, b in zip(got, wanted[1:], strict=True))
    with torch.autocast("cpu", torch.bfloat16):
        cast = gradients(lambda *x: total_cross_entropy(*x, targets), h, weight, bias)
    for a, b in zip(got, cast, strict=True):
        torch.testing.assert_close(a, b)


def test_bf16_input_gets_bf16_gradient() -> None:
    h, weight, bias, targets = operands(20)
    grads = gradients(lambda *x: total_cross_entropy(*x, targets), h.bfloat16(), weight, bias)
    assert [g.dtype for g in grads] == [torch.bfloat16, torch.float32, torch.float32]


def test_total_without_gradients_equals_torch() -> None:
    h, weight, bias, targets = operands(150)
    weight.requires_grad_()
    expected = torchs(h, weight, bias, targets).detach()
    with torch.inference_mode():
        torch.testing.assert_close(linear_cross_entropy(h, weight, bias, targets), expected)
    with torch.no_grad():
        assert not linear_cross_entropy(h, weight, bias, targets).requires_grad
        torch.testing.assert_close(total_cross_entropy(h, weight, bias, targets), expected.sum())
    total_cross_entropy(h, weight, bias, targets).backward()  # a buffer made in inference mode is not in the way


def test_total_never_materializes_all_logits() -> None:
    h, weight, bias, targets = operands(700)
    h.requires_grad_()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profile:
        total_cross_entropy(h, weight, bias, targets).backward()
        linear_cross_entropy(h, weight, bias, targets).sum().backward()
    largest = max(event.cpu_memory_usage for event in profile.events())
    assert largest < 4 * 700 * SIZE / 4  # a quarter of what all logits would take


def test_second_backward_through_total_raises() -> None:
    h, weight, bias, targets = operands(4)
    loss = total_cross_entropy(h.requires_grad_(), weight, bias, targets)
    loss.backward(retain_graph=True)
    with pytest.raises(RuntimeError, match=r"nll\(…\)\.sum\(\)"):
        loss.backward()


# ------------------------------------------------------------------------------------------------ the modules


@pytest.mark.parametrize("rows", [1, 2, 3, 20, 48, 49])
def test_full_softmax_satisfies_readout_contract(rows: int) -> None:
    h, weight, bias, targets = operands(rows)
    readout = FullSoftmax(WIDTH, SIZE)
    assert isinstance(readout, Readout)
    readout.load_state_dict({"weight": weight, "bias": bias})
    expected = torchs(h, weight, bias, targets)
    torch.testing.assert_close(readout.nll(h, targets), expected)
    torch.testing.assert_close(readout.total(h, targets), expected.sum())
    for mode in (torch.no_grad(), torch.enable_grad()):  # few rows without gradients go another way
        with mode:
            assert readout.logits(h).shape == (rows, SIZE)
            torch.testing.assert_close(readout.logits(h), F.linear(h, weight, bias))
            torch.testing.assert_close(readout.log_probs(h), F.log_softmax(F.linear(h, weight, bias), -1))
    assert list(FullSoftmax(WIDTH, SIZE, bias=False).state_dict()) == ["weight"]


class Network(nn.Module):
    """Embeds a word and predicts the next from it alone."""

    def __init__(self, width: int, **options) -> None:  # type: ignore[no-untyped-def]
        super().__init__()
        self.embedding = nn.Embedding(SIZE, width, **options)
        self.layer = nn.Linear(width, WIDTH)
        projection = None if width == WIDTH else nn.Linear(WIDTH, width, bias=False)
        self.readout = TiedSoftmax(self.embedding, projection=projection)

    def hidden(self, ids: Tensor) -> Tensor:
        return self.layer(self.embedding(ids)).tanh()


@pytest.mark.parametrize("width", [WIDTH, 6])
@pytest.mark.parametrize("sparse", [False, True])
def test_tied_weight_sums_gradients_of_input_and_output(width: int, sparse: bool) -> None:
    torch.manual_seed(0)
    network, plain = Network(width, sparse=sparse), Network(width)
    plain.load_state_dict(network.state_dict())
    ids, targets = torch.randint(SIZE, (2, 90))
    loss = network.readout.total(network.hidden(ids), targets)
    loss.backward()
    expected = torchs(
        plain.readout.project(plain.hidden(ids)), plain.embedding.weight, plain.readout.bias, targets
    ).sum()
    expected.backward()
    torch.testing.assert_close(loss, expected)
    for got, want in zip(network.parameters(), plain.parameters(), strict=True):
        assert got.grad is not None
        torch.testing.assert_close(got.grad, want.grad, rtol=1e-4, atol=1e-5)


def test_tied_softmax_saves_one_matrix() -> None:
    network = Network(WIDTH)
    assert sorted(network.state_dict()) == ["embedding.weight", "layer.bias", "layer.weight", "readout.bias"]
    twin = copy.deepcopy(network)
    assert twin.readout.matrix is twin.embedding.weight
    assert twin.readout.matrix is not network.embedding.weight
    assert network.double().readout.matrix.dtype == torch.float64
    ids = torch.arange(5)
    torch.testing.assert_close(
        network.readout.log_probs(network.hidden(ids)).exp().sum(-1), torch.ones(5, dtype=torch.float64)
    )


@pytest.mark.parametrize("rows", [1, 7, 40])
@pytest.mark.parametrize("bias", [True, False])
def test_chunked_pass_equals_total(rows: int, bias: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its kernel done by torch, so that chunks and padding are tried where there is no GPU."""

    def by_torch(z: Tensor, plus: Tensor | None, targets: Tensor, size: int) -> Tensor:
        logits = z[:, :size].float() + (0 if plus is None else plus)
        kept = targets != IGNORE
        nll = F.cross_entropy(logits, targets, ignore_index=IGNORE, reduction="none")
        grad = (logits.softmax(-1) - F.one_hot(targets.clamp(min=0), size)) * kept.unsqueeze(1)
        z.zero_()
        z[:, :size] = grad.to(z.dtype)
        return nll

    monkeypatch.setattr(kernels, "softmax_gradient", by_torch)
    monkeypatch.setattr(softmax, "HALF", 64 * 16)
    torch.manual_seed(rows)
    h, w = torch.randn(rows, 24, requires_grad=True), (0.3 * torch.randn(50, 24)).requires_grad_()
    b = torch.randn(50, requires_grad=True) if bias else None
    targets = torch.randint(0, 50, (rows,))
    targets[::5] = IGNORE
    inputs = [x for x in (h, w, b) if x is not None]
    got = softmax._OnePass.apply(h, w, b, targets)
    grads = torch.autograd.grad(got, inputs)
    want = F.cross_entropy(F.linear(h, w, b), targets, ignore_index=IGNORE, reduction="sum")
    torch.testing.assert_close(got, want, rtol=0.02, atol=0.05)
    for mine, theirs in zip(grads, torch.autograd.grad(want, inputs), strict=True):
        assert (mine - theirs).norm() <= 0.02 * theirs.norm() + 1e-3
