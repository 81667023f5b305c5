"""Write the corpus anew: `python -m tests.corpus.make`, or `... make cache ranks` for some of its programs.

Every program runs in a process of its own, in a folder that holds a copy of it and nothing else. What a log tells of
this machine is then taken out: paths of the folder, of the Python installation and of the compile caches. A payload
that this changes gets its checksum anew.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests import corpus

DETAILED = (("TORCH_LOGS", "+torch._functorch._aot_autograd.autograd_cache"),)  # or its keys are not taken apart
DECISIONS = (("TORCH_TRACE", ""), ("TORCH_DTRACE", "{traces}"))  # of exports, each of them logged
UNCACHED = (("TORCHINDUCTOR_FORCE_DISABLE_CACHES", "1"),)  # torch logs runs of graphs from its cache with wrong ids
TORCHRUN = ("-m", "torch.distributed.run", "--standalone")


@dataclass(frozen=True)
class Run:
    """One process, or one job: its log is put under `name`."""

    name: str
    program: str
    arguments: tuple[str, ...] = ()
    launcher: tuple[str, ...] = ()
    environment: tuple[tuple[str, str], ...] = ()
    cache: str = ""  # runs of one cache share a folder of compiled code, and are run in order


RUNS = (
    Run("recompiles_tensors", "recompiles_tensors"),
    Run("recompiles_values", "recompiles_values"),
    Run("recompiles_modules", "recompiles_modules"),
    Run("recompile_limit", "recompile_limit"),
    Run("graph_breaks", "graph_breaks"),
    Run("dynamic_shapes", "dynamic_shapes"),
    Run("training", "training"),
    Run("compiled_autograd", "compiled_autograd"),
    Run("ddp", "ddp"),
    Run("errors", "errors"),
    Run("aliases", "aliases"),
    Run("ranks", "ranks", launcher=(*TORCHRUN, "--nproc-per-node=2")),
    Run("ranks_diverge", "ranks_diverge", launcher=(*TORCHRUN, "--nproc-per-node=4"), environment=UNCACHED),
    Run("cache_first", "cache", ("first",), cache="cache"),
    Run("cache_second", "cache", ("second",), cache="cache"),
    Run("cache_detailed_first", "cache", ("first",), environment=DETAILED, cache="detailed"),
    Run("cache_detailed_second", "cache", ("second",), environment=DETAILED, cache="detailed"),
    Run("cache_type_first", "cache_type", ("first",), environment=DETAILED, cache="type"),
    Run("cache_type_second", "cache_type", ("second",), environment=DETAILED, cache="type"),
    Run("exports", "exports"),
    Run("exports_detailed", "exports", environment=DECISIONS),
    Run("exports_draft", "exports", ("draft",), environment=DECISIONS),
    Run("aoti", "aoti", environment=(("INDUCTOR_PROVENANCE", "1"),)),
    Run("restarts", "restarts"),
)


class Failed(Exception):
    """A program of the corpus did not run to its end."""


def make(runs: tuple[Run, ...], into: Path) -> None:
    """Run programs; their logs, without this machine in them, go to `into/<name>/`."""
    with tempfile.TemporaryDirectory(prefix="corpus-") as scratch:
        for run in runs:
            print(f"{run.name} ...", flush=True)
            _run(run, Path(scratch), into)


def _run(run: Run, scratch: Path, into: Path) -> None:
    home = scratch / (run.cache or run.name)  # a cached program names the folder where it was first compiled
    work, traces, cache = home / "corpus", home / f"trace-{run.name}", home / "cache"
    temporary = home / "tmp"
    for folder in (work, traces, cache, temporary):
        folder.mkdir(parents=True, exist_ok=True)
    shutil.copy(corpus.PROGRAMS / f"{run.program}.py", work)
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("TORCH", "PYTHON"))}
    environment |= {
        "TORCH_TRACE": str(traces),
        "TMPDIR": str(temporary),
        "TORCHINDUCTOR_CACHE_DIR": str(cache),
        "TORCHINDUCTOR_COMPILE_THREADS": "1",
        "OMP_NUM_THREADS": "1",
    }
    environment |= {name: value.format(traces=traces) for name, value in run.environment}
    command = [sys.executable, *run.launcher, f"{run.program}.py", *run.arguments]
    done = subprocess.run(command, cwd=work, env=environment, capture_output=True, text=True, check=False, timeout=900)
    if done.returncode:
        raise Failed(f"{run.name}: status {done.returncode}\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}")
    hidden = _hidden(home, cache)
    target = into / run.name
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    for number, log in enumerate(sorted(path for path in traces.iterdir() if path.stat().st_size)):
        rank = log.name.partition("_rank_")[2].partition("_")[0]
        name = f"dedicated_log_torch_trace_{f'rank_{rank}_' if rank else ''}{number}.log"
        (target / name).write_bytes(b"".join(cleaned(log.read_bytes(), hidden)))


def _hidden(home: Path, cache: Path) -> list[tuple[bytes, bytes]]:
    """What is replaced, the longest first."""
    libraries = {sysconfig.get_paths()[name] for name in ("purelib", "platlib", "stdlib")}
    libraries |= {str(Path(path).resolve()) for path in libraries}
    pairs = {f"{path}/": "" for path in libraries}
    pairs |= {f"{path}/": "" for path in (str(home), str(home.resolve()))}
    pairs |= {str(cache): "cache", str(cache.resolve()): "cache", sys.executable: "python"}
    pairs |= {f"{Path(sys.prefix).resolve()}/": "", f"{Path.cwd()}/": ""}
    pairs |= {f".venv/lib/python{sys.version_info.major}.{sys.version_info.minor}/site-packages/": ""}
    torch_folder = str(Path(importlib.util.find_spec("torch").origin).parent)
    common = os.path.commonpath((home, torch_folder))  # which torch leaves out of the places of guards
    pairs[f"{str(home)[len(common) + 1 :]}/"] = ""
    ordered = sorted(pairs.items(), key=lambda pair: len(pair[0]), reverse=True)
    return [(path.encode(), shown.encode()) for path, shown in ordered]


def cleaned(log: bytes, hidden: list[tuple[bytes, bytes]]) -> Iterator[bytes]:
    """The log record by record, without the paths, and with checksums that hold."""
    for head, payload in records(log):
        for path, shown in hidden:
            head, payload = head.replace(path, shown), payload.replace(path, shown)
        start = head.index(b"] ") + 2
        record = json.loads(head[start:])
        if "has_payload" in record:
            text = payload[1:-1].replace(b"\n\t", b"\n")
            record["has_payload"] = hashlib.md5(text, usedforsecurity=False).hexdigest()
        yield head[:start] + json.dumps(record).encode() + b"\n" + payload


def records(log: bytes) -> Iterator[tuple[bytes, bytes]]:
    """(first line, payload lines as they stand) of each record."""
    head, payload = b"", []
    for line in log.split(b"\n")[:-1]:
        line += b"\n"
        if line.startswith(b"\t"):
            payload.append(line)
            continue
        if head:
            yield head, b"".join(payload)
        head, payload = line, []
    if head:
        yield head, b"".join(payload)


def kinds(log: bytes) -> set[str]:
    """The record types in a log, an artifact's with its name."""
    found = set()
    for head, _ in records(log):
        record = json.loads(head[head.index(b"] ") + 2 :])
        kind = next(iter(record))
        found.add(f"artifact/{record[kind]['name']}" if kind == "artifact" else kind)
    return found


def pack(logs: Path, archive: Path) -> None:
    """The same logs give the same bytes."""
    with tarfile.open(archive, "w:xz", preset=9) as packed:
        for path in sorted(logs.glob("*/*.log")):
            entry = tarfile.TarInfo(str(path.relative_to(logs)))
            entry.size = path.stat().st_size
            with path.open("rb") as file:
                packed.addfile(entry, file)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.corpus.make", description="Write the corpus of logs anew.")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"default: all of {' '.join(r.name for r in RUNS)}")
    wanted = set(parser.parse_args(arguments).names)
    unknown = wanted - {run.name for run in RUNS}
    if unknown:
        parser.error(f"no such program: {', '.join(sorted(unknown))}")
    with tempfile.TemporaryDirectory(prefix="corpus-logs-") as folder:
        logs = Path(folder)
        if wanted:
            shutil.copytree(corpus.unpacked(), logs, dirs_exist_ok=True)
            for folder in {path.name for path in logs.iterdir()} - {run.name for run in RUNS}:
                shutil.rmtree(logs / folder)
        make(tuple(run for run in RUNS if not wanted or run.name in wanted), logs)
        pack(logs, corpus.ARCHIVE)
    print(f"{corpus.ARCHIVE.name}: {corpus.ARCHIVE.stat().st_size:,} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
