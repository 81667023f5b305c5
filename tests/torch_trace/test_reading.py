"""`read_trace` finds logs, reads all of them, and says what it could not read."""

from __future__ import annotations

import gzip
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from msgspec.structs import replace

import aotviz
from aotviz import RecordingError
from aotviz.logs import index, read_trace
from tests import corpus

GOOD = b'V0701 12:00:00.000000 7 a.py:1] {"dynamo_start": {}, "frame_id": 0, "frame_compile_id": 0}\n'


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AOTVIZ_CACHE_DIR", str(tmp_path / "cache"))


@pytest.mark.parametrize("name", corpus.names())
def test_every_line_of_a_real_log_is_understood(name: str) -> None:
    recording = aotviz.read_trace(corpus.folder(name))
    for log in recording.data.logs:
        assert log.bad == []
        assert log.unknown == {}
        assert log.lines == Path(log.name).read_bytes().count(b"\n")
        assert log.nbytes == Path(log.name).stat().st_size
    assert recording.notes == []


@pytest.mark.parametrize("name", corpus.names())
def test_every_graph_of_a_real_log_has_nodes(name: str) -> None:
    recording = aotviz.read_trace(corpus.folder(name))
    for compilation in recording:
        graphs = compilation.data.graphs
        cut = {
            number for stage in compilation.data.stages for role, number in stage.graphs.items() if role == "partial"
        }
        assert all(graph.op.endswith("o") != (number in cut) for number, graph in enumerate(graphs))
    assert any(compilation.data.graphs for compilation in recording)


def test_stages_say_what_changed_and_how_long_it_took() -> None:
    stages = aotviz.read_trace(corpus.folder("training"))["0/0"].stages.set_index("stage")
    assert list(stages.index) == [
        "dynamo", "before pre-grad passes", "pre-grad passes", "joint", "partition", "runnable",
        "before post-grad passes", "post-grad passes", "lower", "wrapper",
    ]  # fmt: skip
    assert stages.summary["joint"] == f"forward and backward in one graph; joint: {stages.nodes_after['joint']} nodes"
    same = "after Inductor's passes on what Dynamo captured; its nodes are those of the stage before"
    assert stages.summary["pre-grad passes"] == same
    timed = {"dynamo", "pre-grad passes", "joint", "partition", "post-grad passes", "lower"}
    assert set(stages.index[stages.elapsed_ms > 0]) == timed
    assert stages.elapsed_ms.idxmax() == "lower"


def test_values_are_followed_from_the_joint_graph_into_its_halves() -> None:
    compilation = aotviz.read_trace(corpus.folder("training"))["0/0"]
    changes = compilation.diff("joint", "partition")
    assert (changes[changes.change == "kept"].by == "value").mean() > 0.8


def test_what_was_read_can_be_saved_and_loaded(tmp_path: Path) -> None:
    recording = aotviz.read_trace(corpus.folder("graph_breaks"))
    recording.save(tmp_path / "r.aotviz")
    loaded = aotviz.load(tmp_path / "r.aotviz").data
    assert {one.text for one in loaded.graph_breaks} <= {one.text for one in loaded.plain}
    assert replace(loaded, plain=[]) == recording.data


def test_several_ranks_are_one_recording() -> None:
    recording = aotviz.read_trace(corpus.folder("ranks"))
    assert {compilation.rank for compilation in recording} == {0, 1}
    assert recording["rank 1: 0/0"].rank == 1
    with pytest.raises(KeyError, match="several compilations are '0/0'; there are 'rank 0: 0/0', 'rank 1: 0/0'"):
        recording["0/0"]
    assert set(recording.cache_lookups["rank"]) == {0, 1}


def test_ranks_that_wrote_into_one_file_are_told_apart(tmp_path: Path) -> None:
    """Record by record, as processes write; a record before a process has joined its group says no rank."""
    parts = [reading_records(path.read_bytes()) for path in sorted(corpus.folder("ranks").iterdir())]
    mixed = [record for pair in zip(*parts, strict=False) for record in pair]
    mixed += [record for part in parts for record in part[min(map(len, parts)) :]]
    (tmp_path / "all.log").write_bytes(b"".join(mixed))
    apart, together = aotviz.read_trace(corpus.folder("ranks")), aotviz.read_trace(tmp_path / "all.log")
    assert sorted(c.id for c in together) == sorted(c.id for c in apart)
    assert {c.id: c.stages.graphs.tolist() for c in together} == {c.id: c.stages.graphs.tolist() for c in apart}
    assert len(together.events) == len(apart.events)


def reading_records(content: bytes) -> list[bytes]:
    """A log cut before each line without a tab."""
    records: list[bytes] = []
    for line in content.splitlines(keepends=True):
        if line.startswith(b"\t"):
            records[-1] += line
        else:
            records.append(line)
    return records


def test_an_attempt_that_was_given_up_is_told_apart() -> None:
    recording = aotviz.read_trace(corpus.folder("graph_breaks"))
    broken = recording.graph_breaks.iloc[0]
    assert broken.attempt == 0
    assert recording[broken.compilation].data.attempts == 2


def test_a_packed_log_reads_like_a_plain_one(tmp_path: Path) -> None:
    plain = corpus.folder("recompile_limit") / "dedicated_log_torch_trace_0.log"
    packed = tmp_path / "a.log.gz"
    packed.write_bytes(gzip.compress(plain.read_bytes(), 1))
    for _ in range(2):  # read, then remembered
        one, two = aotviz.read_trace(plain), aotviz.read_trace(packed)
        assert two.artifacts.drop(columns="log").equals(one.artifacts.drop(columns="log"))
        assert str(two["0/0"].graph("dynamo")) == str(one["0/0"].graph("dynamo"))


def test_a_packed_log_that_is_cut_off_is_read_as_far_as_it_goes(tmp_path: Path) -> None:
    path = tmp_path / "a.log.gz"
    path.write_bytes(gzip.compress(GOOD * 1000)[:-20])
    recording = aotviz.read_trace(path)
    assert "cannot be decompressed" in recording.data.logs[0].bad[-1].reason


def test_other_files_of_a_folder_are_left_out_with_a_note(tmp_path: Path) -> None:
    (tmp_path / "deeper").mkdir()
    (tmp_path / "deeper" / "a.log").write_bytes(GOOD)
    (tmp_path / "notes.txt").write_text("Version of the model: 3")
    (tmp_path / "weights.bin").write_bytes(os.urandom(100))
    (tmp_path / ".hidden").write_bytes(GOOD)
    (tmp_path / "empty.log").touch()
    recording = aotviz.read_trace(tmp_path)
    assert [log.name for log in recording.data.logs] == [str(tmp_path / "deeper" / "a.log")]
    assert recording.notes == ["3 files are not logs and were left out: empty.log, notes.txt, weights.bin"]


def test_a_pattern_a_list_and_the_same_file_twice(tmp_path: Path) -> None:
    for name in ("rank_10_a.log", "rank_2_a.log", "other.txt"):
        (tmp_path / name).write_bytes(GOOD)
    recording = aotviz.read_trace(str(tmp_path / "*.log"))
    assert [log.rank for log in recording.data.logs] == [2, 10]
    assert [c.id for c in recording] == ["rank 2: 0/0", "rank 10: 0/0"]
    twice = aotviz.read_trace([tmp_path / "rank_2_a.log", tmp_path / "." / "rank_2_a.log", tmp_path / "other.txt"])
    assert [log.rank for log in twice.data.logs] == [-1, 2]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda folder: folder / "none", "no such file or folder. If this is the value of TORCH_TRACE, nothing was"),
        (
            lambda folder: folder / "none",
            r"\nWhat to do, the likeliest reason first:\n- The program calls another method",
        ),
        (lambda folder: folder / "*.log", "no file matches it"),
        (lambda folder: folder, r"not a log of torch's structured trace \(it is empty\). To write one, run"),
        (lambda folder: [], "no path was given"),
        (
            lambda folder: written(folder / "a.txt", b"hello\n"),
            "no line near its beginning belongs to torch's structured",
        ),
        (lambda folder: written(folder / "a.txt", b""), "it is empty"),
        (lambda folder: written(folder / "a.txt", b"x\n").parent, r"structured trace \(1 file there\)"),
        (lambda folder: written(folder / "a.aotviz", b"\x93AOTVIZ\n\0\1"), "Open it with aotviz.load"),
    ],
)
def test_where_there_is_no_log_the_error_says_what_to_do(tmp_path: Path, make, message: str) -> None:
    place = tmp_path / "here"
    place.mkdir()
    with pytest.raises(RecordingError, match=message):
        aotviz.read_trace(make(place))


def written(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


def test_reading_needs_no_torch(tmp_path: Path) -> None:
    program = (
        "import sys; sys.modules['torch'] = None; import aotviz; "
        f"r = aotviz.read_trace({str(corpus.folder('aliases'))!r}); "
        "print(len(r), len(r.guards), r[0].graph('dynamo'))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stderr


def line(process: int, content: str, stamp: str = "0701 12:00:00.000000") -> str:
    return f"V{stamp} {process} a.py:1] {content}\n"


def test_processes_that_say_no_rank_are_told_apart(tmp_path: Path) -> None:
    begun = '{"dynamo_start": {}, "frame_id": 0, "frame_compile_id": 0}'
    (tmp_path / "a.log").write_text(line(1, begun) + line(2, begun) + line(1, begun))
    assert [c.id for c in aotviz.read_trace(tmp_path)] == ["process 1: 0/0", "process 2: 0/0"]
    (tmp_path / "b.log").write_text(line(1, begun))
    ids = [c.id for c in aotviz.read_trace(tmp_path)]
    assert ids == ["log 1, process 1: 0/0", "log 1, process 2: 0/0", "log 2: 0/0"]


def test_a_rank_that_was_started_again_is_told_apart(tmp_path: Path) -> None:
    """As torchrun does after a failure: another process, another file, the same rank."""
    begun = '{"dynamo_start": {}, "frame_id": 0, "frame_compile_id": 0, "rank": 1}'
    for name, process in (("rank_1_a.log", 10), ("rank_1_b.log", 20)):
        (tmp_path / name).write_text(line(process, begun))
    assert [c.id for c in aotviz.read_trace(tmp_path)] == ["rank 1, log 1: 0/0", "rank 1, log 2: 0/0"]


def test_names_of_files_are_those_of_the_process(tmp_path: Path) -> None:
    """Torch writes numbers for file names, and each process counts for itself."""
    started = (
        '{"dynamo_start": {"stack": [{"line": 3, "name": "f", "filename": 0}]}, "frame_id": 0, "frame_compile_id": 0}'
    )
    names = line(1, '{"str": ["one.py", 0]}') + line(2, '{"str": ["two.py", 0]}')
    (tmp_path / "a.log").write_text(names + line(1, started) + line(2, started))
    data = aotviz.read_trace(tmp_path).data
    stacks = [data.strings[compilation.stack] for compilation in data.compilations]
    assert stacks == ['  File "one.py", line 3, in f', '  File "two.py", line 3, in f']


def test_times_are_those_of_the_events_whatever_the_zone_and_over_new_year(tmp_path: Path) -> None:
    """A line says neither zone nor year; the events do. These are of New Year's Eve in a zone 5:45 before UTC."""
    second = 1_767_226_500  # 2026-01-01 00:15 UTC, 06:00 in that zone
    log = ""
    for stamp, unix in (("1231 23:00:00.500000", second - 25_200), ("0101 06:00:00.500000", second)):
        event = f'{{"name": "dynamo", "ts": {unix + 0.5:.1f}e6, "ph": "i"}}'
        log += line(1, '{"chromium_event": {}}', stamp) + f"\t{event}\n" + line(1, '{"link": {}}', stamp)
    (tmp_path / "a.log").write_text(log)
    times = aotviz.read_trace(tmp_path).artifacts.time
    assert [time.timestamp() for time in times] == [second - 25_199.5, second + 0.5]


class TestIndex:
    def copied(self, tmp_path: Path) -> Path:
        return Path(shutil.copytree(corpus.folder("ranks"), tmp_path / "logs"))

    def reads(self, monkeypatch: pytest.MonkeyPatch) -> list[int]:
        """Grows by one each time that logs are read in full."""
        counted: list[int] = []
        real = read_trace._read
        monkeypatch.setattr(read_trace, "_read", lambda *given: (counted.append(1), real(*given))[1])
        return counted

    def test_the_second_reading_is_the_first(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        logs, reads = self.copied(tmp_path), self.reads(monkeypatch)
        first, second = aotviz.read_trace(logs), aotviz.read_trace(logs)
        assert len(reads) == 1
        assert second.data == first.data

    def test_a_log_that_has_grown_is_read_anew(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        logs, reads = self.copied(tmp_path), self.reads(monkeypatch)
        before = aotviz.read_trace(logs)
        with open(logs / "dedicated_log_torch_trace_rank_0_0.log", "ab") as file:
            file.write(GOOD.replace(b"0}", b"99}"))
        after = aotviz.read_trace(logs)
        assert (len(reads), len(after)) == (2, len(before) + 1)

    def test_a_changed_log_of_the_same_size_and_time_is_read_anew(self, tmp_path: Path, monkeypatch) -> None:
        logs, reads = self.copied(tmp_path), self.reads(monkeypatch)
        aotviz.read_trace(logs)
        path = logs / "dedicated_log_torch_trace_rank_0_0.log"
        times = path.stat().st_atime_ns, path.stat().st_mtime_ns
        content = path.read_bytes()
        path.write_bytes(content[:-100] + b"x" * 100)
        os.utime(path, ns=times)
        aotviz.read_trace(logs)
        assert len(reads) == 2

    @pytest.mark.parametrize(
        "damage", [lambda b: b[:-1], lambda b: b[:9000] + b"?" + b[9001:], lambda b: b"", lambda b: b[8:]]
    )
    def test_a_damaged_index_is_not_used(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, damage) -> None:
        logs, reads = self.copied(tmp_path), self.reads(monkeypatch)
        first = aotviz.read_trace(logs)
        (path,) = index.folder().glob("*.index")
        path.write_bytes(damage(path.read_bytes()))
        assert aotviz.read_trace(logs).data == first.data
        assert len(reads) == 2

    def test_an_interrupted_reading_leaves_no_index(self, tmp_path: Path) -> None:
        def stop(done: int, total: int) -> None:
            raise KeyboardInterrupt

        logs = self.copied(tmp_path)
        with pytest.raises(KeyboardInterrupt):
            aotviz.read_trace(logs, progress=stop)
        assert not index.folder().exists()

    def test_only_its_owner_can_read_an_index(self, tmp_path: Path) -> None:
        aotviz.read_trace(self.copied(tmp_path))
        (path,) = index.folder().glob("*")
        assert path.stat().st_mode & 0o777 == 0o600

    def test_indexes_do_not_fill_the_disk(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(index, "MOST_BYTES", 1)
        logs = self.copied(tmp_path)
        aotviz.read_trace(logs)
        aotviz.read_trace(logs / "dedicated_log_torch_trace_rank_0_0.log")
        assert len(list(index.folder().glob("*"))) == 1

    def test_where_no_index_can_be_written_reading_goes_on(self, tmp_path: Path, monkeypatch) -> None:
        monkeypatch.setenv("AOTVIZ_CACHE_DIR", os.devnull)
        assert len(aotviz.read_trace(self.copied(tmp_path))) > 0

    def test_without_an_index_nothing_is_written(self, tmp_path: Path) -> None:
        aotviz.read_trace(self.copied(tmp_path), index=False)
        assert not index.folder().exists()


def test_progress_ends_at_the_whole() -> None:
    seen: list[tuple[int, int]] = []
    aotviz.read_trace(corpus.folder("ranks"), index=False, progress=lambda done, total: seen.append((done, total)))
    size = sum(path.stat().st_size for path in corpus.folder("ranks").iterdir())
    assert seen[-1] == (size, size)
    assert seen == sorted(seen)


def test_texts_outlive_their_file(tmp_path: Path) -> None:
    path = Path(shutil.copy(corpus.folder("training") / "dedicated_log_torch_trace_0.log", tmp_path))
    recording = aotviz.read_trace(path)
    path.unlink()
    assert recording.artifacts.text.str.len().max() > 1000


def test_a_file_that_was_cut_off_meanwhile_is_named(tmp_path: Path) -> None:
    path = Path(shutil.copy(corpus.folder("training") / "dedicated_log_torch_trace_0.log", tmp_path))
    recording = aotviz.read_trace(path)
    os.truncate(path, 1000)
    with pytest.raises(RecordingError, match=r"the file has changed since it was read\. Read it again"):
        recording.artifacts  # noqa: B018
