# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import collections
import gzip
import io
import json
import pickle
import struct

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import flambeau as torch
from flambeau.cuda import _memory_file

PLAIN = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False)
    | st.text(),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text(max_size=6), inner, max_size=4)
        | st.tuples(inner, inner)
        | st.lists(inner, max_size=5).map(tuple)
    ),
    max_leaves=20,
)
FRAMES = [
    {"filename": "a.py", "line": 3, "name": "f"},
    {"filename": "b.py", "line": 9, "name": "g"},
]
SNAPSHOT = {
    "segments": [
        {
            "device": 0,
            "address": 4096,
            "total_size": 2048,
            "stream": 0,
            "segment_pool_id": (0, 1),
            "frames": FRAMES,
            "blocks": [
                {"address": 4096, "size": 1024, "requested_size": 1000, "state": "active_allocated",
                 "frames": FRAMES[:1]},
                {"address": 5120, "size": 1024, "requested_size": 0, "state": "inactive",
                 "frames": []},
            ],
        }
    ],
    "device_traces": [
        [],
        [
            {"action": "alloc", "addr": 4096, "size": 1000, "stream": 0, "time_us": 5,
             "pool_id": (0, 1), "frames": FRAMES},
            {"action": "oom", "addr": 0, "size": 9, "device_free": 7, "stream": 0, "time_us": 6,
             "frames": []},
        ],
    ],
    "host_segments": [],
    "host_traces": [],
    "allocator_settings": {"expandable_segments": False},
    "external_annotations": [],
}  # fmt: skip


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])  # the machine may be busy
@given(PLAIN, st.sampled_from([2, 3, 4, 5]))
def test_plain_data_of_every_protocol_is_read(value, protocol):
    assert _memory_file.load_pickle(io.BytesIO(pickle.dumps(value, protocol))) == value


def test_shared_containers_stay_shared():
    inner = [1]
    found = _memory_file.load_pickle(io.BytesIO(pickle.dumps([inner, inner], 4)))
    assert found[0] is found[1]


@pytest.mark.parametrize(
    "value", [print, collections.OrderedDict(a=1), {1, 2}, b"bytes", bytearray(b"x"), 1j]
)
def test_all_else_is_refused(value):
    with pytest.raises(pickle.UnpicklingError, match="plain containers only"):
        _memory_file.load_pickle(io.BytesIO(pickle.dumps({"a": value}, 4)))


@pytest.mark.parametrize(
    "raw",
    [
        b"\x80\x04",  # no end
        b"\x80\x04\x8d" + struct.pack("<Q", 1 << 60) + b"x.",  # a text that is longer than the file
        b"\x80\x04h\x05.",  # something that was never remembered
        b"\x80\x04e.",
        b"\x80\x04]K\x01K\x02s.",  # an item for a list
        b"\x80\x04}K\x01a.",  # an element for a dict
        b"\x80\x04(K\x01K\x02K\x03u.",
        b"\x80\x04\x85.",
    ],
)
def test_damage_is_an_error_and_nothing_else(raw):
    with pytest.raises(pickle.UnpicklingError):
        _memory_file.load_pickle(io.BytesIO(raw))


def test_a_far_index_costs_no_memory():
    raw = b"\x80\x04Nr" + struct.pack("<I", 0x7FFFFFFF) + b"."
    assert _memory_file.load_pickle(io.BytesIO(raw)) is None


@pytest.mark.parametrize("name", ["s.jsonl", "s.jsonl.gz"])
def test_lines_keep_everything(tmp_path, name):
    path = tmp_path / name
    _memory_file.write_lines(SNAPSHOT, path)
    assert _memory_file.read(path) == SNAPSHOT


def test_lines_are_json_and_say_each_stack_once(tmp_path):
    path = tmp_path / "s.jsonl"
    _memory_file.write_lines(SNAPSHOT, path)
    records = [json.loads(line) for line in path.read_text().splitlines()]
    assert records[0]["format"] == "flambeau-memory"
    assert records[0]["version"] == 1
    kinds = [next(iter(record)) for record in records[1:]]
    assert kinds == ["stack", "stack", "segment", "entry", "entry"]


def test_a_snapshot_is_written_as_lines(gpu, tmp_path):
    path = tmp_path / "s.jsonl"
    x = torch.empty(3 << 20, dtype=torch.uint8, device=gpu)
    torch.cuda.memory._dump_snapshot(str(path))
    addresses = [s["address"] for s in _memory_file.read(path)["segments"]]
    assert [s["address"] for s in torch.cuda.memory_snapshot()] == addresses
    assert x.numel() == 3 << 20


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ('{"format": "other"}', "not of the format"),
        ('{"format": "flambeau-memory", "version": 9}', "version 9"),
        ('{"format": "flambeau-memory", "version": 1}\n[1]', "line 2: not an object"),
        ('{"format": "flambeau-memory", "version": 1}\n{"entry"', "line 2: not JSON"),
        ('{"format": "flambeau-memory", "version": 1}\n{"entry": "alloc"}', "line 2"),
        ("hello", "neither"),
    ],
)
def test_other_files(tmp_path, text, match):
    path = tmp_path / "s"
    path.write_text(text)
    with pytest.raises(ValueError, match=match):
        _memory_file.read(path)


def test_pickles_of_any_packing_and_a_limit(tmp_path):
    path = tmp_path / "s.pickle"
    path.write_bytes(pickle.dumps(SNAPSHOT, 4))
    assert _memory_file.read(path) == SNAPSHOT
    with pytest.raises(ValueError, match="more than 100 bytes"):
        _memory_file.read(path, limit=100)
    packed = tmp_path / "s.gz"
    packed.write_bytes(gzip.compress(path.read_bytes()))
    assert _memory_file.read(packed) == SNAPSHOT
    bomb = tmp_path / "bomb.gz"
    bomb.write_bytes(gzip.compress(b"\x80" + bytes(1 << 20)))
    with pytest.raises(ValueError, match="more than 65536 bytes"):
        _memory_file.read(bomb, limit=65536)
