# SPDX-License-Identifier: Apache-2.0
"""Learning rates that change with the epoch.

A scheduler changes the rates of an optimizer's groups each time its `step` is called, from what
they are then, so that several can work on one optimizer.
"""

from __future__ import annotations

import math
import warnings
from bisect import bisect_right
from collections import Counter
from typing import TYPE_CHECKING, Any

from flambeau.optim.optimizer import Optimizer
from flambeau.runtime._tensor import Tensor

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

__all__ = [
    "ConstantLR",
    "CosineAnnealingLR",
    "ExponentialLR",
    "LRScheduler",
    "LambdaLR",
    "LinearLR",
    "MultiStepLR",
    "MultiplicativeLR",
    "PolynomialLR",
    "ReduceLROnPlateau",
    "SequentialLR",
    "StepLR",
]


def _set_rate(group: dict[str, Any], rate: float) -> None:
    """A rate that is a tensor keeps its memory, which captured graphs read."""
    if isinstance(group["lr"], Tensor):
        group["lr"].fill_(rate)
    else:
        group["lr"] = rate


class LRScheduler:
    """The base of schedulers.

    Parameters
    ----------
    optimizer
        Whose rates are changed.
    last_epoch
        The epoch that was done last; -1 starts anew, and takes the rates now as the initial ones.
    """

    _unkept: tuple[str, ...] = ("optimizer",)

    def __init__(self, optimizer: Optimizer, last_epoch: int = -1) -> None:
        if not isinstance(optimizer, Optimizer):
            raise TypeError(f"{type(optimizer).__name__} is not an Optimizer")
        self.optimizer = optimizer
        for index, group in enumerate(optimizer.param_groups):
            if last_epoch == -1:
                group.setdefault("initial_lr", _number(group["lr"]))
            elif "initial_lr" not in group:
                raise KeyError(
                    "param 'initial_lr' is not specified in param_groups"
                    f"[{index}] when resuming scheduler with last_epoch >= 0"
                )
        self.base_lrs: list[float] = [group["initial_lr"] for group in optimizer.param_groups]
        self.last_epoch = last_epoch
        self._step_count = 0
        self._last_lr: list[float] = []
        self._steps_at_start = optimizer._step_count
        self.step()

    def get_lr(self) -> list[float]:
        """The rates of this epoch, from those that the groups have now."""
        raise NotImplementedError(f"{type(self).__name__} has no get_lr()")

    def get_last_lr(self) -> list[float]:
        """The rates that were set last."""
        return self._last_lr

    def step(self) -> None:
        """Go to the next epoch. Call it after the optimizer's own step."""
        self._step_count += 1
        if self._step_count == 2 and self.optimizer._step_count == self._steps_at_start:
            warnings.warn(
                "Detected call of `lr_scheduler.step()` before `optimizer.step()`: the first rate "
                "of the schedule is skipped that way. Call them in the other order.",
                UserWarning,
                stacklevel=2,
            )
        self.last_epoch += 1
        self._apply(self.get_lr())

    def _apply(self, rates: Sequence[float]) -> None:
        for group, rate in zip(self.optimizer.param_groups, rates, strict=True):
            _set_rate(group, rate)
        self._last_lr = [float(rate) for rate in rates]

    def _now(self) -> list[float]:
        return [_number(group["lr"]) for group in self.optimizer.param_groups]

    def _scaled(self, factor: float) -> list[float]:
        return [rate * factor for rate in self._now()]

    def state_dict(self) -> dict[str, Any]:
        """What is needed to go on later: everything but the optimizer."""
        return {key: value for key, value in vars(self).items() if key not in self._unkept}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on from a `state_dict`."""
        vars(self).update(state_dict)


_LRScheduler = LRScheduler  # its name in older programs


def _number(rate: Any) -> float:
    return float(rate.item()) if isinstance(rate, Tensor) else rate


def _per_group(given: Any, optimizer: Optimizer, name: str) -> list[Any]:
    if not isinstance(given, (list, tuple)):
        return [given] * len(optimizer.param_groups)
    if len(given) != len(optimizer.param_groups):
        raise ValueError(f"Expected {len(optimizer.param_groups)} {name}s, but got {len(given)}")
    return list(given)


class LambdaLR(LRScheduler):
    """The initial rate times a function of the epoch.

    Parameters
    ----------
    optimizer, last_epoch
        As for `LRScheduler`.
    lr_lambda
        ``f(epoch)``, or one for each group.
    """

    _unkept = ("optimizer", "lr_lambdas")

    def __init__(
        self,
        optimizer: Optimizer,
        lr_lambda: Callable[[int], float] | Sequence[Callable[[int], float]],
        last_epoch: int = -1,
    ) -> None:
        self.lr_lambdas = _per_group(lr_lambda, optimizer, "lr_lambda")
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[float]:
        """The initial rates times the functions' values."""
        return [
            base * function(self.last_epoch)
            for function, base in zip(self.lr_lambdas, self.base_lrs, strict=True)
        ]


class MultiplicativeLR(LambdaLR):
    """The rate times a function of the epoch, each epoch.

    Parameters
    ----------
    optimizer, lr_lambda, last_epoch
        As for `LambdaLR`.
    """

    def get_lr(self) -> list[float]:
        """The rates now, times the functions' values."""
        if self.last_epoch <= 0:
            return self._now()
        return [
            rate * function(self.last_epoch)
            for function, rate in zip(self.lr_lambdas, self._now(), strict=True)
        ]


class StepLR(LRScheduler):
    """The rate times `gamma`, every `step_size` epochs.

    Parameters
    ----------
    optimizer, last_epoch
        As for `LRScheduler`.
    step_size
        How many epochs lie between.
    gamma
        The factor.
    """

    def __init__(
        self, optimizer: Optimizer, step_size: int, gamma: float = 0.1, last_epoch: int = -1
    ) -> None:
        self.step_size, self.gamma = step_size, gamma
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[float]:
        """The rates of this epoch."""
        due = self.last_epoch > 0 and self.last_epoch % self.step_size == 0
        return self._scaled(self.gamma) if due else self._now()


class MultiStepLR(LRScheduler):
    """The rate times `gamma` at each milestone.

    Parameters
    ----------
    optimizer, last_epoch
        As for `LRScheduler`.
    milestones
        Epochs; one that appears twice counts twice.
    gamma
        The factor.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        milestones: Iterable[int],
        gamma: float = 0.1,
        last_epoch: int = -1,
    ) -> None:
        self.milestones, self.gamma = Counter(milestones), gamma
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[float]:
        """The rates of this epoch."""
        times = self.milestones.get(self.last_epoch, 0)
        return self._scaled(self.gamma**times) if times else self._now()


class ExponentialLR(LRScheduler):
    """The rate times `gamma`, each epoch.

    Parameters
    ----------
    optimizer, last_epoch
        As for `LRScheduler`.
    gamma
        The factor.
    """

    def __init__(self, optimizer: Optimizer, gamma: float, last_epoch: int = -1) -> None:
        self.gamma = gamma
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[float]:
        """The rates of this epoch."""
        return self._scaled(self.gamma) if self.last_epoch > 0 else self._now()


class ConstantLR(LRScheduler):
    """A lower rate for the first epochs.

    Parameters
    ----------
    optimizer, last_epoch
        As for `LRScheduler`.
    factor
        What the rate is multiplied with until then.
    total_iters
        The epoch from which on the rate is whole.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        factor: float = 1.0 / 3,
        total_iters: int = 5,
        last_epoch: int = -1,
    ) -> None:
        if not 0 <= factor <= 1.0:
            raise ValueError("Constant multiplicative factor expected to be between 0 and 1.")
        self.factor, self.total_iters = factor, total_iters
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[float]:
        """The rates of this epoch."""
        if self.last_epoch == 0:
            return self._scaled(self.factor)
        return (
            self._scaled(1.0 / self.factor) if self.last_epoch == self.total_iters else self._now()
        )


class LinearLR(LRScheduler):
    """A factor that grows or falls linearly.

    Parameters
    ----------
    optimizer, last_epoch
        As for `LRScheduler`.
    start_factor, end_factor
        What the rate is multiplied with at first, and from `total_iters` on.
    total_iters
        How many epochs lie between.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        start_factor: float = 1.0 / 3,
        end_factor: float = 1.0,
        total_iters: int = 5,
        last_epoch: int = -1,
    ) -> None:
        if not 0 < start_factor <= 1.0:
            raise ValueError(
                "Starting multiplicative factor expected to be greater than 0 and less or equal "
                "to 1."
            )
        if not 0 <= end_factor <= 1.0:
            raise ValueError("Ending multiplicative factor expected to be between 0 and 1.")
        self.start_factor, self.end_factor, self.total_iters = start_factor, end_factor, total_iters
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[float]:
        """The rates of this epoch."""
        start, end, total = self.start_factor, self.end_factor, self.total_iters
        if self.last_epoch == 0:
            return self._scaled(start)
        if self.last_epoch > total:
            return self._now()
        before = total * start + (self.last_epoch - 1) * (end - start)
        return self._scaled(1.0 + (end - start) / before)


class PolynomialLR(LRScheduler):
    """A rate that falls to 0 like a power of the epochs that are left.

    Parameters
    ----------
    optimizer, last_epoch
        As for `LRScheduler`.
    total_iters
        The epoch at which it is 0.
    power
        The power.
    """

    def __init__(
        self, optimizer: Optimizer, total_iters: int = 5, power: float = 1.0, last_epoch: int = -1
    ) -> None:
        self.total_iters, self.power = total_iters, power
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[float]:
        """The rates of this epoch."""
        if self.last_epoch == 0 or self.last_epoch > self.total_iters:
            return self._now()
        left, before = self.total_iters - self.last_epoch, self.total_iters - self.last_epoch + 1
        return self._scaled((left / before) ** self.power)


class CosineAnnealingLR(LRScheduler):
    """A rate that follows half a cosine down to `eta_min`, and up again.

    Parameters
    ----------
    optimizer, last_epoch
        As for `LRScheduler`.
    T_max
        How many epochs the way down takes.
    eta_min
        The least rate.

    Examples
    --------
    >>> import flambeau as torch
    >>> sgd = torch.optim.SGD([torch.zeros(1)], lr=1.0)
    >>> cosine = torch.optim.lr_scheduler.CosineAnnealingLR(sgd, T_max=2)
    >>> sgd.step()
    >>> cosine.step()
    >>> [round(rate, 3) for rate in cosine.get_last_lr()]
    [0.5]
    """

    def __init__(
        self, optimizer: Optimizer, T_max: int, eta_min: float = 0.0, last_epoch: int = -1
    ) -> None:
        self.T_max, self.eta_min = T_max, eta_min
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[float]:
        """The rates of this epoch."""
        epoch, period, least = self.last_epoch, self.T_max, self.eta_min
        if epoch == 0:
            return self._now()
        if (epoch - 1 - period) % (2 * period) == 0:
            lift = (1 - math.cos(math.pi / period)) / 2
            return [
                rate + (base - least) * lift
                for rate, base in zip(self._now(), self.base_lrs, strict=True)
            ]
        factor = (1 + math.cos(math.pi * epoch / period)) / (
            1 + math.cos(math.pi * (epoch - 1) / period)
        )
        return [factor * (rate - least) + least for rate in self._now()]


class SequentialLR:
    """Several schedulers, one after the other.

    Parameters
    ----------
    optimizer
        Whose rates are changed.
    schedulers
        Schedulers of that optimizer.
    milestones
        The epochs from which on the second, third, … one works.
    last_epoch
        Accepted for the sake of programs.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        schedulers: Sequence[LRScheduler],
        milestones: Sequence[int],
        last_epoch: int = -1,
    ) -> None:
        if not schedulers or any(each.optimizer is not optimizer for each in schedulers):
            raise ValueError("SequentialLR expects schedulers that all belong to its optimizer")
        if len(milestones) != len(schedulers) - 1:
            raise ValueError(
                "Sequential Schedulers expects number of schedulers provided to be one more than "
                f"the number of milestone points, but got number of schedulers {len(schedulers)} "
                f"and the number of milestones to be equal to {len(milestones)}"
            )
        self.optimizer, self.milestones = optimizer, list(milestones)
        self._schedulers = list(schedulers)
        self.last_epoch = last_epoch + 1
        # Making them has changed the rates: start again with the first one alone.
        for each in self._schedulers:
            each.last_epoch -= 1
        self._start(self._schedulers[0])

    def _start(self, scheduler: LRScheduler) -> None:
        """Begin with a scheduler: from the initial rates, not from those of the one before."""
        if not isinstance(scheduler, MultiplicativeLR):
            for group in self.optimizer.param_groups:
                _set_rate(group, group["initial_lr"])
        scheduler.last_epoch = 0
        scheduler._apply(scheduler.get_lr())

    def step(self) -> None:
        """Go to the next epoch."""
        self.last_epoch += 1
        index = bisect_right(self.milestones, self.last_epoch)
        scheduler = self._schedulers[index]
        if index > 0 and self.milestones[index - 1] == self.last_epoch:
            self._start(scheduler)
        else:
            scheduler.step()

    def get_last_lr(self) -> list[float]:
        """The rates that were set last."""
        return self._schedulers[bisect_right(self.milestones, self.last_epoch)].get_last_lr()

    def state_dict(self) -> dict[str, Any]:
        """What is needed to go on later."""
        return {
            "milestones": self.milestones,
            "last_epoch": self.last_epoch,
            "_schedulers": [each.state_dict() for each in self._schedulers],
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on from a `state_dict`."""
        self.milestones, self.last_epoch = state_dict["milestones"], state_dict["last_epoch"]
        for each, kept in zip(self._schedulers, state_dict["_schedulers"], strict=True):
            each.load_state_dict(kept)


class ReduceLROnPlateau:
    """A rate that falls when a figure has not become better for some epochs.

    Parameters
    ----------
    optimizer
        Whose rates are changed.
    mode
        ``"min"`` if less is better, ``"max"`` if more is.
    factor
        What the rate is multiplied with.
    patience
        How many epochs without improvement are let pass.
    threshold
        By how much a figure must be better.
    threshold_mode
        ``"rel"`` as a share of the best one, ``"abs"`` as a difference.
    cooldown
        How many epochs after a change are not counted.
    min_lr
        The least rate, for all groups or for each.
    eps
        A smaller change is left out.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        mode: str = "min",
        factor: float = 0.1,
        patience: int = 10,
        threshold: float = 1e-4,
        threshold_mode: str = "rel",
        cooldown: int = 0,
        min_lr: float | Sequence[float] = 0,
        eps: float = 1e-8,
    ) -> None:
        if factor >= 1.0:
            raise ValueError("Factor should be < 1.0.")
        if mode not in {"min", "max"}:
            raise ValueError(f"mode {mode} is unknown!")
        if threshold_mode not in {"rel", "abs"}:
            raise ValueError(f"threshold mode {threshold_mode} is unknown!")
        self.optimizer, self.mode, self.factor, self.patience = optimizer, mode, factor, patience
        self.threshold, self.threshold_mode, self.cooldown = threshold, threshold_mode, cooldown
        self.min_lrs = _per_group(min_lr, optimizer, "min_lr")
        self.eps = eps
        self.last_epoch = self.cooldown_counter = self.num_bad_epochs = 0
        self.best = math.inf if mode == "min" else -math.inf
        self._last_lr = [_number(group["lr"]) for group in optimizer.param_groups]

    def is_better(self, a: float, best: float) -> bool:
        """Whether a figure is better than the best one."""
        if self.mode == "min":
            limit = (
                best * (1 - self.threshold)
                if self.threshold_mode == "rel"
                else best - self.threshold
            )
            return a < limit
        limit = (
            best * (1 + self.threshold) if self.threshold_mode == "rel" else best + self.threshold
        )
        return a > limit

    def step(self, metrics: Any) -> None:
        """Note the figure of an epoch, and lower the rates if it is time to."""
        current = float(metrics)
        self.last_epoch += 1
        if self.is_better(current, self.best):
            self.best, self.num_bad_epochs = current, 0
        else:
            self.num_bad_epochs += 1
        if self.cooldown_counter > 0:
            self.cooldown_counter -= 1
            self.num_bad_epochs = 0
        if self.num_bad_epochs > self.patience:
            self._reduce()
            self.cooldown_counter, self.num_bad_epochs = self.cooldown, 0
        self._last_lr = [_number(group["lr"]) for group in self.optimizer.param_groups]

    def _reduce(self) -> None:
        for group, least in zip(self.optimizer.param_groups, self.min_lrs, strict=True):
            old = _number(group["lr"])
            new = max(old * self.factor, least)
            if old - new > self.eps:
                _set_rate(group, new)

    def get_last_lr(self) -> list[float]:
        """The rates that were set last."""
        return self._last_lr

    def state_dict(self) -> dict[str, Any]:
        """What is needed to go on later: everything but the optimizer."""
        return {key: value for key, value in vars(self).items() if key != "optimizer"}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on from a `state_dict`."""
        vars(self).update(state_dict)
