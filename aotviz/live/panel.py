"""The kernel's side of JupyterLab's panel of live compilations (extensions/jupyterlab/src/live).

`import aotviz` in a Jupyter kernel adds one comm to the kernel's list of comms, without sending a message. While the
panel is open, it asks kernels for that list, finds the comm, and sends {"ask": "watch", "who": id}. From then on the
kernel sends a row whenever a compilation makes progress (aotviz's own, and torch's while a watch is on). It stops at
{"ask": "stop", "who": id}, or if the panel has not repeated its request for LEASE_S seconds, for example because its
window was closed. The answer to {"ask": "recording", "key": ...} is that compilation's recording. The answer to
{"ask": "part", "key": ..., "want": ...} is a part of it (widgets/parts.py), for a tab that follows the compilation.
Without an open panel nothing is sent, and compilations cost nothing extra.

A kernel runs the user's program. So this module raises no errors into it and prints nothing, and a message does not run
like a cell (no IPython events). A process forked from a kernel sends nothing.
"""

from __future__ import annotations

import os
import sys
import time
from functools import partial
from typing import TYPE_CHECKING, Any

from aotviz.recording import progress
from aotviz.recording.progress import Compilation
from aotviz.widgets import replies
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
        self._watchers: dict[str, float] = {}  # panel -> when its lease ends, on the monotonic clock
        self._answers = Answers(self._send)
        self._opened: tuple[str, Recording] | None = None  # what a tab last asked for; dropped when no panel watches

    def hear(self, message: Any) -> None:
        """Handle a message from a panel."""
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
        from aotviz.widgets import parts  # imported here to keep `import aotviz` fast

        if self._opened is None or self._opened[0] != key or want == ["index"]:
            self._opened = (key, recording(key))  # for torch's compilations: a snapshot, renewed with each index
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
        except Exception:  # an error here must not break a compilation
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
        "from_cache": now.from_cache,
    }


def recording(key: str) -> Recording:
    """The recording of one compilation. Raises LookupError if the kernel no longer has it."""
    from aotviz.live.watched import read_lines
    from aotviz.live.watched_progress import WatchedCompilation
    from aotviz.reading.recording import Recording  # imported here to keep `import aotviz` fast
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
    """In a Jupyter kernel, register the comm that panels look for. Elsewhere, or if anything fails, do nothing."""
    try:
        base = sys.modules.get("ipykernel.kernelbase")
        if base is None or not base.Kernel.initialized():
            return
        import comm

        made: Any = comm.create_comm(target_name=TARGET, primary=False)  # sends no message
        made.handle_msg = Live(made).hear
        replies.answer_where_asked(made, lambda data: replies.is_what_if(data, "want"))
        comm.get_comm_manager().register_comm(made)
    except Exception:
        return
