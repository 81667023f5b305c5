"""The kernel's side of JupyterLab's panel of live compilations (extensions/jupyterlab/src/live).

`import aotviz` in a Jupyter kernel puts one comm into the kernel's list of comms, without a message to anyone. While
the panel is open it asks kernels for that list, finds the comm, and sends it {"ask": "watch", "who": id}: from then on
it is sent a row for each compilation that moves (aotviz's own, and torch's while a watch is on), until
{"ask": "stop", "who": id}, or until it has not renewed its wish for LEASE_S seconds, as when its window is gone.
{"ask": "recording", "key": ...} is answered with that compilation's recording, {"ask": "part", "key": ..., "want": ...}
with a part of it (widgets/parts.py), for a tab that goes on as the compilation does. Where nobody watches, nothing is
sent, and a compilation costs nothing more.

A kernel runs a person's program. So nothing here raises into it, nothing is printed, and a message is not run as a
cell would be (no IPython events). A process forked from a kernel stays silent.
"""

from __future__ import annotations

import os
import sys
import time
from functools import partial
from typing import TYPE_CHECKING, Any

from aotviz.recording import progress
from aotviz.recording.progress import Compilation
from aotviz.widgets import subshells
from aotviz.widgets.replies import Answers, OnStage

if TYPE_CHECKING:
    from aotviz.reading.recording import Recording

TARGET = "aotviz.live"
LEASE_S = 600


class Live:
    """Answers the panels of one kernel through a comm, which is anything with `send(data, buffers=...)`."""

    def __init__(self, comm: Any) -> None:
        self._comm = comm
        self._process = os.getpid()
        self._watchers: dict[str, float] = {}  # panel -> when its wish ends, on the monotonic clock
        self._answers = Answers(self._send)
        self._opened: tuple[str, Recording] | None = None  # the key of what a tab asked of last, until nobody watches

    def hear(self, message: Any) -> None:
        """A message from a panel."""
        data = message["content"]["data"]
        ask, question, key = data.get("ask"), str(data.get("question", "")), str(data.get("key", ""))
        if ask == "watch":
            self._watchers[str(data.get("who", ""))] = time.monotonic() + LEASE_S
            progress.listen(self._tell)
            self._send({"rows": [row(one) for one in progress.compilations()], "whole": True})
        elif ask == "stop":
            self._watchers.pop(str(data.get("who", "")), None)
            if not self._watchers:
                self._opened = None
                progress.unlisten(self._tell)
        elif ask == "recording":
            self._answers.answer(question, lambda _: recording(key).to_bytes())
        elif ask == "part":
            self._answers.answer(question, partial(self._part, key, data.get("want")))
        elif ask == "cancel":
            self._answers.cancel(question)

    def _part(self, key: str, want: object, on_stage: OnStage) -> bytes:
        from aotviz.widgets import parts  # what an import of aotviz should not cost

        if self._opened is None or self._opened[0] != key or want == ["index"]:
            self._opened = (key, recording(key))  # of torch's own: as it is when the index is asked for
        return parts.packed(self._opened[1], want, on_stage)

    def _tell(self, compilation: Compilation) -> None:
        now = time.monotonic()
        if any(end < now for end in self._watchers.values()):
            self._watchers = {who: end for who, end in self._watchers.items() if end >= now}
            if not self._watchers:
                self._opened = None
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


def recording(key: str) -> Recording:
    """The recording of one compilation. Raises LookupError where it is no longer kept."""
    from aotviz.live.watched import read_lines
    from aotviz.live.watched_progress import WatchedCompilation
    from aotviz.reading.recording import Recording  # what an import of aotviz should not cost
    from aotviz.recorder.sessions import live
    from aotviz.recording.store import CompilationLog, Store

    for one in progress.compilations():
        if str(one.progress().number) != key:
            continue
        if isinstance(one, WatchedCompilation):
            return Recording(read_lines(one.lines()))
        if isinstance(one, CompilationLog):
            store = Store(max_compilations=1)
            store.add(one)
            return live(store)
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
        subshells.answer_where_asked(made, lambda data: subshells.is_what_if(data, "want"))
        comm.get_comm_manager().register_comm(made)
    except Exception:
        return
