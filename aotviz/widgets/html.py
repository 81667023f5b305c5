"""A recording as one HTML file that works offline and makes no requests to any server.

The file contains the viewer as a script, and the recording (msgpack), the editor and graphviz as gzip in base64. Its
content security policy allows that one script by its hash, the scripts and workers that it creates from the file's
content, WebAssembly in them, and no connections. Names in the recording cannot become markup: the title, the summary
and the explanations are escaped, and everything else stays base64 until the viewer has decoded and checked it.
"""

from __future__ import annotations

import base64
import html
import os
import re
from pathlib import Path

from aotviz.explain import answers, page
from aotviz.recording.holders import Recorded
from aotviz.recording.schema import RecordingData
from aotviz.widgets import static_files, summary
from aotviz.widgets.packing import pack

GAPS = re.compile(r"\{\{(title|preamble|summary|recording)\}\}")  # placeholders in page.html (extensions/page)
DROPPED = "dropped"  # in place of a recording: see extensions/page/src/index.ts


def to_html(data: RecordingData, packed: bytes | None = None, preamble: str = "") -> str:
    """The page for a recording. `preamble` is HTML to show above the viewer.

    `packed` is the recording to embed, as `packing.pack` returns it; None means to pack `data`. Raises FrontEndMissing.
    """
    return _filled("page.html", data, packed, preamble)


def to_served_html(data: RecordingData) -> str:
    """The page for a server that also serves "editor.js" and "graphviz.js" next to it. Raises FrontEndMissing."""
    return _filled("served.html", data, None, "")


def empty_page() -> str:
    """The page without a recording: it opens a file of `save` or `to_html` that a reader drops on it. As every page, it
    makes no connections, so the file stays on the reader's machine. Raises FrontEndMissing.

    >>> 'id="aotviz-recording">dropped</script>' in empty_page()
    True
    """
    parts = {"title": "Open a recording · aotviz", "preamble": "", "summary": "", "recording": DROPPED}
    return GAPS.sub(lambda gap: parts[gap[1]], static_files.read("page.html").decode())


def _filled(name: str, data: RecordingData, packed: bytes | None, preamble: str) -> str:
    parts = {
        "title": html.escape(summary.title(data)),
        "preamble": preamble,
        "summary": summary.as_html(data),
        "recording": base64.b64encode(pack(data) if packed is None else packed).decode(),
    }
    return GAPS.sub(lambda gap: parts[gap[1]], static_files.read(name).decode())


def write_html(recording: Recorded, path: str | os.PathLike[str]) -> Path:
    """Write the page, with explanations above the viewer, and return its path. Raises FrontEndMissing, OSError."""
    target = Path(path)
    facts = answers.facts_of(recording)
    data = answers.for_page(recording, facts)
    target.write_text(to_html(data, preamble=page.preamble(recording, facts)), encoding="utf-8", newline="\n")
    return target
