# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import flambeau
from flambeau import cuda
from flambeau.cuda import comm
from flambeau.cuda._coalescing import chunked
from support import TWO_VIRTUAL, needs_two, run_script

if TYPE_CHECKING:
    from collections.abc import Sequence

pytestmark = needs_two

EIGHT = {"FLAMBEAU_VIRTUAL": "h200:8"}


def arange(count: int, device: Any = 0, dtype: Any = flambeau.float32) -> Any:
    return flambeau.arange(count, device=device, dtype=dtype)


def lists(tensors: Sequence[Any]) -> list[Any]:
    return [t.tolist() for t in tensors]


def contexts() -> list[int]:
    return list(cuda._primary_context_devices())


# -- broadcast -----------------------------------------------------------------------------------


def test_broadcast_gives_the_tensor_itself_on_its_own_device() -> None:
    x = arange(4, 1)
    copies = comm.broadcast(x, [0, "cuda:1", flambeau.device("cuda", 0)])
    assert isinstance(copies, list)
    assert copies[1] is x
    assert copies[0] is not copies[2]
    assert [t.device.index for t in copies] == [0, 1, 0]
    assert lists(copies) == [[0, 1, 2, 3]] * 3


def test_broadcast_from_the_host() -> None:
    copies = comm.broadcast(flambeau.arange(3), [1, 0])
    assert [t.device.index for t in copies] == [1, 0]
    assert lists(copies) == [[0, 1, 2]] * 2


def test_broadcast_to_nobody() -> None:
    assert comm.broadcast(arange(3), []) == []


def test_broadcast_into_given_tensors() -> None:
    out = [flambeau.zeros(3, device=1), flambeau.zeros(3, device=0, dtype=flambeau.int64)]
    assert comm.broadcast(arange(3), out=out) is out
    assert lists(out) == [[0, 1, 2]] * 2


@pytest.mark.parametrize("arguments", [{}, {"devices": [0], "out": []}])
def test_broadcast_needs_one_target(arguments: dict[str, Any]) -> None:
    with pytest.raises(
        RuntimeError, match="Exactly one of 'devices' and 'out' must be specified, but got"
    ):
        comm.broadcast(arange(3), **arguments)


def test_broadcast_checks_its_outputs() -> None:
    with pytest.raises(RuntimeError, match="index 1 is on cpu"):
        comm.broadcast(arange(3), out=[arange(3, 1), flambeau.zeros(3)])
    with pytest.raises(RuntimeError, match=r"same shape as the source tensor \[3\].*\[4\]"):
        comm.broadcast(arange(3), out=[arange(4, 1)])


@pytest.mark.parametrize("device", ["cuda", "cpu"])
def test_devices_have_numbers(device: str) -> None:
    with pytest.raises(ValueError, match="Expected a"):
        comm.broadcast(arange(3), [device])
    with pytest.raises(RuntimeError, match="non-negative device index, but got -1"):
        comm.broadcast(arange(3), [-1])


def test_complex_stays_complex() -> None:
    x = flambeau.tensor([1 + 2j, 3 - 1j, 4j], dtype=flambeau.complex64, device=0)
    copies = comm.broadcast(x, [0, 1])
    pieces = comm.scatter(x, [1, 0], [1, 2])
    joined = comm.gather(pieces, destination=1)
    for t in (*copies, *pieces, joined):
        assert t.dtype == flambeau.complex64
    assert copies[1].tolist() == joined.tolist() == x.tolist()


def test_sums_of_complex_tensors_are_complex() -> None:
    x = [flambeau.tensor([1 + 2j, -1j], dtype=flambeau.complex64, device=i) for i in (0, 1)]
    total = comm.reduce_add(x, 1)
    assert (total.dtype, total.device.index) == (flambeau.complex64, 1)
    assert total.tolist() == [2 + 4j, -2j]
    pairs = comm.reduce_add_coalesced([[t, t * 2] for t in x], 0)
    assert lists(pairs) == [[2 + 4j, -2j], [4 + 8j, -4j]]
    _, copies = comm.broadcast_coalesced([x[0], x[0] * 2], [0, 1])
    assert [t.dtype for t in copies] == [flambeau.complex64] * 2
    assert lists(copies) == [[1 + 2j, -1j], [2 + 4j, -2j]]


# -- broadcast_coalesced -------------------------------------------------------------------------


@pytest.mark.parametrize("buffer_size", [1, 16, 10485760])
def test_coalesced_broadcast_keeps_order_dtypes_and_empty_tensors(buffer_size: int) -> None:
    full = flambeau.arange(6, device="cuda:0").reshape(2, 3)
    empty = flambeau.empty(1, 2, 3, 0, 4, device="cuda:0")
    outs = comm.broadcast_coalesced([full, empty, full.float(), full.t()], [0, 1], buffer_size)
    assert len(outs) == 2
    assert outs[0][0] is full
    for dev, (a, b, c, d) in enumerate(outs):
        assert [t.device.index for t in (a, b, c, d)] == [dev] * 4
        assert tuple(b.shape) == (1, 2, 3, 0, 4)
        assert (a.dtype, b.dtype, c.dtype) == (full.dtype, empty.dtype, flambeau.float32)
        assert lists((a, c)) == [[[0, 1, 2], [3, 4, 5]]] * 2
        assert d.tolist() == [[0, 3], [1, 4], [2, 5]]


def test_coalesced_broadcast_wants_all_on_the_first_device() -> None:
    with pytest.raises(RuntimeError, match=r"All tensors must be on devices\[0\]: 0.* cuda:1"):
        comm.broadcast_coalesced([arange(2, 0), arange(2, 1)], [0, 1])
    with pytest.raises(RuntimeError, match="at least one device"):
        comm.broadcast_coalesced([arange(2, 0)], [])


def test_coalesced_broadcast_packs() -> None:
    parts = [arange(2), arange(3), flambeau.zeros(1, device=0, dtype=flambeau.int64)]
    _, (a, b, c) = comm.broadcast_coalesced(parts, [0, 1])
    assert b.data_ptr() == a.data_ptr() + 8
    assert c.data_ptr() != b.data_ptr() + 12


@pytest.mark.parametrize(
    ("limit", "reached", "exceeded"),
    [
        (15, [[0, 1], [2]], [[0], [1], [2]]),
        (16, [[0, 1], [2]], [[0, 1], [2]]),
        (17, [[0, 1, 2]], [[0, 1], [2]]),
    ],
)
def test_when_a_chunk_is_full(
    limit: int, reached: list[list[int]], exceeded: list[list[int]]
) -> None:
    tensors = [flambeau.zeros(2) for _ in range(3)]  # of 8 bytes
    assert chunked(tensors, limit, "reached") == reached
    assert chunked(tensors, limit, "exceeded") == exceeded


@given(
    counts=st.lists(st.tuples(st.integers(0, 9), st.booleans()), max_size=12),
    limit=st.integers(0, 60),
)
def test_chunks_hold_every_tensor_once_and_one_dtype(
    counts: list[tuple[int, bool]], limit: int
) -> None:
    tensors = [flambeau.zeros(n, dtype=flambeau.int8 if b else flambeau.int32) for n, b in counts]
    for closing in ("reached", "exceeded"):
        chunks = chunked(tensors, limit, closing)
        assert sorted(i for chunk in chunks for i in chunk) == list(range(len(tensors)))
        for chunk in chunks:
            sizes = [tensors[i].numel() * tensors[i].element_size() for i in chunk]
            assert chunk == sorted(chunk)
            assert len({tensors[i].dtype for i in chunk}) == 1
            assert (sum(sizes) <= limit or sum(map(bool, sizes)) == 1) or closing == "reached"
            assert sum(sizes[:-1]) < max(limit, 1) or closing == "exceeded"


# -- scatter -------------------------------------------------------------------------------------


def test_scatter_cuts_as_chunk_does() -> None:
    pieces = comm.scatter(arange(5), [0, 1, 0, 1])
    assert isinstance(pieces, tuple)
    assert lists(pieces) == [[0, 1], [2, 3], [4]]
    assert [t.device.index for t in pieces] == [0, 1, 0]


def test_scatter_views_what_stays() -> None:
    x = arange(4)
    here, there = comm.scatter(x, [0, 1])
    assert here.data_ptr() == x.data_ptr()
    assert there.data_ptr() != x.data_ptr() + 8
    x.zero_()
    assert lists((here, there)) == [[0, 0], [2, 3]]


@pytest.mark.parametrize("source", ["cpu", "cuda:1"])
@pytest.mark.parametrize("dim", [1, -1])
def test_scatter_by_sizes(source: str, dim: int) -> None:
    x = flambeau.arange(8).reshape(2, 4).to(source)
    pieces = comm.scatter(x, [0, 1], [3, 1], dim)
    assert lists(pieces) == [[[0, 1, 2], [4, 5, 6]], [[3], [7]]]


def test_scatter_checks_its_arguments() -> None:
    x = arange(5)
    with pytest.raises(RuntimeError, match="Expected at least one device to scatter to"):
        comm.scatter(x, [])
    with pytest.raises(RuntimeError, match="Expected at least one device to scatter to"):
        comm.scatter(x)
    with pytest.raises(RuntimeError, match="devices and chunk_sizes to be of same length"):
        comm.scatter(x, [0, 1], [5])
    with pytest.raises(RuntimeError, match="sum exactly to 5"):
        comm.scatter(x, [0, 1], [2, 2])
    with pytest.raises(IndexError, match="Dimension out of range"):
        comm.scatter(x, [0, 1], dim=1)
    with pytest.raises(IndexError, match="0 dimensions"):
        comm.scatter(flambeau.tensor(1.0), [0])


def test_scatter_copies_on_the_streams_given() -> None:
    x = arange(4)
    side = cuda.Stream(1)
    with cuda.stream(side):
        cuda._sleep(100_000)
    mark = cuda.Event()
    _, piece = comm.scatter(x, [0, 1], streams=[None, side])
    mark.record(side)
    mark.synchronize()
    assert piece.tolist() == [2, 3]
    assert cuda.current_device() == 0
    assert cuda.current_stream(1) == cuda.default_stream(1)


def test_scatter_checks_its_streams() -> None:
    x, streams = arange(4), [cuda.Stream(0), cuda.Stream(0)]
    with pytest.raises(RuntimeError, match=r"Expected the device associated with the stream .* 1"):
        comm.scatter(x, [0, 1], streams=streams)
    with pytest.raises(RuntimeError, match="to be of same length"):
        comm.scatter(x, [0, 1], streams=streams[:1])


def test_scatter_into_given_tensors() -> None:
    out = [flambeau.zeros(2, 1, device=1), flambeau.zeros(2, 2, device=0)]
    x = arange(6).reshape(2, 3)
    pieces = comm.scatter(x, dim=-1, out=out)
    assert all(a is b for a, b in zip(pieces, out, strict=True))
    assert lists(out) == [[[0], [3]], [[1, 2], [4, 5]]]


def test_scatter_checks_its_outputs() -> None:
    x, good = arange(5), arange(3, 1)
    with pytest.raises(RuntimeError, match="'devices' must not be specified when 'out'"):
        comm.scatter(x, [0], out=[good])
    with pytest.raises(RuntimeError, match="'chunk_sizes' must not be specified when 'out'"):
        comm.scatter(x, chunk_sizes=[5], out=[good])
    with pytest.raises(
        RuntimeError, match="Total size for output tensors along scatter dim 0 is 3"
    ):
        comm.scatter(x, out=[good])
    with pytest.raises(RuntimeError, match="at least one output tensor"):
        comm.scatter(x, out=[])
    with pytest.raises(RuntimeError, match="index 0 is on cpu"):
        comm.scatter(x, out=[flambeau.zeros(5)])
    with pytest.raises(RuntimeError, match=r"index 1 has shape \[2, 2\]"):
        comm.scatter(x, out=[good, flambeau.zeros(2, 2, device=1)])


# -- gather --------------------------------------------------------------------------------------


def test_gather_joins_on_the_current_device() -> None:
    parts = [arange(4, 1).reshape(2, 2), flambeau.ones(2, 1, device=0)]
    for dim in (1, -1):
        joined = comm.gather(parts, dim)
        assert joined.device.index == 0
        assert joined.tolist() == [[0, 1, 1], [2, 3, 1]]
    with cuda.device(1):
        assert comm.gather(parts, 1).device.index == 1


def test_gather_to_the_host_waits() -> None:
    with cuda.device(1):
        cuda._sleep(100_000)
        part = arange(3, 1) + 1
    joined = comm.gather([part, arange(1)], destination="cpu")
    assert joined.device.type == "cpu"
    assert joined.numpy().tolist() == [1, 2, 3, 0]


def test_gather_to_minus_one_is_deprecated() -> None:
    with pytest.warns(FutureWarning, match="Using -1 to represent CPU tensor is deprecated"):
        assert comm.gather([arange(2)], destination=-1).device.type == "cpu"


def test_gather_into_a_given_tensor() -> None:
    out = flambeau.zeros(3, device=1)
    assert comm.gather([arange(2), arange(1, 1)], out=out) is out
    assert out.tolist() == [0, 1, 0]
    host = flambeau.zeros(3)
    assert comm.gather([arange(2), arange(1, 1)], out=host).numpy().tolist() == [0, 1, 0]
    with pytest.raises(RuntimeError, match="'destination' must not be specified when 'out'"):
        comm.gather([arange(2)], destination=0, out=out)
    with pytest.raises(RuntimeError, match=r"to have shape \[2\], but got \[3\]"):
        comm.gather([arange(2)], out=out)


def test_gather_checks_its_inputs() -> None:
    with pytest.raises(RuntimeError, match="at least one tensor to gather"):
        comm.gather([])
    with pytest.raises(RuntimeError, match="index 1 is on cpu"):
        comm.gather([arange(2), flambeau.zeros(2)])
    with pytest.raises(RuntimeError, match="same number of dimensions"):
        comm.gather([arange(2), arange(2, 1).reshape(1, 2)])
    with pytest.raises(RuntimeError, match=r"index 1 has invalid shape \[2, 3\].*\[2, 2\]"):
        comm.gather([flambeau.zeros(1, 2, device=0), flambeau.zeros(2, 3, device=1)])
    with pytest.raises(IndexError, match=r"0 dimensions; give it one with unsqueeze\(0\)"):
        comm.gather([flambeau.tensor(1.0, device=0)])
    with pytest.raises(RuntimeError, match=r"index 1 is torch.int64"):
        comm.gather([arange(2), arange(2, 1, flambeau.int64)])


def test_gather_keeps_a_format_that_all_have() -> None:
    parts = [
        flambeau.arange(24.0)
        .reshape(1, 2, 3, 4)
        .to(d)
        .contiguous(memory_format=flambeau.channels_last)
        for d in ("cuda:0", "cuda:1")
    ]
    joined = comm.gather(parts)
    assert joined.is_contiguous(memory_format=flambeau.channels_last)
    assert joined.tolist() == parts[0].tolist() * 2
    mixed = comm.gather([parts[0], parts[1].contiguous()])
    assert mixed.is_contiguous()


# -- reduce_add ----------------------------------------------------------------------------------


def test_reduce_add() -> None:
    inputs = [arange(3, 1), arange(3, 0) * 10, arange(3, 1) * 100]
    total = comm.reduce_add(inputs, 0)
    assert total.device.index == 0
    assert total.tolist() == [0, 111, 222]
    assert lists(inputs) == [[0, 1, 2], [0, 10, 20], [0, 100, 200]]


def test_reduce_add_of_one_is_itself() -> None:
    x = arange(3, 1)
    assert comm.reduce_add([x], 1) is x


@pytest.mark.parametrize(("destination", "order"), [(1, [3, 0, 1, 2]), (0, [2, 0, 1, 3])])
def test_reduce_add_starts_with_the_last_input_on_the_destination(
    destination: int, order: list[int]
) -> None:
    # Rounding makes the sum 0 in the order given, and where the first on the destination leads.
    values = [1.0, 2.0**24, 1.0, -(2.0**24)]
    inputs = [flambeau.tensor([v], device=i % 2) for i, v in enumerate(values)]
    expected = np.float32(0)
    for i in order:
        expected = np.float32(expected + np.float32(values[i]))
    assert comm.reduce_add(inputs, destination).item() == expected


def test_reduce_add_checks_its_inputs() -> None:
    x = arange(3)
    with pytest.raises(AssertionError, match="expects all inputs to be on GPUs") as caught:
        comm.reduce_add([x, flambeau.zeros(3)], 0)
    assert isinstance(caught.value, ValueError)
    with pytest.raises(ValueError, match=r"input 1 has invalid size: got \[4\].*\[3\]"):
        comm.reduce_add([x, arange(4, 1)], 0)
    with pytest.raises(RuntimeError, match="on the same GPU with one of the tensors"):
        comm.reduce_add([x, arange(3)], 1)
    with pytest.raises(ValueError, match="at least one"):
        comm.reduce_add([], 0)


@pytest.mark.parametrize("buffer_size", [1, 8, 9, 10485760])
def test_coalesced_reduce_add(buffer_size: int) -> None:
    def row(device: int, factor: int) -> list[Any]:
        return [
            arange(2, device) * factor,
            flambeau.empty(0, 3, device=device),
            arange(3, device, flambeau.int64) * factor,
            (arange(4, device) * factor).reshape(2, 2).t(),
        ]

    inputs = [row(0, 1), row(1, 10)]
    totals = comm.reduce_add_coalesced(inputs, 1, buffer_size)
    assert isinstance(totals, tuple)
    assert [t.device.index for t in totals] == [1] * 4
    assert lists(totals) == [[0, 11], [], [0, 11, 22], [[0, 22], [11, 33]]]
    assert totals[1].shape == (0, 3)
    assert totals[2].dtype == flambeau.int64
    assert inputs[1][0].tolist() == [0, 10]


def test_coalesced_reduce_add_checks_its_lists() -> None:
    with pytest.raises(ValueError, match="has 1 tensors, the first 2"):
        comm.reduce_add_coalesced([[arange(2), arange(2)], [arange(2, 1)]], 0)
    with pytest.raises(ValueError, match=r"tensor 1 of list 1 has invalid size"):
        comm.reduce_add_coalesced([[arange(2), arange(2)], [arange(2, 1), arange(1, 1)]], 0)
    with pytest.raises(ValueError, match="at least one"):
        comm.reduce_add_coalesced([], 0)


# -- order, contexts, many devices ---------------------------------------------------------------


@pytest.mark.usefixtures("schedule")
@settings(
    max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(sizes=st.lists(st.integers(1, 5), min_size=1, max_size=4), dim=st.integers(0, 1))
def test_scatter_and_gather_are_inverse_whatever_the_order_of_work(
    sizes: list[int], dim: int
) -> None:
    total = sum(sizes)
    shape = (total, 3) if dim == 0 else (3, total)
    values = np.arange(total * 3, dtype=np.float32).reshape(shape)
    devices = [i % 2 for i in range(len(sizes))]
    x = flambeau.from_numpy(values).to("cuda:0") + 1
    pieces = [piece * 2 for piece in comm.scatter(x, devices, sizes, dim)]
    x.zero_()
    joined = comm.gather(pieces, dim, 1)
    for piece in pieces:
        piece.zero_()
    np.testing.assert_array_equal(joined.cpu().numpy(), (values + 1) * 2)


@pytest.mark.usefixtures("schedule")
def test_copies_are_ordered_with_the_current_streams_of_both_devices() -> None:
    sides = [cuda.Stream(d) for d in (0, 1)]
    with cuda.stream(sides[0]):
        x = flambeau.zeros(1000, device=0)
    with cuda.stream(sides[1]):
        out = flambeau.zeros(1000, device=1)
    with cuda.stream(sides[1]), cuda.stream(sides[0]):
        cuda._sleep(100_000)
        x += 1
        out += 5
        comm.broadcast(x, out=[out])
        out *= 3
        x += 1
    sides[1].synchronize()
    assert out.sum().item() == 3000


def test_only_the_devices_of_the_arguments_get_contexts() -> None:
    done = run_script(
        """
        from flambeau.cuda import comm
        x = torch.arange(12.0, device="cuda:5")
        shown = lambda: print(*torch.cuda._primary_context_devices())
        comm.broadcast(x, [5, 3]); shown()
        comm.broadcast_coalesced([x, x], [5, 3], 1); shown()
        pieces = comm.scatter(x, [3, 5, 6]); shown()
        comm.gather(pieces, destination="cpu"); shown()
        comm.gather(pieces, destination=6); shown()
        comm.reduce_add([x, x.to("cuda:3")], 5); shown()
        comm.reduce_add_coalesced([[x, x], [y.to("cuda:3") for y in (x, x)]], 3); shown()
        comm.gather(pieces); shown()
        """,
        EIGHT,
    )
    assert done.lines == ["3 5", "3 5", "3 5 6", "3 5 6", "3 5 6", "3 5 6", "3 5 6", "0 3 5 6"]


def test_eight_devices() -> None:
    run_script(
        """
        from flambeau.cuda import comm
        x = torch.arange(80.0, device="cuda:2").reshape(16, 5)
        everywhere = comm.broadcast(x, range(8))
        assert [t.device.index for t in everywhere] == list(range(8))
        pieces = comm.scatter(x, range(8))
        assert [tuple(p.shape) for p in pieces] == [(2, 5)] * 8
        assert comm.gather([p + 1 for p in pieces], destination=7).tolist() == (x + 1).tolist()
        total = comm.reduce_add([t * d for d, t in enumerate(everywhere)], 6)
        assert total.tolist() == (x * 28).tolist()
        rows = comm.broadcast_coalesced([x, x.double(), x[:1]], [2, 0, 1, 3, 4, 5, 6, 7], 100)
        sums = comm.reduce_add_coalesced(rows, 4, 100)
        for got, one in zip(sums, rows[0]):
            assert got.tolist() == (one * 8).tolist() and got.dtype == one.dtype
        """,
        EIGHT,
    )


def test_the_module_loads_when_it_is_asked_for() -> None:
    done = run_script(
        """
        import sys
        print("flambeau.cuda.comm" in sys.modules, torch.cuda.comm.broadcast.__module__)
        print(torch.cuda.is_initialized())
        """,
        TWO_VIRTUAL,
    )
    assert done.lines == ["False flambeau.cuda.comm", "False"]


# -- three and more GPUs: NCCL ---------------------------------------------------------------------

THREE = """
import numpy as np
from flambeau.cuda import comm
from flambeau.driver.virtual.collectives import link_traffic
"""


def on_three(source: str) -> list[str]:
    import textwrap

    script = THREE + textwrap.dedent(source)
    return run_script(script, {"FLAMBEAU_VIRTUAL": "h200:4"}).lines


def test_broadcasts_over_three_gpus_go_round_a_ring() -> None:
    lines = on_three("""
    x = torch.arange(6, device="cuda:0").reshape(2, 3).to(torch.complex64)
    copies = comm.broadcast(x, [0, 1, 3])
    print(copies[0] is x, [(c.device.index, c.dtype == x.dtype, c.tolist() == x.tolist())
                           for c in copies])
    print(link_traffic())
    out = [torch.zeros(6, device=f"cuda:{i}") for i in (2, 1)]
    comm.broadcast(torch.ones(6, device="cuda:0"), out=out)
    print([o.sum().item() for o in out], len(link_traffic()))
    print([c.sum().item() for c in comm.broadcast(torch.ones(3), [0, 1, 2])])
    print([c.tolist() for c in comm.broadcast(x.t(), [0, 1, 2])] == [x.t().tolist()] * 3)
    print([c.device.index for c in comm.broadcast(x, [1, 1, 2])])
    print([c.numel() for c in comm.broadcast(x[:0], [0, 1, 2])])
    print(torch.cuda._primary_context_devices())
    """)
    assert lines[0] == "True [(0, True, True), (1, True, True), (3, True, True)]"
    assert lines[1] == "{(0, 1): 48, (1, 3): 48}"
    assert lines[2] == "[6.0, 6.0] 4"
    assert lines[3:] == ["[3.0, 3.0, 3.0]", "True", "[1, 1, 2]", "[0, 0, 0]", "[0, 1, 2, 3]"]


def test_sums_and_packed_broadcasts_over_three_gpus() -> None:
    lines = on_three("""
    parts = [torch.full((1000,), 0.1 * (i + 1), device=f"cuda:{i}") for i in range(3)]
    total = comm.reduce_add(parts, 1)
    print(total.device.index, np.allclose(total.cpu().numpy(), 0.6), sum(link_traffic().values()))
    several = [torch.arange(5, device="cuda:0"), torch.ones(2, device="cuda:0")]
    rows = comm.broadcast_coalesced(several, [0, 1, 2])
    print([[t.tolist() for t in row] for row in rows] == [[[0, 1, 2, 3, 4], [1.0, 1.0]]] * 3)
    sums = comm.reduce_add_coalesced([[p, p > 0] for p in parts], 0)
    print(np.allclose(sums[0].cpu().numpy(), 0.6), sums[1].all().item(), sums[1].dtype)
    """)
    assert lines == ["1 True 8000", "True", "True True torch.bool"]
