"""Scripts in processes of their own that share one import of torch, which takes longer than most of them.

`run_script` is `subprocess.run([python, script, *arguments])`, but that the process is forked from one that has
imported torch and aotviz and has done nothing else. For a test of what an import does, start Python itself. With a GPU,
each process imports them itself: that import asks for the GPU, and a process that is forked after it cannot use it.
"""

from __future__ import annotations

import multiprocessing
import os
import runpy
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.process import BaseProcess
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import Any

import torch

READY = ["torch", "torch._dynamo", "aotviz.comparing.bisecting", "aotviz.frontends.backend"]
_context = multiprocessing.get_context("spawn" if torch.cuda.is_available() else "forkserver")
_context.set_forkserver_preload(READY)


@dataclass(frozen=True)
class Done:
    returncode: int
    stdout: str
    stderr: str


def run_script(script: Path, *arguments: str, cwd: Path) -> Done:
    """What `script` wrote and how it ended, run as `__main__` in the folder `cwd`."""
    with tempfile.TemporaryDirectory() as folder:
        written = [Path(folder, name) for name in ("stdout", "stderr")]
        process = _context.Process(target=_run, args=(script, arguments, cwd, written))
        process.start()
        process.join()
        assert process.exitcode is not None
        return Done(process.exitcode, *(path.read_text() for path in written))


def start(target: Callable[..., object], *arguments: Any, **named: Any) -> BaseProcess:
    """A function of a module in a process of its own, which may be killed."""
    process = _context.Process(target=target, args=arguments, kwargs=named)
    process.start()
    return process


def event() -> Event:
    """What one process waits for and another sets."""
    return _context.Event()


def _run(script: Path, arguments: tuple[str, ...], cwd: Path, written: list[Path]) -> None:
    for descriptor, path in zip((1, 2), written, strict=True):
        os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT), descriptor)
    os.chdir(cwd)
    sys.argv = [str(script), *arguments]
    sys.path.insert(0, str(script.parent))
    runpy.run_path(str(script), run_name="__main__")
