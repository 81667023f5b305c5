"""A job that ran on aotviz leaves the trace in torch's log that it would leave on stock torch, and it reads as well."""

from __future__ import annotations

import json
import logging
import os
import re
import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch._logging import structured
from torch._logging._internal import LazyTraceHandler

import aotviz
from aotviz.cache import bypasses, entry, switch
from aotviz.logs import known
from aotviz.torch_private import torchs_log, versions
from tests.torch_trace.test_tlparse import rendered, theirs

LOGGER = logging.getLogger("torch.__trace")
ROOT = Path(__file__).resolve().parents[2]
# What torch's AOTAutograd generates in pieces, aotviz generates as one function: "runtime_wrapper_orchestration".
WRITES_IT = versions.release(torch.__version__) in ((2, 13), (2, 14))  # torch's own wrapper, in its log
ONLY_OURS = set() if WRITES_IT else {"artifact/runtime_wrapper_orchestration"}
PIECES = {f"artifact/{name}" for name in known.WRAPPERS.split()} - {"artifact/runtime_wrapper_orchestration"}
KERNELS = re.compile(r"artifact/inductor_provenance_tracking_.+")  # Inductor's, which aotviz turns on


class Job:
    """The logs of this process, as TORCH_TRACE would write them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @property
    def log(self) -> Path:
        (log,) = self.folder.glob("*.log")
        return log

    def read(self) -> aotviz.Recording:
        return aotviz.read_trace(self.folder, index=False)

    def kinds(self) -> dict[str, set[str]]:
        """Compile id -> the kinds of records."""
        return kinds(self.log)


def kinds(log: Path) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for line in log.read_text().splitlines():
        if line.startswith("V"):
            head = json.loads(line.partition("] ")[2])
            kind = next(iter(head))
            label = f"artifact/{head[kind]['name']}" if kind == "artifact" else kind
            if head.get("frame_id") is not None and kind not in ("chromium_event", "compilation_metrics_runtime"):
                found.setdefault(f"{head['frame_id']}/{head['frame_compile_id']}", set()).add(label)
    return found


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Job]:
    torch._dynamo.reset()
    monkeypatch.setattr(structured, "INTERN_TABLE", {})
    handler = LazyTraceHandler(str(tmp_path / "traces"))
    handler.setFormatter(torch._logging._internal.TorchLogsFormatter(trace=True))
    before = LOGGER.handlers
    LOGGER.handlers = [handler]
    yield Job(tmp_path / "traces")
    LOGGER.handlers = before
    handler.close()


def trained(backend: str, **options: Any) -> None:
    """Three programs: for training, for another batch size, and for inference."""

    def step(x: torch.Tensor, w: torch.Tensor, state: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        state.add_(1)
        return (x @ w).sin() * state, x.t()

    compiled = torch.compile(step, backend=backend, options=options or None)
    w = torch.ones(4, 4, requires_grad=True)
    for rows in (3, 5):
        compiled(torch.ones(rows, 4), w, torch.ones(4))[0].sum().backward()
    with torch.no_grad():
        compiled(torch.ones(3, 4), w, torch.ones(4))


# Once a process or a machine, and what another thread compiles.
ONCE = re.compile("compile_file|CacheBase.get_system.triton_key|inductor_codecache_torch_key|pgo.dynamic_whitelist")


def timeline(log: Path) -> list[tuple[int, str]]:
    """(depth, name) of each event of the timeline, those of caches left out. It must be well nested."""
    found: list[tuple[int, str]] = []
    around: list[str] = []
    for payload in re.findall(r'"chromium_event": .*\n((?:\t.*\n?)+)', log.read_text()):
        event = json.loads(payload)
        if ONCE.fullmatch(event["name"]):
            continue
        if event["ph"] == "B":
            found.append((len(around), event["name"]))
            around.append(event["name"])
        elif event["ph"] == "E":
            assert around.pop() == event["name"]
        elif event["name"].startswith("autograd_cache"):
            found.append((len(around), event["name"]))
    assert around == []
    return found


@pytest.fixture(scope="module")
def stock(tmp_path_factory: pytest.TempPathFactory) -> dict[str, set[str]]:
    """What torch's own AOTAutograd writes about these programs."""
    generator = job.__wrapped__(tmp_path_factory.mktemp("stock"), patch := pytest.MonkeyPatch())
    found = next(generator)
    trained("aot_eager")
    written = found.kinds()
    next(generator, None)
    patch.undo()
    return written


@pytest.mark.parametrize("options", [{}, {"record": False}], ids=["recorded", "not recorded"])
def test_the_records_are_those_of_stock_torch(job: Job, stock: dict[str, set[str]], options: dict[str, Any]) -> None:
    trained("aotviz_eager", **options, cache=False)
    assert job.kinds().keys() == stock.keys() == {"0/0", "0/1", "0/2"}
    for compile_id, theirs_ in stock.items():
        mine = job.kinds()[compile_id]
        assert mine - theirs_ == ONLY_OURS
        assert theirs_ - mine <= PIECES
    assert {"aot_joint_graph", "aot_forward_graph", "aot_backward_graph", "bwd_compilation_metrics"} <= stock["0/0"]


def test_the_log_reads_as_our_recording_does(job: Job) -> None:
    with aotviz.record() as recording:
        trained("aotviz_eager", cache=False)
    read = job.read()
    assert list(read.logs.bad_lines) == [0]
    assert list(read.logs.unknown) == [{}]
    assert [one.kind for one in read] == [one.kind for one in recording] == ["training", "training", "inference"]
    roles = {role for stage in read[0].data.stages for role in stage.graphs}
    assert roles == {"dynamo", "joint", "forward", "backward"}
    assert read[2].graph("inference").nodes.target.tolist() == recording[2].graph("inference").nodes.target.tolist()
    for logged, own in zip(read, recording, strict=True):
        facts = ["name", "shape", "requires_grad", "is_leaf", "mutation", "hidden_from_autograd"]
        of_log, of_own = (one.inputs[one.inputs.dtype.str.startswith("torch.")][facts] for one in (logged, own))
        assert of_log.values.tolist() == of_own.values.tolist()
        assert logged.wrapper.source == own.wrapper.source
        assert logged.outputs.output_type.tolist() == own.outputs.output_type.tolist()
        assert logged.outputs.base.tolist() == own.outputs.base.tolist()
        assert logged.saved_tensors.name.tolist() == own.saved_tensors.name.tolist()
        assert logged.saved_tensors.donated.tolist() == own.saved_tensors.donated.tolist()
        assert any("def " in text for stage in logged.data.stages for text in stage.code.values())
    assert read[0].inputs.set_index("name").mutates_data.to_dict() == {"x": False, "w": False, "state": True}
    assert read[0].outputs.output_type.tolist() == ["non_alias", "alias_of_input"]
    assert "`step` was compiled again because dimension 0 of `x` had size 3 and now has size 5" in str(read.explain())


def test_tlparse_shows_the_graphs(job: Job, tmp_path: Path) -> None:
    trained("aotviz_eager", cache=False)
    out = rendered(job.log, tmp_path / "out")
    pages = theirs(out)
    for name in ("aot_joint_graph", "aot_forward_graph", "aot_backward_graph", "aot_forward_graph_fw_metadata"):
        assert pages["0/0", 0, name] == pages["0/1", 0, name] == 1
    assert pages["0/2", 0, "aot_inference_graph"] == 1
    page = next(out.rglob("aot_joint_graph_*.txt"))
    assert "torch.ops.aten.sin.default" in page.read_text()


def test_lookups_in_our_cache_are_told_as_ours(job: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AOTVIZ_CACHE_DIR", str(tmp_path / "cache"))

    def run(scale: int) -> None:
        torch._dynamo.reset()
        f = torch.compile(lambda x: (x.sin() * scale).sum(), backend="aotviz_eager", options={"cache": True})
        f(torch.ones(3, requires_grad=True)).backward()

    assert switch.store_for(True) is not None
    run(2)
    run(2)
    run(3)
    read = job.read()
    assert read.cache_lookups.cache.tolist() == ["aotviz"] * 3
    assert read.cache_lookups.outcome.tolist() == ["miss", "hit", "miss"]
    hit = read[1]
    assert {role for stage in hit.data.stages for role in stage.graphs} == {"dynamo", "forward", "backward"}
    assert hit.outputs.output_type.tolist() == ["non_alias"]
    told = str(read.explain())
    assert "was compiled again although it was cached before: its 'program' differs" in " ".join(told.split())
    assert "1 program came from aotviz's cache" in told
    pages = theirs(rendered(job.log, tmp_path / "out"))
    assert sum(count for (_, _, name), count in pages.items() if name == "aotautograd_cache_hit") == 1


def test_what_could_not_be_saved_is_a_bypass_and_no_miss(
    job: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AOTVIZ_CACHE_DIR", str(tmp_path / "cache"))

    def refuse(*_: object) -> None:
        raise bypasses.VALUE("a thing cannot be stored")

    monkeypatch.setattr(entry, "packed", refuse)
    torch.compile(torch.sin, backend="aotviz_eager", options={"cache": True})(torch.ones(3))
    assert {"artifact/aotautograd_cache_miss", "artifact/aotautograd_cache_bypass"} <= job.kinds()["0/0"]
    read = job.read()
    assert read.cache_lookups.outcome.tolist() == ["bypass"]
    assert "a thing cannot be stored" in read.cache_lookups.reason[0]
    assert "cannot be cached: " in str(read.explain())


def timelines(folder: Path, *backends: str) -> list[list[tuple[int, str]]]:
    found = []
    for backend in backends:
        generator = job.__wrapped__(folder / backend, patch := pytest.MonkeyPatch())
        written = next(generator)
        with torch._inductor.config.patch(force_disable_caches=True):
            trained(backend, **({"cache": False} if backend.startswith("aotviz") else {}))
        found.append(timeline(written.log))
        next(generator, None)
        patch.undo()
    return found


def test_the_timeline_has_the_events_of_stock_torch_at_the_same_depths(tmp_path: Path) -> None:
    ours, theirs = timelines(tmp_path, "aotviz_eager", "aot_eager")
    assert ours == theirs
    names = [name for _, name in ours]
    assert names.count("create_aot_dispatcher_function") == names.count("aot_collect_metadata") == 3
    assert names.count("aot_trace_joint_graph") == 2


def test_with_inductor_the_partitioner_and_both_compilers_are_in_the_timeline_too(tmp_path: Path) -> None:
    ours, theirs = ([name for _, name in events] for events in timelines(tmp_path, "aotviz", "inductor"))
    assert sorted(ours) == sorted(theirs)
    wrapped = [name for name in ours if name.startswith(("min_cut", "compile_fx"))]
    partitions, forwards = ["min_cut_rematerialization_partition"], ["compile_fx.<locals>.fw_compiler_base"]
    assert sorted(wrapped) == ["compile_fx.<locals>.bw_compiler"] * 2 + forwards * 3 + partitions * 2


def test_a_program_that_cannot_be_traced_ends_its_events(job: Job) -> None:
    def in_turn(x: torch.Tensor) -> torch.Tensor:
        x[1:].add_(x[:-1])  # eager raises, too
        return x * 2

    with pytest.raises(RuntimeError, match="refer to a single memory location"):
        torch.compile(in_turn, backend="aotviz_eager", options={"cache": False})(torch.zeros(3, 4))
    events = timeline(job.log)
    assert "create_aot_dispatcher_function" in [name for _, name in events]


def test_the_caches_answer_is_in_the_timeline(job: Job, tmp_path: Path) -> None:
    for _ in range(2):
        torch._dynamo.reset()
        torch.compile(torch.sin, backend="aotviz_eager", options={"cache": str(tmp_path / "cache")})(torch.ones(3))
    answers = [name for _, name in timeline(job.log) if name.startswith("autograd_cache")]
    assert answers == ["autograd_cache_miss", "autograd_cache_hit"]


def test_a_watch_is_not_told_twice(job: Job) -> None:
    with aotviz.watch() as recording:
        trained("aotviz_eager", cache=False)
    watched = [one for one in recording if "partition" in {stage.name for stage in one.data.stages}]
    assert [one.kind for one in watched] == ["training", "training"]
    assert "aot_joint_graph" in job.kinds()["0/0"]


def test_without_a_log_nothing_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LOGGER, "handlers", [])
    assert not torchs_log.is_on()
    with aotviz.watch():
        assert not torchs_log.is_on(), "the recorder tells a watch more"
    monkeypatch.setattr(torchs_log.Log, "_write", None)
    trained("aotviz_eager", cache=False, record=False)


def test_backwards_that_we_captured_are_in_the_log_with_their_reasons(job: Job, tmp_path: Path) -> None:
    x = torch.ones(3, requires_grad=True)

    def run(fn: Any) -> None:
        with aotviz.compiled_autograd(backend="eager", options={"record": False}):
            fn(x).sum().backward()
        x.grad = None

    aotviz.compiled_autograd.reset()
    torch._dynamo.compiled_autograd.reset()
    run(torch.sin)
    run(torch.cos)
    read = job.read()
    assert [(one.id, one.kind, one.name) for one in read] == [
        ("!0", "compiled autograd", "backward"),
        ("!1", "compiled autograd", "backward"),
    ]
    for one in read:
        roles = [(stage.name, [*stage.graphs]) for stage in one.data.stages]
        assert ("compiled autograd", ["compiled autograd"]) in roles
        assert ("inference", ["inference"]) in roles, "the part that was compiled is under the backward's id"
    assert read[1].data.because == ["autograd node 3 was SinBackward0 and is CosBackward0"]
    pages = theirs(rendered(job.log, tmp_path / "out"))
    assert pages["!0", 0, "compiled_autograd_graph"] == 1


def test_a_captured_backward_with_constants_is_in_the_log(job: Job) -> None:
    x = torch.ones(3, requires_grad=True)
    compiled = torch.compile(lambda x: x * torch.tensor([1.0, 2.0, 3.0]), backend="aotviz_eager")
    aotviz.compiled_autograd.reset()
    torch._dynamo.compiled_autograd.reset()
    with warnings.catch_warnings(action="error", category=RuntimeWarning), aotviz.compiled_autograd(backend="eager"):
        compiled(x).sum().backward()
    (text,) = (one for one in job.log.read_text().split("\nV") if '"compiled_autograd_graph"' in one)
    assert "self.aot0__tensor_constant0" in text


def test_a_setting_that_json_does_not_have_is_written_as_text(job: Job) -> None:
    with torch._functorch.config.patch(backward_pass_autocast=[{"device_type": "cpu", "dtype": torch.bfloat16}]):
        trained("aotviz_eager", cache=False)
    artifacts = job.read().artifacts
    (text, *_) = artifacts[artifacts.name == "torch._functorch.config"].text
    assert "torch.bfloat16" in text


def test_an_error_in_the_log_fails_no_program(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: Any, **__: Any) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(torchs_log.Log, "graph", fails)
    with pytest.warns(RuntimeWarning, match="could not write this compilation to torch's log .OSError: disk full."):
        trained("aotviz_eager", cache=False)


PROGRAM = """
import sys, torch, aotviz
def step(x, w):
    return (x @ w).sin().sum()
compiled = torch.compile(step, backend=sys.argv[1])
w = torch.ones(4, 4, requires_grad=True)
compiled(torch.ones(3, 4), w).backward()
with torch.no_grad():
    compiled(torch.ones(3, 4), w)
"""


def process(folder: Path, backend: str, **variables: str) -> str:
    folder.mkdir()
    program = folder / "program.py"
    program.write_text(PROGRAM)
    known = {name: value for name, value in os.environ.items() if not name.startswith(("TORCH", "AOTVIZ"))}
    path = {"PYTHONPATH": str(ROOT), "TORCHINDUCTOR_CACHE_DIR": str(folder / "inductor"), "AOTVIZ_CACHE_DIR": "off"}
    command = [sys.executable, str(program), backend]
    done = subprocess.run(
        command, cwd=folder, env=known | path | variables, capture_output=True, text=True, timeout=300, check=True
    )
    return done.stderr


@pytest.mark.slow
def test_torch_logs_prints_the_graphs_as_torch_does(tmp_path: Path) -> None:
    asked = {"TORCH_LOGS": "aot_graphs,aot_joint_graph,graph_code"}
    title = re.compile(r"\[(0/\d)\] \[__(\w+)\].* ===== (\w+ graph|__compiled_fn).*? =====")
    mine, stock = (title.findall(process(tmp_path / name, name, **asked)) for name in ("aotviz_eager", "aot_eager"))
    assert mine == stock
    assert [what for _, _, what in mine if "graph" in what] == [
        "Joint graph", "Forward graph", "Backward graph", "Forward graph"
    ]  # fmt: skip


@pytest.mark.slow
def test_with_inductor_the_records_and_debug_folders_are_torchs(tmp_path: Path) -> None:
    for name in ("aotviz", "inductor"):
        folder = tmp_path / name
        process(folder, name, TORCH_TRACE=str(folder / "traces"), TORCH_COMPILE_DEBUG="1")
    written = [kinds(next((tmp_path / name / "traces").glob("*.log"))) for name in ("aotviz", "inductor")]
    for compile_id in ("0/0", "0/1"):
        mine, theirs_ = (one[compile_id] for one in written)
        assert {one for one in mine - theirs_ if not KERNELS.fullmatch(one)} == set()
        assert theirs_ - mine <= PIECES | {"artifact/aotautograd_cache_miss"}  # its cache is off
    found = (tmp_path / "aotviz").glob("torch_compile_debug/*/torchinductor/*.*/")
    folders = {one.name.rpartition(".")[0] for one in found if one.is_dir()}
    assert folders == {"model__0_forward_1", "model__0_backward_2", "model__1_inference_3"}
