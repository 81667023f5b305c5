"""Python programs in processes of their own that share one import of torch, which takes longer than most of them.

`run(["-m", module, …])` is `subprocess.run([python, "-m", module, …])`, but that the process is forked from one that
has imported torch, Inductor and aotviz (tests/preloaded.py) and has done nothing else. For a test of what an import
does, or of what is read from the environment while torch is imported, start Python itself. With a GPU, each process
imports them itself: that import asks for the GPU, and a process that is forked after it cannot use it.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import runpy
import signal
import subprocess
import sys
import tempfile
import types
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing.process import BaseProcess
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import Any

import torch

_context = multiprocessing.get_context("spawn" if torch.cuda.is_available() else "forkserver")
_context.set_forkserver_preload(["tests.preloaded"])


@dataclass(frozen=True)
class Done:
    returncode: int | None
    stdout: str
    stderr: str


def run(
    command: Sequence[object], env: dict[str, str] | None = None, cwd: Path | None = None, forked: bool = True
) -> Done:
    """What Python wrote and how it ended. `command` is as behind `python`: a script, "-m" and a module, "-c" and code.

    `env` replaces the environment. All forked processes have one seed of hashes, and what they imported lies at the
    same addresses; one that is not `forked` has its own.
    """
    if not forked:
        done = subprocess.run([sys.executable, *map(str, command)], env=env, cwd=cwd, capture_output=True, text=True)
        return Done(done.returncode, done.stdout, done.stderr)
    return at_once([command], env, cwd)[0]


def at_once(
    commands: Sequence[Sequence[object]], env: dict[str, str] | None = None, cwd: Path | None = None
) -> list[Done]:
    """`run` of several, side by side."""
    environment = dict(os.environ if env is None else env)
    with tempfile.TemporaryDirectory() as folder:
        started = []
        for number, command in enumerate(commands):
            written = [Path(folder, f"{name}-{number}") for name in ("stdout", "stderr")]
            started.append((start(_as_main, [*map(str, command)], environment, cwd, written), written))
        for process, _ in started:
            wait(process)
        return [Done(process.exitcode, *(path.read_text() for path in written)) for process, written in started]


def run_script(script: Path, *arguments: str, cwd: Path) -> Done:
    """`run` of a script in the folder `cwd`."""
    return run([script, *arguments], cwd=cwd)


def start(target: Callable[..., object], *arguments: Any, **named: Any) -> BaseProcess:
    """A function of a module in a process of its own, which may be killed."""
    process = _context.Process(target=_in_a_group, args=(target, *arguments), kwargs=named)
    process.start()
    return process


def wait(process: BaseProcess) -> int | None:
    """Until it has ended, and its exit code. If the test may wait no longer, it is killed. What it started and left is
    killed in any case."""
    try:
        process.join()
    finally:
        process.kill()
        if process.pid is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
    return process.exitcode


def event() -> Event:
    """What one process waits for and another sets."""
    return _context.Event()


def _in_a_group(target: Callable[..., object], *arguments: Any, **named: Any) -> None:
    """Run it as the first of a process group, to which all belong that it starts."""
    os.setpgid(0, 0)
    target(*arguments, **named)


def _as_main(command: list[str], env: dict[str, str], cwd: Path | None, written: list[Path]) -> None:
    for descriptor, path in zip((1, 2), written, strict=True):
        os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND), descriptor)
    os.environ.clear()
    os.environ.update(env)
    if "TORCH_TRACE" in env:
        torch._logging._internal.LOG_TRACE_HANDLER = None  # that of the process which this one was forked from
        torch._logging._internal._init_logs()
    if cwd is not None:
        os.chdir(cwd)
    how, *arguments = command
    if how == "-m":
        sys.argv = arguments
        runpy.run_module(arguments[0], run_name="__main__", alter_sys=True)
    elif how == "-c":
        sys.argv = ["-c", *arguments[1:]]
        sys.modules["__main__"] = main = types.ModuleType("__main__")
        exec(compile(arguments[0], "<string>", "exec"), vars(main))
    else:
        sys.argv = command
        sys.path.insert(0, str(Path(how).parent))
        runpy.run_path(how, run_name="__main__")
