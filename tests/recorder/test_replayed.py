"""A compilation that the cache had appears in the recording as it was recorded when it was compiled."""

from __future__ import annotations

import textwrap
import zlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch
from msgspec.structs import replace as changed

import aotviz
import aotviz.frontends.backend
from aotviz.ir.lookup import LookUp, Outcome
from aotviz.reading.recording import Compilation, Recording
from aotviz.recorder.snapshot import SnapshotWriter
from aotviz.recording import replaying
from aotviz.recording.schema import CompilationData
from aotviz.recording.store import CompilationLog
from aotviz.recording.strings import StringTable
from tests.from_cache import HIT, answering
from tests.processes import run_script

MISS = LookUp(Outcome.MISS, key="b" * 32, ingredients={"program": "x.sin()"})


pytestmark = pytest.mark.usefixtures("clean_dynamo")


def step(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    x = x.clone()
    x.mul_(2)
    return (x @ w).sin().view(-1)[2:]


def renamed(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    a = a.clone()
    a.mul_(2)
    return (a @ b).sin().view(-1)[2:]


def compiled(
    fn: Callable[..., Any], lookup: LookUp, recorded: bytes = b"", backward: bool = True
) -> tuple[Recording, bytes | None]:
    """The recording of one call of `fn`, and what a cache's entry would get of it."""
    with answering(lambda request: (lookup, recorded)) as seen, aotviz.record() as recording:
        result = torch.compile(fn, backend="aotviz_eager")(torch.ones(2, 3, requires_grad=True), torch.ones(3, 4))
        if backward:
            result.sum().backward()
    (observer,) = seen
    return recording, observer.recorded()


def comparable(compilation: Compilation) -> dict[str, Any]:
    """What must be the same, of the stages that the cache has."""
    data, texts = compilation.data, compilation.strings
    graphs = {}
    for stage in data.stages:
        for role in stage.graphs:
            rows = compilation.graph(role, stage.name).rows
            graphs[stage.name, role] = [
                (r.name, r.op, r.target, r.args, str(r.source), r.module_path, r.value and r.value.shape, r.descriptor)
                for r in rows
            ]
    tables = {
        name: getattr(data, name) for name in ("inputs", "outputs", "saved_tensors", "recomputed", "storages", "kind")
    }
    stages = [changed(stage, graphs={}, replayed=False, started_ns=0) for stage in data.stages]
    assert texts
    return {
        "stages": stages[1:],
        "graphs": {key: rows for key, rows in graphs.items() if key[0] != "dynamo"},
        "wrapper": data.wrapper.source if data.wrapper else None,
        **tables,
    }


def test_a_hit_shows_all_that_was_recorded_when_the_program_was_compiled() -> None:
    before, recorded = compiled(step, MISS)
    assert recorded is not None
    torch._dynamo.reset()
    with answering(lambda request: (HIT, recorded)), aotviz.record() as recording:
        torch.compile(step, backend="aotviz_eager")(torch.ones(2, 3, requires_grad=True), torch.ones(3, 4))
    (one,), (other,) = before.compilations, recording.compilations
    assert comparable(other) == comparable(one)
    assert [stage.replayed for stage in other.data.stages] == [False] + [True] * (len(other.data.stages) - 1)
    assert one.data.replayed is None
    assert other.data.replayed is not None
    assert (other.data.replayed.key, other.data.replayed.saved_ns) == (HIT.key, HIT.saved_ns)


def test_late_work_after_a_hit_is_appended_and_its_graph_is_the_recorded_one() -> None:
    before, forward_only = compiled(step, MISS, backward=False)
    torch._dynamo.reset()
    assert forward_only is not None
    recording, whole = compiled(step, HIT, forward_only)
    (compilation,) = recording.compilations
    stages = compilation.data.stages
    assert [stage.name for stage in stages][-2:] == ["link", "lower backward"]
    assert (stages[-2].replayed, stages[-1].replayed, stages[-1].late) == (True, False, True)
    partition = next(stage for stage in stages if stage.name == "donated buffers")
    assert stages[-1].graphs["backward"] == partition.graphs["backward"]
    torch._dynamo.reset()
    assert whole is not None
    third, again = compiled(step, HIT, whole, backward=False)
    (last,) = third.compilations
    assert [(s.name, s.replayed) for s in last.data.stages][-2:] == [("link", True), ("lower backward", True)]
    assert comparable(last) == comparable(compilation)
    assert again == whole
    assert before.compilations[0].data.replayed is None


def test_the_graph_of_dynamo_is_read_again_only_if_it_differs(monkeypatch: pytest.MonkeyPatch) -> None:
    before, recorded = compiled(step, MISS)
    torch._dynamo.reset()
    packed: list[Any] = []
    real = SnapshotWriter.packed
    monkeypatch.setattr(SnapshotWriter, "packed", lambda self, parts: packed.append(parts) or real(self, parts))
    recording, _ = compiled(step, HIT, recorded or b"", backward=False)
    assert not packed
    same, other = ([row.name for row in one[0].graph("dynamo").rows] for one in (before, recording))
    assert same == other
    torch._dynamo.reset()
    compiled(renamed, HIT, recorded or b"", backward=False)
    assert len(packed) == 1


def test_an_entry_does_not_grow_when_each_process_lowers_the_backward_again() -> None:
    _, whole = compiled(step, MISS)
    assert whole is not None
    for _ in range(2):
        torch._dynamo.reset()
        recording, again = compiled(step, HIT, whole)
        assert again == whole
        stages = recording[0].data.stages
        assert [(stage.name, stage.replayed) for stage in stages if stage.late] == [("lower backward", False)]


def test_a_hit_is_marked_in_whatever_order_the_answer_comes() -> None:
    log = CompilationLog("f", {}, StringTable())
    log.replayed(None, replaying.NOT_RECORDED, None)
    log.looked_up(HIT, 1)
    log.looked_up(replace(HIT, outcome=Outcome.BYPASS, reason="its backward cannot be stored"), 2)
    data, _ = log.read()
    assert data.cache is not None
    assert (data.cache.outcome, data.replayed and data.replayed.key) == ("hit", HIT.key)
    assert [row.outcome for row in log.rows()[0].cache_lookups] == ["hit", "bypass"]


def test_a_later_answer_replaces_a_miss() -> None:
    log = CompilationLog("f", {}, StringTable())
    log.looked_up(MISS, 1)
    log.looked_up(LookUp(Outcome.BYPASS, reason="it cannot be stored"), 2)
    assert [row.outcome for row in log.rows()[0].cache_lookups] == ["bypass"]


def test_the_name_is_that_of_the_function_that_hit() -> None:
    _, recorded = compiled(step, MISS)
    torch._dynamo.reset()
    recording, _ = compiled(renamed, HIT, recorded or b"", backward=False)
    (compilation,) = recording.compilations
    assert compilation.name.startswith("renamed")
    assert compilation.data.stages[0].summary.startswith("`renamed` captured")
    assert [row.name for row in compilation.data.inputs] == ["x", "w"]
    assert compilation.graph("dynamo").rows[0].name == "l_a_"


def test_a_hit_unpacks_nothing_until_it_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    _, recorded = compiled(step, MISS)
    torch._dynamo.reset()
    unpacked: list[replaying.Packed] = []
    real = replaying.parts_of
    monkeypatch.setattr(replaying, "parts_of", lambda packed: unpacked.append(packed) or real(packed))
    recording, _ = compiled(step, HIT, recorded or b"")
    assert not unpacked
    assert recording.compilations[0].kind == "training"
    assert len(unpacked) == 1


def test_a_recording_with_a_hit_is_saved_and_read(tmp_path: Path) -> None:
    _, recorded = compiled(step, MISS)
    torch._dynamo.reset()
    recording, _ = compiled(step, HIT, recorded or b"")
    recording.save(tmp_path / "hit.aotviz")
    read = aotviz.load(tmp_path / "hit.aotviz")
    assert comparable(read[0]) == comparable(recording[0])
    assert read[0].data.replayed == recording[0].data.replayed
    assert read.cache_lookups.outcome.tolist() == recording.cache_lookups.outcome.tolist() == ["hit"]


def test_a_program_that_was_not_recorded_shows_its_wrapper_and_says_why_it_has_no_stages() -> None:
    recording, recorded = compiled(step, HIT)
    (compilation,) = recording.compilations
    assert [stage.name for stage in compilation.data.stages] == ["dynamo", "given", "lower backward"]
    assert compilation.data.replayed.note == replaying.NOT_RECORDED
    assert "def " in compilation.wrapper.source
    assert recorded is None


def _newer(content: bytes) -> bytes:
    packed = replaying.opened(content)
    head = changed(packed.head, version=packed.head.version + 1)
    return replaying.MAGIC + msgspec.msgpack.encode(changed(packed, head=head))


def _with_wrong_numbers(content: bytes) -> bytes:
    packed = replaying.opened(content)
    (part,) = replaying.parts_of(packed)
    stages = [changed(part.data.stages[-1], graphs={"forward": 77})]
    return replaying.pack(packed.head, [], changed(part, data=changed(part.data, stages=stages)))


@pytest.mark.parametrize(
    "damaged",
    [
        lambda content: b"nonsense",
        lambda content: content[: len(content) // 2],
        lambda content: content[:-20],
        lambda content: content[: len(content) // 2] + b"\x00\xff" + content[len(content) // 2 + 2 :],
        _newer,
        _with_wrong_numbers,
    ],
    ids=["foreign", "half", "cut", "flipped", "newer", "wrong numbers"],
)
def test_damaged_bytes_leave_a_note_and_no_stages(damaged: Callable[[bytes], bytes]) -> None:
    _, recorded = compiled(step, MISS)
    torch._dynamo.reset()
    recording, _ = compiled(step, HIT, damaged(recorded or b""), backward=False)
    (compilation,) = recording.compilations
    data: CompilationData = compilation.data
    assert [stage.name for stage in data.stages] == ["dynamo"]
    assert data.replayed is not None
    assert "cache's entry" in data.replayed.note
    assert data.wrapper is not None
    assert recording.cache_lookups.outcome.tolist() == ["hit"]


def test_no_flipped_byte_raises() -> None:
    _, recorded = compiled(step, MISS)
    assert recorded is not None
    torch._dynamo.reset()
    for place in range(0, len(recorded), 97):
        content = bytearray(recorded)
        content[place] ^= 0x55
        log = CompilationLog("f", {}, StringTable())
        log.replayed(*replaying.opened_or_not(bytes(content)), None)
        data, _ = log.read()
        assert data.replayed is not None
        if not data.replayed.note:  # the byte is one of those that nothing depends on
            assert zlib.crc32(recorded) != zlib.crc32(bytes(content))


@pytest.mark.parametrize("own", [0, 2])
def test_a_function_compiled_without_dynamo_replays_what_follows_its_own_stages(own: int) -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        return x.sin() * 2

    def run(lookup: LookUp, recorded: bytes) -> tuple[Recording, bytes | None]:
        with answering(lambda request: (lookup, recorded), own) as seen:
            made = aotviz.aot_function(f, lambda graph, _: graph)
            made(torch.ones(3, requires_grad=True)).sum().backward()
        return made.recording, seen[0].recorded()

    before, recorded = run(MISS, b"")
    after, _ = run(HIT, recorded or b"")
    (one,), (other,) = before.compilations, after.compilations
    assert [stage.name for stage in other.data.stages] == [stage.name for stage in one.data.stages]
    assert [stage.replayed for stage in other.data.stages[: own + 1]] == [False] * own + [True]
    roles = ["joint", "forward", "backward"]
    assert [len(other.graph(role)) for role in roles] == [len(one.graph(role)) for role in roles]


def test_several_lookups_of_one_compilation_are_rows_of_it() -> None:
    guard_miss = replace(HIT, outcome=Outcome.GUARD_MISS, reason="`x.size()[0]` is 2, and 4 was expected")
    recording, _ = compiled(step, guard_miss)
    rows = recording.cache_lookups
    assert rows[["cache", "outcome", "key"]].values.tolist() == [["aotviz", "guard miss", HIT.key]]
    assert rows.reason[0] == guard_miss.reason
    assert rows.components[0] == ("program: x.sin()", "torch: 2.13.0")


def test_another_process_replays_what_this_one_recorded(tmp_path: Path) -> None:
    before, recorded = compiled(step, MISS)
    (tmp_path / "recorded").write_bytes(recorded or b"")
    script = tmp_path / "second.py"
    script.write_text(
        textwrap.dedent(
            f"""
            import sys
            sys.path.insert(0, {str(Path(__file__).parents[2])!r})
            from tests.recorder.test_replayed import HIT, compiled, step
            content = open("recorded", "rb").read()
            compiled(step, HIT, content, backward=False)[0].save("second.aotviz")
            """
        )
    )
    done = run_script(script, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    second = aotviz.load(tmp_path / "second.aotviz")
    assert comparable(second[0]) == comparable(before[0])
