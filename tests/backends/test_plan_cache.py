# SPDX-License-Identifier: Apache-2.0
"""The classes behind ``torch.backends.cuda.cufft_plan_cache``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import flambeau as torch

if TYPE_CHECKING:
    from collections.abc import Callable

CUDA = torch.backends.cuda


def test_a_cache_follows_the_current_device_or_stays_with_its_own(
    gpus: Callable[[int], list[Any]],
) -> None:
    first, second = gpus(2)
    current, other = CUDA.cuFFTPlanCache(None), CUDA.cuFFTPlanCache(torch.device(second).index)
    for cache in (current, other):
        cache.clear()
    torch.fft.fft(torch.ones(8, device=first, dtype=torch.complex64))
    with torch.cuda.device(first):
        assert (current.size, other.size) == (1, 0)
    with torch.cuda.device(second):
        assert current.size == 0
        current.max_size = 7
        assert other.max_size == 7
        current.max_size = 4096
    other.clear()
    assert current.size == 1
    assert CUDA.cufft_plan_cache[torch.device(first)].size == 1


def test_properties_ask_two_functions() -> None:
    written: list[tuple[int, int]] = []

    class Cache:
        device_index = 3
        number = CUDA.cuFFTPlanCacheAttrContextProp(
            lambda device: device + 10, lambda device, value: written.append((device, value))
        )

    cache = Cache()
    assert cache.number == 13
    cache.number = 5
    assert written == [(3, 5)]


def test_a_manager_gives_caches(gpu: Any) -> None:
    manager = CUDA.cuFFTPlanCacheManager()
    assert isinstance(CUDA.cufft_plan_cache, CUDA.cuFFTPlanCacheManager)
    assert isinstance(manager[0], CUDA.cuFFTPlanCache)
    assert manager["cuda:0"].device_index == manager[torch.device(gpu)].device_index == 0
    manager.clear()
    torch.fft.fft(torch.ones(8, device=gpu, dtype=torch.complex64))
    assert manager.size == manager[0].size == CUDA.cufft_plan_cache.size == 1
    for index in (-1, torch.cuda.device_count()):
        with pytest.raises(RuntimeError, match="expected 0 <= device index"):
            manager[index]
    with pytest.raises(AttributeError, match="sizes"):
        _ = manager.sizes
