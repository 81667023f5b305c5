"""A recording as one HTML file that opens anywhere, offline, and asks nothing of any server.

The file holds the viewer, the recording (msgpack) and graphviz, zipped and as base64 text. Its content security policy
allows the one script by its hash, what that makes of the file itself (the viewer, workers), WebAssembly inside them,
and no connection at all. A name in the recording is never part of the markup: the head's title is escaped, and all
else stays base64 until the viewer has decoded and checked it.
"""

from __future__ import annotations

import base64
import gzip
import html
import os
import re
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import msgspec
from msgspec.structs import replace

from aotviz.explain import page
from aotviz.recorder.events import CompilationData, RecordingData
from aotviz.recorder.recording import Recording
from aotviz.widgets import static_files, summary
from aotviz.widgets.workbench import HasRecording

DIFFERENCES = ("name", "value", "sequence")  # columns of a graph that are written so; those of deltas.ts
GAPS = re.compile(r"\{\{(title|preamble|summary|recording)\}\}")  # of page.html, which extensions/page makes


def to_html(data: RecordingData, packed: bytes | None = None, preamble: str = "") -> str:
    """The page for a recording, with `preamble`, which is HTML, above the viewer.

    `packed` is what the page holds: gzip of the msgpack of `data`, made here if None. Raises FrontEndMissing.
    """
    parts = {
        "title": html.escape(summary.title(data)),
        "preamble": preamble,
        "summary": summary.as_html(data),
        "recording": base64.b64encode(pack(data) if packed is None else packed).decode(),
    }
    return GAPS.sub(lambda gap: parts[gap[1]], static_files.read("page.html").decode())


def pack(data: RecordingData) -> bytes:
    """A recording for a page: as in a file, but half as large, with its long columns as differences."""

    def smaller(compilation: CompilationData) -> CompilationData:
        graphs = [
            replace(graph, **{name: differences(getattr(graph, name)) for name in DIFFERENCES})
            for graph in compilation.graphs
        ]
        return replace(compilation, graphs=graphs)

    fields = {name: getattr(data, name) for name in data.__struct_fields__}
    tree = {**fields, "compilations": [smaller(one) for one in data.compilations], "deltas": True}
    return gzip.compress(msgspec.msgpack.encode(tree), 9, mtime=0)


def differences(column: Sequence[int]) -> list[int]:
    """E.g. 5, 6, 7 -> 5, 1, 1."""
    return [after - before for before, after in pairwise([0, *column])]


def write_html(recording: HasRecording, path: str | os.PathLike[str]) -> Path:
    """Writes the page, explanations first, and returns its path. Raises FrontEndMissing, OSError."""
    target = Path(path)
    above = page.preamble(recording) if isinstance(recording, Recording) else ""
    target.write_text(to_html(recording.data, preamble=above), encoding="utf-8", newline="\n")
    return target
