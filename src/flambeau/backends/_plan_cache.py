# SPDX-License-Identifier: Apache-2.0
"""The plan caches of Fourier transforms, as users steer them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from flambeau.fft._plans import cache_of
from flambeau.runtime import _cuda_device, _state

if TYPE_CHECKING:
    from collections.abc import Callable

    from flambeau.runtime._device import device as device_

__all__ = ["cuFFTPlanCache", "cuFFTPlanCacheAttrContextProp", "cuFFTPlanCacheManager"]


class cuFFTPlanCacheAttrContextProp:  # noqa: N801 - torch's names
    """A property of one device's cache, made of two functions of its number.

    Parameters
    ----------
    getter
        Reads.
    setter
        Writes.

    Examples
    --------
    >>> import flambeau as torch
    >>> type(torch.backends.cuda.cufft_plan_cache[0].max_size)
    <class 'int'>
    """

    def __init__(self, getter: Callable[[int], int], setter: Callable[..., None]) -> None:
        self.getter = getter
        self.setter = setter

    def __get__(self, instance: Any, owner: type) -> int:
        return self.getter(_index_of(instance))

    def __set__(self, instance: Any, value: int) -> None:
        self.setter(_index_of(instance), value)


def _index_of(cache: Any) -> int:
    index = cache.device_index
    return _state.current_device() if index is None else int(index)


def _refuse(device: int, value: int) -> None:
    raise RuntimeError(
        ".size is a read-only property showing the number of plans in the cache. To change how "
        "many are kept, set cufft_plan_cache.max_size."
    )


def _set_most(device: int, value: int) -> None:
    cache_of(device).max_size = value


class cuFFTPlanCache:  # noqa: N801
    """The plans of one device; indexing `cufft_plan_cache` gives it.

    Parameters
    ----------
    device_index
        The device's number; None is the current device.

    Attributes
    ----------
    size : int
        How many plans are kept.
    max_size : int
        How many are kept at most: 4096 at first, 0 keeps none. The least recently used go first.

    Examples
    --------
    >>> import flambeau as torch
    >>> cache = torch.backends.cuda.cufft_plan_cache[0]
    >>> cache.clear()
    >>> x = torch.fft.fft(torch.ones(8, device="cuda"))
    >>> cache.size
    1
    """

    def __init__(self, device_index: int | None) -> None:
        self.device_index = device_index

    size = cuFFTPlanCacheAttrContextProp(lambda device: cache_of(device).size, _refuse)
    max_size = cuFFTPlanCacheAttrContextProp(lambda device: cache_of(device).max_size, _set_most)

    def clear(self) -> None:
        """Give all plans back."""
        cache_of(_index_of(self)).clear()


class cuFFTPlanCacheManager:  # noqa: N801
    """All devices' plan caches: index it with a device, or use it for the current one.

    Examples
    --------
    >>> import flambeau as torch
    >>> torch.backends.cuda.cufft_plan_cache[0].max_size
    4096
    """

    def __init__(self) -> None:
        self.__dict__["_current"] = cuFFTPlanCache(None)

    def __getitem__(self, device: device_ | int | str) -> cuFFTPlanCache:
        """Give the plan cache of a device.

        Raises
        ------
        RuntimeError
            There is no such device.
        """
        count = _cuda_device.count_devices()
        index = device if isinstance(device, int) else _cuda_device.index_of(device)
        if not 0 <= index < count:
            raise RuntimeError(
                f"cufft_plan_cache: expected 0 <= device index < {count}, but got device with "
                f"index {index}"
            )
        return cuFFTPlanCache(index)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["_current"], name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self.__dict__["_current"], name, value)
