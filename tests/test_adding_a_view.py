"""A new view is one folder, one line and one function: all as docs/adding-a-view.md prints them.

tests/ui/test_adding_a_view.py builds the same view and opens it in a browser.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch

import aotviz
from tests import added_view
from tests.added_view import PAGE, REGISTRY, ROOT, TEST, VIEW
from tests.ui import views

SOURCES = ROOT / "extensions" / "core" / "src"


@pytest.fixture(scope="module")
def front_end(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("added view")
    added_view.put_into(folder)
    return folder


def test_the_line_of_the_page_is_the_registrys_with_one_view_more() -> None:
    now = views.listed(views.REGISTRY.read_text(encoding="utf-8"))
    assert set(views.listed(added_view.blocks("ts")[1])) == {*now, "operators"}


@pytest.mark.slow
def test_the_view_and_its_test_have_the_right_types_and_make_no_circle(front_end: Path) -> None:
    added_view.npm("run check", front_end)


def test_the_view_and_its_test_are_formatted(front_end: Path) -> None:
    files = " ".join(path.removeprefix("extensions/") for path in (VIEW, TEST))
    added_view.npm(f"exec --offline -- prettier --check {files}", front_end)


def test_the_pages_test_of_the_view_passes(front_end: Path) -> None:
    added_view.npm(f"exec --offline -- vitest run {TEST.removeprefix('extensions/')}", front_end)


def test_the_table_of_the_page_counts_the_operators_and_their_bytes() -> None:
    compiled = aotviz.compile(lambda x, w: ((x @ w).sin() @ w).sum(), backend="eager")
    compiled(torch.ones(2, 4), torch.ones(4, 4, requires_grad=True))
    table = added_view.operators_of(compiled.recording[0].graph("forward")).set_index("operator")
    assert table.nodes.iloc[0] == table.nodes.max()
    assert table.loc["aten.mm.default"].to_dict() == {"nodes": 2, "bytes": 2 * 2 * 4 * 4}


def test_every_helper_that_the_page_lists_is_exported() -> None:
    rows = re.findall(r"^\| `(\.\./\S+)` \| (.*) \|$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert len(rows) == 5
    for module, said in rows:
        source = (SOURCES / "views" / "operators" / f"{module}.ts").resolve().read_text(encoding="utf-8")
        for name in re.findall(r"`(\w+)(?:\([^`]*\))?`", said):
            if name not in ("title", "kind", "term", "hint", "order", "code", "onRow", "selected", "cell"):
                assert re.search(rf"^export (?:function|const) {name}\b", source, re.MULTILINE), (module, name)


def test_the_paths_that_the_page_names_exist() -> None:
    page = PAGE.read_text(encoding="utf-8")
    named = set(re.findall(r"`((?:extensions|aotviz|tests)/[\w./]+\.(?:ts|py))`", page)) - {VIEW, TEST}
    assert REGISTRY in named
    assert [path for path in sorted(named) if not (ROOT / path).exists()] == []
