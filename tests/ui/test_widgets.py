"""The Python side of the front end, without a browser."""

from __future__ import annotations

import gzip
import re
import subprocess
import sys
from typing import Any

import msgspec
import pytest

from aotviz.recorder.events import RecordingData
from aotviz.widgets import summary
from aotviz.widgets.html import to_html
from aotviz.widgets.workbench import Workbench
from tests.ui.fixture import MARKUP, ROOT, TARGET, recording


def test_the_typescript_types_are_those_of_events_py() -> None:
    generator = ROOT / "extensions" / "core" / "generate_types.py"
    result = subprocess.run([sys.executable, generator, "--check"], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr


def test_the_fixture_of_the_typescript_tests_is_current() -> None:
    kept = msgspec.msgpack.decode(gzip.decompress(TARGET.read_bytes()), type=RecordingData)
    assert kept == recording().data, "run python -m tests.ui.fixture"


def test_the_widgets_import_no_torch() -> None:
    code = "import sys, aotviz.widgets.html, aotviz.widgets.workbench; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT)


class Sent:
    """A workbench whose messages are kept instead of sent."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.messages: list[tuple[dict[str, Any], list[bytes]]] = []
        monkeypatch.setattr(
            Workbench, "send", lambda _, content, buffers=None: self.messages.append((content, buffers or []))
        )


def test_the_kernel_answers_with_the_bytes_that_the_page_asks_for(monkeypatch: pytest.MonkeyPatch) -> None:
    sent = Sent(monkeypatch)
    widget = Workbench(recording())
    for name in ("recording", "core.js", "editor.js", "graphviz.js"):
        widget._answer(widget, {"ask": name, "question": f"q {name}"}, [])
        content, buffers = sent.messages[-1]
        assert content == {"answer": f"q {name}"}
        assert buffers[0][:2] == b"\x1f\x8b"
    assert sent.messages[0][1][0] == recording().to_bytes()


@pytest.mark.parametrize("ask", ["../html.py", "page.js", 7, None])
def test_the_kernel_gives_nothing_else(ask: object, monkeypatch: pytest.MonkeyPatch) -> None:
    sent = Sent(monkeypatch)
    widget = Workbench(recording())
    widget._answer(widget, {"ask": ask, "question": "q"}, [])
    content, buffers = sent.messages[-1]
    assert "which is not one of recording, core.js" in content["error"]
    assert buffers == []


def test_what_is_synced_stays_small() -> None:
    state = Workbench(recording()).get_state()
    assert len(state["_esm"]) < 4000
    assert "compilations" not in str(state)


def test_a_frontend_without_widgets_gets_a_summary() -> None:
    bundle = Workbench(recording())._repr_mimebundle_()
    assert bundle is not None
    data = bundle[0]
    assert re.search(r"(?m)^  partition +9\.12  forward 24, backward 32  Cut into", data["text/plain"])
    assert "<td>partition</td>" in data["text/html"]
    assert MARKUP not in data["text/html"]
    assert "&lt;img src=x" in data["text/html"]


def test_the_page_is_closed_to_the_network_and_holds_no_name_as_markup() -> None:
    page = to_html(recording().data, recording().to_bytes())
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', page)
    assert policy is not None
    assert policy[1].startswith("default-src 'none'; script-src 'sha256-")
    assert "unsafe-eval" not in policy[1].replace("wasm-unsafe-eval", "")
    assert MARKUP not in page
    assert not re.search(r'(?:src|href)="', page)


def test_an_empty_recording_has_a_summary() -> None:
    empty = msgspec.structs.replace(recording().data, compilations=[])
    assert summary.as_text(empty) == "aotviz recording: nothing was compiled"
    assert "nothing was compiled" in summary.as_html(empty)
    assert summary.title(empty) == "empty recording · aotviz"
