"""The promise of the house: a new view is one folder, one line, one Python function, as the docs print them."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
from playwright.sync_api import Browser, expect

from aotviz.reading.recording import Recording
from aotviz.widgets import static_files
from aotviz.widgets.html import write_html
from tests.ui import puzzle
from tests.ui.fixture import ROOT

PAGE = ROOT / "docs" / "adding-a-view.md"
REGISTRY = "core/src/views/registry.ts"


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)


def copy_of_the_front_end(folder: Path) -> Path:
    """The sources of `extensions/`, with the packages that are installed there, and its own workspaces."""
    npm("--version", ROOT)  # installs the packages where they are not
    extensions = folder / "extensions"
    shutil.copytree(
        ROOT / "extensions", extensions, ignore=shutil.ignore_patterns("node_modules", "lib", "labextension")
    )
    shutil.copy(ROOT / "hatch_build.py", folder)
    packages = extensions / "node_modules"
    packages.mkdir()
    for package in (ROOT / "extensions" / "node_modules").iterdir():
        if package.name != "@aotviz":
            (packages / package.name).symlink_to(package)
    (packages / "@aotviz").mkdir()
    for workspace in extensions.iterdir():
        if (workspace / "package.json").exists() and workspace.name != "node_modules":
            (packages / "@aotviz" / workspace.name).symlink_to(workspace)
    return extensions


def npm(command: str, root: Path) -> None:
    done = subprocess.run(
        [sys.executable, root / "hatch_build.py", "npm", *command.split()], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_one_folder_and_one_line_make_a_view(
    browser: Browser, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, screenshots: Path
) -> None:
    view, registry = blocks("ts")
    extensions = copy_of_the_front_end(tmp_path)
    place = extensions / "core" / "src" / "views" / "operators"
    place.mkdir()
    (place / "index.ts").write_text(view, encoding="utf-8")
    imported, line = registry.strip().splitlines()
    text = (extensions / REGISTRY).read_text(encoding="utf-8")
    known = re.search(r"export const VIEWS.*", text)
    assert known is not None
    names = re.search(r"= \[(.*)\]", line)
    assert names is not None
    assert set(re.findall(r"\w+", known[0].split("=", 1)[1])) == set(re.findall(r"\w+", names[1])) - {"operators"}
    (extensions / REGISTRY).write_text(f"{imported}\n{text.replace(known[0], line)}", encoding="utf-8")

    npm("exec --offline -- tsc --noEmit -p tsconfig.json", tmp_path)
    npm("run build", tmp_path)
    built = tmp_path / "aotviz" / "widgets" / "static"
    monkeypatch.setattr(static_files, "read", lambda name: (built / name).read_bytes())
    recording = puzzle.recording()
    page = browser.new_page(viewport={"width": 1280, "height": 800}, offline=True)
    page.goto(write_html(recording, tmp_path / "page.html").as_uri())
    page.locator('.stage[data-stage="partition"]').click()
    page.locator('[role=tab][data-view="operators"]').click()
    expect(page.locator(".panel caption")).to_have_text("Operators of the forward graph")
    page.screenshot(path=screenshots / "added-view.png")
    shown = dict(
        zip(
            page.locator(".panel tbody th").all_inner_texts(),
            page.locator(".panel tbody td").all_inner_texts(),
            strict=True,
        )
    )
    page.close()

    (function,) = blocks("python")
    module = ModuleType("added")
    exec(compile("from __future__ import annotations\n" + function, str(PAGE), "exec"), module.__dict__)
    table = module.operators(Recording(recording.data)[0], "forward")
    assert shown == {row.operator: str(row.nodes) for row in table.itertuples()}
    assert len(shown) > 5
