"""The ids of the views that every compilation has, in the order of their tabs. They come from the registry, so that a
new view is in every test that goes through all views."""

from __future__ import annotations

import re

from playwright.sync_api import FrameLocator, Locator, Page

from tests.ui.fixture import ROOT

FOLDER = ROOT / "extensions" / "core" / "src" / "views"
REGISTRY = FOLDER / "registry.ts"
LINE = re.compile(r"^export const VIEWS: readonly View\[\] = \[([\w,\s]+)\];$", re.MULTILINE)


def listed(source: str) -> tuple[str, ...]:
    """The views in the line `export const VIEWS ...` of a text."""
    line = LINE.search(source)
    assert line is not None, "the registry has no line `export const VIEWS ...`"
    return tuple(re.findall(r"\w+", line[1]))


def is_of_a_kind(view: str) -> bool:
    """Whether a view is only for compilations of some kind; then its own tests open it."""
    return "\n  applies:" in (FOLDER / view / "index.ts").read_text(encoding="utf-8")


VIEWS = tuple(view for view in listed(REGISTRY.read_text(encoding="utf-8")) if not is_of_a_kind(view))


def code_of(bench: Page | Locator | FrameLocator) -> Locator:
    """The code of the selected stage, which is a tab beside the overview."""
    bench.locator("[role=tab][data-view=code]").click(timeout=90_000)
    return bench.locator(".cm-content")
