"""A recording as one HTML file that opens anywhere, offline, and asks nothing of any server.

The file holds the viewer, and the recording (msgpack), the editor and graphviz, zipped and as base64 text. Its content
security policy allows the one script by its hash, what that makes of the file itself (the editor, workers), WebAssembly
inside them, and no connection at all. A name in the recording is never part of the markup: the head's title is escaped,
and all else stays base64 until the viewer has decoded and checked it.
"""

from __future__ import annotations

import base64
import html
import os
import re
from pathlib import Path

from aotviz.explain import page
from aotviz.recording.events import RecordingData
from aotviz.recording.recorded import Recorded
from aotviz.widgets import static_files, summary
from aotviz.widgets.packing import pack

GAPS = re.compile(r"\{\{(title|preamble|summary|recording)\}\}")  # of page.html, which extensions/page makes


def to_html(data: RecordingData, packed: bytes | None = None, preamble: str = "") -> str:
    """The page for a recording, with `preamble`, which is HTML, above the viewer.

    `packed` is what the page holds: gzip of the msgpack of `data`, made here if None. Raises FrontEndMissing.
    """
    return _filled("page.html", data, packed, preamble)


def to_served_html(data: RecordingData) -> str:
    """The page for a recording whose server has "editor.js" and "graphviz.js" beside it. Raises FrontEndMissing."""
    return _filled("served.html", data, None, "")


def _filled(name: str, data: RecordingData, packed: bytes | None, preamble: str) -> str:
    parts = {
        "title": html.escape(summary.title(data)),
        "preamble": preamble,
        "summary": summary.as_html(data),
        "recording": base64.b64encode(pack(data) if packed is None else packed).decode(),
    }
    return GAPS.sub(lambda gap: parts[gap[1]], static_files.read(name).decode())


def write_html(recording: Recorded, path: str | os.PathLike[str]) -> Path:
    """Writes the page, explanations first, and returns its path. Raises FrontEndMissing, OSError."""
    target = Path(path)
    target.write_text(to_html(recording.data, preamble=page.preamble(recording)), encoding="utf-8", newline="\n")
    return target
