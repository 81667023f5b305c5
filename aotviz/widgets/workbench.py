"""A recording as a notebook widget.

The synced state, which the notebook saves, is small: 1.5 kB. The page asks for everything else by comm message when it
needs it: the viewer's bundles once per page, an index of the recording when the widget is displayed, and each part
(parts.py) when the user first looks at it. When more is compiled, the kernel notifies the page once, and the page asks
for the index again. The selection is synced too, so that the same place is open after a reload.

A frontend that cannot show widgets (nbconvert, GitHub, a terminal) shows the summary (summary.py) from the same output.
The output also contains a copy of the recording, of at most 150 kB. Our JupyterLab extension shows the copy when the
kernel is gone (extensions/jupyterlab/src/outputs.ts), and `notebooks.py` makes a page from it. The selection is stored
in the output's metadata, first by Python and then by the extension.
"""

from __future__ import annotations

import base64
import os
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import anywidget
import traitlets

from aotviz.explain import answers
from aotviz.recording.holders import Recorded
from aotviz.widgets import packing, parts, replies, static_files, summary
from aotviz.widgets.replies import Answers, OnStage

if TYPE_CHECKING:
    import pandas as pd

KEPT = "application/vnd.aotviz.recording+gzip"  # base64; "" for a recording that is too large
AS_PAGE = (
    "<code>recording.to_html</code> and <code>jupyter nbconvert --to aotviz_html</code> write pages with the workbench."
)
TOO_LARGE = "The recording is too large to be stored in a notebook. <code>recording.to_html</code> writes it to a page."
BUNDLES = ("core.js", "editor.js", "graphviz.js")


def _is_what_if(data: Any) -> bool:
    return replies.is_what_if(data.get("content") if isinstance(data, dict) else None, "ask")


class Workbench(anywidget.AnyWidget):
    """Shows a recording: its stages, and for each its code, diff, graph, aliasing, saved tensors and wrapper.

    Raises FrontEndMissing in a checkout whose front end is not built.
    """

    _esm = traitlets.Unicode().tag(sync=True)
    bookmark = traitlets.Dict(traitlets.Unicode(), help="what is selected: names of compilation, stage, view, node")
    bookmark.tag(sync=True)
    painted = traitlets.Unicode(help='the paintings, for the notebook to keep: base64 of a PaintingsPart, or ""')
    painted.tag(sync=True)

    def __init__(self, recording: Recorded, **traits: Any) -> None:
        self._recording = recording
        self._process = os.getpid()
        self._stop: Callable[[], None] | None = None  # stops following the recording
        self._told = False  # whether the page has been notified since it last asked for the index
        super().__init__(_esm=static_files.read("widget.js").decode(), **traits)
        self._keep_paintings()
        replies.answer_where_asked(self.comm, _is_what_if)
        self._answers = Answers(self.send)
        self.on_msg(self._answer)

    def paint(self, values: pd.Series[Any] | Mapping[Any, Any], label: str | None = None, **options: Any) -> None:
        """Show values of nodes as colours of the graph, in this workbench and all others of the recording.

        The arguments and errors are those of `Recording.paint`. The painting is kept in the recording, and in the
        widget's state in the notebook.

        >>> import aotviz, pandas, torch
        >>> from aotviz.widgets.workbench import Workbench
        >>> f = aotviz.compile(lambda x: x.sin() + x.cos(), backend="eager")
        >>> _ = f(torch.ones(3))
        >>> workbench = Workbench(f.recording)
        >>> workbench.paint(pandas.Series({"sin": 4.2, "cos": 3.9}), "time", unit="µs")
        >>> len(f.recording.paintings)
        2
        """
        self.bookmark = {}  # so that the page opens at the painting
        self._recording.paint(values, label, **options)
        self._keep_paintings()

    def unpaint(self, label: str, compilation: str | int = 0) -> None:
        """Take a painting away. Raises LookupError, which lists the labels, if there is no such painting."""
        self._recording.unpaint(label, compilation)
        self._keep_paintings()

    def _keep_paintings(self) -> None:
        paintings = self._recording.rows[0].paintings
        packed = parts.pack(parts.PaintingsPart(paintings)) if paintings else b""
        self.painted = base64.b64encode(packed).decode()

    def _answer(self, _widget: Any, message: Any, _buffers: Any) -> None:
        """Send the bytes that the page asks for: {"ask": what, "question": id} -> {"answer": id} and one buffer.

        `what` is the name of a bundle, or a part of the recording (`parts.packed`). During a `what_if`,
        {"progress": id, "stage": name} is sent before each stage, and {"cancel": id} stops it before the next stage.
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
            self._keep_paintings()
        match what:
            case ["unpaint", str(compilation), str(label)]:
                self.unpaint(label, compilation)
                return b""
        return parts.packed(self._recording, what, on_stage)

    def _follow(self) -> None:
        """From now on, notify the page when the index that it has just asked for is out of date."""
        if self._stop is None:
            self._stop = self._recording.follow(self._changed)
        self._told = False

    def _changed(self) -> None:
        """Notify the page, but only once until it asks for the index again. Errors must not break a compilation."""
        if self._told or os.getpid() != self._process:
            return
        self._told = True
        try:
            self.send({"changed": True})
        except Exception:
            self._told = False

    def close(self) -> None:
        """Stop following the recording, and close the widget."""
        if self._stop is not None:
            self._stop()
            self._stop = None
        super().close()

    def _repr_mimebundle_(self, **options: Any) -> tuple[dict[str, Any], dict[str, Any]] | None:
        """The widget, a summary for frontends that cannot show widgets, and a copy of the recording."""
        bundle = super()._repr_mimebundle_(**options)
        if bundle is None:
            return None
        data, metadata = bundle
        recording = answers.for_page(self._recording, with_peaks=False)  # each cell that shows it comes here
        data["text/plain"] = summary.as_text(recording)
        data["text/html"] = summary.as_html(recording)
        if recording.compilations:
            data[KEPT] = kept = packing.kept(recording)
            data["text/html"] += f"<p>{AS_PAGE if kept else TOO_LARGE}</p>"
            if self.bookmark:
                metadata = {**metadata, KEPT: {"bookmark": self.bookmark}}
        return data, metadata
