"""Pictures for the docs that are no view of the workbench: the layers of the house, the benchmarks, and an added view.

Each is drawn from what it is about: pyproject.toml, benchmarks/results, and the code on docs/adding-a-view.md.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import plotly.graph_objects as go
import plotly.offline
from playwright.sync_api import Browser, Page, expect
from plotly.subplots import make_subplots

from aotviz.recording.plans import Plans
from aotviz.widgets import static_files
from aotviz.widgets.html import write_html
from benchmarks import results
from benchmarks.history import Point
from benchmarks.history import of as history_of
from tests import added_view
from tests.ui import palette
from tests.ui.conftest import TOUR_ANSWERED
from tests.ui.fixture import ROOT, FixtureRecording


def chart(figure: dict[str, Any], browser: Browser, size: dict[str, int]) -> bytes:
    """A PNG of a plotly figure, as its JSON has it."""
    page = browser.new_page(viewport=size)  # type: ignore[arg-type]
    page.set_content("<body style='margin:0'>")
    page.add_script_tag(content=plotly.offline.get_plotlyjs())
    page.evaluate("({data, layout}) => Plotly.newPlot(document.body, data, layout, {staticPlot: true})", figure)
    return _taken(page, browser)


def _taken(page: Page, browser: Browser) -> bytes:
    picture = page.screenshot(animations="disabled")
    page.close()
    return palette.in_256_colours(picture, browser)


def benchmarks(browser: Browser) -> bytes:
    """Every figure that has a target, divided by it; one line for each file of benchmarks/results."""
    figure, farthest = go.Figure(), 1.0
    for path in sorted((ROOT / "benchmarks" / "results").glob("*.json"), reverse=True):
        rows = [row for row in json.loads(path.read_text(encoding="utf-8"))["rows"] if row["target"]]
        ratios = [row["figure"] / row["target"] for row in rows]
        farthest = max([farthest, *ratios])
        for missed, colour in ((False, "#1f6feb"), (True, "#cf222e")):
            found = [ratio for ratio in ratios if (ratio > 1) is missed]
            marker = {"size": 11, "color": colour, "opacity": 0.7}
            figure.add_scatter(x=found, y=[path.stem] * len(found), mode="markers", marker=marker)
    figure.add_vline(1, line={"color": "#59636e", "dash": "dash"})
    figure.update_layout(
        template="plotly_white",
        showlegend=False,
        margin={"l": 150, "r": 20, "t": 50, "b": 50},
        title="Each figure, divided by its target",
        xaxis={"title": "figure / target (left of the line: the target is met)", "range": [0, 1.1 * farthest]},
    )
    return chart(json.loads(figure.to_json()), browser, {"width": 1000, "height": 560})


def history(browser: Browser) -> bytes:
    """What each figure with a target came to over time, divided by it: a small chart for each file that was measured
    more than once."""
    found = {path.stem: of_targets for path in sorted(results.FOLDER.glob("*.json")) if (of_targets := _lines(path))}
    figure = make_subplots(-(-len(found) // 3), 3, subplot_titles=list(found), shared_xaxes="all")
    look = {"mode": "lines+markers", "line": {"color": "#1f6feb", "width": 1}, "opacity": 0.6}
    for number, lines in enumerate(found.values()):
        row, column = divmod(number, 3)
        for points in lines:
            x, y = [point.when for point in points], [point.figure / (point.target or 1) for point in points]
            figure.add_scatter(x=x, y=y, **look, row=row + 1, col=column + 1)
    figure.add_hline(1, line={"color": "#cf222e", "dash": "dash", "width": 1})
    figure.update_yaxes(rangemode="tozero")
    figure.update_layout(
        template="plotly_white",
        showlegend=False,
        margin={"l": 40, "r": 20, "t": 80, "b": 40},
        title="Each figure over time, divided by its target (below the dashed line: met)",
    )
    return chart(json.loads(figure.to_json()), browser, {"width": 1000, "height": 900})


def _lines(path: Path) -> list[list[Point]]:
    """The cases of a file that have a target and more than one point."""
    return [points for points in history_of(path).values() if len(points) > 1 and points[-1].target]


def plans(found: Plans, browser: Browser, width: int = 1000, theme: str = "light") -> bytes:
    """Plans side by side, as `aotviz.plans(...).plot()` draws them."""
    figure = found.plot()
    figure.update_layout(template="plotly_dark" if theme == "dark" else "plotly_white")
    return chart(json.loads(figure.to_json()), browser, {"width": width, "height": 560})


def added(browser: Browser, recording: FixtureRecording) -> bytes:
    """The view that docs/adding-a-view.md adds, built as the page prints it."""
    read = static_files.read
    with tempfile.TemporaryDirectory() as folder:
        added_view.put_into(Path(folder))
        added_view.npm("run build", Path(folder))
        built = Path(folder) / "aotviz" / "widgets" / "static"
        static_files.read = lambda name: (built / name).read_bytes()
        try:
            html = write_html(recording, Path(folder) / "page.html")
        finally:
            static_files.read = read
        page = browser.new_page(viewport={"width": 1280, "height": 640}, color_scheme="light", offline=True)
        page.add_init_script(TOUR_ANSWERED)
        page.goto(html.as_uri())
        page.locator('.stage[data-stage="partition"]').click()
        page.locator('[role=tab][data-view="operators"]').click()
        page.locator(".panel tbody tr").nth(1).click()
        expect(page.locator(".facts")).to_contain_text("selected nodes")
        return _taken(page, browser)
