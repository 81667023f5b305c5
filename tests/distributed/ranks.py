"""Ranks: processes of this machine that train what they are told, one job after the other.

    with Ranks(world=2) as ranks:
        found = ranks.train("FSDP2, whole", "aotviz.compile: eager", seconds=60)   # one Found per rank

They talk over loopback only, and nothing they do can hang: a job has its time, and when that is over, or one rank has
failed and the others wait for it, all of them are killed; the next job starts them again.

    python -m tests.distributed.ranks FOLDER WORLD RANK      # one rank, which reads its jobs from its standard input
"""

from __future__ import annotations

import contextlib
import datetime
import itertools
import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

GRACE_S = 5.0  # that the others have after one rank has failed
START_S = 240.0  # for importing torch, on a machine with fewer cores than ranks
EAGER = "not compiled"
WHOLE = ", whole backwards"  # behind a backend: each backward is captured
OURS = {f"aotviz.compile: {backend}": backend for backend in ("eager", "inductor")}  # others are torch.compile's


@dataclass(frozen=True)
class Found:
    """What one rank found."""

    steps: list[list[Any]]  # per step the loss, the gradients, the parameters: tensors
    raised: str  # "" if nothing was
    recording: Path | None  # what aotviz recorded


class Ranks:
    """`world` processes, started at the first job. A job's backend is EAGER, one of OURS, or one of torch.compile's.

    `cache` is the folder of their cache; without one, they compile.
    """

    def __init__(self, world: int, cache: Path | None = None) -> None:
        self.world = world
        self.cache = cache
        self._temporary = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        self.folder = Path(self._temporary.name)
        self._processes: list[subprocess.Popen[str]] = []
        self._number = itertools.count()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.kill()
        self._temporary.cleanup()

    def train(self, program: str, backend: str, seconds: float) -> list[Found]:
        """What each rank found; all ranks are done with it, or have been killed."""
        self._start()
        job = f"job-{next(self._number)}"
        for process in self._processes:
            assert process.stdin is not None
            with contextlib.suppress(BrokenPipeError):
                process.stdin.write(json.dumps([program, backend, job]) + "\n")
                process.stdin.flush()
        done = self._wait([self.folder / f"{job}-{rank}.json" for rank in range(self.world)], seconds)
        found = [self._found(job, rank) for rank in range(self.world)]
        if not done or any(one.raised for one in found):  # such a rank has ended, or is about to
            self.kill()
        return found

    def kill(self) -> None:
        """End all ranks."""
        for process in self._processes:
            process.kill()
            process.wait()
            assert process.stdin is not None
            with contextlib.suppress(BrokenPipeError):
                process.stdin.close()
        self._processes.clear()

    def _start(self) -> None:
        if self._processes:
            return
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "TORCHINDUCTOR_COMPILE_THREADS": "1"}
        environment |= {"GLOO_SOCKET_IFNAME": "lo", "TP_SOCKET_IFNAME": "lo"}
        if self.cache is not None:
            environment["AOTVIZ_CACHE_DIR"] = str(self.cache)
        meeting = f"meeting-{next(self._number)}"
        for rank in range(self.world):
            said = (self.folder / f"said-{rank}.txt").open("a")
            command = [sys.executable, "-m", "tests.distributed.ranks", str(self.folder / meeting), str(self.world)]
            self._processes.append(
                subprocess.Popen(
                    [*command, str(rank)], env=environment, stdin=subprocess.PIPE, stdout=said, stderr=said, text=True
                )
            )
            said.close()
        if not self._wait([self.folder / f"{meeting}-ready-{rank}" for rank in range(self.world)], START_S):
            said_by_all = "\n".join(self.said(rank) for rank in range(self.world))
            self.kill()
            raise RuntimeError(f"the ranks did not start:\n{said_by_all}")

    def _wait(self, files: list[Path], seconds: float) -> bool:
        """Whether all files came. Does not wait long for those of ranks that wait for one that has ended."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            if all(file.exists() for file in files):
                return all(process.poll() is None for process in self._processes)
            if any(process.poll() is not None for process in self._processes):
                until = min(until, time.monotonic() + GRACE_S)
            time.sleep(0.05)
        return False

    def _found(self, job: str, rank: int) -> Found:
        import torch

        told, kept = self.folder / f"{job}-{rank}.json", self.folder / f"{job}-{rank}.aotviz"
        if not told.exists():
            return Found([], "it did not end in its time, or waited for a rank that failed", None)
        raised = json.loads(told.read_text())
        steps = [] if raised else torch.load(self.folder / f"{job}-{rank}.pt")
        return Found(steps, raised, kept if kept.exists() else None)

    def said(self, rank: int) -> str:
        """What a rank printed, its tracebacks too."""
        return (self.folder / f"said-{rank}.txt").read_text(errors="replace")


def _work(meeting: Path, world: int, rank: int) -> None:
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    timeout = datetime.timedelta(seconds=120)
    dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=world, timeout=timeout)
    dist.barrier()
    meeting.with_name(f"{meeting.name}-ready-{rank}").touch()
    for line in sys.stdin:
        program, backend, job = json.loads(line)
        print(f"--- {program}, {backend}", flush=True)
        stem = str(meeting.with_name(f"{job}-{rank}"))
        raised = ""
        try:
            _train(program, backend, stem)
            dist.barrier()
        except Exception as error:
            import traceback

            traceback.print_exc()
            raised = f"{type(error).__name__}: {error}"
        unfinished = Path(f"{stem}.json.part")
        unfinished.write_text(json.dumps(raised))
        unfinished.rename(f"{stem}.json")
        if raised:
            os._exit(1)  # the others may wait for this one in a collective: no rank goes on
    os._exit(0)


def _train(program: str, backend: str, stem: str) -> None:
    import torch

    import aotviz
    from tests.distributed.programs import FOR_WHOLE_BACKWARDS, PROGRAMS

    steps: list[list[torch.Tensor]] = []
    is_whole, backend = backend.endswith(WHOLE), backend.removesuffix(WHOLE)

    def step(loss: Any, tensors: Any) -> None:
        steps.append([tensor.detach().clone() for tensor in (loss, *tensors) if tensor is not None])

    def compiled(module: Any) -> Any:
        if backend == EAGER:
            return module
        if backend in OURS:
            return aotviz.compile(module, backend=OURS[backend])
        return torch.compile(module, backend=backend)

    torch._dynamo.reset()
    torch.manual_seed(0)
    aotviz.compiled_autograd.reset()
    around = aotviz.compiled_autograd(backend="eager") if is_whole else contextlib.nullcontext()
    with around, aotviz.record() as recording:
        {**PROGRAMS, **FOR_WHOLE_BACKWARDS}[program](compiled, step)
    if len(recording):
        recording.save(f"{stem}.aotviz")
    torch.save(steps, f"{stem}.pt")


if __name__ == "__main__":
    _work(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
