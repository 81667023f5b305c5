"""A recording as one HTML file that opens anywhere, offline, and asks nothing of any server.

The file holds the viewer, the recording (zipped msgpack, as in a saved file) and graphviz (zipped), both as base64
text. Its content security policy allows the one script by its hash, workers made from the file itself, WebAssembly
inside them, and no connection at all. A name in the recording is never part of the markup: the head's title is
escaped, and all else stays base64 until the viewer has decoded and checked it.
"""

from __future__ import annotations

import base64
import hashlib
import html
import os
from pathlib import Path
from string import Template

from aotviz.explain import page
from aotviz.recorder.events import RecordingData
from aotviz.recorder.recording import Recording
from aotviz.widgets import static_files, summary
from aotviz.widgets.workbench import HasRecording

PAGE = Template("""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="$policy">
<meta name="color-scheme" content="light dark">
<title>$title</title>
<style>
html, body { height: 100%; margin: 0; }
body { font: 14px/1.5 system-ui, sans-serif; }
#workbench { height: 100%; --aotviz-height: 100vh; --aotviz-border: 0; --aotviz-radius: 0; --aotviz-resize: none; }
#workbench:empty::after, noscript { display: block; padding: 2rem; }
</style>
</head>
<body>
$preamble
<main id="workbench"></main>
<noscript><p>This recording is shown by a script in this file. Allow scripts for it, or load it in Python with
<code>aotviz.load</code>.</p>$summary</noscript>
<script type="text/plain" id="recording">$recording</script>
<script type="text/plain" id="graphviz">$graphviz</script>
<script>$script</script>
</body>
</html>
""")


def policy(script: str) -> str:
    """The page's content security policy: this script, its own workers, WebAssembly; no connections, no frames."""
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return "; ".join(
        [
            "default-src 'none'",
            f"script-src 'sha256-{digest}' 'wasm-unsafe-eval'",
            "worker-src blob:",
            "style-src 'unsafe-inline'",
            "base-uri 'none'",
            "form-action 'none'",
        ]
    )


def to_html(data: RecordingData, packed: bytes, preamble: str = "") -> str:
    """The page for a recording; `packed` is gzip of the msgpack of `data`, `preamble` HTML to stand above the viewer.

    Raises FrontEndMissing.
    """
    script = static_files.read("page.js").decode().replace("</script", "<\\/script").strip()
    return PAGE.substitute(
        policy=policy(script),
        title=html.escape(summary.title(data)),
        preamble=preamble,
        summary=summary.as_html(data),
        recording=base64.b64encode(packed).decode(),
        graphviz=base64.b64encode(static_files.read("graphviz.js.gz")).decode(),
        script=script,
    )


def write_html(recording: HasRecording, path: str | os.PathLike[str]) -> Path:
    """Writes the page, explanations first, and returns its path. Raises FrontEndMissing, OSError."""
    target = Path(path)
    above = page.preamble(recording) if isinstance(recording, Recording) else ""
    target.write_text(to_html(recording.data, recording.to_bytes(), above), encoding="utf-8", newline="\n")
    return target
