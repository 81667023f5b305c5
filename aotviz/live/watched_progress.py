"""The progress of each of torch's own compilations, read from the lines of a watch as they arrive (for `progress.py`).

Torch logs when a compilation begins, logs each graph and text when it has been made, and writes a summary at the end. A
backward that is compiled later has its own summary. From these lines a live view gets the stage, the time and the
error.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from aotviz.logs import known
from aotviz.recording import progress
from aotviz.recording.noted_calls import NotedCall
from aotviz.recording.progress import Progress

ENDS = ("compilation_metrics", "bwd_compilation_metrics", "aot_autograd_backward_compilation_metrics")


class WatchedCompilation:
    """One compilation in progress. `lines()` returns its lines in the watch, as a log."""

    def __init__(self, compile_id: str, created: float, lines: Callable[[], bytes]) -> None:
        self.lines = lines
        self.compile_id = compile_id
        self.call: NotedCall | None = None  # that led to it
        self._name = compile_id
        self._started = self._began = self._latest = created  # unix times: start of all, start of this part, last line
        self._before = 0.0  # seconds of the parts that have ended
        self._stages: list[str] = []
        self._state: progress.State = "running"
        self._error = ""
        self._number = progress.begun(self)

    def hear(self, created: float, head: dict[str, Any]) -> None:
        """Update the progress from a line of any type."""
        ended = next((kind for kind in ENDS if kind in head), "")
        stage = _stage_of(head)
        if "dynamo_start" in head:
            frames = head["dynamo_start"].get("stack") or [{}]
            self._name = str(frames[-1].get("name", self.compile_id))
        elif not ended and not stage:
            return
        if self._state != "running":  # a late part begins, e.g. the backward
            self._before += self._latest - self._began
            self._began, self._state = created, "running"
        self._latest = created
        if stage and stage not in self._stages[-1:]:
            self._stages.append(stage)
        if ended:
            self._end(head[ended])
        progress.moved(self)

    def _end(self, metrics: Any) -> None:
        said = metrics if isinstance(metrics, dict) else {}
        failed = said.get("fail_type")
        self._state = "failed" if failed else "done"
        self._error = f"{failed}: {said.get('fail_reason') or ''}" if failed else ""

    def progress(self) -> Progress:
        """See `progress.Compilation`."""
        return Progress(
            number=self._number,
            name=self._name,
            kind=f"torch {self.compile_id}",
            state=self._state,
            stage=self._stages[-1] if self._stages else "dynamo",
            stages=len(set(self._stages)),
            elapsed_ns=int((self._before + self._latest - self._began) * 1e9),
            started_unix_ns=int(self._started * 1e9),
            error=self._error,
        )


def _stage_of(head: dict[str, Any]) -> str:
    """The stage that a line belongs to; "" if it belongs to no stage.

    >>> _stage_of({"aot_joint_graph": {}}), _stage_of({"artifact": {"name": "before_post_grad_graph"}}), _stage_of({})
    ('joint', 'before post-grad passes', '')
    """
    for kind, said in head.items():
        label = f"artifact/{said.get('name')}" if kind == "artifact" and isinstance(said, dict) else kind
        found = known.GRAPHS.get(label, (known.CODE.get(label, ""), ""))[0]
        if found:
            return found
    return ""
