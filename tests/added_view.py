"""The view of docs/adding-a-view.md, put into a copy of the front end exactly as the page prints it."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pandas as pd

from aotviz.recording import graph

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "adding-a-view.md"
REGISTRY = "extensions/core/src/views/registry.ts"
VIEW = "extensions/core/src/views/operators/index.ts"
TEST = "extensions/core/test/operators.test.ts"


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)


def npm(command: str, root: Path) -> None:
    """Run npm in `root`/extensions. Raises AssertionError with what it printed."""
    done = subprocess.run(
        [sys.executable, root / "hatch_build.py", "npm", *command.split()], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def copy_of_the_front_end(folder: Path) -> None:
    """The sources of `extensions/` in `folder`, with the installed packages as links, and the copy's own workspaces."""
    npm("--version", ROOT)  # installs the packages where they are not
    extensions = folder / "extensions"
    left_out = shutil.ignore_patterns("node_modules", "lib", "labextension")
    shutil.copytree(ROOT / "extensions", extensions, ignore=left_out)
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


def put_into(folder: Path) -> None:
    """A copy of the front end with the page's view, its line of the registry, and its test."""
    copy_of_the_front_end(folder)
    view, registry, test = blocks("ts")
    for path, text in ((VIEW, view), (TEST, test)):
        (folder / path).parent.mkdir(exist_ok=True)
        (folder / path).write_text(text, encoding="utf-8")
    imported, line = registry.strip().split("\n", 1)
    text = (folder / REGISTRY).read_text(encoding="utf-8")
    known = re.search(r"export const VIEWS.*?;", text, re.DOTALL)
    assert known is not None
    (folder / REGISTRY).write_text(f"{imported}\n{text.replace(known[0], line)}", encoding="utf-8")


def property_of_graph() -> property:
    """The page's Python: the property, which calls the function."""
    function, given = blocks("python")
    tables = ModuleType("tables")
    for text, names in ((function, vars(tables)), (textwrap.dedent(given), {"tables": tables})):
        exec(compile(f"from __future__ import annotations\n{text}", str(PAGE), "exec"), names)
    made = names["operators"]
    assert isinstance(made, property)
    return made


def operators_of(of: graph.Graph) -> pd.DataFrame:
    """What the page's property returns for a graph."""
    read: Callable[[graph.Graph], pd.DataFrame] | None = property_of_graph().fget
    assert read is not None
    return read(of)
