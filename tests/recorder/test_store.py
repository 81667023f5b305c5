"""A live recording stays within its bounds, and several compilations join into one file."""

from __future__ import annotations

import threading

import msgspec
import pytest

from aotviz.reading.recording import Recording
from aotviz.recording.node_arguments import PackedGraph
from aotviz.recording.schema import NONE, CompilationData, StageRecord, ValueRecord
from aotviz.recording.store import CompilationLog, Store
from aotviz.recording.strings import StringTable
from aotviz.widgets import parts


def packed(nodes: int) -> PackedGraph:
    """A graph of the first `nodes` rows, without arguments."""
    return PackedGraph(list(range(nodes)), msgspec.msgpack.encode([[[]] * nodes, [{}] * nodes]), {}, [])


def log(name: str, nodes: int = 1) -> CompilationLog:
    """A compilation with a graph of `nodes` placeholders, all texts its own."""
    strings = StringTable()
    made = CompilationLog(name, {}, strings)
    names = [strings.add(f"{name}_{i}") for i in range(nodes)]
    values = [ValueRecord("other", NONE, [], [], 0, NONE, NONE, False, [], strings.add(f"value of {name}"))]
    made.values(values)
    number = made.graph(packed(nodes), [("p", name, name, 0, NONE, NONE, NONE, "0") for name in names])
    made.stage(StageRecord("trace", "Form", "", True, False, 0, 0, {"joint": number}, [], {}))
    return made


def test_the_oldest_go_first_and_are_counted() -> None:
    store = Store(max_compilations=3)
    for number in range(10):
        store.add(log(f"f{number}"))
    recording = Recording(store)
    assert [c.name for c in recording] == ["f7", "f8", "f9"]
    assert [c.id for c in recording] == ["7", "8", "9"]
    assert recording.dropped == recording.data.dropped == 7
    assert repr(recording) == "<aotviz Recording: 3 compilations, 7 older dropped>"


def test_bytes_are_bounded_too_and_the_newest_stays() -> None:
    one = log("f", nodes=1000).nbytes
    store = Store(max_bytes=3 * one)
    for number in range(10):
        store.add(log(f"f{number}", nodes=1000))
    assert 1 < len(Recording(store)) <= 3
    assert sum(held.nbytes for _, held in store.logs()) <= store.max_bytes
    store.add(log("huge", nodes=10_000))
    assert [c.name for c in Recording(store)] == ["huge"]


def test_a_log_says_at_least_what_its_graphs_and_texts_take() -> None:
    made = log("f", nodes=1000)
    data, strings = made.read()
    assert made.nbytes > sum(map(len, strings)) + 20 * len(data.graphs[0].op)


def test_bounds_must_allow_one_compilation() -> None:
    with pytest.raises(ValueError, match="record=False"):
        Store(max_compilations=0)


def test_an_unchanged_graph_is_kept_once() -> None:
    made = log("f", nodes=5)
    size = made.nbytes
    assert made.graph(packed(5), []) == 0
    assert made.nbytes == size


def test_compilations_with_texts_of_their_own_join_into_one_recording() -> None:
    store = Store()
    for name in ("f", "g"):
        store.add(log(name, nodes=3))
    recording = Recording(store)
    joined = Recording(recording.data)
    assert len(set(recording.data.strings)) == len(recording.data.strings)
    for live, saved in zip(recording, joined, strict=True):
        assert live.graph("joint").nodes.equals(saved.graph("joint").nodes)
        assert str(live) == str(saved)


def test_a_live_recording_shows_what_came_since() -> None:
    store = Store()
    made = log("f")
    store.add(made)
    recording = Recording(store)
    assert len(recording[0].data.stages) == 1
    made.stage(StageRecord("link", "Program", "", True, True, 0, 0, {}, [], {}))
    assert [stage.name for stage in recording[0].data.stages] == ["trace", "link"]


def test_reading_while_others_write_is_consistent() -> None:
    store = Store(max_compilations=20)
    failures: list[BaseException] = []

    def write(name: str) -> None:
        for number in range(50):
            store.add(log(f"{name}{number}", nodes=3))

    def read() -> None:
        try:
            for _ in range(20):
                for compilation in Recording(Recording(store).data):
                    assert len(compilation.graph("joint").rows) == 3
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=write, args=(name,)) for name in "abc"] + [threading.Thread(target=read)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    assert len(store.logs()) == 20
    assert store.dropped == 130


def test_versions_of_any_kind_of_text_can_be_saved() -> None:
    class Version(str):
        """As torch.__version__ is."""

    recording = Recording(Store(), {"torch": Version("2.13.0")})
    assert Recording(recording.data).data.producer == {"torch": "2.13.0"}
    assert recording.to_bytes()


def test_a_live_recording_reads_only_the_graphs_that_are_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store()
    for number in range(9):
        store.add(log(f"f{number}", nodes=number + 2))
    read: list[str] = []
    whole = CompilationLog.read

    def reading(made: CompilationLog) -> tuple[CompilationData, list[str]]:
        read.append(made.outline()[0].name)
        return whole(made)

    monkeypatch.setattr(CompilationLog, "read", reading)
    recording = Recording(store)
    index = parts.index(recording)
    assert [(head.name, head.nodes) for head in index.compilations] == [(f"f{n}", n + 2) for n in range(9)]
    assert read == []
    for _ in range(3):
        parts.graph(recording, "4", 0)
        parts.compilation(recording, "4")
    assert read == ["f4"]
    for number in range(9):
        parts.graph(recording, str(number), 0)
    parts.graph(recording, "0", 0)
    assert read.count("f0") == 2  # a few stay unpacked, not all
