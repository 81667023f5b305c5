"""The kernel's side of JupyterLab's panel of live compilations (extensions/jupyterlab/src/live).

`import aotviz` in a Jupyter kernel puts one comm into the kernel's list of comms, without a message to anyone. While
the panel is open it asks kernels for that list, finds the comm, and sends it {"ask": "watch", "who": id}: from then on
it is sent a row for each compilation that moves (aotviz's own, and torch's while a watch is on), until
{"ask": "stop", "who": id}, or until it has not renewed its wish for LEASE_S seconds, as when its window is gone.
{"ask": "recording", "key": ...} is answered with that compilation's recording. Where nobody watches, nothing is sent,
and a compilation costs nothing more.

A kernel runs a person's program. So nothing here raises into it, nothing is printed, and a message is not run as a
cell would be (no IPython events). A process forked from a kernel stays silent.
"""

from __future__ import annotations

import os
import sys
import time
from typing import Any

from aotviz.recorder import progress
from aotviz.recorder.progress import Compilation
from aotviz.widgets import subshells

TARGET = "aotviz.live"
LEASE_S = 600


class Live:
    """Answers the panels of one kernel through a comm, which is anything with `send(data, buffers=...)`."""

    def __init__(self, comm: Any) -> None:
        self._comm = comm
        self._process = os.getpid()
        self._watchers: dict[str, float] = {}  # panel -> when its wish ends, on the monotonic clock

    def hear(self, message: Any) -> None:
        """A message from a panel."""
        data = message["content"]["data"]
        who = str(data.get("who", ""))
        if data.get("ask") == "watch":
            self._watchers[who] = time.monotonic() + LEASE_S
            progress.listen(self._tell)
            self._send({"rows": [row(one) for one in progress.compilations()], "whole": True})
        elif data.get("ask") == "stop":
            self._watchers.pop(who, None)
            if not self._watchers:
                progress.unlisten(self._tell)
        elif data.get("ask") == "recording":
            self._answer(str(data.get("question", "")), str(data.get("key", "")))

    def _answer(self, question: str, key: str) -> None:
        try:
            packed = recording(key)
        except Exception as error:  # the panel shows it
            self._send({"answer": question, "error": str(error)})
        else:
            self._send({"answer": question}, buffers=[packed])

    def _tell(self, compilation: Compilation) -> None:
        now = time.monotonic()
        if any(end < now for end in self._watchers.values()):
            self._watchers = {who: end for who, end in self._watchers.items() if end >= now}
        if self._watchers and os.getpid() == self._process:
            self._send({"rows": [row(compilation)], "whole": False})

    def _send(self, data: dict[str, Any], buffers: list[bytes] | None = None) -> None:
        try:
            self._comm.send(data, buffers=buffers)
        except Exception:  # no panel is worth an error in a compilation
            self._watchers.clear()


def row(compilation: Compilation) -> dict[str, Any]:
    """A compilation as the panel lists it (`Row` in protocol.ts)."""
    now = compilation.progress()
    return {
        "key": str(now.number),
        "name": now.name,
        "kind": now.kind,
        "state": now.state,
        "stage": now.stage,
        "stages": now.stages,
        "elapsed_ms": now.elapsed_ns / 1e6,
        "started_unix_ms": now.started_unix_ns / 1e6,
        "error": now.error,
    }


def recording(key: str) -> bytes:
    """The recording of one compilation, as in a file. Raises LookupError where it is no longer kept."""
    from aotviz.recorder.recording import Recording  # what an import of aotviz should not cost
    from aotviz.recorder.store import CompilationLog, Store
    from aotviz.recorder.watched import read_lines
    from aotviz.recorder.watched_progress import WatchedCompilation
    from aotviz.sessions import live

    for one in progress.compilations():
        if str(one.progress().number) != key:
            continue
        if isinstance(one, WatchedCompilation):
            return Recording(read_lines(one.lines())).to_bytes()
        if isinstance(one, CompilationLog):
            store = Store(max_compilations=1)
            store.add(one)
            return live(store).to_bytes()
    raise LookupError("The kernel no longer keeps this compilation: its function is gone, or its recording was full.")


def announce() -> None:
    """In a Jupyter kernel, be found by panels. Elsewhere, and where anything is unusual, do nothing."""
    try:
        base = sys.modules.get("ipykernel.kernelbase")
        if base is None or not base.Kernel.initialized():
            return
        import comm

        made: Any = comm.create_comm(target_name=TARGET, primary=False)  # the other side never has to open it
        made.handle_msg = Live(made).hear
        subshells.answer_where_asked(made)
        comm.get_comm_manager().register_comm(made)
    except Exception:
        return
