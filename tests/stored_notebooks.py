"""Run notebooks and store their outputs, so that a code host shows them: `python -m tests.stored_notebooks [FILE ...]`.

Without files (`make notebooks`), it runs those that have stored outputs already, and those with outputs of a GPU only
if there is one. Workbenches and charts are stored as pictures, because a code host runs no scripts. What differs from
run to run (times, addresses, names of temporary files) is replaced, so a second run changes nothing. The stored texts
are compared with those of another run by tests/test_notebooks.py. A cell with the tag "remove-output" is stored without
its output: in a lesson, the output would be the answer.
"""

from __future__ import annotations

import base64
import re
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import nbformat
import torch
from nbclient import NotebookClient
from nbformat import NotebookNode
from playwright.sync_api import Browser, expect

from aotviz.recording.schema import FORMAT, VERSION, RecordingData
from aotviz.widgets.html import to_html
from aotviz.widgets.workbench import KEPT
from tests.ui import browser as finder
from tests.ui import drawings, palette
from tests.ui.conftest import TOUR_ANSWERED

NOTEBOOKS = sorted((Path(__file__).resolve().parents[1] / "notebooks").glob("*.ipynb"))
CHART = "application/vnd.plotly.v1+json"
PREPARE = """
def prepare():
    import os
    import re

    import pandas
    from aotviz.explain.marked_frame import ExplainedTable
    from aotviz.widgets import packing
    from IPython import get_ipython

    def without_times(frame):
        measured = [name for name in frame.columns if re.search(r"(_ms|_ns|_s|seconds)$", str(name))]
        return type(frame)(frame.assign(**dict.fromkeys(measured, "…"))).__finalize__(frame)

    os.environ["AOTVIZ_CACHE_DIR"] = "off"
    os.environ["AOTVIZ_PROGRESS"] = "0"
    packing.MOST_KEPT = 10**8
    formatters = get_ipython().display_formatter.formatters
    formatters["text/html"].for_type(pandas.DataFrame, lambda frame: without_times(frame)._repr_html_())
    for kind in (pandas.DataFrame, ExplainedTable):  # IPython prefers a class's own __repr__ to its base's formatter
        formatters["text/plain"].for_type(kind, lambda frame, page, _: page.text(repr(without_times(frame))))

prepare()
del prepare
"""  # a notebook's first cell while it runs: nothing is cached, large recordings are kept too, and tables show no times
EMPTY = RecordingData(FORMAT, VERSION, {}, [], [], 0)  # the page is named after it
SIZE = {"width": 1060, "height": 530}
MOST = 75_000  # bytes of a picture
TIME = r"\b\d[\d,]*(?:\.\d+)?(?:e-?\d+)?\s+(?:ms|s|µs)\b"
VOLATILE = (
    (re.compile(r"\x1b\[[0-9;]*m"), ""),
    (re.compile(r"[^\s'\"`>]*/ipykernel_\d+/\d+\.py"), "cell.py"),
    (re.compile(r"\b0x[0-9a-f]{6,}"), "0x…"),
    (re.compile(re.escape(tempfile.gettempdir()) + r"/[\w./-]+"), "/tmp/…"),
    (re.compile(r"\b[0-9a-z]{40,}\b"), "…"),  # a key of a cache
    (re.compile(TIME), "… ms"),
    (re.compile(r"of\s+compiling:\s[\s\S]*?\)\."), "of compiling: … (…%)."),  # parts of a time, the longest first
    (re.compile(r"\(\d+%(?=[,)])"), "(…%"),
    (re.compile(r"\bseconds=[\d.e-]+"), "seconds=…"),
)
# Numbers that another processor computes otherwise in the last digits, and what follows them in a line.
COMPUTED = re.compile(r"-?\d[\d.]*(?:\.\d{3,}|e-?\d+)\b.*")
# The same in the workbench, without the bars that draw times. A layer of its own is drawn as a whole.
SETTLE = """(workbench, volatile) => {
  const walker = document.createTreeWalker(workbench, NodeFilter.SHOW_TEXT);
  while (walker.nextNode())
    for (const [pattern, instead] of volatile)
      walker.currentNode.data = walker.currentNode.data.replace(new RegExp(pattern, "g"), instead);
  for (const bar of workbench.querySelectorAll(".stage .share")) bar.remove();
  workbench.querySelector(".stage[aria-selected=true]").scrollIntoView({block: "center"});
  workbench.style.transform = "translateZ(0)";
}"""


def settled(text: str) -> str:
    """A text without what differs from run to run.

    >>> settled("f took 12.5 ms at /tmp/ipykernel_7/12.py:3")
    'f took … ms at cell.py:3'
    """
    for pattern, instead in VOLATILE:
        text = pattern.sub(instead, text)
    return text


def run(notebook: NotebookNode, folder: Path, times: int = 1) -> None:
    """Run all cells; `folder` is where they run. What cells show is as PREPARE says, and as in the first run.

    Raises:
        nbclient.exceptions.CellExecutionError: a cell raised an error.
    """
    count = len(notebook.cells)
    sources = [cell.source for cell in notebook.cells if cell.cell_type == "code"]
    notebook.cells.insert(0, nbformat.v4.new_code_cell(PREPARE))
    notebook.cells += [nbformat.v4.new_code_cell(source) for _ in range(1, times) for source in sources]
    resources = {"metadata": {"path": str(folder)}}
    NotebookClient(notebook, timeout=300, kernel_name="python3", resources=resources).execute()
    notebook.cells = notebook.cells[1 : 1 + count]
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs = _merged(cell.outputs)


def _merged(outputs: list[NotebookNode]) -> list[NotebookNode]:
    """The outputs, with one stream where a kernel has sent a text in pieces."""
    merged: list[NotebookNode] = []
    for output in outputs:
        if merged and output.output_type == merged[-1].output_type == "stream" and output.name == merged[-1].name:
            merged[-1].text += output.text
        else:
            merged.append(output)
    return merged


def texts(notebook: NotebookNode) -> dict[str, list[str]]:
    """The settled texts of each code cell, by its id, without what a processor may compute otherwise.

    Of a workbench, the first line, which says what it shows; of a chart, its kind and title.
    """
    found: dict[str, list[str]] = {}
    for cell in notebook.cells:
        if cell.cell_type == "code" and not _gives_away(cell):
            found[cell.id] = [
                "".join(output.get("text", "")) + _plain(output.get("data", {})) for output in cell.outputs
            ]
    return {id: [comparable(settled(text)) for text in outputs] for id, outputs in found.items()}


def comparable(text: str) -> str:
    """A text without the digits of computed numbers, and without the spaces and ends of lines that align them.

    >>> comparable("eager    1.0148721933364868 0.0558\\nnodes          86    1.5")
    'eager # nodes 86 1.5'
    """
    return " ".join(COMPUTED.sub("#", text).split())


def _gives_away(cell: NotebookNode) -> bool:
    return "remove-output" in cell.metadata.get("tags", ())


def _plain(data: dict[str, Any]) -> str:
    if CHART in data:
        return _described(data[CHART])
    text = str(data.get("text/plain", ""))
    return text.partition("\n")[0] if KEPT in data or "image/png" in data else text


def _described(chart: dict[str, Any]) -> str:
    return f"{' and '.join(trace['type'] for trace in chart['data'])}: {chart['layout']['title']['text']}"


def has_outputs(notebook: NotebookNode) -> bool:
    return any(cell.outputs for cell in notebook.cells if cell.cell_type == "code")


def store(notebook: NotebookNode, browser: Browser) -> None:
    """Replace volatile parts of an executed notebook's outputs, and workbenches by pictures."""
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.metadata.pop("execution", None)
            cell.execution_count -= 1  # PREPARE was the first
            if _gives_away(cell):
                cell.outputs = []
            for output in cell.outputs:
                if "text" in output:
                    output.text = settled(output.text)
                if "data" in output:
                    output.data = NotebookNode(_stored(output.data, output.metadata, browser))
                    output.metadata = NotebookNode()
    notebook.metadata["aotviz"] = {"outputs_of": versions()}
    for name in ("widgets", "language_info"):
        notebook.metadata.pop(name, None)
    notebook.metadata["language_info"] = {"name": "python"}


def versions() -> str:
    """What outputs depend on: torch, Python, whose bytecode decides what Dynamo captures and guards, and the GPU."""
    found = f"torch {torch.__version__.partition('+')[0]}, Python {sys.version_info.major}.{sys.version_info.minor}"
    return f"{found}, {torch.cuda.get_device_name()}" if torch.cuda.is_available() else found


def outputs_of(notebook: NotebookNode) -> str:
    """The `versions` that its stored outputs are of."""
    return str(notebook.metadata.get("aotviz", {}).get("outputs_of", ""))


def is_of_a_gpu(notebook: NotebookNode) -> bool:
    return outputs_of(notebook).count(", ") > 1


def _stored(data: dict[str, Any], metadata: dict[str, Any], browser: Browser) -> dict[str, Any]:
    if data.get(KEPT):
        picture = photograph(base64.b64decode(data[KEPT]), metadata.get(KEPT, {}).get("bookmark", {}), browser)
    elif CHART in data:
        picture = drawings.chart(data[CHART], browser, SIZE)
    else:
        return {kind: settled(data[kind]) for kind in ("text/html", "text/plain") if isinstance(data.get(kind), str)}
    return {"image/png": base64.b64encode(picture).decode(), "text/plain": settled(_plain(data))}


def photograph(packed: bytes, bookmark: dict[str, str], browser: Browser) -> bytes:
    """A PNG of the workbench at a place; `packed` is what `packing.pack` returned."""
    with tempfile.TemporaryDirectory() as folder:
        html = Path(folder) / "page.html"
        html.write_text(to_html(EMPTY, packed), encoding="utf-8")
        context = browser.new_context(viewport=SIZE, offline=True)  # type: ignore[arg-type]
        context.add_init_script(TOUR_ANSWERED)
        page = context.new_page()
        page.goto(f"{html.as_uri()}#{urlencode(bookmark)}")
        expect(page.locator(".stage[aria-selected=true]")).to_be_visible(timeout=60_000)
        expect(page.locator(".notice.loading, canvas.drawing[aria-busy=true], .drawn[aria-busy]")).to_have_count(0)
        volatile = [[pattern.pattern, instead.replace("\\", "$")] for pattern, instead in VOLATILE]
        page.locator(".workbench").evaluate(SETTLE, volatile)
        picture = palette.in_256_colours(page.screenshot(animations="disabled"), browser)
        context.close()
    if len(picture) > MOST:
        raise ValueError(f"a picture of {len(picture):,} bytes is too large for a notebook: at {bookmark}")
    return picture


def main(paths: Iterable[str]) -> int:
    chosen = [Path(path) for path in paths]
    with finder.browser() as browser, tempfile.TemporaryDirectory() as folder:
        for path in chosen or NOTEBOOKS:
            notebook = nbformat.read(path, as_version=4)
            can_run = torch.cuda.is_available() or not is_of_a_gpu(notebook)
            if chosen or (has_outputs(notebook) and can_run):
                run(notebook, Path(folder))
                store(notebook, browser)
                nbformat.write(notebook, path)
                print(f"{path.name}: {path.stat().st_size / 1024:.0f} KiB")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
