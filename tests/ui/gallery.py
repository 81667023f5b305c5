"""The recordings of docs/gallery.md as pages: the site (`make docs`) opens each below its picture.

They are made when the site is built, by the functions that `make images` photographs, so the page shows what the
picture shows. Folders of the machine that builds the site are cut from all texts.
"""

from __future__ import annotations

import functools
import os
import sysconfig
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlencode

import msgspec

from aotviz.recording.holders import Recorded
from aotviz.recording.schema import RecordingData
from aotviz.widgets.html import write_html
from tests.explain import logs
from tests.ui import images, puzzle
from tests.ui.fixture import ROOT, FixtureRecording


@dataclass(frozen=True)
class Live:
    """A picture's recording, and the place at which its page opens; no view stands for the overview."""

    page: str
    view: str = ""
    stage: str = ""
    role: str = ""

    @property
    def address(self) -> str:
        """Of the page, in the folder of the pages."""
        chosen = {name: value for name, value in vars(self).items() if value and name != "page"}
        return f"{self.page}.html" + (f"#{urlencode(chosen)}" if chosen else "")


def log(*names: str) -> Callable[[], FixtureRecording]:
    """Logs of the corpus, read."""
    return lambda: FixtureRecording(logs.recording(*names).data)


RECORDINGS: dict[str, Callable[[], FixtureRecording]] = {  # a page each
    "puzzle": puzzle.recording,
    "gpt2": images.gpt2,
    "wrong-compiler": images.wrong,
    "input-sets": images.compared,
    "whole-backward": images.backward,
    "recompiles": log("recompile_limit"),
    "cache-miss": log("cache_type_first", "cache_type_second"),
    "diverging-ranks": log("ranks_diverge"),
}
PICTURES = {  # of the gallery, without ".png"
    "puzzle-aliasing-light": Live("puzzle", "aliasing", "metadata"),
    "gpt2-graph-light": Live("gpt2", "graph", "trace"),
    "gpt2-code-light": Live("gpt2", "code", "partition", "backward"),
    "gpt2-diff-light": Live("gpt2", "diff", "partition", "forward"),
    "errors-light": Live("wrong-compiler"),
    "input-sets-light": Live("input-sets"),
    "gpt2-saved-light": Live("gpt2", "saved", "partition"),
    "whole-backward-light": Live("whole-backward", "backward", "capture"),
    "puzzle-wrapper-light": Live("puzzle", "wrapper", "link"),
    "logs-recompile-limit": Live("recompiles"),
    "logs-cache-miss": Live("cache-miss"),
    "logs-ranks-diverge": Live("diverging-ranks", "records"),
}


@functools.cache
def machine_folders() -> tuple[str, ...]:
    """What a text of a recording begins a path with that is of this machine: packages first, as they may be inside."""
    return tuple(f"{path}/" for path in (sysconfig.get_path("purelib"), sysconfig.get_path("stdlib"), ROOT))


def without_machine(recording: Recorded, *more: str) -> FixtureRecording:
    """The recording with paths that begin at a package, at the checkout or at one of `more`."""
    text = msgspec.json.encode(recording.data).decode()
    for folder in (*more, *machine_folders()):
        text = text.replace(folder, "")
    return FixtureRecording(msgspec.json.decode(text, type=RecordingData))


def write(folder: Path) -> None:
    """Write all pages."""
    folder.mkdir(parents=True, exist_ok=True)
    os.environ["AOTVIZ_CACHE_DIR"] = "off"  # the pages are not of what this machine's cache knows
    for name, recording in RECORDINGS.items():
        write_html(without_machine(recording()), folder / f"{name}.html")
