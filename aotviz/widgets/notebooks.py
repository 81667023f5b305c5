"""Export notebooks to pages with working workbenches: `jupyter nbconvert --to aotviz_html notebook.ipynb`.

Each output that shows a recording also contains the packed recording (packing.py), so the export does not run cells,
ask a kernel or fetch anything. The exporter makes nbconvert's own page, and adds the recordings and one copy of the
viewer, so the page works offline. A workbench opens when it is scrolled into view. Until then, or where scripts are not
allowed, the page shows its summary.
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
    """nbconvert's HTML page, with a workbench in place of each output that contains a recording.

    >>> import nbformat
    >>> page, _ = WorkbenchHTML().from_notebook_node(nbformat.v4.new_notebook())
    >>> "aotviz-viewer" in page  # nothing is to be shown, so nothing is added
    False
    """

    export_from_notebook = "HTML with aotviz workbenches"  # in JupyterLab's menu

    def from_notebook_node(self, nb: Any, resources: Any = None, **options: Any) -> tuple[str, Any]:
        """The page and nbconvert's resources. Raises FrontEndMissing if the viewer is needed but is not built."""
        shown = copy.deepcopy(nb)
        outputs = [output for cell in shown.cells for output in cell.get("outputs", ()) if "data" in output]
        found = [place(output.data, stored(output, nb.metadata)) for output in outputs]
        page, resources = super().from_notebook_node(shown, resources, **options)
        if any(found):
            body, end, rest = page.rpartition("</body>")
            page = f"{body}{viewer()}{end}{rest}"
        return page, resources


def stored(output: Any, notebook: Any) -> dict[str, Any]:
    """What a reader changed in an output: as our JupyterLab extension stored it, else from the widget's state."""
    model = output.data.get(WIDGET, {})
    held = [
        notebook.get("widgets", {}).get(STATES, {}).get("state", {}).get(model.get("model_id"), {}).get("state"),
        output.get("metadata", {}).get(KEPT),
    ]
    return {name: value for holder in held if isinstance(holder, dict) for name, value in holder.items() if value}


def bookmark(stored: dict[str, Any]) -> dict[str, str]:
    """What was selected."""
    marked = stored.get("bookmark")
    return {name: value for name, value in marked.items() if isinstance(value, str)} if isinstance(marked, dict) else {}


def place(data: Any, stored: dict[str, Any]) -> bool:
    """Put a workbench into an output's data (a mapping of MIME types) if it contains a recording; return whether."""
    kept = data.get(KEPT)
    if not isinstance(kept, str) or not kept:
        return False
    summary = data.get("text/html", "")
    summary = summary if isinstance(summary, str) else "".join(summary)
    for other in [kind for kind in data if kind != "text/plain"]:
        del data[other]  # nbconvert would prefer a widget, which needs a kernel, to HTML
    selection, painted = html.escape(json.dumps(bookmark(stored))), html.escape(str(stored.get("painted", "")))
    data["text/html"] = (
        f'<div class="aotviz-output"><div class="aotviz-place" data-bookmark="{selection}" data-painted="{painted}">'
        f"{summary}</div>"
        f'<script type="text/plain" class="aotviz-recording">{html.escape(kept)}</script></div>'
    )
    return True


def viewer() -> str:
    """The scripts of the viewer, from the page that `to_html` uses; one copy serves all workbenches of a page."""
    return "\n".join(PIECE.findall(static_files.read("page.html").decode()))
