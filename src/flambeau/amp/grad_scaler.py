# SPDX-License-Identifier: Apache-2.0
"""Scaling losses so that small gradients survive float16, and growing the scale while it holds."""

from __future__ import annotations

import enum
import warnings
from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, cast

import flambeau
from flambeau.runtime._tensor import Tensor

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["GradScaler"]

T = TypeVar("T", bound="Tensor | Iterable[Any]")


class Optimizer(Protocol):
    """What the scaler needs of an optimizer."""

    param_groups: list[dict[str, Any]]

    def step(self, *args: Any, **kwargs: Any) -> Any:
        """Update the parameters."""


class _Stage(enum.Enum):
    READY = 0
    UNSCALED = 1
    STEPPED = 2


@dataclass(slots=True)
class _State:
    """How far one optimizer has come since the last update, and what was found on each device."""

    stage: _Stage = _Stage.READY
    found_inf: dict[Any, Tensor] = field(default_factory=dict)


class GradScaler:
    """Scale losses, unscale gradients, skip steps whose gradients overflowed.

    Parameters
    ----------
    device
        The device type of the tensors, ``"cuda"`` or ``"cpu"``.
    init_scale
        The first scale.
    growth_factor
        What the scale is multiplied with after `growth_interval` steps without an overflow.
    backoff_factor
        What it is multiplied with after an overflow.
    growth_interval
        How many steps in a row must go well.
    enabled
        If False, every method lets its argument through and does nothing else.

    Notes
    -----
    The scale lives on the device and is made by the first `scale`. Make that call before capturing
    a graph: a scale made inside a capture would be set back at every replay. `step` waits for the
    device, to know whether to skip; keep it and `update` out of captures.

    Examples
    --------
    >>> import flambeau as torch
    >>> scaler = torch.amp.GradScaler(init_scale=8.0)
    >>> scaler.scale(torch.ones(2, device="cuda")).tolist()
    [8.0, 8.0]
    """

    def __init__(
        self,
        device: str = "cuda",
        init_scale: float = 65536.0,
        growth_factor: float = 2.0,
        backoff_factor: float = 0.5,
        growth_interval: int = 2000,
        enabled: bool = True,
    ) -> None:
        self._device = device
        self._enabled = enabled
        if device == "cuda" and enabled and not flambeau.cuda.is_available():
            warnings.warn(
                "GradScaler is enabled, but CUDA is not available: disabling it", stacklevel=2
            )
            self._enabled = False
        if growth_factor <= 1.0:
            raise ValueError(f"The growth factor must be > 1.0, got {growth_factor}")
        if backoff_factor >= 1.0:
            raise ValueError(f"The backoff factor must be < 1.0, got {backoff_factor}")
        self._init_scale = init_scale
        self._scale: Tensor | None = None
        self._growth_factor = growth_factor
        self._backoff_factor = backoff_factor
        self._growth_interval = growth_interval
        self._init_growth_tracker = 0
        self._growth_tracker: Tensor | None = None
        self._states: defaultdict[int, _State] = defaultdict(_State)

    # -- scaling -----------------------------------------------------------------------------------

    def scale(self, outputs: T) -> T:
        """Multiply a tensor, or each in nested lists and tuples, with the scale.

        Raises
        ------
        ValueError
            Something in it is neither a tensor nor a list or tuple.
        """
        if not self._enabled:
            return outputs
        return cast("T", self._scaled(outputs))

    def _scaled(self, outputs: Any) -> Any:
        if isinstance(outputs, Tensor):
            return outputs * self._scale_on(outputs.device)
        if isinstance(outputs, list | tuple):
            scaled = [self._scaled(each) for each in outputs]
            named = isinstance(outputs, tuple) and hasattr(outputs, "_fields")
            return type(outputs)(*scaled) if named else type(outputs)(scaled)
        raise ValueError(
            f"outputs must be a Tensor or a list or tuple of Tensors, got {type(outputs).__name__}"
        )

    def _scale_on(self, device: Any) -> Tensor:
        if self._scale is None:
            self._scale = flambeau.full((), self._init_scale, dtype=flambeau.float32, device=device)
            self._growth_tracker = flambeau.full(
                (), self._init_growth_tracker, dtype=flambeau.int32, device=device
            )
        return self._scale if self._scale.device == device else self._scale.to(device)

    def _made(self, what: str) -> Tensor:
        if self._scale is None:
            raise AssertionError(
                f"Attempted {what} but _scale is None. scale() makes it: scale a loss before."
            )
        return self._scale

    # -- one step ----------------------------------------------------------------------------------

    def unscale_(self, optimizer: Optimizer) -> None:
        """Divide the gradients of an optimizer by the scale, in place, and look for overflows.

        `step` does this itself; call it before, to clip or look at the true gradients.

        Raises
        ------
        RuntimeError
            It was called already since the last `update`, or after `step`.
        ValueError
            A gradient is float16.
        """
        if not self._enabled:
            return
        state = self._states[id(optimizer)]
        if state.stage is _Stage.UNSCALED:
            raise RuntimeError(
                "unscale_() has already been called on this optimizer since the last update()."
            )
        if state.stage is _Stage.STEPPED:
            raise RuntimeError("unscale_() is being called after step().")
        self._made("unscale_")
        state.found_inf = self._look_at(optimizer, unscale=True)
        state.stage = _Stage.UNSCALED

    def _look_at(self, optimizer: Optimizer, unscale: bool) -> dict[Any, Tensor]:
        scale = self._made("unscale_")
        inverse = scale.double().reciprocal().float() if unscale else flambeau.ones_like(scale)
        alike: defaultdict[Any, list[Tensor]] = defaultdict(list)
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                gradient = parameter.grad
                if gradient is None:
                    continue
                if unscale and gradient.dtype == flambeau.float16:
                    raise ValueError(
                        "Attempting to unscale FP16 gradients. Keep parameters in float32: only "
                        "then are their gradients."
                    )
                alike[gradient.device, gradient.dtype].append(gradient)
        found: dict[Any, Tensor] = {}
        with flambeau.no_grad():
            for (device, _), gradients in alike.items():
                if device not in found:
                    found[device] = flambeau.zeros((), device=device)
                flambeau._amp_foreach_non_finite_check_and_unscale_(
                    gradients, found[device], inverse.to(device)
                )
        return found

    def step(self, optimizer: Optimizer, *args: Any, **kwargs: Any) -> Any:
        """Call ``optimizer.step``, unless a gradient overflowed.

        Returns
        -------
        object
            What the optimizer returned; None if the step was skipped.

        Raises
        ------
        RuntimeError
            A closure was given, or the optimizer stepped already since the last `update`.
        AssertionError
            The optimizer has no gradients.
        """
        if not self._enabled:
            return optimizer.step(*args, **kwargs)
        if "closure" in kwargs:
            raise RuntimeError("Closure use is not currently supported if GradScaler is enabled.")
        state = self._states[id(optimizer)]
        if state.stage is _Stage.STEPPED:
            raise RuntimeError("step() has already been called since the last update().")
        if getattr(optimizer, "_step_supports_amp_scaling", False):
            result = self._step_scaling(cast("Any", optimizer), state, *args, **kwargs)
        else:
            if state.stage is _Stage.READY:
                self.unscale_(optimizer)
            self._require_checks(state)
            overflowed = any(found.item() for found in state.found_inf.values())
            result = None if overflowed else optimizer.step(*args, **kwargs)
        state.stage = _Stage.STEPPED
        return result

    def _step_scaling(self, optimizer: Any, state: _State, *args: Any, **kwargs: Any) -> Any:
        """Let an optimizer that can do so unscale and skip on the device, without waiting."""
        unscaled = state.stage is _Stage.UNSCALED
        if not unscaled:
            state.found_inf = self._look_at(optimizer, unscale=False)
        self._require_checks(state)
        optimizer.grad_scale = None if unscaled else self._made("step")
        optimizer.found_inf = self._combined([state])
        try:
            return optimizer.step(*args, **kwargs)
        finally:
            del optimizer.grad_scale, optimizer.found_inf

    @staticmethod
    def _require_checks(state: _State) -> None:
        if not state.found_inf:
            raise AssertionError("No inf checks were recorded for this optimizer.")

    def _combined(self, states: Iterable[_State]) -> Tensor:
        device = self._made("update").device
        found = [each.to(device) for state in states for each in state.found_inf.values()]
        if not found:
            raise AssertionError("No inf checks were recorded prior to update.")
        combined = found[0]
        for each in found[1:]:
            combined = combined.maximum(each)
        return combined

    def update(self, new_scale: float | Tensor | None = None) -> None:
        """Adapt the scale to what the last steps found, on the device, or set it.

        Parameters
        ----------
        new_scale
            A number or a float32 tensor of one element; by default the scale backs off after an
            overflow and grows after enough steps without one.
        """
        if not self._enabled:
            return
        scale = self._made("update")
        tracker = cast("Tensor", self._growth_tracker)
        if new_scale is not None:
            scale.fill_(new_scale) if isinstance(new_scale, int | float) else scale.copy_(
                new_scale.reshape(())
            )
        else:
            overflowed = self._combined(self._states.values()) > 0
            counted = tracker + 1
            due = counted == self._growth_interval
            grown = scale * self._growth_factor
            kept = flambeau.where(due & grown.isfinite(), grown, scale)
            scale.copy_(flambeau.where(overflowed, scale * self._backoff_factor, kept))
            tracker.copy_(flambeau.where(overflowed | due, flambeau.zeros_like(tracker), counted))
        self._states = defaultdict(_State)

    # -- figures -----------------------------------------------------------------------------------

    def get_scale(self) -> float:
        """The scale, 1.0 if disabled. Waits for the device."""
        if not self._enabled:
            return 1.0
        return self._init_scale if self._scale is None else float(self._scale.item())

    def get_growth_factor(self) -> float:
        """The factor of growth."""
        return self._growth_factor

    def set_growth_factor(self, new_factor: float) -> None:
        """Set the factor of growth."""
        self._growth_factor = new_factor

    def get_backoff_factor(self) -> float:
        """The factor after an overflow."""
        return self._backoff_factor

    def set_backoff_factor(self, new_factor: float) -> None:
        """Set the factor after an overflow."""
        self._backoff_factor = new_factor

    def get_growth_interval(self) -> int:
        """How many steps in a row must go well before the scale grows."""
        return self._growth_interval

    def set_growth_interval(self, new_interval: int) -> None:
        """Set how many steps in a row must go well before the scale grows."""
        self._growth_interval = new_interval

    def _get_growth_tracker(self) -> int:
        if not self._enabled:
            return 0
        tracker = self._growth_tracker
        return self._init_growth_tracker if tracker is None else int(tracker.item())

    def is_enabled(self) -> bool:
        """Whether it does anything."""
        return self._enabled

    def state_dict(self) -> dict[str, Any]:
        """What is needed to go on later; empty if disabled. Waits for the device."""
        if not self._enabled:
            return {}
        return {
            "scale": self.get_scale(),
            "growth_factor": self._growth_factor,
            "backoff_factor": self._backoff_factor,
            "growth_interval": self._growth_interval,
            "_growth_tracker": self._get_growth_tracker(),
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on from a `state_dict`.

        Raises
        ------
        RuntimeError
            It is empty, as that of a disabled scaler is.
        """
        if not self._enabled:
            return
        if not state_dict:
            raise RuntimeError(
                "The source state dict is empty, possibly because it was saved from a disabled "
                "instance of GradScaler."
            )
        self._init_scale = state_dict["scale"]
        self._growth_factor = state_dict["growth_factor"]
        self._backoff_factor = state_dict["backoff_factor"]
        self._growth_interval = state_dict["growth_interval"]
        self._init_growth_tracker = state_dict["_growth_tracker"]
        if self._scale is not None:
            self._scale.fill_(self._init_scale)
            cast("Tensor", self._growth_tracker).fill_(self._init_growth_tracker)
