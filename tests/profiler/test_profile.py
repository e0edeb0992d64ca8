# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import warnings

import pytest

import flambeau as torch
from flambeau.pages import trace as trace_page
from flambeau.profiler import ProfilerAction, ProfilerActivity, profile, record_function, schedule
from flambeau.runtime import observers
from support import TWO_VIRTUAL, needs_no_driver, run_script

virtual_only = pytest.mark.skipif(
    os.environ.get("FLAMBEAU_TEST_DEVICE") == "real", reason="asks for modelled time or the machine"
)


@pytest.fixture(autouse=True)
def _can_collect(gpu):
    if ProfilerActivity.CUDA not in torch.profiler.supported_activities():
        pytest.skip("CUPTI is not installed here")


def exported(prof, path, **options):
    prof.export_chrome_trace(str(path), **options)
    return json.loads(path.read_text())


def of_category(trace, category):
    return [e for e in trace["traceEvents"] if e.get("cat") == category and e["ph"] == "X"]


class TestWhatIsCollected:
    def test_an_operation_its_call_and_its_kernel_are_linked(self, gpu, tmp_path):
        x = torch.ones(1000, device=gpu)
        torch.cuda.synchronize()
        with profile() as prof:
            x.mul(2)
        trace = exported(prof, tmp_path / "t.json")
        (op,) = [e for e in of_category(trace, "cpu_op") if e["name"] == "aten::mul"]
        kernel = of_category(trace, "kernel")[-1]
        call = next(
            e
            for e in trace["traceEvents"]
            if e.get("cat") in {"cuda_driver", "cuda_runtime"}
            and e["args"]["correlation"] == kernel["args"]["correlation"]
        )
        assert kernel["args"]["External id"] == op["args"]["External id"]
        assert call["args"]["External id"] == op["args"]["External id"]
        assert op["ts"] <= call["ts"] <= call["ts"] + call["dur"] <= op["ts"] + op["dur"]
        assert kernel["ts"] >= call["ts"]
        assert kernel["dur"] > 0
        assert kernel["tid"] == kernel["args"]["stream"] == 7
        assert kernel["args"]["block"][0] * kernel["args"]["grid"][0] * 4 >= 1000

    def test_kernels_of_a_graph_captured_before_have_their_names(self, gpu, tmp_path):
        x = torch.ones(1000, device=gpu)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            y = x * 2
            z = (y + 1).sum()
        with profile() as prof:
            graph.replay()
            z.item()
        trace = exported(prof, tmp_path / "t.json")
        kernels = [e for e in of_category(trace, "kernel") if "graph id" in e["args"]]
        assert [e["name"] for e in kernels] == ["mul_kernel", "add_kernel", "sum_kernel"]
        ids = [e["args"]["graph node id"] for e in kernels]
        assert len({i >> 32 for i in ids}) == 1
        assert len(set(ids)) == 3

    def test_copies_and_fills_have_bytes_and_names(self, gpu, tmp_path):
        source = torch.ones(1 << 12).pin_memory()
        with profile() as prof:
            on_gpu = source.to(gpu, non_blocking=True)
            torch.cuda.synchronize()
            on_gpu.cpu()
        trace = exported(prof, tmp_path / "t.json")
        copies = of_category(trace, "gpu_memcpy")
        assert [c["name"] for c in copies] == [
            "Memcpy HtoD (Pinned -> Device)",
            "Memcpy DtoH (Device -> Pageable)",
        ]
        assert [c["args"]["bytes"] for c in copies] == [4 << 12, 4 << 12]
        assert all(c["args"]["memory bandwidth (GB/s)"] > 0 for c in copies)

    def test_work_of_streams_is_on_different_tracks(self, gpu, tmp_path):
        x = torch.ones(1000, device=gpu)
        side = torch.cuda.Stream()
        with profile() as prof:
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                x.mul(2)
            x.mul(3)
        kernels = of_category(exported(prof, tmp_path / "t.json"), "kernel")
        assert len({k["tid"] for k in kernels}) == 2

    def test_record_function_spans_host_and_device(self, gpu, tmp_path):
        x = torch.ones(1000, device=gpu)
        with profile() as prof:
            with record_function("scale", "by two"):
                x.mul(2)
            x.add(1)
        trace = exported(prof, tmp_path / "t.json")
        (host,) = [e for e in of_category(trace, "user_annotation") if e["name"] == "scale"]
        (device,) = of_category(trace, "gpu_user_annotation")
        first, second = of_category(trace, "kernel")
        assert host["args"]["Arguments"] == "by two"
        assert device["name"] == "scale"
        assert (device["ts"], device["dur"]) == (first["ts"], first["dur"])
        assert second["ts"] >= first["ts"] + first["dur"]

    def test_nvtx_ranges_and_marks_show(self, gpu, tmp_path):
        with profile() as prof:
            torch.cuda.nvtx.range_push("outer")
            with torch.cuda.nvtx.range("inner"):
                torch.ones(4, device=gpu).mul(2)
            torch.cuda.nvtx.range_pop()
            handle = torch.cuda.nvtx.range_start("across")
            torch.cuda.nvtx.mark("here")
            torch.cuda.nvtx.range_end(handle)
        trace = exported(prof, tmp_path / "t.json")
        spans = {e["name"]: e for e in of_category(trace, "user_annotation")}
        assert set(spans) == {"outer", "inner"}
        loose = [(e["ph"], e["name"]) for e in trace["traceEvents"] if e["ph"] in {"b", "e"}]
        assert loose == [("b", "across"), ("e", "across")]
        assert "across" in {e.name for e in prof.events()}
        assert "across" in {t.name for t in trace_page.totals(trace)}
        assert spans["outer"]["ts"] <= spans["inner"]["ts"]
        assert spans["inner"]["dur"] <= spans["outer"]["dur"]
        assert [e["name"] for e in trace["traceEvents"] if e["ph"] == "i"] == ["here"]

    def test_shapes_stacks_and_flops(self, gpu):
        a, b = torch.ones(8, 16, device=gpu), torch.ones(16, 4, device=gpu)
        with profile(record_shapes=True, with_stack=True, with_flops=True) as prof:
            a.mul(2)
            a @ b
        by_name = {e.name: e for e in prof.events()}
        assert by_name["aten::mul"].input_shapes == [[8, 16]]
        assert by_name["aten::mul"].input_dtypes == ["float32"]
        assert "test_shapes_stacks_and_flops" in by_name["aten::mul"].stack[0]
        assert by_name["aten::matmul"].flops == 2 * 8 * 16 * 4

    def test_memory_of_operations(self, gpu, tmp_path):
        x = torch.ones(1 << 18, device=gpu)
        with profile(profile_memory=True) as prof:
            y = x.mul(2)
            del y
        (op,) = [e for e in prof.events() if e.name == "aten::mul"]
        assert op.device_memory_usage == 1 << 20
        instants = [
            e["args"]
            for e in exported(prof, tmp_path / "t.json")["traceEvents"]
            if e["name"] == "[memory]"
        ]
        assert [i["Bytes"] for i in instants] == [1 << 20, -(1 << 20)]
        assert instants[0]["Total Allocated"] - instants[1]["Total Allocated"] == 1 << 20
        prof.export_memory_timeline(str(tmp_path / "m.json"))
        assert json.loads((tmp_path / "m.json").read_text())["bytes"] == [1 << 20, 0]

    def test_memory_taken_and_given_back_inside_an_operation(self):
        from flambeau.profiler._recorder import MemoryNote, Note, Recorder
        from flambeau.profiler._timeline import Operation, _attach_memory

        recorder = Recorder(lambda: 0, lambda stream, device: 0)
        note = Note("op", "aten::matmul", 1, 200, places=(0x1000,))
        recorder.notes.append(note)
        result = MemoryNote(1, 90, 0x1000, 512, 0)
        workspace = MemoryNote(1, 95, 0x2000, 4096, 0)
        stranger = MemoryNote(1, 96, 0x3000, 64, 0)
        back = MemoryNote(1, 150, 0x2000, -4096, 0)
        recorder.memory += [result, workspace, stranger, back]
        op = Operation(1, note.name, 1, 100, 200, note)
        _attach_memory(recorder, [op])
        assert op.memory == [result, workspace, back]

    def test_host_operations_show_without_device_time(self, gpu):
        with profile() as prof:
            torch.ones(4).mul(2)
        (op,) = [e for e in prof.events() if e.name == "aten::mul"]
        assert op.device_time_total == 0

    def test_threads_are_told_apart(self, gpu):
        x = torch.ones(16, device=gpu)

        def work():
            x.add(1)

        with profile() as prof:
            x.mul(2)
            other = threading.Thread(target=work)
            other.start()
            other.join()
        threads = {e.name: e.thread for e in prof.events() if e.name.startswith("aten")}
        assert threads["aten::mul"] == threading.get_native_id() != threads["aten::add"]

    def test_devices_are_told_apart(self, two_gpus, tmp_path):
        first, second = two_gpus
        x = torch.ones(1 << 10, device=first)
        with profile() as prof:
            y = x.to(second)
            y.mul(2)
        trace = exported(prof, tmp_path / "t.json")
        assert of_category(trace, "kernel")[-1]["pid"] == torch.device(second).index
        labels = {
            e["args"]["labels"] for e in trace["traceEvents"] if e["name"] == "process_labels"
        }
        assert "GPU 1" in labels

    @virtual_only
    def test_times_keep_their_nanoseconds(self, monkeypatch, tmp_path):
        from flambeau import driver

        activity = driver.current().activity
        far = 1_796_082_639_110_885_001
        monkeypatch.setattr(activity, "now", lambda: far)
        monkeypatch.setattr(activity, "epoch", lambda: 5)
        with profile(activities=[ProfilerActivity.CPU]) as prof:
            torch.ones(4).mul(2)
        trace = exported(prof, tmp_path / "t.json")
        (op,) = [e for e in of_category(trace, "cpu_op") if e["name"] == "aten::mul"]
        assert trace["baseTimeNanoseconds"] == 1_796_082_639_000_000_005
        assert op["ts"] == 110885.001

    @virtual_only
    def test_a_lost_device_leaves_what_it_did(self):
        script = """
            import warnings
            x = torch.ones(16, device="cuda")
            torch.cuda.synchronize()
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                with torch.profiler.profile() as prof:
                    x.mul(2)
                    torch.cuda.synchronize()
                    torch.virtual.lose_device(0)
            assert "ends early" in str(caught[0].message)
            assert "mul_kernel" in {e.name for e in prof.events()}
            from flambeau.driver.virtual import _machine
            assert _machine.take_trace() == ([], [])
        """
        run_script(script, env=TWO_VIRTUAL)

    def test_waits_on_request(self, gpu, tmp_path):
        options = torch.profiler.CuspyConfig(enable_cuda_sync_events=True)
        with profile(experimental_config=options) as prof:
            torch.ones(4, device=gpu).mul(2)
            torch.cuda.current_stream().synchronize()
            torch.cuda.synchronize()
        waits = of_category(exported(prof, tmp_path / "t.json"), "cuda_sync")
        kinds = [w["args"]["cuda_sync_kind"] for w in waits]
        assert kinds[-2:] == ["Stream Sync", "Context Sync"]
        assert all(w["dur"] > 0 for w in waits)

    def test_an_operation_does_not_take_the_wait_before_it(self, gpu):
        x = torch.ones(1 << 16, device=gpu)
        with profile() as prof:
            x.mul(2)
            torch.cuda.synchronize()
            x.add(1)
        (op,) = [e for e in prof.events() if e.name == "aten::add"]
        assert not any("Synchronize" in child.name for child in op.cpu_children)

    @virtual_only
    def test_the_same_program_gives_the_same_times(self):
        program = (
            "import flambeau as torch\n"
            "x = torch.ones(4096, device='cuda')\n"
            "with torch.profiler.profile() as prof:\n"
            "    (x * 2 + 1).sum().item()\n"
            "print([(e.name, e.time_range.start, e.time_range.end) for e in prof.events()])\n"
        )
        runs = [
            subprocess.run(
                [sys.executable, "-c", program], capture_output=True, text=True, check=True
            ).stdout
            for _ in range(2)
        ]
        assert runs[0] == runs[1]
        assert "sum_kernel" in runs[0]


class TestTotals:
    def test_times_add_up(self, gpu):
        x = torch.ones(1 << 16, device=gpu)
        with profile() as prof, record_function("all"):
            for _ in range(3):
                x.mul(2)
        totals = {(t.key, t.device_type.name): t for t in prof.key_averages()}
        mul, kernel = totals["aten::mul", "CPU"], totals["mul_kernel", "CUDA"]
        assert mul.count == kernel.count == 3
        assert mul.device_time_total == pytest.approx(kernel.self_device_time_total)
        assert totals["all", "CPU"].device_time_total == pytest.approx(mul.device_time_total)
        assert totals["all", "CPU"].cpu_time_total >= mul.cpu_time_total
        host = sum(e.self_cpu_time_total for e in prof.events())
        tops = [e for e in prof.events() if e.of_cpu and e.cpu_parent is None]
        assert host == pytest.approx(sum(e.cpu_time_total for e in tops))

    def test_what_an_event_and_its_totals_tell(self, gpu):
        x = torch.ones(1 << 16, device=gpu)
        with profile(profile_memory=True) as prof:
            kept = [x.mul(2), x.mul(3)]
        events = prof.events()
        assert type(events).__name__ == "EventList"
        first, second = [e for e in events if e.name == "aten::mul"]
        assert type(first).__name__ == "FunctionEvent"
        assert first.external_id == first.id != second.external_id
        assert first.self_device_memory_usage == first.device_memory_usage == x.nbytes
        assert first.self_cpu_memory_usage == first.cpu_memory_usage == 0
        assert first.cpu_time == first.cpu_time_total > 0
        assert first.device_time == first.cuda_time == first.cuda_time_total > 0
        assert first.self_cuda_time_total == first.cuda_time  # not its driver call's
        assert all(e.cuda_time_total == 0 for e in events if e.cpu_parent is first)
        assert (first.use_device, first.overload_name) == ("cuda", "")
        assert not first.is_async
        assert not first.is_remote
        kernels = [e for e in events if e.name == "mul_kernel"]
        assert [k.device_resource_id for k in kernels] == [7, 7]
        (total,) = [t for t in prof.key_averages() if t.key == "aten::mul"]
        assert type(total).__name__ == "FunctionEventAvg"
        assert total.device_memory_usage == total.self_device_memory_usage == 2 * x.nbytes
        assert total.cpu_memory_usage == total.self_cpu_memory_usage == 0
        assert total.cpu_time == pytest.approx((first.cpu_time + second.cpu_time) / 2)
        assert total.device_time == total.cuda_time == pytest.approx(total.cuda_time_total / 2)
        assert (total.use_device, total.overload_name) == ("cuda", "")
        everything = prof.key_averages().total_average()
        assert everything.count == sum(t.count for t in prof.key_averages())
        assert everything.self_cpu_time_total == pytest.approx(events.self_cpu_time_total)
        assert len(kept) == 2

    def test_groups_by_shape(self, gpu):
        small, large = torch.ones(4, device=gpu), torch.ones(64, device=gpu)
        with profile(record_shapes=True) as prof:
            small.mul(2)
            large.mul(2)
            large.mul(3)
        groups = prof.key_averages(group_by_input_shape=True)
        found = {str(t.input_shapes): t.count for t in groups if t.key == "aten::mul"}
        assert found == {"[[4]]": 1, "[[64]]": 2}

    def test_table(self, gpu):
        x = torch.ones(1 << 16, device=gpu)
        with profile(profile_memory=True) as prof:
            y = x.mul(2)
        table = prof.key_averages().table(sort_by="self_cuda_time_total", row_limit=2)
        assert y is not None
        lines = table.splitlines()
        assert lines[1].split()[:3] == ["Name", "Self", "CPU"]
        assert "CUDA Mem" in lines[1]
        assert len(lines) == 1 + 1 + 1 + 2 + 1 + 2
        with pytest.raises(ValueError, match="time_unit"):
            prof.key_averages().table(time_unit="h")

    def test_export_stacks(self, gpu, tmp_path):
        x = torch.ones(1 << 24, device=gpu)  # whole microseconds, also on hardware
        with profile(with_stack=True) as prof:
            x.mul(2)
        path = tmp_path / "stacks"
        prof.export_stacks(str(path), "self_cuda_time_total")
        stack, _, number = path.read_text().strip().rpartition(" ")
        assert stack.endswith(";aten::mul")
        assert int(number) >= 1
        with pytest.raises(ValueError, match="metric"):
            prof.export_stacks(str(path), "calls")


class TestSteps:
    def test_schedule_follows_its_counts(self):
        with pytest.warns(UserWarning, match="warmup"):
            plan = schedule(wait=1, warmup=0, active=2, repeat=2)
        names = [plan(step).name for step in range(8)]
        cycle = ["NONE", "RECORD", "RECORD_AND_SAVE"]
        assert names == [*cycle, *cycle, "NONE", "NONE"]

    @pytest.mark.parametrize("bad", [{"wait": -1}, {"active": 0}, {"warmup": -1}, {"repeat": -2}])
    def test_bad_counts(self, bad):
        with pytest.raises(AssertionError, match="schedule"):
            schedule(**{"wait": 0, "warmup": 1, "active": 1, **bad})

    def test_skips(self):
        plan = schedule(wait=1, warmup=1, active=1, skip_first=2, skip_first_wait=1)
        names = [plan(step).name for step in range(8)]
        assert names[:5] == ["NONE", "NONE", "WARMUP", "RECORD_AND_SAVE", "NONE"]

    def test_traces_are_handed_over_per_cycle(self, gpu, tmp_path):
        seen = []

        def ready(prof):
            seen.append([e.name for e in prof.events() if e.is_user_annotation and e.of_cpu])

        x = torch.ones(16, device=gpu)
        plan = schedule(wait=1, warmup=1, active=2, repeat=2)
        with profile(schedule=plan, on_trace_ready=ready) as prof:
            for _ in range(9):
                x.mul(2)
                prof.step()
        assert seen == [["ProfilerStep#2", "ProfilerStep#3"], ["ProfilerStep#6", "ProfilerStep#7"]]

    def test_events_of_all_cycles_with_acc_events(self, gpu):
        x = torch.ones(16, device=gpu)
        plan = schedule(wait=0, warmup=1, active=1, repeat=2)
        counts = {}
        for accumulated in (False, True):
            with profile(schedule=plan, acc_events=accumulated) as prof:
                for _ in range(5):
                    x.mul(2)
                    prof.step()
            counts[accumulated] = sum(e.name == "aten::mul" for e in prof.events())
        assert counts == {False: 1, True: 2}

    def test_tensorboard_handler_writes_files(self, gpu, tmp_path):
        handler = torch.profiler.tensorboard_trace_handler(str(tmp_path / "logs"), "w", True)
        with profile(on_trace_ready=handler):
            torch.ones(4, device=gpu).mul(2)
        (file,) = (tmp_path / "logs").iterdir()
        assert file.name.startswith("w.")
        assert file.name.endswith(".pt.trace.json.gz")
        assert file.read_bytes()[:2] == b"\x1f\x8b"

    def test_toggling(self, gpu):
        x = torch.ones(16, device=gpu)
        with profile() as prof:
            prof.toggle_collection_dynamic(False, [ProfilerActivity.CUDA, ProfilerActivity.CPU])
            x.add(1)
            torch.cuda.synchronize()
            prof.toggle_collection_dynamic(True, [ProfilerActivity.CUDA, ProfilerActivity.CPU])
            x.mul(2)
        names = {e.name for e in prof.events()}
        assert {"aten::mul", "mul_kernel"} <= names
        assert not {"aten::add", "add_kernel"} & names


class TestArguments:
    def test_activities(self, gpu):
        with pytest.raises(ValueError, match="more than once"):
            profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CPU])
        with pytest.raises(AssertionError, match="No valid profiler activities"):
            profile(activities=[])
        with profile(activities=[ProfilerActivity.CPU]) as prof:
            torch.ones(4, device=gpu).mul(2)
        assert {e.device_type.name for e in prof.events()} == {"CPU"}
        with profile(activities=[ProfilerActivity.CUDA]) as prof:
            torch.ones(4, device=gpu).mul(2)
        names = {e.name for e in prof.events()}
        assert "mul_kernel" in names or "kernel" in names
        assert "aten::mul" not in names

    def test_one_kind_of_activity(self, gpu, tmp_path):
        config = torch.profiler.ProfilerActivityConfig(activity_types={"kernel"})
        with profile(activities={ProfilerActivity.CUDA: config}) as prof:
            torch.ones(4, device=gpu).mul(2)
        trace = exported(prof, tmp_path / "t.json")
        assert {e["cat"] for e in trace["traceEvents"] if "cat" in e} == {"kernel"}

    def test_nothing_recorded(self, gpu):
        with pytest.raises(AssertionError, match="nothing has been recorded"):
            profile().events()
        with pytest.raises(RuntimeError, match="no trace"):
            profile().stop_trace()

    def test_header(self, gpu, tmp_path):
        prof = profile(custom_trace_id_callback=lambda: "run-7")
        prof.preset_metadata_json("config", '{"batch": 4}')
        with prof:
            torch.ones(4, device=gpu)
            prof.add_metadata("model", "tiny")
        trace = exported(prof, tmp_path / "t.json")
        assert trace["config"] == {"batch": 4}
        assert trace["model"] == "tiny"
        assert trace["trace_id"] == prof.get_trace_id() == "run-7"
        assert trace["schemaVersion"] == 1
        assert trace["displayTimeUnit"] == "ms"
        assert trace["cuda_driver_version"] >= 13000
        assert trace["deviceProperties"][0]["name"] == torch.cuda.get_device_name(0)
        assert trace["traceName"].endswith("t.json")

    def test_execution_trace(self, gpu, tmp_path):
        path = tmp_path / "et.json"
        observer = torch.profiler.ExecutionTraceObserver().register_callback(str(path))
        x = torch.ones(4, device=gpu)
        with profile(execution_trace_observer=observer):
            assert observer.is_running()
            x.mul(2)
        assert not observer.is_running()
        assert observer.is_registered
        observer.unregister_callback()
        nodes = json.loads(path.read_text())["nodes"]
        assert [n["name"] for n in nodes[1:]] == ["aten::mul"]
        assert nodes[1]["inputs"]["shapes"] == [[4]]
        assert nodes[1]["outputs"]["types"] == ["Tensor(float32)"]


class TestSeveral:
    def test_gpu_activity_is_recorded_by_one(self, gpu):
        with profile() as outer:
            with pytest.raises(RuntimeError, match="another profiler"):
                profile().start()
            with profile(activities=[ProfilerActivity.CPU]) as inner:
                torch.ones(4, device=gpu).mul(2)
        assert "aten::mul" in {e.name for e in inner.events()}
        assert {"aten::mul", "mul_kernel"} <= {e.name for e in outer.events()}
        with profile():
            pass

    def test_one_that_was_forgotten_does_not_block(self, gpu):
        before = len(observers.callbacks_of("operation"))
        profile().start()
        assert len(observers.callbacks_of("operation")) == before
        with profile() as prof:
            torch.ones(4, device=gpu).mul(2)
        assert "mul_kernel" in {e.name for e in prof.events()}


@needs_no_driver
def test_the_host_alone():
    script = """
        from flambeau.profiler import ProfilerActivity, profile
        import warnings
        with profile() as prof:
            torch.ones(64).mul(2)
        (op,) = [e for e in prof.events() if e.name == "aten::mul"]
        assert torch.profiler.supported_activities() == {ProfilerActivity.CPU}
        prof.export_chrome_trace("/dev/null")
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            profile(activities=list(ProfilerActivity))
        assert "only the CPU is" in str(caught[0].message)
    """
    run_script(script, env={"FLAMBEAU_VIRTUAL": None})


class TestCost:
    def test_nothing_is_observed_outside(self, gpu):
        def listeners():
            return sum(len(observers.callbacks_of(k)) for k in ("operation", "range_push", "mark"))

        before = listeners()
        with profile():
            assert listeners() > before
        assert listeners() == before

    @virtual_only
    def test_the_machine_notes_nothing_outside(self, gpu):
        from flambeau.driver.virtual import _machine

        with profile():
            pass
        torch.ones(4, device=gpu).mul(2)
        torch.cuda.synchronize()
        assert _machine.take_trace() == ([], [])

    def test_import_loads_neither_driver_nor_numpy(self):
        program = (
            "import sys, flambeau.profiler\n"
            "from flambeau import driver\n"
            "assert driver.peek() is None\n"
            "assert not {'numpy', 'cupti', 'json.tool'} & set(sys.modules)\n"
        )
        subprocess.run([sys.executable, "-c", program], check=True)

    def test_record_function_alone_does_nothing(self):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            with record_function("alone"):
                pass

            @record_function("decorated")
            def add(a, b):
                return a + b

            assert add(1, 2) == 3


def test_actions_have_torchs_numbers():
    assert [a.value for a in ProfilerAction] == [0, 1, 2, 3, 4]


class TestTracesByHand:
    def test_json_and_names_of_traces(self, gpu, tmp_path):
        names = iter(["first", "second"])
        prof = profile()
        prof.set_custom_trace_id_callback(lambda: next(names))
        assert prof.get_trace_id() is None
        for name in ("first", "second"):
            with prof:
                prof.add_metadata_json("layers", '[{"width": 4}, 2]')
                torch.ones(4, device=gpu)
            trace = exported(prof, tmp_path / "t.json")
            assert trace["trace_id"] == prof.get_trace_id() == name
            assert trace["layers"] == [{"width": 4}, 2]
        with pytest.raises(ValueError, match="Expecting"):
            prof.add_metadata_json("layers", "four")

    def test_what_is_prepared_is_not_recorded(self, gpu):
        x = torch.ones(4, device=gpu)
        prof = profile()
        prof.prepare_trace()
        x.mul(2)
        prof.start_trace()
        x.add(1)
        prof.stop_trace()
        names = {e.name for e in prof.events()}
        assert "aten::add" in names
        assert "aten::mul" not in names
        prof.prepare_trace()
        prof.stop()  # its first step records
        assert not [e for e in prof.events() if e.name == "aten::add"]

    def test_nothing_is_left_to_write(self, gpu, tmp_path):
        with profile() as prof:
            torch.ones(4, device=gpu)
        path = tmp_path / "t.json"
        prof.export_chrome_trace(str(path))
        assert json.loads(path.read_text())["traceEvents"]
        assert prof.wait_for_exports() is None
        assert prof.take_pending_cuspy_export() is None

    def test_kinds_of_devices(self, gpu):
        kinds = torch.profiler.DeviceType
        with profile() as prof:
            torch.ones(4, device=gpu).mul(2)
        found = {e.name: e.device_type for e in prof.events()}
        assert found["aten::mul"] is kinds.CPU
        assert found["mul_kernel"] is kinds.CUDA
        assert (kinds.CPU.value, kinds.CUDA.value) == (0, 1)
        assert torch.profiler.kineto_available() is True

    def test_hardware_counters_are_refused(self):
        metrics = torch.profiler.PerformanceMetricsConfig(["sm__cycles_active.avg"])
        with pytest.raises(NotImplementedError, match="hardware counters"):
            profile(experimental_config=metrics)
        config = torch.profiler.ProfilerActivityConfig(profiler_configs=[metrics])
        with pytest.raises(NotImplementedError, match="hardware counters"):
            profile(activities={ProfilerActivity.CUDA: config})


class TestExecutionTraces:
    def test_the_environment_asks_for_one(self, gpu, tmp_path, monkeypatch):
        build = torch.profiler.ExecutionTraceObserver.build_execution_trace_obs_from_env
        monkeypatch.delenv("ENABLE_PYTORCH_EXECUTION_TRACE", raising=False)
        assert build() is None
        path = tmp_path / "trace.json"
        monkeypatch.setenv("ENABLE_PYTORCH_EXECUTION_TRACE", "1")
        monkeypatch.setenv("ENABLE_PYTORCH_EXECUTION_TRACE_PATH", str(path))
        observer = build()
        assert observer.get_output_file_path() == str(path)
        observer.start()
        torch.ones(4, device=gpu).mul(2)
        observer.cleanup()
        assert observer.get_output_file_path() is None
        assert not observer.is_registered
        assert [n["name"] for n in json.loads(path.read_text())["nodes"]][-1] == "aten::mul"
        observer.cleanup()  # there is nothing left to write
        monkeypatch.delenv("ENABLE_PYTORCH_EXECUTION_TRACE_PATH")
        monkeypatch.chdir(tmp_path)
        again = build()
        assert again.get_output_file_path() == "execution_trace.json"
        again.cleanup()
        assert (tmp_path / "execution_trace.json").exists()

    def test_a_directory_for_more_files(self, tmp_path):
        observer = torch.profiler.ExecutionTraceObserver()
        observer.set_extra_resource_collection(True)
        assert observer.get_resources_dir(can_create=True) is None
        observer.register_callback(str(tmp_path / "trace.json"))
        folder = tmp_path / "trace_resources"
        assert observer.get_resources_dir() is None
        assert not folder.exists()
        assert observer.get_resources_dir(can_create=True) == str(folder)
        assert folder.is_dir()
        assert observer.get_resources_dir() == str(folder)
        observer.set_extra_resource_collection(False)
        assert observer.get_resources_dir(can_create=True) is None
        observer.unregister_callback()
        beside = torch.profiler.ExecutionTraceObserver.get_resources_dir_for_et_path
        assert beside(str(tmp_path / "other.json")) is None
        assert beside(str(tmp_path / "other.json"), create_dir=True) == str(
            tmp_path / "other_resources"
        )
