"""Each page of docs/ whose Python runs is a notebook on the site: valid, running, with a workbench at its end."""

from __future__ import annotations

import doctest
import json
import multiprocessing
import os
import re
import sys
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import nbformat
import pytest
from nbformat import NotebookNode

from tests import page_examples, stored_notebooks
from tests.test_notebooks import WORKBENCH
from tests.tiers import slow

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
sys.path.append(str(DOCS / "site"))  # in processes that are started from here, too

import page_notebooks  # noqa: E402
import page_runs  # noqa: E402
from page_runs import Run, Shown  # noqa: E402

PAGES = [
    path
    for path in sorted(DOCS.glob("*.md"))
    if not path.stem.startswith("adding-")  # their Python is parts of aotviz
    and any(page_runs.can_run(*block) for block in page_examples.blocks(path.read_text(encoding="utf-8")))
]
IN_A_KERNEL = [path if path.stem == "backward" else slow(path) for path in PAGES]
FAILED = {  # blocks that stay a text although each name in them is known, and why
    "backward": {3: "TypeError"},  # `compiled(x, w)`, and the example above it compiles a function of `x`
    "cache-misses": {0: "RecordingError"},  # it reads logs of the reader's
    "traces": {1: "RecordingError", 3: "RecordingError", 4: "RecordingError"},
}
WITHOUT_RECORDING = {"cache-misses", "glossary", "parity", "refusals", "teaching", "traces"}
ABRIDGED = re.compile(r"(?<= )\.\.\.(?= )|\[\d+ rows x \d+ columns\]")  # marks of a table whose columns are left out
PAGE = """\
# A page

See [another](other.md#part), [the web](https://pytorch.org) and ![a picture](images/one.png).

```python
import torch, aotviz

compiled = aotviz.compile(lambda x: x.sin(), backend="eager")
compiled(batch)
print(torch.ones(1).item())
```

```text
1.0
```

## Pieces

```python
model(batch, 3)[7]
```

```python
compiled = something_else
```

```sh
aotviz show [x](y.md)
```
"""


def run_alone(page: str, target: Path) -> Run:
    """As the site runs it: in a process that has run nothing."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        return pool.submit(page_runs.run_page, page, target).result()


def notebook_of(page: str, name: str, run: Run, folder: Path = DOCS) -> NotebookNode:
    text = page_notebooks.as_notebook(page, name, run, folder, "1.0")
    nbformat.validate(json.loads(text))
    return nbformat.reads(text, as_version=4)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return run_alone(PAGE, tmp_path_factory.mktemp("run") / "page.html")


@pytest.fixture
def notebook(run: Run, tmp_path: Path) -> NotebookNode:
    (tmp_path / "images").mkdir()
    (tmp_path / "images" / "one.png").write_bytes(b"a picture")
    return notebook_of(PAGE, "page", run, tmp_path)


@pytest.mark.parametrize("module", [page_examples, page_runs], ids=lambda module: module.__name__)
def test_the_examples_of_the_site_hold(module: object) -> None:
    tried = doctest.testmod(module)  # type: ignore[arg-type]
    assert tried.failed == 0
    assert tried.attempted > 1


def test_a_block_runs_with_stand_ins_for_names_that_the_page_does_not_define(run: Run) -> None:
    assert [*run.cells] == [0], "the second fails, the third uses a name that nothing defines"
    assert re.findall(r"^(\w+) =|^import (\w+)", run.cells[0], re.MULTILINE) == [("", "torch"), ("batch", "")]
    assert run.failed == {2: "TypeError"}


def test_the_last_recording_that_a_page_assigns_is_shown(run: Run) -> None:
    assert run.shown == Shown("compiled.recording", "A page")


def test_a_block_that_prints_what_the_page_says_must_run(tmp_path: Path) -> None:
    page = "# Title\n\n```python\nprint(1 / 0)\n```\n\n```text\n0\n```\n"
    with pytest.raises(ZeroDivisionError):
        page_runs.run_blocks(page, page_examples.fresh())


def test_a_block_that_fails_leaves_no_names() -> None:
    names = page_examples.fresh()
    page = "# Title\n\n```python\nx = 1\nx.no\n```\n\n```python\ny = 2\n```\n"
    assert page_runs.run_blocks(page, names) == ({1: ""}, {0: "AttributeError"})
    assert "x" not in names


def test_a_notebook_has_the_text_of_the_page_its_cells_and_what_they_print(notebook: NotebookNode) -> None:
    kinds = [cell.cell_type for cell in notebook.cells]
    assert kinds == ["markdown", "code", "code", "markdown", "markdown", "code"]
    title, stand_ins, example, pieces, last, workbench = notebook.cells
    assert title.source.startswith("# A page\n\n*This notebook is the page `docs/page.md` of aotviz 1.0.")
    assert stand_ins.source.startswith(page_notebooks.STAND_IN)
    assert example.source + "\n" == page_examples.blocks(PAGE)[0][1]
    assert [output.text for output in example.outputs] == ["1.0\n"]
    assert pieces.source == PAGE[PAGE.index("## Pieces") :].strip()
    assert last.source.startswith("## What this page records")
    assert workbench.source == "compiled.recording"


def test_a_notebook_can_be_read_where_the_site_is_not(notebook: NotebookNode) -> None:
    """But for what stands in a block, such as the command at the end of the page."""
    title = notebook.cells[0]
    assert "See another, [the web](https://pytorch.org) and ![a picture](attachment:one.png)." in title.source
    assert [*title.attachments] == ["one.png"]


def test_each_stand_in_is_used_by_a_page_or_by_another_stand_in() -> None:
    statements = page_runs.stand_ins()
    blocks = [block for path in PAGES for block in page_examples.blocks(path.read_text(encoding="utf-8"))]
    sources = [code for language, code in blocks if page_runs.can_run(language, code)] + [*statements.values()]
    assert {*statements} <= {name for source in sources for name in page_runs.used(source)}


@pytest.mark.parametrize("path", IN_A_KERNEL, ids=lambda path: path.stem)
def test_the_notebook_of_a_page_runs_and_shows_its_workbench(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = path.read_text(encoding="utf-8")
    run = run_alone(page, tmp_path / "page.html")
    assert run.failed == FAILED.get(path.stem, {})
    assert (run.shown is None) == (path.stem in WITHOUT_RECORDING) == (not (tmp_path / "page.html").exists())
    for variable in ("JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR", "IPYTHONDIR"):
        monkeypatch.setenv(variable, str(tmp_path / variable.lower()))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")])))
    notebook = notebook_of(page, path.stem, run)
    said = {cell.id: printed(cell) for cell in notebook.cells if cell.get("outputs")}
    assert len(said) == len(page_examples.printing(page))
    stored_notebooks.run(notebook, tmp_path)
    for cell in notebook.cells:
        if ABRIDGED.search(text := said.get(cell.id, "")):  # columns that a kernel prints
            assert {*ABRIDGED.sub("", text).split()} <= {*printed(cell).split()}
        elif text:
            assert printed(cell) == text
    if run.shown:
        assert WORKBENCH in notebook.cells[-1].outputs[-1].data


def printed(cell: NotebookNode) -> str:
    """What a cell prints, without what only a cell has: its file, and the lines of code that comments quote."""
    text = "".join(output.text for output in cell.outputs if output.get("name") == "stdout")
    text = stored_notebooks.settled(text).replace(page_examples.FILE, "cell.py")
    text = re.sub(r"(# cell\.py:\d+ in \S+): .*", r"\1", text)
    return " ".join(re.sub(r"(?m)^ +# (?!cell\.py).*\n", "", text).split())
