"""How long a recording takes to open in JupyterLab, what is sent for that, and by how much it makes a notebook grow.

    python -m benchmarks opening                # a GPT-2 of 12 layers, trained one step
    python -m benchmarks opening --quick

A real JupyterLab in a headless browser. The clock runs in the page, from the cell's start to the first line of code:
once on a page that has no workbench yet, which gets the viewer as well, and once for a second workbench beside it.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from statistics import median

import aotviz
from aotviz.frontends import demo
from aotviz.widgets import parts
from tests.ui import browser, jupyter

from .results import Result, Row, result

LAYERS = 12
SECONDS = 1.0  # that opening may take
GROWTH_BYTES = 200_000  # of a saved notebook
RUN = """async (index) => {
  const { content } = window.jupyterapp.shell.currentWidget;
  content.activeCellIndex = index;
  const shown = () => [...document.querySelectorAll("[data-lm-suppress-shortcuts]")].filter((element) => element.shadowRoot?.querySelector(".cm-line")).length;
  const before = shown(), began = performance.now();
  void window.jupyterapp.commands.execute("notebook:run-cell");
  if (index === 0) return 0;
  while (shown() === before) await new Promise((done) => requestAnimationFrame(done));
  return performance.now() - began;
}"""  # noqa: E501
IDLE = """async () => {
  const { sessionContext } = window.jupyterapp.shell.currentWidget;
  return sessionContext.session.kernel.status === "idle";
}"""


def make(layers: int, path: Path) -> aotviz.Recording:
    """A recording of one training step, as a file."""
    step, arguments = demo.gpt2(layers)
    with aotviz.record() as made:
        aotviz.compile(step, backend="eager")(*arguments)[0].backward()
    made.save(path)
    return aotviz.load(path)


def opened(folder: Path, file: Path) -> tuple[float, float, int]:
    """Milliseconds to the first and the second workbench of a page, and the bytes that the two add to a notebook."""
    with browser.browser() as instance, jupyter.lab(folder) as url:
        notebook = folder / "work" / "open.ipynb"
        jupyter.write_notebook(
            notebook, f"import aotviz; recording = aotviz.load({str(file)!r})", "recording", "recording"
        )
        empty = notebook.stat().st_size
        page = instance.new_page(viewport={"width": 1400, "height": 900})
        jupyter.open_notebook(page, url, notebook.name)
        page.evaluate(RUN, 0)
        while not page.evaluate(IDLE):
            page.wait_for_timeout(100)
        page.wait_for_timeout(2000)  # for what JupyterLab itself still does after its start
        times = [page.evaluate(RUN, cell) for cell in (1, 2)]
        page.evaluate("() => window.jupyterapp.commands.execute('docmanager:save')")
        page.wait_for_function("() => !window.jupyterapp.shell.currentWidget.context.model.dirty")
        return times[0], times[1], notebook.stat().st_size - empty


def sent(recording: aotviz.Recording) -> dict[str, float]:
    """Bytes of the whole recording, and of the parts that a workbench asks for when it opens."""
    first = recording[0]
    graph = next(iter(stage.graphs.values()) for stage in first.data.stages if stage.graphs)
    asked = [
        parts.index(recording),
        parts.compilation(recording, first.id),
        parts.graph(recording, first.id, next(graph)),
    ]
    return {"whole": len(recording.to_bytes()), "on opening": sum(len(parts.pack(part)) for part in asked)}


def run(rounds: int = 3, layers: int = LAYERS) -> Result:
    """Raises NoBrowser, and FrontEndMissing in a checkout whose front end is not built."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "step.aotviz")
        recording = make(layers, file)
        found = [opened(Path(folder, str(number)), file) for number in range(rounds)]
        wire = sent(recording)
    cold, warm, grown = (median(one[i] for one in found) for i in range(3))
    rows = [
        Row("seconds, the first workbench of a page", cold / 1000, SECONDS, {"ours": cold}, "ms"),
        Row("seconds, the second", warm / 1000, SECONDS, {"ours": warm}, "ms"),
        Row("share of the recording that is sent", wire["on opening"] / wire["whole"], None, wire, "bytes"),
        Row("growth of the notebook / 200 kB", grown / GROWTH_BYTES, 1.0, {"two workbenches": grown}, "bytes"),
    ]
    about = f"Opening the recording of a GPT-2 training step ({layers} layers) in JupyterLab."
    return result("opening", about, "figure", rows, {"rounds": rounds, "layers": layers})
