"""Seeds are independent, steps have a norm, states can be saved, and mistakes are named."""

import io

import pytest
import torch

from common.optim import StackedMuon

LEARNING_RATE = 1e-3


def train(optimiser, gradients):
    """Take one step per entry and return the update norms, [steps, S]."""
    return torch.stack([optimiser.step(step) for step in gradients])


def copy_of(tensors):
    return {name: value.clone() for name, value in tensors.items()}


def seed_of(tensors, seed):
    return {name: value[seed : seed + 1].clone() for name, value in tensors.items()}


def test_stacked_is_separate(draw, dtype, momentum_form, matrices):
    """Seeds with plain, zero, huge, tiny and undefined gradients, side by side and alone."""
    sizes = torch.tensor([1.0, 0.0, 1e15, 1e-9, torch.nan], dtype=dtype)
    parameters = {name: torch.zeros_like(value) for name, value in draw(len(sizes), key=0, dtype=dtype).items()}
    gradients = [
        {
            name: (value.mT * sizes).mT if value.ndim == 1 else value * sizes.view(-1, *[1] * (value.ndim - 1))
            for name, value in draw(len(sizes), key=1 + step, dtype=dtype).items()
        }
        for step in range(4)
    ]
    alone = [seed_of(parameters, seed) for seed in range(len(sizes))]
    norms = train(StackedMuon(parameters, matrices, LEARNING_RATE, momentum_form), gradients)

    for seed, own in enumerate(alone):
        optimiser = StackedMuon(own, matrices, LEARNING_RATE, momentum_form)
        own_norms = train(optimiser, [seed_of(step, seed) for step in gradients])
        tolerance = {"rtol": 1e-5, "atol": 1e-9} if dtype == torch.float32 else {"rtol": 1e-12, "atol": 1e-15}
        torch.testing.assert_close(norms[:, seed], own_norms[:, 0], **tolerance, equal_nan=True)
        for name, value in own.items():
            torch.testing.assert_close(parameters[name][seed], value[0], **tolerance, equal_nan=True)
            assert value.isfinite().all() == (seed != 4)


def test_without_gradients_from_the_start_nothing_moves(draw, dtype, momentum_form, matrices):
    parameters = draw(2, key=0, dtype=dtype)
    before = copy_of(parameters)
    zeros = {name: torch.zeros_like(value) for name, value in parameters.items()}
    assert train(StackedMuon(parameters, matrices, LEARNING_RATE, momentum_form), [zeros] * 3).eq(0).all()
    assert all(torch.equal(parameters[name], value) for name, value in before.items())


def test_a_vanishing_gradient_is_not_a_vanishing_step(draw, dtype, momentum_form):
    """One gradient, then none: Muon goes on at full size (Adam's moment fades)."""
    shapes = {"w": (6, 10)}
    gradient = draw(1, key=1, dtype=dtype, shapes=shapes)
    zero = {"w": torch.zeros_like(gradient["w"])}
    muon, adam = (
        train(
            StackedMuon(draw(1, key=0, dtype=dtype, shapes=shapes), names, 1.0, momentum_form), [gradient, *[zero] * 60]
        )
        for names in ({"w"}, ())
    )
    torch.testing.assert_close(muon, muon[:1].expand_as(muon), rtol=1e-4, atol=0)
    assert muon[0] > 0.68 * (6 * 10 / 6) ** 0.5
    assert adam[-1] < 0.05 * adam[0]


def test_update_norm_is_that_of_the_change(draw, momentum_form, matrices):
    parameters = draw(3, key=0)
    optimiser = StackedMuon(parameters, matrices, LEARNING_RATE, momentum_form)
    for step in range(3):
        before = copy_of(parameters)
        norm = optimiser.step(draw(3, key=1 + step))
        change = torch.cat([(value - before[name]).flatten(1) for name, value in parameters.items()], 1)
        torch.testing.assert_close(norm, change.norm(dim=1), rtol=1e-9, atol=0)


def test_learning_rate_only_scales(draw, momentum_form, matrices):
    gradients = [draw(2, key=step) for step in range(3)]
    slow, fast = (train(StackedMuon(draw(2, key=9), matrices, rate, momentum_form), gradients) for rate in (1e-3, 3e-3))
    torch.testing.assert_close(3 * slow, fast, rtol=1e-12, atol=0)


def test_a_saved_state_continues_to_the_bit(draw, dtype, momentum_form, matrices):
    parameters = draw(2, key=0, dtype=dtype)
    gradients = [draw(2, key=1 + step, dtype=dtype) for step in range(6)]
    optimiser = StackedMuon(parameters, matrices, LEARNING_RATE, momentum_form)
    train(optimiser, gradients[:3])
    file = io.BytesIO()
    torch.save(optimiser.state_dict(), file)
    resumed_parameters = dict(reversed(copy_of(parameters).items()))
    norms = train(optimiser, gradients[3:])

    file.seek(0)
    resumed = StackedMuon(resumed_parameters, set(matrices), LEARNING_RATE, momentum_form)
    resumed.load_state_dict(torch.load(file, weights_only=True))
    assert resumed.steps == 3
    resumed_norms = train(resumed, gradients[3:])
    assert all(torch.equal(resumed_parameters[name], value) for name, value in parameters.items())
    torch.testing.assert_close(resumed_norms, norms)  # a sum in another order
    states = optimiser.state_dict(), resumed.state_dict()
    assert states[0].keys() == states[1].keys()
    assert all(torch.equal(value, states[1][name]) for name, value in states[0].items())


def test_a_state_is_a_copy(draw, matrices):
    optimiser = StackedMuon(draw(1, key=0), matrices, LEARNING_RATE)
    state = optimiser.state_dict()
    optimiser.step(draw(1, key=1))
    assert all(value.eq(0).all() for value in state.values())


def test_views_of_leaves_and_gradients_of_any_layout(draw, matrices):
    """A bias [S, 8] updated as a matrix [S, 2, 4]; a transposed and an expanded gradient."""
    leaf = torch.zeros(3, 8, dtype=torch.float64, requires_grad=True)
    other = torch.zeros(3, 2, 4, dtype=torch.float64)
    gradient = draw(3, key=0, shapes={"w": (4, 2)})["w"].mT
    assert not gradient.is_contiguous()
    for name, parameter, its_gradient in [("a", leaf.view(3, 2, 4), gradient), ("b", other, gradient.contiguous())]:
        StackedMuon({name: parameter}, {name}, LEARNING_RATE).step({name: its_gradient})
    assert leaf.requires_grad
    assert leaf.is_leaf
    assert torch.equal(leaf.detach().view(3, 2, 4), other)
    scalars = torch.zeros(3)
    StackedMuon({"scalar": scalars}, (), 0.5).step({"scalar": torch.ones(()).expand(3)})
    torch.testing.assert_close(scalars, torch.full((3,), -0.5 * (0.9 / 1.9 + 1)))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_gpu_does_the_same(draw, momentum_form, matrices):
    here = draw(2, key=0)
    there = {name: value.cuda() for name, value in here.items()}
    optimisers = [StackedMuon(parameters, matrices, LEARNING_RATE, momentum_form) for parameters in (here, there)]
    for step in range(3):
        gradients = draw(2, key=1 + step)
        norms = optimisers[0].step(gradients), optimisers[1].step({name: g.cuda() for name, g in gradients.items()})
        torch.testing.assert_close(norms[1].cpu(), norms[0], rtol=1e-10, atol=0)
    for name, value in here.items():
        torch.testing.assert_close(there[name].cpu(), value, rtol=1e-10, atol=1e-14)


W = torch.zeros(2, 3, 4)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (({"w": W}, {"w"}, 0.0), "learning_rate: 0.0 is not allowed; it must be greater than 0"),
        (({"w": W}, {"w"}, -1.0), "learning_rate: -1.0 is not allowed"),
        (({"w": W}, {"w"}, float("nan")), "learning_rate: nan is not allowed"),
        (({"w": W}, {"w"}, 1.0, "jax"), "momentum_form: 'jax' is not allowed; choose from optax, torch"),
        (({}, (), 1.0), "parameters: there are none"),
        (({"w": W}, {"v"}, 1.0), "matrices: 'v' is not a parameter"),
        (({"w": W[0]}, {"w"}, 1.0), r"matrices: 'w' of shape \(3, 4\) is not allowed; it must be \[S, rows, columns\]"),
        (({"w": W, "b": W[:1]}, (), 1.0), r"parameter 'b': shape \(1, 3, 4\)"),
        (({"w": W[0, 0, 0]}, (), 1.0), r"parameter 'w': shape \(\)"),
        (({"w": W, "b": W.double()}, (), 1.0), r"parameter 'b': torch\.float64 on cpu"),
        (({"w": W.half()}, (), 1.0), r"parameter 'w': torch\.float16 is not allowed; it must be"),
    ],
)
def test_settings_that_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message) as caught:
        StackedMuon(*arguments)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("gradients", "message"),
    [
        ({}, "gradients: that of 'w' is missing"),
        ({"w": None}, "gradients: that of 'w' is missing"),
        ({"w": W.mT}, r"gradient of 'w': shape \(2, 4, 3\) is not allowed; it must be \(2, 3, 4\)"),
        ({"w": W.double()}, r"gradient of 'w': torch\.float64 is not allowed; it must be torch\.float32"),
        ({"w": W, "v": W}, "gradients: 'v' is not a parameter"),
    ],
)
def test_gradients_that_are_refused_change_nothing(gradients, message):
    optimiser = StackedMuon({"w": W.clone()}, {"w"}, 1.0)
    with pytest.raises(ValueError, match=message):
        optimiser.step(gradients)
    assert optimiser.steps == 0


@pytest.mark.parametrize(
    ("state", "message"),
    [
        ({"steps": torch.tensor(1)}, r"state: 'w\.momentum' is missing"),
        ({"w.momentum": W}, "state: 'steps' is missing"),
        ({"w.momentum": W + 1, "steps": torch.tensor(1), "v": W}, "state: 'v' is not known here"),
        ({"w.momentum": W[:1], "steps": torch.tensor(1)}, r"state of 'w\.momentum': shape \(1, 3, 4\) is not allowed"),
        (
            {"w.momentum": W.double(), "steps": torch.tensor(1)},
            r"state of 'w\.momentum': torch\.float64 is not allowed",
        ),
    ],
)
def test_states_that_are_refused_change_nothing(state, message):
    optimiser = StackedMuon({"w": W.clone()}, {"w"}, 1.0)
    with pytest.raises(ValueError, match=message):
        optimiser.load_state_dict(state)
    assert optimiser.steps == 0
    assert optimiser.state_dict()["w.momentum"].eq(0).all()
