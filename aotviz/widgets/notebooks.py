"""Notebooks as pages in which workbenches work: `jupyter nbconvert --to aotviz_html notebook.ipynb`.

Each output that shows a recording keeps it, packed, beside the summary that other readers show (packing.py), so nothing
is run, asked of a kernel or fetched. This exporter makes nbconvert's own page, puts the recordings into it, and the
viewer once: the page works offline. A workbench opens when it is scrolled to; until then, and where scripts are not
allowed, its summary stands there.
"""

from __future__ import annotations

import copy
import html
import json
import re
from typing import Any

from nbconvert.exporters.html import HTMLExporter

from aotviz.widgets import static_files
from aotviz.widgets.workbench import KEPT

WIDGET = "application/vnd.jupyter.widget-view+json"
STATES = "application/vnd.jupyter.widget-state+json"
PIECE = re.compile(r'<script [^>]*\bid="aotviz-(?:viewer|editor|graphviz)">.*?</script>', re.S)


class WorkbenchHTML(HTMLExporter):
    """nbconvert's HTML page, with the workbench in place of each output that keeps a recording.

    >>> import nbformat
    >>> page, _ = WorkbenchHTML().from_notebook_node(nbformat.v4.new_notebook())
    >>> "aotviz-viewer" in page  # nothing is to be shown, so nothing is added
    False
    """

    export_from_notebook = "HTML with aotviz workbenches"  # in JupyterLab's menu

    def from_notebook_node(self, nb: Any, resources: Any = None, **options: Any) -> tuple[str, Any]:
        """The page and nbconvert's resources. Raises FrontEndMissing where the viewer is needed and is not built."""
        shown = copy.deepcopy(nb)
        outputs = [output for cell in shown.cells for output in cell.get("outputs", ()) if "data" in output]
        found = [place(output.data, bookmark(output, nb.metadata)) for output in outputs]
        page, resources = super().from_notebook_node(shown, resources, **options)
        if any(found):
            body, end, rest = page.rpartition("</body>")
            page = f"{body}{viewer()}{end}{rest}"
        return page, resources


def bookmark(output: Any, notebook: Any) -> dict[str, str]:
    """What was selected in an output, as our JupyterLab extension wrote it down, else as the widget's state has it."""
    model = output.data.get(WIDGET, {})
    held = [
        output.get("metadata", {}).get(KEPT),
        notebook.get("widgets", {}).get(STATES, {}).get("state", {}).get(model.get("model_id"), {}).get("state"),
    ]
    for holder in held:
        marked = holder.get("bookmark") if isinstance(holder, dict) else None
        if isinstance(marked, dict) and marked:
            return {name: value for name, value in marked.items() if isinstance(value, str)}
    return {}


def place(data: Any, selected: dict[str, str]) -> bool:
    """Puts the workbench where an output's data, by type, keeps a recording; whether it does."""
    kept = data.get(KEPT)
    if not isinstance(kept, str) or not kept:
        return False
    summary = data.get("text/html", "")
    summary = summary if isinstance(summary, str) else "".join(summary)
    for other in [kind for kind in data if kind != "text/plain"]:
        del data[other]  # nbconvert would show a widget, which needs a kernel, rather than HTML
    selection = html.escape(json.dumps(selected))
    data["text/html"] = (
        f'<div class="aotviz-output"><div class="aotviz-place" data-bookmark="{selection}">{summary}</div>'
        f'<script type="text/plain" class="aotviz-recording">{html.escape(kept)}</script></div>'
    )
    return True


def viewer() -> str:
    """The viewer for all workbenches of a page, as the page of `to_html` holds it."""
    return "\n".join(PIECE.findall(static_files.read("page.html").decode()))
