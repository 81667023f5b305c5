"""Logs of many ranks are read by many processes, here or elsewhere, and the result is that of one process."""

from __future__ import annotations

import gc
import gzip
import os
import random
import re
import shutil
import signal
import subprocess
import sys
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path

import fsspec
import msgspec
import pytest

import aotviz
from aotviz import RecordingError
from aotviz.__main__ import main
from aotviz.logs import log_files, parts, processes, read_trace, tasks
from aotviz.logs.log_files import LogFile
from aotviz.logs.processes import Processes
from benchmarks.trace_reading import one_copy
from tests import corpus, hostile

GOOD = b'V0701 12:00:00.000000 7 a.py:1] {"dynamo_start": {}, "frame_id": 0, "frame_compile_id": 0}\n'
SMALL = ["aliases", "errors", "restarts", "exports", "exports_draft", "ranks_diverge"]


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AOTVIZ_CACHE_DIR", str(tmp_path / "cache"))


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Logs of all kinds: of ranks that share texts, of exports that share names of files, packed and damaged ones."""
    folder = tmp_path_factory.mktemp("job") / "traces"
    for name in SMALL:
        shutil.copytree(corpus.folder(name), folder / name)
    content = (corpus.folder("aliases") / "dedicated_log_torch_trace_0.log").read_bytes()
    evil = hostile.EVIL.encode("utf-8", "surrogatepass")
    (folder / "rank_7_damaged.log").write_bytes(content[1000:90_000] + b"what?\n" + evil + b"\n" + content[90_000:])
    (folder / "rank_8.log.gz").write_bytes(gzip.compress(content.replace(b'"rank": 0', b'"rank": 3'), 1))
    (folder / "rank_9_cut.log.gz").write_bytes(gzip.compress(content, 1)[:-1000])
    (folder / "notes.txt").write_text("not a log")
    return folder


def everything(recording: aotviz.Recording) -> bytes:
    """All that was read from the logs, with every text. Graphs are parsed from these texts."""
    data, texts = recording.rows
    return msgspec.msgpack.encode((data, texts[:]))


@pytest.fixture(scope="module")
def alone(job: Path) -> bytes:
    """What one process reads of the job."""
    return everything(aotviz.read_trace(job, index=False, jobs=1))


def test_processes_read_what_one_process_reads(job: Path, alone: bytes) -> None:
    recording = aotviz.read_trace(job, index=False, jobs=2)
    assert everything(recording) == alone
    assert recording.notes[0] == "1 file is not a log and was left out: notes.txt"
    assert recording.logs.bad_lines.sum() > 2
    assert not hostile.obeyed(str(recording))


@pytest.mark.parametrize("protocol", ["file", "memory"])
def test_a_url_gives_what_the_folder_gives(protocol: str, job: Path) -> None:
    url = f"{protocol}://{job}"
    fsspec.filesystem(protocol).put(str(job), str(job), recursive=True) if protocol == "memory" else None
    folder = aotviz.read_trace(job / "ranks_diverge")
    here = aotviz.read_trace(f"{url}/ranks_diverge")
    with ThreadPoolExecutor(2) as threads:
        there = aotviz.read_trace(f"{url}/ranks_diverge/", executor=threads)
        assert everything(aotviz.read_trace(url, executor=threads)) == everything(aotviz.read_trace(url))
    assert there.to_bytes() == here.to_bytes()  # with all graphs and texts
    names = [log.name for log in here.data.logs]
    assert names == [f"{protocol}://{job}/ranks_diverge/{Path(log.name).name}" for log in folder.data.logs]
    assert here.data.strings == folder.data.strings
    assert here.data.compilations == folder.data.compilations
    assert [point.text for point in here.explain().points] == [point.text for point in folder.explain().points]


def test_very_many_logs_do_not_all_stay_open(job: Path, alone: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    gc.collect()  # logs of earlier tests
    monkeypatch.setattr(log_files, "MOST_OPEN", len(log_files._open_logs) + 2)
    before = len(os.listdir("/proc/self/fd"))
    recording = aotviz.read_trace(job, index=False)
    assert everything(recording) == alone
    packed = 2  # compressed logs, whose content is in temporary files
    assert len(os.listdir("/proc/self/fd")) <= before + 2 + packed


def test_merging_is_associative(job: Path) -> None:
    found = [tasks.read(LogFile(path)) for path in sorted(job.rglob("*.log*"))]
    whole, rng = tasks.merge(found), random.Random(0)
    for _ in range(5):
        level = found
        while len(level) > 1:
            at = rng.randrange(len(level) - 1)
            size = rng.randrange(2, 5)
            level = [*level[:at], tasks.merge(level[at : at + size]), *level[at + size :]]
        assert level == [whole]
    assert tasks.merge([tasks.merge([]), whole]) == whole
    assert len(parts.unpacked(whole).data.logs) == len(found)


def test_a_pattern_a_file_and_a_list_of_urls(job: Path) -> None:
    url = f"file://{job}"
    assert len(aotviz.read_trace(f"{url}/*/*rank_[12]*.log").logs) == 2
    assert len(aotviz.read_trace(f"{url}/rank_8.log.gz").logs) == 1
    fsspec.filesystem("memory").pipe({"/.here/rank_0.log": GOOD, "/.here/.rank_1.log": GOOD})
    for hidden in ("memory://.here", "memory://.here/*.log", "memory://.here/rank_0.log"):
        assert [Path(name).name for name in aotviz.read_trace(hidden).logs.name] == ["rank_0.log"]
    both = aotviz.read_trace([f"{url}/rank_8.log.gz", job / "rank_7_damaged.log"])
    assert [Path(name).name for name in both.logs.name] == ["rank_7_damaged.log", "rank_8.log.gz"]
    assert both.artifacts.text.str.len().max() > 1000


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("file://{}/none", "file://.*/none: there is no such file or folder"),
        ("file://{}/*.txt?", "no file matches it"),
        ("file://{}/notes.txt", "no line near its beginning belongs to torch's structured trace"),
        ("file://{}/x.aotviz", "a recording of aotviz"),
        ("nosuch://bucket/job", "nosuch://bucket/job: cannot be read .*nosuch"),
    ],
)
def test_where_a_url_has_no_log_the_error_says_so(url: str, message: str, job: Path) -> None:
    (job / "x.aotviz").write_bytes(b"\x93AOTVIZ\n\0\1")
    try:
        for executor in (None, ThreadPoolExecutor(1)):
            with pytest.raises(RecordingError, match=message):
                aotviz.read_trace(url.format(job), executor=executor)
    finally:
        (job / "x.aotviz").unlink()


def test_without_fsspec_the_error_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "fsspec.core", None)
    message = r"s3://bucket/job: reading a URL needs the package fsspec, .* pip install 'aotviz\[remote\]'"
    with pytest.raises(RecordingError, match=message):
        aotviz.read_trace("s3://bucket/job")


def test_a_file_system_that_fails_is_told(job: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*given: object, **named: object) -> None:
        raise RuntimeError("the token has expired\x1b[2J")

    filesystem = fsspec.filesystem("memory")
    filesystem.pipe("/refused/a.log", GOOD)
    monkeypatch.setattr(type(filesystem), "open", refuse)
    with pytest.raises(RecordingError, match=r"a\.log: cannot be read \(RuntimeError: the token has expired\\u001b"):
        aotviz.read_trace("memory://refused")


def test_a_packed_log_at_a_url_has_the_limit_too() -> None:
    fsspec.filesystem("memory").pipe("/bomb/rank_0.log.gz", gzip.compress(GOOD + b"nonsense\n" * 150_000))
    with pytest.raises(RecordingError, match=r"memory:///bomb/rank_0\.log\.gz: it unpacks to more than 1 MiB"):
        aotviz.read_trace("memory://bomb", limit_mb=1)
    assert len(aotviz.read_trace("memory://bomb", limit_mb=2)) == 1


def test_the_latest_run_at_a_url() -> None:
    filesystem = fsspec.filesystem("memory")
    for name in ("rank_0_old.log", "rank_0_new.log", "rank_1_new.log"):
        filesystem.pipe(f"/runs/{name}", GOOD)
        if "old" in name:
            filesystem.store["/runs/" + name].modified = filesystem.modified("/runs/" + name).replace(year=2020)
            filesystem.store["/runs/" + name].created = filesystem.created("/runs/" + name).replace(year=2020)
    with ThreadPoolExecutor(1) as threads:
        for executor in (None, threads):
            recording = aotviz.read_trace("memory://runs", latest=True, executor=executor)
            assert [Path(name).name for name in recording.logs.name] == ["rank_0_new.log", "rank_1_new.log"]
            assert recording.notes == ["the logs of the latest run, 2 of 3: rank_0_new.log, rank_1_new.log"]


def test_a_script_without_a_main_guard_may_read_in_parallel(job: Path, tmp_path: Path) -> None:
    """Python's own pools run such a script again in each process, endlessly. And no process imports torch."""
    (tmp_path / "sitecustomize.py").write_text("import sys; sys.modules['torch'] = sys.modules['pandas'] = None\n")
    script = tmp_path / "script.py"
    script.write_text(f"import aotviz\nprint(len(aotviz.read_trace({str(job)!r}, index=False, jobs=2).compilations))\n")
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path])}
    done = subprocess.run([sys.executable, script], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"{len(aotviz.read_trace(job))}\n"


def test_a_killed_process_is_replaced(tmp_path: Path) -> None:
    with Processes(1) as executor:
        first = executor.submit(os.getpid).result()
        os.kill(first, signal.SIGKILL)
        second = executor.submit(os.getpid).result()
        assert second != first
        marker = str(tmp_path / "tried")
        executor.submit(exec, f"import os; os.path.exists({marker!r}) or (open({marker!r}, 'w'), os._exit(1))").result()
        assert os.path.exists(marker)
        with pytest.raises(RecordingError, match=r"was killed, 2 times\. There may be too little memory"):
            executor.submit(os._exit, 1).result()
        with pytest.raises(ZeroDivisionError):
            executor.submit(divmod, 1, 0).result()
        assert executor.submit(max, 1, 2).result() == 2
    with pytest.raises(ProcessLookupError):
        os.kill(second, 0)


def test_an_executor_that_lost_its_workers_is_told(job: Path) -> None:
    with ProcessPoolExecutor(1) as executor:
        with pytest.raises(Exception, match="terminated abruptly"):
            executor.submit(os._exit, 1).result()
        with pytest.raises(RecordingError, match="the executor lost its workers while they read logs"):
            aotviz.read_trace(job, index=False, executor=executor)


def test_an_interrupted_reading_ends_its_processes(job: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[subprocess.Popen[bytes]] = []
    real = Processes._start

    def start(self: Processes) -> subprocess.Popen[bytes]:
        started.append(real(self))
        return started[-1]

    def stop(done: int, total: int) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Processes, "_start", start)
    with pytest.raises(KeyboardInterrupt):
        aotviz.read_trace(job, progress=stop, jobs=2)
    assert started
    assert all(process.poll() is not None for process in started)


def test_progress_of_several_processes_ends_at_the_whole(job: Path) -> None:
    seen: list[tuple[int, int]] = []
    with ThreadPoolExecutor(2) as threads:
        aotviz.read_trace(job, index=False, executor=threads, progress=lambda done, total: seen.append((done, total)))
    size = sum(path.stat().st_size for path in job.rglob("*.log*"))
    assert seen[-1] == (size, size)
    assert seen == sorted(seen)
    assert len(seen) == len(list(job.rglob("*.log*")))


def test_processes_are_started_only_where_it_is_worth_it(monkeypatch: pytest.MonkeyPatch, job: Path) -> None:
    counts: list[int] = []
    monkeypatch.setattr(read_trace, "Processes", lambda count: (counts.append(count), Processes(count))[1])
    monkeypatch.setattr(read_trace, "cpus", lambda: 2)
    aotviz.read_trace(job, index=False)  # a few MB
    assert counts == []
    monkeypatch.setattr(read_trace, "PARALLEL_FROM_BYTES", 1)
    aotviz.read_trace(job / "rank_8.log.gz", index=False)  # one file
    aotviz.read_trace(job, index=False, jobs=1)
    assert counts == []
    aotviz.read_trace(job / "ranks_diverge", index=False)
    aotviz.read_trace(job / "ranks_diverge", index=False, jobs=3)
    assert counts == [2, 3]
    assert processes.cpus() >= 1


def test_jobs_that_make_no_sense_are_refused(job: Path) -> None:
    with pytest.raises(ValueError, match="at least 1"):
        aotviz.read_trace(job, jobs=0)
    with pytest.raises(ValueError, match="either jobs or an executor"):
        aotviz.read_trace(job, jobs=2, executor=ThreadPoolExecutor(1))


def test_the_command_line_reads_urls_and_in_parallel(
    job: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["explain", str(job / "ranks_diverge"), "--jobs", "2"]) == 0
    told = capsys.readouterr().out
    assert "collectives" in told
    assert main(["explain", f"file://{job}/ranks_diverge"]) == 0
    assert capsys.readouterr().out == told
    assert main(["trace", f"file://{job}/ranks_diverge"]) == 0
    assert (tmp_path / "ranks_diverge.json").exists()
    assert main(["explain", "nosuch://bucket"]) == 2
    assert "nosuch://bucket: cannot be read" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["explain", str(job), "--jobs", "0"])


def make_ranks(folder: Path, count: int) -> None:
    """Logs of `count` ranks. Neighbours share texts, as the ranks of a job do."""
    folder.mkdir()
    logs = [path.read_bytes() for name in SMALL for path in sorted(corpus.folder(name).iterdir())]
    for rank in range(count):
        content = one_copy(logs[rank % len(logs)], rank // len(logs) // 2)
        (folder / f"dedicated_log_torch_trace_rank_{rank}_x.log").write_bytes(content)


@pytest.mark.slow
def test_dask_reads_256_ranks_where_they_are_although_a_worker_is_killed(tmp_path: Path) -> None:
    distributed = pytest.importorskip("distributed")
    make_ranks(tmp_path / "job", 256)
    url = f"file://{tmp_path}/job"
    alone = everything(aotviz.read_trace(url))
    dead: list[int] = []

    with (
        distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster,
        distributed.Client(cluster) as client,
    ):
        workers = sorted(client.run(os.getpid).values())
        assert len(workers) == 2

        def kill_one(done: int, total: int) -> None:
            if not dead:
                assert done < total / 4
                os.kill(workers[0], signal.SIGKILL)
                dead.append(workers[0])

        there = everything(aotviz.read_trace(url, executor=client.get_executor(), progress=kill_one))
        assert dead
        assert not {*dead} & {*client.run(os.getpid).values()}
        assert not any(client.run(lambda: "torch" in sys.modules).values())
    assert there == alone


@pytest.mark.slow
def test_the_example_of_the_page_runs(tmp_path: Path) -> None:
    page = (Path(__file__).resolve().parents[2] / "docs" / "traces.md").read_text(encoding="utf-8")
    (example,) = re.findall(r"## Logs of many ranks.*?```python\n(.*?)```", page, re.DOTALL)
    shutil.copytree(corpus.folder("ranks_diverge"), tmp_path / "traces")
    (tmp_path / "example.py").write_text(example)
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "example.py"], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == str(aotviz.read_trace(tmp_path / "traces").explain()).strip()
