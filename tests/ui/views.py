"""The ids of the workbench's views in the order of their tabs. They come from the registry, so that a new view is in
every test that goes through all views."""

from __future__ import annotations

import re

from tests.ui.fixture import ROOT

REGISTRY = ROOT / "extensions" / "core" / "src" / "views" / "registry.ts"
LINE = re.compile(r"^export const VIEWS: readonly View\[\] = \[([\w,\s]+)\];$", re.MULTILINE)


def listed(source: str) -> tuple[str, ...]:
    """The views in the line `export const VIEWS ...` of a text."""
    line = LINE.search(source)
    assert line is not None, "the registry has no line `export const VIEWS ...`"
    return tuple(re.findall(r"\w+", line[1]))


VIEWS = listed(REGISTRY.read_text(encoding="utf-8"))
