"""Recordings from a stranger, opened in a browser: markup in every text, numbers that can't be, lists without end.

Whatever a file claims, each view either shows it or says in one sentence what is wrong, and the page goes on answering.
"""

from __future__ import annotations

import gzip
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace
from playwright.sync_api import Browser, Page, expect

from aotviz.recording import schema
from aotviz.recording.schema import CompilationData, RecordingData
from aotviz.widgets.html import to_html
from tests.ui import puzzle
from tests.ui.fixture import recording
from tests.ui.whole_backward import of_an_eager_forward

MARKUP = '"><img src=x onerror=alert(1)><script>alert(2)</script><svg onload=alert(3)>{{summary}}'
HUGE = 10**15
PATIENCE_MS = 30_000  # for a page to answer: far more than it takes, far less than for ever


class Stranger:
    """A page that opens hostile files, and what it must not do."""

    def __init__(self, page: Page, folder: Path) -> None:
        self.page, self.folder = page, folder
        self.problems: list[str] = []
        page.set_default_timeout(PATIENCE_MS)
        page.on("request", lambda request: self._requested(request.url))
        page.on("pageerror", lambda error: self.problems.append(f"error: {error}"))
        page.on("dialog", lambda dialog: (self.problems.append(f"dialog: {dialog.message}"), dialog.dismiss()))

    def _requested(self, url: str) -> None:
        if not url.startswith(("blob:", "file:")):
            self.problems.append(f"request: {url}")

    def open(self, tree: Any, about: RecordingData) -> None:
        """A page whose recording is `tree`, which nothing has checked."""
        html = self.folder / "hostile.html"
        html.write_text(to_html(about, gzip.compress(msgspec.msgpack.encode(tree), 1)), encoding="utf-8")
        self.page.goto(html.as_uri())

    def visit_every_view(self) -> list[str]:
        """Opens each view of each stage that has a graph or a text; what the views say is wrong."""
        said: list[str] = []
        tabs = self.page.locator("[role=tab][data-view]")
        expect(tabs).not_to_have_count(0)
        for tab in tabs.all():
            tab.click()
            expect(self.page.locator(".notice.loading")).to_have_count(0)
            assert self.page.evaluate("1 + 1") == 2  # it answers
            said += self.page.locator(".panel .notice.error").all_inner_texts()
        return said

    def assert_nothing_happened(self) -> None:
        shadow = "document.querySelector('main').shadowRoot"
        assert self.page.evaluate(f"{shadow}.querySelectorAll('img, script, iframe, [onload], [onerror]').length") == 0
        assert self.page.locator("img, iframe, [onload], [onerror]").count() == 0
        assert self.problems == []


@pytest.fixture
def stranger(browser: Browser, tmp_path: Path) -> Iterator[Stranger]:
    page = browser.new_page(viewport={"width": 1280, "height": 800}, offline=True, reduced_motion="reduce")
    yield Stranger(page, tmp_path)
    page.close()


MADE = [recording, puzzle.recording, of_an_eager_forward]
IDS = ["training", "puzzle", "whole backward"]


def marked(value: Any, key: str = "") -> Any:
    """The same with markup at the end of every text that is not a code of the format."""
    if isinstance(value, msgspec.Struct):
        codes = {"format", "op", "backward"}
        names = [name for name in value.__struct_fields__ if name not in codes]
        return replace(value, **{name: marked(getattr(value, name), name) for name in names})
    if isinstance(value, dict):
        return {marked(name, "key"): marked(part) for name, part in value.items()}
    if isinstance(value, list):
        return [marked(part, key) for part in value]
    return value + MARKUP if isinstance(value, str) and key != "kind" else value


@pytest.mark.every(3)
@pytest.mark.parametrize("made", MADE, ids=IDS)
def test_markup_in_every_text_of_a_recording_stays_text(made: Callable[[], Any], stranger: Stranger) -> None:
    data = marked(made().data)
    stranger.open(data, data)
    stages = stranger.page.locator(".stage:not([hidden])")
    expect(stages.first).to_contain_text("<img src=x")
    for number in range(0, stages.count(), 4):
        stages.nth(number).click()
        assert stranger.visit_every_view() == []
    stranger.assert_nothing_happened()


def numbers_replaced(value: Any, number: int, untouched: frozenset[type]) -> Any:
    """The same with another number in place of each, but where numbers are indices that the format checks."""
    if isinstance(value, msgspec.Struct):
        if type(value) in untouched:
            return value
        checked = {"graphs", "values", "version", "view_of", "tensor", "of", "log", "stack", "graph_texts"}
        names = [name for name in value.__struct_fields__ if name not in checked]
        return replace(value, **{name: numbers_replaced(getattr(value, name), number, untouched) for name in names})
    if isinstance(value, list):
        return [numbers_replaced(part, number, untouched) for part in value]
    return number if isinstance(value, int) and not isinstance(value, bool) else value


@pytest.mark.every(3)
@pytest.mark.parametrize("number", [-1, HUGE])
@pytest.mark.parametrize("made", MADE, ids=IDS)
def test_any_number_in_the_facts_is_shown_or_refused(made: Callable[[], Any], number: int, stranger: Stranger) -> None:
    data = numbers_replaced(made().data, number, frozenset({schema.GraphSnapshot, schema.ValueRecord}))
    stranger.open(data, data)
    assert stranger.visit_every_view() == []
    stranger.assert_nothing_happened()


def test_a_recording_too_large_for_a_page_is_told_by_its_counts(stranger: Stranger, screenshots: Path) -> None:
    data = recording().data
    graph = msgspec.to_builtins(data.compilations[0].graphs[0])
    large = {**graph, "args": [[]] * (1 << 25)}  # what a graph of 1.2 million nodes has, in all its columns
    tree = {**msgspec.to_builtins(data), "compilations": [{"graphs": [large]}]}
    stranger.open(tree, data)
    said = stranger.page.locator(".notice.error")
    expect(said).to_contain_text(f"too large for a page: {len(graph['op'])} nodes in 1 graph of 1 compilation.")
    expect(said).to_contain_text("aotviz.load(file)")
    stranger.page.screenshot(path=screenshots / "hostile-too-large.png")
    stranger.assert_nothing_happened()


def test_a_page_says_how_large_a_recording_is_before_it_is_busy_with_it(stranger: Stranger) -> None:
    data = recording().data
    large = replace(data, strings=[*data.strings, "x" * (1 << 23)])
    stranger.page.add_init_script("""
      globalThis.seen = [];
      const look = () => {
        const text = document.getElementById("workbench")?.shadowRoot?.querySelector(".notice")?.textContent;
        if (text && !seen.includes(text)) seen.push(text);
        requestAnimationFrame(look);
      };
      requestAnimationFrame(look);
    """)
    stranger.open(large, data)
    expect(stranger.page.locator('[role=tab][data-view="graph"]')).to_be_visible()
    graphs = [graph for one in data.compilations for graph in one.graphs]
    opening = f"Opening {sum(len(graph.op) for graph in graphs)} nodes in {len(graphs)} graphs of 3 compilations …"
    assert any(text.startswith(opening) for text in stranger.page.evaluate("seen"))  # in a frame of its own


def first(data: RecordingData, **changes: Any) -> RecordingData:
    """The recording with another first compilation."""
    return replace(data, compilations=[replace(data.compilations[0], **changes), *data.compilations[1:]])


def emptied(data: RecordingData, compilation: CompilationData) -> RecordingData:
    names = ("inputs", "outputs", "saved_tensors", "recomputed", "storages")
    return first(data, **{name: [] for name in names}, wrapper=None)


def values_in_a_circle(data: RecordingData, compilation: CompilationData) -> RecordingData:
    last = len(compilation.values) - 1
    return first(data, values=[replace(value, kind="tuple", parts=[last]) for value in compilation.values])


def values_that_double(data: RecordingData, compilation: CompilationData) -> RecordingData:
    values = [replace(one, kind="tuple", parts=[i - 1] * 2 if i else []) for i, one in enumerate(compilation.values)]
    return first(data, values=values)


def huge_shapes(data: RecordingData, compilation: CompilationData) -> RecordingData:
    return first(data, values=[replace(one, shape=[HUGE] * 8, stride=[-HUGE] * 8) for one in compilation.values])


def modules_ten_thousand_deep(data: RecordingData, compilation: CompilationData) -> RecordingData:
    text = "\n".join(f"{'m.' * depth}m|Layer" for depth in range(1000)) + "\n" + "\n".join(["m|Layer"] * 9000)
    strings = [*data.strings, text]
    graphs = [replace(graph, module=[len(data.strings)] * len(graph.op)) for graph in compilation.graphs]
    return replace(first(data, graphs=graphs), strings=strings)


def one_name_for_all(data: RecordingData, compilation: CompilationData) -> RecordingData:
    graphs = [replace(graph, name=[0] * len(graph.op), target=[0] * len(graph.op)) for graph in compilation.graphs]
    return first(data, graphs=graphs)


def notes_on_lines_that_are_not_there(data: RecordingData, compilation: CompilationData) -> RecordingData:
    assert compilation.wrapper is not None
    notes = [schema.WrapperNote(first, last, "a", "b") for first, last in ((-HUGE, HUGE), (HUGE, 1), (0, 0))]
    return first(data, wrapper=replace(compilation.wrapper, notes=notes))


def names_of_nothing(data: RecordingData, compilation: CompilationData) -> RecordingData:
    nobody = {"name": "nobody", "consumers": ["nobody"] * 50}
    inputs = [replace(one, duplicate_of="nobody", synthetic_base="nobody") for one in compilation.inputs]
    outputs = [replace(one, base="nobody") for one in compilation.outputs]
    return first(
        data,
        inputs=inputs,
        outputs=outputs,
        saved_tensors=[replace(one, **nobody) for one in compilation.saved_tensors],
    )


def a_storage_of_ten_thousand_tensors(data: RecordingData, compilation: CompilationData) -> RecordingData:
    tensor = schema.AliasTensor(["t"], "input", [60, 60], [61, 1], 0, 4, schema.NONE, "", "", "")
    writes = [schema.StorageWrite(i, i, "data", "mul_", "", "", True) for i in range(10_000)]
    return first(data, storages=[schema.StorageRecord(None, "cpu", [tensor] * 10_000, writes)])


def a_line_of_a_million_letters(data: RecordingData, compilation: CompilationData) -> RecordingData:
    return replace(data, strings=[*data.strings[:-1], "x" * 1_000_000, data.strings[-1]][: len(data.strings)])


LIES: dict[str, tuple[Callable[[RecordingData, CompilationData], RecordingData], str]] = {
    "no facts": (emptied, ""),
    "values in a circle": (values_in_a_circle, "points at"),
    "values that double": (values_that_double, ""),
    "shapes without end": (huge_shapes, ""),
    "modules ten thousand deep": (modules_ten_thousand_deep, ""),
    "one name for all nodes": (one_name_for_all, ""),
    "notes on lines that are not there": (notes_on_lines_that_are_not_there, ""),
    "names of nothing": (names_of_nothing, ""),
    "a storage of ten thousand tensors": (a_storage_of_ten_thousand_tensors, ""),
    "a line of a million letters": (a_line_of_a_million_letters, ""),
}


@pytest.mark.every(3)
@pytest.mark.parametrize("lie", LIES)
def test_a_recording_that_lies_is_shown_or_refused_and_never_hangs(lie: str, stranger: Stranger) -> None:
    tell, refusal = LIES[lie]
    data = recording().data
    data = tell(data, data.compilations[0])
    stranger.open(data, data)
    if refusal:
        expect(stranger.page.get_by_role("alert")).to_contain_text("This recording is damaged")
        expect(stranger.page.get_by_role("alert")).to_contain_text(refusal)
    else:
        assert stranger.visit_every_view() == []
    stranger.assert_nothing_happened()
