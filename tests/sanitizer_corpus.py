# SPDX-License-Identifier: Apache-2.0
"""Small programs for the stream sanitizer: some race, others look as if they did and do not.

Each gets a `Place` whose streams are idle. A racy one says what is to be found: the operation that
races, the earlier one, and of which kind the race is.
"""

from __future__ import annotations

import ctypes
import queue
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import flambeau as torch
from flambeau import cuda
from flambeau.cuda import comm

if TYPE_CHECKING:
    from collections.abc import Callable

    Program = Callable[["Place"], None]
    Expected = tuple[str, str, str]


@dataclass
class Place:
    """Three streams of device 0, one of device 1, and tensors that nothing uses any more."""

    a: Any
    b: Any
    c: Any
    far: Any
    x: Any  # float32, 8 x 8, on device 0
    y: Any  # the same on device 1
    pinned: Any  # the same in pinned memory


def fresh_place() -> Place:
    a, b, c = (cuda.Stream(0) for _ in range(3))
    x = torch.ones(8, 8, device="cuda:0")
    place = Place(a, b, c, cuda.Stream(1), x, x.to("cuda:1"), torch.zeros(8, 8).pin_memory())
    cuda.synchronize(0)
    cuda.synchronize(1)
    return place


RACY: dict[str, tuple[Program, set[Expected]]] = {}
CLEAN: dict[str, Program] = {}
# In these the host itself reads or writes pinned memory, which no check of the device can see.
OF_THE_HOST = {
    "the_result_is_read_too_early",
    "the_array_is_taken_too_early",
    "the_source_is_overwritten_too_early",
    "the_next_batch_comes_too_early",
    "the_wrong_stream_is_waited_for",
}


def racy(*expected: Expected) -> Callable[[Program], Program]:
    def add(program: Program) -> Program:
        RACY[program.__name__] = program, set(expected)
        return program

    return add


def clean(program: Program) -> Program:
    CLEAN[program.__name__] = program
    return program


def on(stream: Any) -> Any:
    return cuda.stream(stream)


# -- two streams ----------------------------------------------------------------------------------


@racy(("mul", "add", "stream"))
def write_after_read(p: Place) -> None:
    with on(p.a):
        p.x + 1
    with on(p.b):
        p.x.mul_(2)


@racy(("add", "mul", "stream"))
def read_after_write(p: Place) -> None:
    with on(p.a):
        p.x.mul_(2)
    with on(p.b):
        p.x + 1


@racy(("fill_", "mul", "stream"))
def write_after_write(p: Place) -> None:
    with on(p.a):
        p.x.mul_(2)
    with on(p.b):
        p.x.zero_()


@racy(("mul", "add", "stream"))
def the_event_is_too_early(p: Place) -> None:
    with on(p.a):
        p.x + 1
        mark = p.a.record_event()
        p.x + 2
    p.b.wait_event(mark)
    with on(p.b):
        p.x.mul_(2)


@racy(("add", "mul", "stream"))
def the_wait_is_too_early(p: Place) -> None:
    p.b.wait_stream(p.a)
    with on(p.a):
        p.x.mul_(2)
    with on(p.b):
        p.x + 1


@racy(("add", "mul", "stream"))
def the_wait_goes_the_wrong_way(p: Place) -> None:
    with on(p.a):
        p.x.mul_(2)
    p.a.wait_stream(p.b)
    with on(p.b):
        p.x + 1


@racy(("add", "mul", "stream"))
def the_host_waits_for_another_stream(p: Place) -> None:
    with on(p.a):
        p.x.mul_(2)
    p.c.synchronize()
    with on(p.b):
        p.x + 1


@racy(("add", "mul", "stream"))
def the_host_waits_for_another_device(p: Place) -> None:
    with on(p.a):
        p.x.mul_(2)
    cuda.synchronize(1)
    with on(p.b):
        p.x + 1


@racy(("add", "mul", "stream"))
def the_default_stream_does_not_wait(p: Place) -> None:
    with on(p.a):
        p.x.mul_(2)
    p.x + 1


@racy(("item", "mul", "stream"))
def reading_a_number_waits_for_the_wrong_stream(p: Place) -> None:
    with on(p.a):
        p.x.mul_(2)
    p.x[0, 0].item()


@racy(("mul", "add", "stream"))
def one_of_two_readers_is_forgotten(p: Place) -> None:
    for stream in (p.a, p.b):
        with on(stream):
            p.x + 1
    p.c.wait_stream(p.a)
    with on(p.c):
        p.x.mul_(2)


@racy(("mul", "mul", "stream"))
def threads_with_a_stream_each(p: Place) -> None:
    def work(stream: Any) -> None:
        with on(stream):
            p.x.mul_(2)

    for stream in (p.a, p.b):
        thread = threading.Thread(target=work, args=(stream,))
        thread.start()
        thread.join()


@clean
def one_stream(p: Place) -> None:
    with on(p.a):
        p.x.mul_(2)
        y = p.x + 1
        p.x.copy_(y)


@clean
def an_event_between(p: Place) -> None:
    with on(p.a):
        p.x.mul_(2)
    p.b.wait_event(p.a.record_event())
    with on(p.b):
        p.x.add_(1)


@clean
def an_event_recorded_again(p: Place) -> None:
    mark = cuda.Event()
    for stream, other in ((p.a, p.b), (p.b, p.c), (p.c, p.a)):
        with on(stream):
            p.x.mul_(2)
        mark.record(stream)
        mark.wait(other)


@clean
def wait_stream_between(p: Place) -> None:
    with on(p.a):
        p.x.mul_(2)
    p.b.wait_stream(p.a)
    with on(p.b):
        p.x.add_(1)


@clean
def readers_on_two_streams(p: Place) -> None:
    for stream in (p.a, p.b, cuda.default_stream()):
        with on(stream):
            p.x + 1


@clean
def device_synchronize_between(p: Place) -> None:
    with on(p.a):
        p.x.mul_(2)
    cuda.synchronize()
    with on(cuda.Stream()):
        p.x.mul_(2)


@clean
def stream_synchronize_between(p: Place) -> None:
    with on(p.a):
        p.x.mul_(2)
    p.a.synchronize()
    p.x.mul_(2)


@clean
def event_synchronize_between(p: Place) -> None:
    with on(p.a):
        p.x.mul_(2)
    p.a.record_event().synchronize()
    p.x.mul_(2)


@clean
def polling_an_event(p: Place) -> None:
    with on(p.a):
        p.x.mul_(2)
    mark = p.a.record_event()
    while not mark.query():
        pass
    p.x.mul_(2)


@clean
def polling_a_stream(p: Place) -> None:
    with on(p.a):
        p.x.mul_(2)
    while not p.a.query():
        pass
    p.x.mul_(2)


@clean
def an_order_over_a_third_stream(p: Place) -> None:
    with on(p.a):
        p.x.mul_(2)
    p.c.wait_stream(p.a)
    p.b.wait_stream(p.c)
    with on(p.b):
        p.x.mul_(2)


@clean
def what_the_host_waited_for_includes_what_that_waited_for(p: Place) -> None:
    with on(p.a):
        p.x.mul_(2)
    p.b.wait_stream(p.a)
    p.b.synchronize()
    with on(p.c):
        p.x.mul_(2)


@clean
def fork_and_join(p: Place) -> None:
    parts = p.x.chunk(3)
    main = cuda.current_stream()
    for stream, part in zip((p.a, p.b, p.c), parts, strict=True):
        stream.wait_stream(main)
        with on(stream):
            part.mul_(3)
    for stream in (p.a, p.b, p.c):
        main.wait_stream(stream)
    p.x.sum()


@clean
def reading_a_number_waits_for_its_stream(p: Place) -> None:
    with on(p.a):
        p.x.mul_(2)
        p.x[0, 0].item()
    with on(p.b):
        p.x.mul_(2)


@clean
def a_stream_that_waits_for_the_default_one(p: Place) -> None:
    handle = ctypes.c_void_p()
    cuda.check_error(cuda.cudart().cudaStreamCreate(ctypes.addressof(handle)))
    blocking = cuda.ExternalStream(handle.value)
    with on(blocking):
        p.x.mul_(2)
    p.x.mul_(2)
    with on(blocking):
        p.x.mul_(2)
    blocking.synchronize()
    cuda.cudart().cudaStreamDestroy(handle.value)


@clean
def threads_that_hand_over(p: Place) -> None:
    done: queue.Queue[None] = queue.Queue()

    def work() -> None:
        with on(p.a):
            p.x.mul_(2)
        p.a.synchronize()
        done.put(None)

    thread = threading.Thread(target=work)
    thread.start()
    done.get()
    with on(p.b):
        p.x.mul_(2)
    thread.join()


# -- parts of one tensor --------------------------------------------------------------------------


@racy(("add", "mul", "stream"))
def slices_that_share_rows(p: Place) -> None:
    with on(p.a):
        p.x[:5].mul_(2)
    with on(p.b):
        p.x[4:] + 1


@racy(("add", "mul", "stream"))
def columns_that_overlap(p: Place) -> None:
    with on(p.a):
        p.x[:, 1:3].mul_(2)
    with on(p.b):
        p.x[:, 2:4] + 1


@racy(("add", "mul", "stream"))
def a_row_and_a_column(p: Place) -> None:
    with on(p.a):
        p.x[3].mul_(2)
    with on(p.b):
        p.x.t()[5] + 1


@racy(("fill_", "add", "stream"))
def one_element_at_another_address(p: Place) -> None:
    with on(p.a):
        p.x + 1
    with on(p.b):
        p.x[7, 7].fill_(0)


@racy(("add", "mul", "stream"))
def every_second_and_every_third(p: Place) -> None:
    flat = p.x.view(-1)
    with on(p.a):
        flat[::2].mul_(2)
    with on(p.b):
        flat[::3] + 1


@clean
def halves(p: Place) -> None:
    with on(p.a):
        p.x[:4].mul_(2)
    with on(p.b):
        p.x[4:].mul_(2)


@clean
def even_and_odd(p: Place) -> None:
    flat = p.x.view(-1)
    with on(p.a):
        flat[::2].mul_(2)
    with on(p.b):
        flat[1::2].mul_(2)


@clean
def neighbouring_columns(p: Place) -> None:
    for stream, first in ((p.a, 0), (p.b, 3), (p.c, 5)):
        with on(stream):
            p.x[:, first : first + 2].mul_(2)


@clean
def a_grid_and_the_gaps_of_it(p: Place) -> None:
    with on(p.a):
        p.x[::2, ::2].mul_(2)
    with on(p.b):
        p.x[1::2, :].mul_(2)
    with on(p.c):
        p.x[::2, 1::2].mul_(2)


@clean
def tensors_without_elements(p: Place) -> None:
    with on(p.a):
        p.x[:0].mul_(2)
        p.x.mul_(2)
    with on(p.b):
        p.x[3:3] + 1


@clean
def one_stream_s_parts_then_another_s_whole(p: Place) -> None:
    with on(p.a):
        for row in p.x:
            row.mul_(2)
    p.b.wait_stream(p.a)
    with on(p.b):
        p.x.mul_(2)


# -- kinds of operations --------------------------------------------------------------------------


@racy(("fill_", "sum", "stream"))
def a_reduction(p: Place) -> None:
    with on(p.a):
        p.x.sum()
    with on(p.b):
        p.x.zero_()


@racy(("matmul", "mul", "stream"))
def a_matrix_product(p: Place) -> None:
    with on(p.a):
        p.x.mul_(2)
    with on(p.b):
        p.x @ p.x


@racy(("mul", "access", "stream"))
def picking_rows(p: Place) -> None:
    index = torch.tensor([1, 5], device="cuda")
    p.a.wait_stream(cuda.current_stream())
    with on(p.a):
        p.x[index]
    with on(p.b):
        p.x.mul_(2)


@racy(("chunks", "mul", "stream"))
def sorting(p: Place) -> None:
    with on(p.a):
        p.x.mul_(2)
    with on(p.b):
        p.x.sort()


@racy(("add", "normal", "stream"))
def random_numbers(p: Place) -> None:
    with on(p.a):
        p.x.normal_()
    with on(p.b):
        p.x + 1


@racy(("copy", "mul", "stream"))
def a_copy_on_the_device(p: Place) -> None:
    with on(p.a):
        p.x.mul_(2)
    with on(p.b):
        p.x.clone()


@clean
def all_kinds_of_readers(p: Place) -> None:
    index = torch.tensor([1, 5], device="cuda")
    cuda.synchronize()
    for stream in (p.a, p.b):
        with on(stream):
            p.x[index]
            p.x.sort()
            p.x.cumsum(0)
            p.x @ p.x
            p.x.sum(0)
            p.x.clone()
            p.x.expand(3, 8, 8) + 1
            p.x.nonzero()


# -- memory that is given out again ---------------------------------------------------------------


@racy(("fill_", "add", "reuse"))
def freed_while_another_stream_reads(p: Place) -> None:
    t = torch.ones(5000, device="cuda")
    p.a.wait_stream(cuda.current_stream())
    with on(p.a):
        t + 1
    del t
    torch.zeros(5000, device="cuda")


@racy(("fill_", "add", "reuse"))
def lent_to_the_wrong_stream(p: Place) -> None:
    t = torch.ones(5000, device="cuda")
    p.a.wait_stream(cuda.current_stream())
    with on(p.a):
        t + 1
    t.record_stream(p.b)
    del t
    cuda.synchronize(1)
    p.b.synchronize()
    torch.zeros(5000, device="cuda")


@racy(("fill_", "add", "reuse"))
def allocated_on_a_stream_and_used_on_another(p: Place) -> None:
    t = torch.ones(5000, device="cuda")
    t + 1
    del t
    t = torch.empty(5000, device="cuda")
    with on(p.b):
        t.zero_()


@racy(("fill_", "add", "reuse"))
def a_part_of_a_freed_block(p: Place) -> None:
    with on(p.c):  # a stream without cached blocks
        t = torch.ones(1 << 18, device="cuda")
    p.a.wait_stream(p.c)
    with on(p.a):
        t + 1
    del t
    with on(p.c):
        torch.zeros(1 << 10, device="cuda")


@clean
def freed_and_given_out_on_one_stream(p: Place) -> None:
    with on(p.a):
        for _ in range(3):
            t = torch.ones(5000, device="cuda")
            t.add_(1)
            del t


@clean
def lent_with_record_stream(p: Place) -> None:
    t = torch.ones(5000, device="cuda")
    p.a.wait_stream(cuda.current_stream())
    with on(p.a):
        t + 1
    t.record_stream(p.a)
    del t
    p.a.synchronize()
    torch.zeros(5000, device="cuda")


@clean
def lent_to_a_stream_that_waited_for_another(p: Place) -> None:
    t = torch.ones(5000, device="cuda")
    p.a.wait_stream(cuda.current_stream())
    with on(p.a):
        t + 1
    p.b.wait_stream(p.a)
    t.record_stream(p.b)
    del t
    while not p.b.query():
        pass
    torch.zeros(5000, device="cuda")


@clean
def the_owner_waits_before_the_tensor_is_freed(p: Place) -> None:
    t = torch.ones(5000, device="cuda")
    p.a.wait_stream(cuda.current_stream())
    with on(p.a):
        t + 1
    cuda.current_stream().wait_stream(p.a)
    del t
    torch.zeros(5000, device="cuda")


@clean
def the_cache_is_emptied_in_between(p: Place) -> None:
    with on(p.c):
        t = torch.ones(1 << 20, device="cuda")
    p.a.wait_stream(p.c)
    with on(p.a):
        t + 1
    del t
    cuda.empty_cache()
    with on(p.b):
        torch.zeros(1 << 20, device="cuda")


# -- host buffers in flight -----------------------------------------------------------------------


@racy(("tolist", "copy_", "host"))
def the_result_is_read_too_early(p: Place) -> None:
    p.pinned.copy_(p.x, non_blocking=True)
    p.pinned.tolist()


@racy(("host buffer", "copy_", "host"))
def the_array_is_taken_too_early(p: Place) -> None:
    host = p.x.to("cpu", non_blocking=True)
    host.numpy()


@racy(("fill_", "copy_", "host"))
def the_source_is_overwritten_too_early(p: Place) -> None:
    p.x.copy_(p.pinned, non_blocking=True)
    p.pinned.zero_()


@racy(("copy_", "copy_", "host"))
def the_next_batch_comes_too_early(p: Place) -> None:
    batch = torch.ones(8, 8)
    for _ in range(2):
        p.pinned.copy_(batch)
        p.x.copy_(p.pinned, non_blocking=True)


@racy(("item", "copy_", "host"))
def the_wrong_stream_is_waited_for(p: Place) -> None:
    with on(p.a):
        p.pinned.copy_(p.x, non_blocking=True)
    p.b.synchronize()
    p.pinned[0, 0].item()


@racy(("copy_", "copy_", "stream"))
def down_on_one_stream_and_up_on_another(p: Place) -> None:
    with on(p.a):
        p.pinned.copy_(p.x, non_blocking=True)
    with on(p.far):
        p.y.copy_(p.pinned, non_blocking=True)


@clean
def the_result_is_read_after_an_event(p: Place) -> None:
    with on(p.a):
        p.pinned.copy_(p.x, non_blocking=True)
    p.a.record_event().synchronize()
    p.pinned.tolist()
    p.pinned.zero_()


@clean
def the_source_is_read_in_flight(p: Place) -> None:
    p.x.copy_(p.pinned, non_blocking=True)
    p.pinned.sum()


@clean
def pageable_memory_is_staged(p: Place) -> None:
    host = torch.ones(8, 8)
    p.x.copy_(host, non_blocking=True)
    host.zero_()
    host.copy_(p.x, non_blocking=True)
    host.tolist()


@clean
def pinned_memory_is_kept_while_it_is_in_flight(p: Place) -> None:
    for _ in range(3):
        batch = torch.ones(64, 64).pin_memory()
        up = batch.to("cuda", non_blocking=True)
        del batch
        up.sum()


@clean
def blocking_copies(p: Place) -> None:
    with on(p.a):
        p.x.copy_(p.pinned)
        p.pinned.zero_()
        p.pinned.copy_(p.x)
        p.pinned.tolist()
    with on(p.b):
        p.x.cpu()
        p.x.mul_(2)


@clean
def two_buffers_in_turn(p: Place) -> None:
    buffers = [(torch.zeros(8, 8).pin_memory(), cuda.Event()) for _ in range(2)]
    for step in range(6):
        buffer, free = buffers[step % 2]
        free.synchronize()
        buffer.fill_(step)
        p.x.copy_(buffer, non_blocking=True)
        free.record()


# -- several devices ------------------------------------------------------------------------------


@racy(("copy_", "mul", "stream"))
def another_stream_still_writes_the_source(p: Place) -> None:
    with on(p.a):
        p.x.mul_(2)
    p.y.copy_(p.x)


@racy(("copy_", "mul", "stream"))
def another_stream_still_writes_the_target(p: Place) -> None:
    with on(p.far):
        p.y.mul_(2)
    p.y.copy_(p.x)


@racy(("add", "copy_", "stream"))
def the_copy_is_used_on_another_stream(p: Place) -> None:
    p.y.copy_(p.x)
    with on(p.far):
        p.y + 1


@racy(("mul", "copy_", "stream"))
def pieces_on_streams_that_nobody_waits_for(p: Place) -> None:
    _here, there = comm.scatter(p.x, [0, 1], streams=[None, p.far])
    there.mul_(2)


@clean
def a_copy_is_ordered_with_both_current_streams(p: Place) -> None:
    with on(p.far), on(p.a):
        p.x.mul_(2)
        p.y.mul_(2)
        p.y.copy_(p.x)
        p.x.mul_(2)
        p.y.mul_(2)
        p.x.copy_(p.y)
        p.x.mul_(2)


@clean
def collectives(p: Place) -> None:
    copies = comm.broadcast(p.x, [0, 1])
    copies[1].mul_(2)
    total = comm.reduce_add(copies, 1)
    p.x.zero_()
    pieces = comm.scatter(total, [0, 1])
    total.zero_()
    comm.gather(pieces, destination=0).sum()
    rows = comm.broadcast_coalesced([p.x, p.x[0]], [0, 1], 64)
    rows[1][0].mul_(2)
    comm.reduce_add_coalesced(rows, 0)


@clean
def events_of_one_device_for_another(p: Place) -> None:
    with on(p.far):
        p.y.mul_(2)
    p.a.wait_event(p.far.record_event())
    with on(p.a):
        p.x.copy_(p.y)


@clean
def staging_in_pinned_memory(p: Place) -> None:
    with on(p.a):
        p.pinned.copy_(p.x, non_blocking=True)
    p.far.wait_stream(p.a)
    with on(p.far):
        p.y.copy_(p.pinned, non_blocking=True)


# -- captured graphs -------------------------------------------------------------------------------


def captured(place: Place) -> Any:
    """A graph that adds 1 to x."""
    graph = cuda.CUDAGraph()
    with cuda.graph(graph, stream=place.c):
        place.x.add_(1)
    return graph


@racy(("add", "mul", "stream"))
def a_replay_after_a_write(p: Place) -> None:
    graph = captured(p)
    with on(p.a):
        p.x.mul_(2)
    graph.replay()
    cuda.synchronize()


@racy(("mul", "add", "stream"))
def a_write_after_a_replay(p: Place) -> None:
    graph = captured(p)
    with on(p.a):
        graph.replay()
        graph.replay()
    with on(p.b):
        p.x.mul_(2)
    cuda.synchronize()


@clean
def replays_on_a_stream(p: Place) -> None:
    p.x.mul_(2)
    graph = captured(p)
    p.x.mul_(2)
    for _ in range(3):
        graph.replay()
    p.x.sum()
    p.b.wait_stream(cuda.current_stream())
    with on(p.b):
        graph.replay()
        p.x.mul_(2)
    cuda.synchronize()


@clean
def a_graph_never_overlaps_itself(p: Place) -> None:
    graph = captured(p)
    for stream in (p.a, p.b, p.a):
        with on(stream):
            graph.replay()
    cuda.synchronize()


@clean
def captured_work_has_not_run(p: Place) -> None:
    graph = captured(p)
    with on(p.a):
        p.x.mul_(2)
    p.a.synchronize()
    graph.replay()
    del graph
    cuda.synchronize()
