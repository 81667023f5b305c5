"""A recording as a notebook widget.

What is synced, and so saved in the notebook, is almost nothing: a 1.5 kB entry. The page asks for the rest by comm
message when it needs it: the viewer's bundles once per page, an index of the recording when the widget is displayed,
and each part of it (parts.py) when it is first looked at. When more is compiled, the page is told so, once, and asks
for the index again; nothing is asked of a recording that does not change. What is selected is synced too, so that the
same place is open when the page is loaded again. A frontend that shows no widgets (nbconvert, GitHub, a terminal) gets
the summary of `summary.py` from the same output. Beside it the output keeps the recording as it is then, in 150 kB:
our JupyterLab extension shows that where the kernel is gone (extensions/jupyterlab/src/outputs.ts), and `notebooks.py`
makes a page of it. What is selected is kept in the output's metadata, by Python at first, then by the extension.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from typing import Any

import anywidget
import traitlets

from aotviz.recording.recorded import Recorded
from aotviz.widgets import packing, parts, static_files, subshells, summary
from aotviz.widgets.replies import Answers, OnStage

KEPT = "application/vnd.aotviz.recording+gzip"  # base64; "" for a recording that is too large
AS_PAGE = "With the workbench: <code>jupyter nbconvert --to aotviz_html</code>, or <code>recording.to_html</code>."
TOO_LARGE = "The recording is too large to be stored in a notebook. <code>recording.to_html</code> writes it to a page."
BUNDLES = ("core.js", "editor.js", "graphviz.js")


def _is_what_if(data: Any) -> bool:
    return subshells.is_what_if(data.get("content") if isinstance(data, dict) else None, "ask")


class Workbench(anywidget.AnyWidget):
    """Shows a recording: its stages, and for each its code, diff, graph, aliasing, saved tensors and wrapper.

    Raises FrontEndMissing in a checkout whose front end is not built.
    """

    _esm = traitlets.Unicode().tag(sync=True)
    bookmark = traitlets.Dict(traitlets.Unicode(), help="what is selected: names of compilation, stage, view, node")
    bookmark.tag(sync=True)

    def __init__(self, recording: Recorded, **traits: Any) -> None:
        self._recording = recording
        self._process = os.getpid()
        self._stop: Callable[[], None] | None = None  # ends the following of the recording
        self._told = False  # that there is more than in the index that the page has
        super().__init__(_esm=static_files.read("widget.js").decode(), **traits)
        subshells.answer_where_asked(self.comm, _is_what_if)
        self._answers = Answers(self.send)
        self.on_msg(self._answer)

    def _answer(self, _widget: Any, message: Any, _buffers: Any) -> None:
        """Sends the bytes that the page asks for: {"ask": what, "question": id} -> {"answer": id} and one buffer.

        `what` is the name of a bundle, or a part of the recording (`parts.packed`). While another cut is made
        {"progress": id, "stage": name} is sent before each stage; {"cancel": id} ends it before the next.
        """
        if not isinstance(message, dict):
            return
        if "cancel" in message:
            self._answers.cancel(message["cancel"])
        if "ask" in message:
            self._answers.answer(message.get("question"), partial(self._bytes_of, message["ask"]))

    def _bytes_of(self, what: object, on_stage: OnStage | None = None) -> bytes:
        if isinstance(what, str) and what in BUNDLES:
            return static_files.read(f"{what}.gz")
        if what == ["alive"]:
            return b""
        if what == ["index"]:
            self._follow()
        return parts.packed(self._recording, what, on_stage)

    def _follow(self) -> None:
        """From here on the page is told when what it has is no longer all."""
        if self._stop is None:
            self._stop = self._recording.follow(self._changed)
        self._told = False

    def _changed(self) -> None:
        """Says so once, until the page has asked for the index again. No page is worth an error in a compilation."""
        if self._told or os.getpid() != self._process:
            return
        self._told = True
        try:
            self.send({"changed": True})
        except Exception:
            self._told = False

    def close(self) -> None:
        """The page is told of nothing any more."""
        if self._stop is not None:
            self._stop()
            self._stop = None
        super().close()

    def _repr_mimebundle_(self, **options: Any) -> tuple[dict[str, Any], dict[str, Any]] | None:
        """The widget, and a summary for frontends that show no widgets."""
        bundle = super()._repr_mimebundle_(**options)
        if bundle is None:
            return None
        data, metadata = bundle
        recording = self._recording.data
        data["text/plain"] = summary.as_text(recording)
        data["text/html"] = summary.as_html(recording)
        if recording.compilations:
            data[KEPT] = kept = packing.kept(recording)
            data["text/html"] += f"<p>{AS_PAGE if kept else TOO_LARGE}</p>"
            if self.bookmark:
                metadata = {**metadata, KEPT: {"bookmark": self.bookmark}}
        return data, metadata
