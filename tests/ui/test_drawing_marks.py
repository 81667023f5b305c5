"""What the drawing marks is so: its marks are compared with the graphs, run on real tensors.

The outline says each mark in words, so a test reads the marks there: returned, written in place, read by nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from playwright.sync_api import Browser, Page, expect
from torch import fx

import aotviz
from aotviz.reading.recording import Recording
from aotviz.widgets.html import write_html
from tests.tiers import SCREENS
from tests.ui.test_accessibility import serious

RETURNED, WRITTEN, UNREAD = "returned", "in-place write", "nothing reads it"
DETAIL_FONT = 10  # pixels: what the smallest legible text takes


def writes(a: torch.Tensor, b: torch.Tensor, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    a.mul_(2)
    row = b[0]
    row.add_(a)
    unused = a.exp()  # noqa: F841
    y = (x * b).sin()
    return y, a + 1


def inputs() -> tuple[torch.Tensor, ...]:
    torch.manual_seed(0)
    return torch.randn(4), torch.randn(4, 4), torch.randn(4, 4, requires_grad=True)


class Watching(fx.Interpreter):
    """Runs a graph and notes which nodes changed the version of a tensor that they were given."""

    def __init__(self, module: fx.GraphModule) -> None:
        super().__init__(module, garbage_collect_values=False)
        self.wrote: set[str] = set()

    def run_node(self, node: fx.Node) -> Any:
        given = [self.env[one] for one in node.all_input_nodes]
        before = [one._version for one in given if isinstance(one, torch.Tensor)]
        found = super().run_node(node)
        if before != [one._version for one in given if isinstance(one, torch.Tensor)]:
            self.wrote.add(node.name)
        return found


@pytest.fixture(scope="module")
def compiled() -> tuple[Recording, list[fx.GraphModule]]:
    """The recording, and the graphs: Dynamo's, the forward's and the backward's."""
    graphs: list[fx.GraphModule] = []

    def keep(graph: fx.GraphModule, _: Any) -> Callable[..., Any]:
        graphs.append(graph)
        return graph.forward

    torch._dynamo.reset()
    torch.compile(writes, backend=keep)(*inputs())
    torch._dynamo.reset()
    with aotviz.record() as recorded:
        y, _ = aotviz.compile(writes, backend=keep)(*inputs())
        y.sum().backward()
    return recorded, graphs


@pytest.fixture
def opened(browser: Browser, compiled: tuple[Recording, Any], tmp_path: Path) -> Iterator[Callable[..., Page]]:
    pages: list[Page] = []

    def show(stage: str, role: str = "", width: int = 1280, theme: str = "light") -> Page:
        page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=theme, offline=True)  # type: ignore[arg-type]
        pages.append(page)
        page.goto(write_html(compiled[0], tmp_path / "page.html").as_uri())
        page.locator('[role=tab][data-view="graph"]').click()  # where it is narrow, the Overview shows no stages
        page.locator(f'.stage[data-stage="{stage}"]').first.click()
        if role:
            page.locator(f'.roles [data-role="{role}"]').click()
        expect(page.locator(".graph-foot .status")).to_contain_text("box")
        return page

    yield show
    for page in pages:
        page.close()


def marked(page: Page, mark: str) -> set[str]:
    if page.locator("[data-toggle=outline]").get_attribute("aria-pressed") != "true":
        page.locator("[data-toggle=outline]").click()
    rows = page.locator(".outline .row.node").all()
    return {row.locator(".label").inner_text() for row in rows if mark in row.inner_text()}


def test_dynamos_graph_marks_the_operators_that_write_and_what_nothing_reads(
    opened: Callable[..., Page], compiled: tuple[Recording, list[fx.GraphModule]]
) -> None:
    page = opened("dynamo")
    graph = compiled[1][0]
    ran = Watching(graph)
    ran.run(*inputs())
    assert len(ran.wrote) == 2
    assert marked(page, WRITTEN) == ran.wrote
    unread = {node.name for node in graph.graph.nodes if not node.users and node.op != "output"} - ran.wrote
    assert "unused" in unread
    assert marked(page, UNREAD) == unread
    (results,) = graph.graph.output_node().args
    assert marked(page, RETURNED) == {node.name for node in results}


@pytest.mark.parametrize(("width", "theme"), SCREENS)
def test_the_forward_marks_inputs_that_change_and_results(
    opened: Callable[..., Page],
    compiled: tuple[Recording, list[fx.GraphModule]],
    width: int,
    theme: str,
    screenshots: Path,
) -> None:
    page = opened("partition", "forward", width, theme)
    given = dict(zip(("a", "b", "x"), inputs(), strict=True))
    before = {name: one.detach().clone() for name, one in given.items()}
    results = writes(*given.values())
    changed = {name for name in given if not torch.equal(given[name], before[name])}
    ran = Watching(compiled[1][1])
    ran.run(*before.values())
    values = {node.name: value for node, value in ran.env.items() if isinstance(value, torch.Tensor)}

    def holds(name: str, of: torch.Tensor) -> bool:
        return torch.equal(values[name], of.detach())

    found = marked(page, WRITTEN)
    assert changed <= found
    for name in found - changed:  # what makes the new contents of an input
        assert any(holds(name, given[one]) for one in changed)
    returned = marked(page, RETURNED)
    assert all(any(holds(name, result) for name in returned) for result in results)
    assert all(any(holds(name, result) for result in results) for name in returned)
    assert marked(page, UNREAD) == set()
    legend = page.locator(".graph-foot .legend")
    for mark in (RETURNED, WRITTEN, "saves for the backward"):
        expect(legend).to_contain_text(mark)
    page.locator("[data-toggle=outline]").click()
    expect(page.locator("canvas.drawing")).to_have_attribute("aria-busy", "false")
    page.screenshot(path=screenshots / f"graph-marks-{width}-{theme}.png")
    assert serious(page) == []
