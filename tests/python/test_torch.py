"""lossd.torch.RankingLoss in one process: gradients, types, what a loop meets."""

import copy
import gc
import io
import math
import sys

import numpy as np
import pytest
import torch
from ranks import BCE, fresh

import lossd
import lossd.torch
from lossd.torch import RankingLoss

TASKS = {"tasks": [
    {"name": "click", "losses": [{"binary_cross_entropy": {}}]},
    {"name": "buy", "weight": 0.5, "losses": [{"binary_focal_loss": {}}]},
    {"name": "list", "losses": [{"listwise_rank_loss": {"temperature_init": 0.5}}]},
]}  # fmt: skip
LENGTHS = [3, 0, 4]
LABELS = torch.tensor([[1, 0, 1], [0, 1, 0], [0, 0, 0], [1, 1, 0], [0, 0, 1], [1, 0, 0], [0, 0, 1]])


@pytest.fixture
def make(daemon):
    """make(config, …): a RankingLoss of one rank."""
    made = []

    def run(config=TASKS, **options):
        client = options.pop("client", None) or lossd.Client(daemon.unix)
        made.append(RankingLoss(config, client, group=fresh("t"), rank=0, world_size=1, **options))
        return made[-1]

    yield run
    for step in made:
        if not step.client.closed:
            step.leave()


def logits(*shape, dtype=torch.float32, seed=1):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(dtype).requires_grad_()


def test_backward_gives_the_gradients_that_finite_differences_find(make):
    """binary32 in between: the differences are of 2e-2, in sums of some 1e-7."""
    tasks = [*TASKS["tasks"][::2], {"name": "buy", "losses": [{"binary_focal_loss": {"detach_weight": False}}]}]
    step, z = make({"tasks": tasks}), logits(7, 3).detach().double().requires_grad_()
    loss = step(z, LABELS, LENGTHS)
    assert loss.dtype is torch.float64 and loss.shape == ()
    loss.backward()
    h, scale = 1e-2, step.log_scale["list"]
    with torch.no_grad():
        for c, t in np.ndindex(7, 3):
            up, down = z.clone(), z.clone()
            up[c, t] += h
            down[c, t] -= h
            slope = (step(up, LABELS, LENGTHS) - step(down, LABELS, LENGTHS)) / (2 * h)
            assert float(slope) == pytest.approx(float(z.grad[c, t]), abs=2e-4)
        at = scale.clone()
        values = [float(step(z, LABELS, LENGTHS)) for move in (h, -h) if scale.copy_(at + move) is not None]
        assert (values[0] - values[1]) / (2 * h) == pytest.approx(float(scale.grad), abs=2e-4)


def test_a_matrix_columns_and_columns_by_name_are_the_same(make):
    step = make()
    matrix = logits(7, 3)
    step(matrix, LABELS, LENGTHS).backward()
    columns = {name: matrix.detach()[:, i].clone().requires_grad_() for i, name in enumerate(("click", "buy", "list"))}
    labels = {name: LABELS[:, i].float() for i, name in enumerate(columns)}
    loss = step(columns, labels, torch.tensor(LENGTHS))
    loss.backward()
    assert torch.equal(torch.stack([column.grad for column in columns.values()], 1), matrix.grad)
    narrow = {name: column.detach()[:, None].requires_grad_() for name, column in columns.items()}
    step(narrow, labels, np.array(LENGTHS)).backward()
    assert torch.equal(narrow["buy"].grad, columns["buy"].grad[:, None])
    strided = logits(7, 6).detach()[:, ::2].copy_(matrix.detach()).requires_grad_()
    step(strided, LABELS.double(), LENGTHS).backward()
    assert torch.equal(strided.grad, matrix.grad)


def test_a_single_task_takes_a_column(make):
    step, z = make(BCE), logits(7)
    loss = step(z, LABELS[:, 0], LENGTHS)
    loss.backward()
    want = torch.nn.functional.binary_cross_entropy_with_logits(z.detach(), LABELS[:, 0].float())
    assert float(loss) == pytest.approx(float(want), rel=1e-6)
    assert torch.allclose(z.grad, (torch.sigmoid(z) - LABELS[:, 0]).detach() / 7, rtol=1e-5)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_gradients_of_halves_are_rounded_once_after_the_scale(make, dtype):
    """They are of some 2^-34, below what float16 has, until a loss scale of 2^20 brings them back."""
    step = make({"tasks": [{**BCE["tasks"][0], "weight": 2.0**-30}]})
    z = logits(7, dtype=dtype)
    exact = z.detach().float().requires_grad_()
    step(exact, LABELS[:, 0], LENGTHS).backward()
    (step(z, LABELS[:, 0], LENGTHS) * 2.0**20).backward()
    assert z.grad.dtype is dtype and exact.grad.abs().max() < 2.0**-30
    assert torch.equal(z.grad, (exact.grad * 2.0**20).to(dtype)) and z.grad.abs().min() > 0


def test_under_autocast_it_computes_as_without(make):
    step, model = make(), torch.nn.Linear(5, 3)
    features = torch.randn(7, 5)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        z = model(features)
        assert z.dtype is torch.bfloat16
        loss = step(z, LABELS, LENGTHS)
    assert loss.dtype is torch.float32
    loss.backward()
    with_autocast = model.weight.grad.clone()
    model.weight.grad = None
    leaf = z.detach().requires_grad_()
    step(leaf, LABELS, LENGTHS).backward()
    assert leaf.grad.dtype is torch.bfloat16
    assert torch.allclose(with_autocast, (leaf.grad.T @ features.bfloat16()).float(), rtol=2e-2, atol=1e-2)


def test_a_loss_scale_comes_back_by_backward_and_inf_skips_the_step(make):
    """What GradScaler does: scale the loss, look for inf, skip or unscale."""
    step = make(BCE)
    weight = torch.nn.Parameter(torch.tensor([2.0]))
    features = torch.ones(7, dtype=torch.float16)

    def gradient(scale):
        weight.grad = None
        (step((weight * features).half(), LABELS[:, 0], LENGTHS) * scale).backward()
        return weight.grad.clone()

    assert gradient(256.0) == pytest.approx(256 * gradient(1.0), rel=2e-3)
    assert not torch.isfinite(gradient(1e7)).any()  # passes what float16 has: the step is skipped
    if hasattr(torch.amp, "GradScaler"):  # versions that have one for the CPU
        optimizer = torch.optim.SGD([weight], lr=0.1)
        before = weight.detach().clone()
        for scale, moves in ((2.0**30, False), (256.0, True)):
            scaler = torch.amp.GradScaler("cpu", init_scale=scale)
            optimizer.zero_grad()
            scaler.scale(step((weight * features).half(), LABELS[:, 0], LENGTHS)).backward()
            scaler.step(optimizer)
            scaler.update()
            assert (not torch.equal(weight, before)) == moves


def test_grad_output_multiplies_and_a_graph_can_be_kept(make):
    step, z = make(), logits(7, 3)
    loss = step(z, LABELS, LENGTHS)
    (3 * loss).backward(retain_graph=True)
    once, scale_once = z.grad.clone(), step.log_scale["list"].grad.clone()
    loss.backward()
    assert torch.allclose(z.grad, once * 4 / 3) and torch.allclose(step.log_scale["list"].grad, scale_once * 4 / 3)
    again = step(z, LABELS, LENGTHS)
    (gradient,) = torch.autograd.grad(again, z, create_graph=True)
    with pytest.raises(RuntimeError):
        gradient.sum().backward()  # there is no second derivative


def test_backward_passes_may_come_late_and_in_any_order(make):
    """Two slots, five steps before the first backward pass, one of them larger than all buffers."""
    step, reference = make(), make()
    sizes = [[3, 4], [2], [500, 300], [1, 1], [6]]
    inputs = [logits(sum(lengths), 3, seed=i) for i, lengths in enumerate(sizes)]
    labels = [torch.zeros(sum(lengths), 3).index_fill_(0, torch.tensor([0]), 1) for lengths in sizes]
    losses = [step(z, y, lengths) for z, y, lengths in zip(inputs, labels, sizes)]
    for i in (3, 0, 4, 1, 2):
        losses[i].backward()
        z = inputs[i].detach().requires_grad_()
        reference(z, labels[i], sizes[i]).backward()
        assert torch.equal(inputs[i].grad, z.grad), i


def test_a_loop_copies_no_gradients_aside(make, monkeypatch):
    step, kept = make(BCE), []
    monkeypatch.setattr(lossd.torch.Answer, "keep", lambda self: kept.append(self))
    for i in range(6):
        loss = step(logits(7, seed=i), LABELS[:, 0], LENGTHS)
        loss.backward()
    assert not kept


def test_the_temperature_learns(make):
    """Of good logits the loss falls with the temperature: log_scale rises, as the parameter that it is."""
    step = make()
    assert list(step.log_scale) == ["list"]
    scale = step.log_scale["list"]
    assert float(scale) == pytest.approx(math.log(2)) and [p is scale for p in step.parameters()] == [True]
    optimizer = torch.optim.SGD(step.parameters(), lr=0.5)
    z = (LABELS * 2.0 - 1).requires_grad_()
    losses = []
    for _ in range(5):
        optimizer.zero_grad()
        loss = step(z, LABELS, LENGTHS)
        loss.backward()
        optimizer.step()
        losses.append(float(loss))
    assert float(scale) > math.log(2) and losses == sorted(losses, reverse=True)
    scale.requires_grad_(False)
    before = scale.grad.clone()
    step(z, LABELS, LENGTHS).backward()
    assert torch.equal(scale.grad, before)


def test_without_gradients_losses_alone_are_computed(make):
    step, z = make(), logits(7, 3)
    with_gradient = step(z, LABELS, LENGTHS)
    with torch.no_grad():
        plain = step(z, LABELS, LENGTHS)
    assert not plain.requires_grad and float(plain) == float(with_gradient) and step.next_step == 2
    frozen = make(BCE)(logits(7).detach(), LABELS[:, 0], LENGTHS)
    assert not frozen.requires_grad


def test_an_empty_batch_is_a_loss_of_0_that_backward_runs_through(make):
    step, model = make(), torch.nn.Linear(5, 3)
    loss = step(model(torch.zeros(0, 5)), torch.zeros(0, 3), [])
    assert float(loss) == 0 and loss.requires_grad
    loss.backward()
    assert not model.weight.grad.any() and not step.log_scale["list"].grad.any()
    without_candidates = torch.zeros(2, dtype=torch.int64)
    step(model(torch.zeros(0, 5)), lengths=without_candidates).backward()
    assert step.result.local.requests == 2


def test_weights_sessions_task_space_and_bits(make):
    config = {"tasks": [
        {"name": "a", "losses": [{"l2_loss": {}}]},
        {"name": "b", "outTaskSpaceWeight": 0.5, "losses": [{"l2Loss": {}}]},
        {"name": "c", "lists": "LISTS_SESSIONS", "labelBitmask": "2", "losses": [{"listwiseRankLoss": {}}]},
    ]}  # fmt: skip
    step, z = make(config), logits(4, 3)
    more = {
        "label_bits": torch.tensor([2, 1, 3, 0]),
        "weights": {"a": [1, 0, 0, 3]},
        "sessions": torch.tensor([8, 9, 9, 8]),
        "task_space": {"b": torch.tensor([1, 0, 0, 0])},
    }
    for _ in range(3):
        loss = step(z, {"a": [0] * 4, "b": [0] * 4}, [4], **more)
    loss.backward()
    a, b = z.detach()[:, 0], z.detach()[:, 1]
    w, s = torch.tensor([1.0, 0, 0, 3]), torch.tensor([1, 0.5, 0.5, 0.5])
    assert step.result.tasks["a"].loss == pytest.approx(float((w * a**2).sum() / 4), rel=1e-6)
    assert step.result.tasks["b"].loss == pytest.approx(float((s * b**2).sum() / 2.5), rel=1e-6)
    assert torch.allclose(z.grad[:, 0], 2 * w * a / 4) and torch.allclose(z.grad[:, 1], 2 * s * b / 2.5)
    assert step.result.tasks["c"].terms[0].denominator == 2 and list(step.log_scale) == ["c"]
    bits = make({"tasks": [{"name": "t", "label_bitmask": 4, "losses": [{"l2_loss": {}}]}]})
    assert float(bits(torch.zeros(2), torch.tensor([4, 3]), [2])) == 0.5


@pytest.mark.parametrize(
    ("call", "kind", "words"),
    [
        (lambda s: s(torch.zeros(7, 2), LABELS, LENGTHS), ValueError, r"logits has shape \[7, 2\], and not \[C, 3\]"),
        (lambda s: s(torch.zeros(7, 3), LABELS[:, :2], LENGTHS), ValueError, "labels has shape"),
        (lambda s: s(torch.zeros(7, 3), LABELS[:6], LENGTHS), ValueError, r"labels\['click'\] has shape \[6\]"),
        (lambda s: s(torch.zeros(7, 3), None, LENGTHS), ValueError, "labels: those of task 'click'"),
        (lambda s: s(torch.zeros(7, 3), LABELS, torch.tensor([7.0])), TypeError, "lengths is torch.float32"),
        (lambda s: s({"click": torch.zeros(7)}, LABELS, LENGTHS), ValueError, "logits: those of task 'buy'"),
        (lambda s: s({"klick": torch.zeros(7)}, LABELS, LENGTHS), ValueError, "no task 'klick'"),
        (lambda s: s(torch.zeros(7, 3), LABELS, LENGTHS, weights=[1] * 7), ValueError, "say which"),
        (lambda s: s(torch.zeros(7, 3), LABELS, LENGTHS, label_bits=[1] * 7), ValueError, "no use"),
        (lambda s: s(torch.zeros(7, 3), LABELS, [3, 3]), lossd.Error, "SHAPE_MISMATCH"),
    ],
)
def test_inputs_that_do_not_fit_are_named(make, call, kind, words):
    step = make()
    with pytest.raises(kind, match=words):
        call(step)
    assert math.isfinite(step(torch.zeros(7, 3), LABELS, LENGTHS)) and step.next_step == 1  # the step was not spent


def test_constructor_refuses_what_can_not_be(make):
    with pytest.raises(ValueError, match="GRAD_REDUCE_SUM"):
        make({**BCE, "grad_reduce": "GRAD_REDUCE_SUM"})
    with pytest.raises(ValueError, match="on_refused"):
        make(BCE, on_refused="ignore")


def test_nonfinite_logits_raise_or_give_nothing(make):
    bad = torch.tensor([1.0, math.nan] + [0.0] * 5)
    step = make(BCE)
    with pytest.raises(lossd.Error) as caught:
        step(bad, LABELS[:, 0], LENGTHS)
    assert (caught.value.reason, step.next_step) == ("NONFINITE_LOGITS", 0)
    step, model = make(BCE, on_refused="zero"), torch.nn.Linear(2, 1)
    features = torch.ones(7, 2)
    features[3, 1] = math.inf
    loss = step(model(features).squeeze(1), LABELS[:, 0], LENGTHS)
    assert float(loss) == 0 and step.refused and step.result is None and step.next_step == 1
    loss.backward()
    assert all(p.grad is None or not p.grad.any() for p in model.parameters())  # 0, and not 0 * inf
    step(model(torch.ones(7, 2)).squeeze(1), LABELS[:, 0], LENGTHS).backward()
    assert not step.refused and model.weight.grad.any()
    with pytest.raises(lossd.Error):
        step(torch.zeros(7), torch.full((7,), 2), LENGTHS)  # a wrong label is another thing


def test_steps_count_on_and_are_saved(make):
    step = make()
    z = logits(7, 3)
    step(z, LABELS, LENGTHS)
    step(z, LABELS, LENGTHS, step=10)
    assert step.result.step == 10 and step.next_step == 11
    with torch.no_grad():
        step.log_scale["list"].fill_(1.5)
    file = io.BytesIO()
    torch.save(step.state_dict(), file)
    file.seek(0)
    other = make()
    other.load_state_dict(torch.load(file))
    assert other.next_step == 11 and float(other.log_scale["list"].detach()) == 1.5
    other(z, LABELS, LENGTHS)
    other.load_state_dict(step.state_dict())
    assert other.next_step == 12  # steps of a group only rise


def test_announced_lengths_are_the_next_steps(make):
    step = make(BCE)
    step.announce(torch.tensor(LENGTHS))
    assert not step(logits(7), LABELS[:, 0], LENGTHS).isnan()
    step.announce([4])
    with pytest.raises(lossd.Error) as caught:
        step(logits(7), LABELS[:, 0], LENGTHS)
    assert caught.value.reason == "STEP_PAYLOAD_CONFLICT"


def test_copies_of_a_model_are_the_same_rank(make):
    model = torch.nn.Sequential(torch.nn.Linear(2, 3), make())
    average = copy.deepcopy(model)
    assert average[1].client is model[1].client
    model[1](logits(7, 3), LABELS, LENGTHS)
    assert average[1].next_step == 1 and average[1].log_scale["list"] is not model[1].log_scale["list"]


def test_names_with_dots_are_parameters_of_their_own(make):
    config = {"tasks": [{"name": n, "losses": [{"listwise_rank_loss": {}}]} for n in ("a.b", "a_b")]}
    step = make(config)
    assert list(step.log_scale) == ["a.b", "a_b"] and len(list(step.parameters())) == 2


def test_leaving_frees_the_memory(make):
    step = make(BCE)
    loss = step(logits(7), LABELS[:, 0], LENGTHS)
    waiting = logits(7)
    late = step(waiting, LABELS[:, 0], LENGTHS)
    step.leave()
    assert step.client.closed
    late.backward()
    assert torch.allclose(waiting.grad, (torch.sigmoid(waiting) - LABELS[:, 0]).detach() / 7, rtol=1e-5)
    del loss, late
    gc.collect()


def test_a_model_runs_it_as_it_is_compiled_where_there_is_a_compiler(make):
    compiled = getattr(torch, "compile", lambda function, backend: function)
    step, linear = make(BCE), torch.nn.Linear(2, 1)
    features = torch.randn(7, 2)

    def whole(x):
        return step(torch.relu(linear(x)).squeeze(1), LABELS[:, 0], LENGTHS) * 2

    whole(features).backward()
    want = linear.weight.grad.clone()
    linear.weight.grad = None
    compiled(whole, backend="eager")(features).backward()
    assert torch.equal(linear.weight.grad, want)
    assert ("torch._dynamo" in sys.modules) == hasattr(torch, "compile")
