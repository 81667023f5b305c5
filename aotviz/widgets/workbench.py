"""A recording as a notebook widget.

What is synced, and so saved in the notebook, is almost nothing: a 1.5 kB entry. The page asks for the rest by comm
message when it needs it: the viewer's bundles once per page, the recording when the widget is displayed, the editor
and graphviz when a view first needs them. A frontend that shows no widgets (nbconvert, GitHub, a terminal) gets the
summary of `summary.py` from the same output.
"""

from __future__ import annotations

from typing import Any, Protocol

import anywidget
import traitlets

from aotviz.recorder.events import RecordingData
from aotviz.widgets import static_files, summary

BUNDLES = ("core.js", "editor.js", "graphviz.js")


class HasRecording(Protocol):
    """What the views need of `aotviz.recorder.recording.Recording`."""

    @property
    def data(self) -> RecordingData: ...

    def to_bytes(self) -> bytes:
        """gzip of the msgpack of `data`, as in a file."""
        ...


class Workbench(anywidget.AnyWidget):
    """Shows a recording: its stages, and for each its code, diff, graph, aliasing, saved tensors and wrapper.

    Raises FrontEndMissing in a checkout whose front end is not built.
    """

    _esm = traitlets.Unicode().tag(sync=True)

    def __init__(self, recording: HasRecording, **traits: Any) -> None:
        self._recording = recording
        super().__init__(_esm=static_files.read("widget.js").decode(), **traits)
        self.on_msg(self._answer)

    def _answer(self, _widget: Any, message: Any, _buffers: Any) -> None:
        """Sends the bytes that the page asks for: {"ask": name, "question": id} -> {"answer": id} and one buffer."""
        if not isinstance(message, dict) or "ask" not in message:
            return
        reply = {"answer": message.get("question")}
        try:
            self.send(reply, buffers=[self._bytes_of(message["ask"])])
        except Exception as error:  # the page shows it; raised here it would end in a log that nobody reads
            self.send({**reply, "error": f"{type(error).__name__}: {error}"})

    def _bytes_of(self, name: object) -> bytes:
        if name == "recording":
            return self._recording.to_bytes()
        if name in BUNDLES:
            return static_files.read(f"{name}.gz")
        raise ValueError(f"the page asked for {name!r}, which is not one of recording, {', '.join(BUNDLES)}")

    def _repr_mimebundle_(self, **options: Any) -> tuple[dict[str, Any], dict[str, Any]] | None:
        """The widget, and a summary for frontends that show no widgets."""
        bundle = super()._repr_mimebundle_(**options)
        if bundle is None:
            return None
        data, metadata = bundle
        data["text/plain"] = summary.as_text(self._recording.data)
        data["text/html"] = summary.as_html(self._recording.data)
        return data, metadata
