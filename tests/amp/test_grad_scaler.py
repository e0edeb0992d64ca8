# SPDX-License-Identifier: Apache-2.0
"""Scaling gradients: the scale's course, skipped steps, and calls out of turn."""

import math

import pytest

import flambeau as torch
from flambeau.amp import GradScaler


class Descent:
    """Gradient descent, as small as an optimizer can be."""

    def __init__(self, *parameters, rate=1.0):
        self.param_groups = [{"params": list(parameters)}]
        self.rate = rate
        self.steps = 0

    def step(self):
        self.steps += 1
        for parameter in self.param_groups[0]["params"]:
            parameter.sub_(parameter.grad * self.rate)
        return self.steps


def parameter_with(gradient, device):
    parameter = torch.zeros(len(gradient), device=device)
    parameter.grad = torch.tensor(gradient, device=device)
    return parameter


def test_losses_are_scaled_in_any_nesting(gpu):
    scaler = GradScaler(init_scale=4.0)
    one = torch.ones(2, device=gpu)
    first, (second,) = scaler.scale((one, [one * 2]))
    assert first.tolist() == [4.0, 4.0]
    assert second.tolist() == [8.0, 8.0]
    with pytest.raises(ValueError, match="must be a Tensor"):
        scaler.scale("loss")


def test_a_step_uses_the_true_gradients(gpu):
    scaler = GradScaler(init_scale=8.0)
    scaler.scale(torch.ones((), device=gpu))
    parameter = parameter_with([8.0, 16.0], gpu)
    optimizer = Descent(parameter)
    assert scaler.step(optimizer) == 1
    scaler.update()
    assert parameter.tolist() == [-1.0, -2.0]
    assert scaler.get_scale() == 8.0


@pytest.mark.parametrize("bad", [math.inf, -math.inf, math.nan])
def test_an_overflow_skips_the_step_and_backs_off(bad, gpu):
    scaler = GradScaler()
    scaler.scale(torch.ones((), device=gpu))
    parameter = parameter_with([1.0, bad], gpu)
    optimizer = Descent(parameter)
    assert scaler.step(optimizer) is None
    scaler.update()
    assert optimizer.steps == 0
    assert parameter.tolist() == [0.0, 0.0]
    assert scaler.get_scale() == 32768.0


def test_the_scale_doubles_after_enough_clean_steps_and_counts_anew_after_an_overflow(gpu):
    scaler = GradScaler(init_scale=2.0, growth_interval=3)
    scaler.scale(torch.ones((), device=gpu))
    scales = []
    for gradient in (1.0, 1.0, math.inf, 1.0, 1.0, 1.0, 1.0):
        scaler.step(Descent(parameter_with([gradient], gpu)))
        scaler.update()
        scales.append(scaler.get_scale())
    assert scales == [2.0, 2.0, 1.0, 1.0, 1.0, 2.0, 2.0]


def test_two_thousand_clean_steps_double_the_scale(gpu):
    scaler = GradScaler()
    scaler.scale(torch.ones((), device=gpu))
    assert scaler.state_dict() == {
        "scale": 65536.0,
        "growth_factor": 2.0,
        "backoff_factor": 0.5,
        "growth_interval": 2000,
        "_growth_tracker": 0,
    }
    scaler.load_state_dict({**scaler.state_dict(), "_growth_tracker": 1998})
    scales = []
    for _ in range(3):
        scaler.step(Descent(parameter_with([1.0], gpu)))
        scaler.update()
        scales.append(scaler.get_scale())
    assert scales == [65536.0, 131072.0, 131072.0]


def test_the_scale_never_grows_to_infinity(gpu):
    scaler = GradScaler(init_scale=3e38, growth_interval=1)
    scaler.scale(torch.ones((), device=gpu))
    scaler.step(Descent(parameter_with([1.0], gpu)))
    scaler.update()
    assert scaler.get_scale() == pytest.approx(3e38)


def test_an_optimizer_that_can_is_left_to_unscale_and_skip(gpu):
    class Capable(Descent):
        _step_supports_amp_scaling = True

        def step(self):
            self.seen = (self.grad_scale.item(), self.found_inf.item())

    scaler = GradScaler(init_scale=4.0)
    scaler.scale(torch.ones((), device=gpu))
    optimizer = Capable(parameter_with([math.inf], gpu))
    scaler.step(optimizer)
    assert optimizer.seen == (4.0, 1.0)
    assert not hasattr(optimizer, "found_inf")
    scaler.update()
    assert scaler.get_scale() == 2.0


def test_calls_out_of_turn(gpu):
    scaler = GradScaler()
    optimizer = Descent(parameter_with([1.0], gpu))
    with pytest.raises(AssertionError, match="_scale is None"):
        scaler.unscale_(optimizer)
    scaler.scale(torch.ones((), device=gpu))
    with pytest.raises(AssertionError, match="No inf checks were recorded prior to update"):
        scaler.update()
    with pytest.raises(AssertionError, match="No inf checks were recorded for this optimizer"):
        scaler.step(Descent(torch.zeros(1, device=gpu)))
    scaler = GradScaler()
    scaler.scale(torch.ones((), device=gpu))
    scaler.unscale_(optimizer)
    with pytest.raises(RuntimeError, match="unscale_\\(\\) has already been called"):
        scaler.unscale_(optimizer)
    with pytest.raises(RuntimeError, match="Closure use is not currently supported"):
        scaler.step(optimizer, closure=lambda: None)
    scaler.step(optimizer)
    with pytest.raises(RuntimeError, match="step\\(\\) has already been called"):
        scaler.step(optimizer)
    with pytest.raises(RuntimeError, match="called after step"):
        scaler.unscale_(optimizer)


def test_half_gradients_are_refused(gpu):
    scaler = GradScaler()
    scaler.scale(torch.ones((), device=gpu))
    parameter = torch.zeros(1, device=gpu, dtype=torch.float16)
    parameter.grad = torch.ones(1, device=gpu, dtype=torch.float16)
    with pytest.raises(ValueError, match="Attempting to unscale FP16 gradients"):
        scaler.unscale_(Descent(parameter))


def test_disabled_it_lets_everything_through(gpu):
    scaler = GradScaler(enabled=False)
    one = torch.ones(1, device=gpu)
    assert scaler.scale(one) is one
    assert scaler.get_scale() == 1.0
    assert scaler.state_dict() == {}
    optimizer = Descent(parameter_with([math.inf], gpu))
    assert scaler.step(optimizer) == 1
    scaler.update()
    assert not scaler.is_enabled()


def test_state_goes_on_elsewhere(gpu):
    scaler = GradScaler(init_scale=16.0, growth_interval=5)
    scaler.scale(torch.ones((), device=gpu))
    scaler.step(Descent(parameter_with([1.0], gpu)))
    scaler.update()
    state = scaler.state_dict()
    assert state["scale"] == 16.0
    assert state["_growth_tracker"] == 1
    other = GradScaler()
    other.scale(torch.ones((), device=gpu))
    other.load_state_dict(state)
    assert other.state_dict() == state
    with pytest.raises(RuntimeError, match="source state dict is empty"):
        other.load_state_dict({})


def test_a_set_scale_counts_for_the_next_loss(gpu):
    scaler = GradScaler()
    scaler.scale(torch.ones((), device=gpu))
    scaler.update(3.0)
    assert scaler.get_scale() == 3.0
    scaler.update(torch.tensor([5.0], device=gpu))
    assert scaler.scale(torch.ones(1, device=gpu)).tolist() == [5.0]


@pytest.mark.parametrize(
    "arguments", [{"growth_factor": 1.0}, {"backoff_factor": 1.0}], ids=lambda a: next(iter(a))
)
def test_factors_that_do_nothing_are_refused(arguments):
    with pytest.raises(ValueError, match="factor must be"):
        GradScaler(**arguments)


def test_the_older_name_warns(gpu):
    with pytest.warns(FutureWarning, match="torch.cuda.amp.GradScaler"):
        scaler = torch.cuda.amp.GradScaler(init_scale=2.0)
    assert scaler.scale(torch.ones(1, device=gpu)).tolist() == [2.0]
    assert torch.cuda.amp.amp_definitely_not_available() is False


@pytest.mark.parametrize("make", [GradScaler, torch.cuda.amp.GradScaler])
@pytest.mark.filterwarnings("ignore:.*GradScaler:FutureWarning")
def test_factors_set_later_count_from_the_next_update(make, gpu):
    scaler = make(init_scale=64.0)
    assert (scaler.get_growth_factor(), scaler.get_backoff_factor()) == (2.0, 0.5)
    assert scaler.get_growth_interval() == 2000
    scaler.set_growth_factor(4.0)
    scaler.set_backoff_factor(0.25)
    scaler.set_growth_interval(1)
    scaler.scale(torch.ones((), device=gpu))
    scales = []
    for gradient in (1.0, math.inf, 1.0):
        scaler.step(Descent(parameter_with([gradient], gpu)))
        scaler.update()
        scales.append(scaler.get_scale())
    assert scales == [256.0, 64.0, 256.0]
    assert (scaler.get_growth_factor(), scaler.get_backoff_factor()) == (4.0, 0.25)
    saved = scaler.state_dict()
    assert (saved["growth_factor"], saved["backoff_factor"]) == (4.0, 0.25)
    assert saved["growth_interval"] == scaler.get_growth_interval() == 1
