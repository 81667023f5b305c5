"""The timeline of a log of two ranks, of a job with long pauses, and of aotviz's own compilations."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from msgspec.structs import replace
from playwright.sync_api import Browser, Locator, Page, expect

import aotviz
from aotviz.explain import answers
from aotviz.recording.schema import EventTable, RecordingData
from aotviz.widgets import parts
from aotviz.widgets.html import to_html
from tests import corpus
from tests.tiers import SCREENS
from tests.ui.test_accessibility import serious

PAINTED = "() => performance.getEntriesByName('aotviz timeline painted').length > 0"
FIRST_ROW, SECOND_ROW = 51, 70  # pixels below the top of the lanes, where a lane has marks
MARKS_ROW = 33

Open = Callable[..., Page]


def log(program: str) -> RecordingData:
    return aotviz.read_trace(corpus.folder(program), index=False).data


@pytest.fixture
def opened(browser: Browser, tmp_path: Path) -> Iterator[Open]:
    pages = []
    problems: list[str] = []

    def show(data: RecordingData, width: int = 1280, theme: str = "light") -> Page:
        (tmp_path / "page.html").write_text(to_html(data), encoding="utf-8")
        page = browser.new_page(viewport={"width": width, "height": 800}, color_scheme=theme, offline=True)  # type: ignore[arg-type]
        pages.append(page)
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.goto((tmp_path / "page.html").as_uri())
        page.locator("[role=tab][data-view=timeline]").click()
        page.wait_for_function(PAINTED)
        return page

    yield show
    assert problems == []
    for page in pages:
        page.close()


def point(page: Page, share: float, y: float, click: bool = False) -> str:
    """Moves the pointer to a place of the canvas, by its share of the width; what the readout says then."""
    box = page.locator(".timeline-view canvas.drawing").bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + share * box["width"], box["y"] + y)
    if click:
        page.mouse.down()
        page.mouse.up()
    return page.locator(".timeline-view .said").inner_text()


@pytest.mark.parametrize(("width", "theme"), SCREENS)
def test_a_log_of_two_ranks_has_two_lanes_with_spans_and_marks(
    opened: Open, width: int, theme: str, screenshots: Path
) -> None:
    data = log("ranks")
    page = opened(data, width, theme)
    expect(page.locator(".lane-name")).to_contain_text([re.compile(r"^rank 0 \d+ spans$"), re.compile(r"^rank 1 ")])
    expect(page.locator(".legend")).to_contain_text("cache miss")
    assert point(page, 0.3, FIRST_ROW).startswith("dynamo · rank 0: step [0/0] · 40.")
    assert "entire_frame_compile" in point(page, 0.3, SECOND_ROW)
    page.screenshot(path=screenshots / f"timeline-{width}-{theme}.png")
    assert serious(page) == []


def test_a_click_opens_the_compilation_and_the_stage_of_a_span(opened: Open) -> None:
    page = opened(log("ranks"))
    chosen = page.locator(".stage[aria-selected=true]")
    point(page, 0.95, FIRST_ROW, click=True)
    expect(page.locator(".head select option:checked")).to_contain_text(re.compile(r"rank 0: \w+ \[2/0\]"))
    expect(page.locator("[role=tab][aria-selected=true]")).to_have_attribute("data-view", "timeline")
    point(page, 0.3, SECOND_ROW + 6 * 19, click=True)  # inductor_compile
    expect(page.locator(".head select option:checked")).to_contain_text(re.compile(r"rank 0: \w+ \[0/0\]"))
    expect(chosen).to_have_attribute("data-stage", "lower")


@pytest.mark.slow
def test_a_mark_says_what_happened(opened: Open) -> None:
    page = opened(log("graph_breaks"))
    spots = [point(page, share / 200, MARKS_ROW) for share in range(200)]
    said = {spot.split(" at ")[0].split(":")[0].split(" (")[0] for spot in spots if not spot.startswith("Drag")}
    assert said == {"Dynamo started again", "graph break", "failed with Unsupported"}


def test_wheel_keys_and_buttons_zoom_and_a_drag_pans(opened: Open) -> None:
    page = opened(log("ranks"))
    there = point(page, 0.9, FIRST_ROW)
    page.keyboard.down("Control")
    for _ in range(12):
        page.mouse.wheel(0, -240)
    page.keyboard.up("Control")
    assert point(page, 0.9, FIRST_ROW) == there, "what is under the pointer stays there"
    assert point(page, 0.1, FIRST_ROW) == there, "and is larger than the window now"
    box = page.locator(".timeline-view canvas.drawing").bounding_box()
    assert box is not None
    page.get_by_role("button", name="Show everything").click()
    assert point(page, 0.05, FIRST_ROW) != there
    page.get_by_role("button", name="Zoom in").click(click_count=3)
    assert re.search(r"rank 0: \w+ \[0/0\]", point(page, 0.95, FIRST_ROW))
    for _ in range(4):
        point(page, 0.95, FIRST_ROW)
        page.mouse.down()
        page.mouse.move(box["x"] + 5, box["y"] + FIRST_ROW, steps=4)
        page.mouse.up()
    assert re.search(r"rank 0: \w+ \[2/0\]", point(page, 0.8, FIRST_ROW))


def test_keys_go_from_span_to_span_and_open_one(opened: Open) -> None:
    page = opened(log("ranks"))
    said = page.locator(".timeline-view .said")
    page.locator(".timeline-view canvas.drawing").focus()
    page.keyboard.press("ArrowRight")
    expect(said).to_contain_text("dynamo · rank 0: step [0/0] · ")
    page.keyboard.press("ArrowDown")
    expect(said).to_contain_text("entire_frame_compile")
    page.keyboard.press("ArrowUp")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    expect(said).to_contain_text(re.compile(r"rank 0: \w+ \[1/0\]"))
    page.keyboard.press("Enter")
    expect(page.locator(".head select option:checked")).to_contain_text(re.compile(r"rank 0: \w+ \[1/0\]"))
    expect(page.locator(".timeline-view canvas.drawing")).to_be_focused()
    page.keyboard.press("Escape")
    expect(said).to_contain_text("Click, or Enter: open")


def test_a_lane_is_folded_by_its_name(opened: Open) -> None:
    page = opened(log("ranks"))
    name = page.get_by_role("button", name="rank 0")
    second = page.get_by_role("button", name="rank 1")
    before = second.bounding_box()
    name.click()
    expect(name).to_have_attribute("aria-expanded", "false")
    expect(name).to_be_focused()
    after = second.bounding_box()
    assert before is not None
    assert after is not None
    assert after["y"] < before["y"]


def test_hours_between_two_compilations_are_folded(opened: Open, screenshots: Path) -> None:
    data = log("training")
    hours = 3 * 3600e6
    late = [start + hours if compilation == 2 else start for start, compilation in _placed(data.events)]
    page = opened(replace(data, events=replace(data.events, start_us=late), cache_lookups=[]))
    assert "[0/0]" in point(page, 0.1, FIRST_ROW - 18)
    last = point(page, 0.976, FIRST_ROW - 18)
    assert "[0/2]" in last
    assert "at 3 h 1 min" in last
    page.screenshot(path=screenshots / "timeline-idle.png")


def _placed(events: EventTable) -> list[tuple[float, int]]:
    return list(zip(events.start_us, events.compilation, strict=True))


def many(spans: int) -> RecordingData:
    """The log of `ranks` with its events repeated, one job after the other, until there are so many."""
    data = log("ranks")
    events, times = data.events, -(-spans // len(data.events.name))
    length = max(start + max(0, took) for start, took in zip(events.start_us, events.duration_us, strict=True))
    step = length - events.start_us[0] + 1e6
    columns = {name: list(getattr(events, name)) * times for name in EventTable.__struct_fields__}
    rows = len(events.name)
    columns["start_us"] = [start + (i // rows) * step for i, start in enumerate(columns["start_us"])]
    columns["parent"] = [up + (i // rows) * rows if up >= 0 else up for i, up in enumerate(columns["parent"])]
    return replace(data, events=EventTable(**columns))


def test_ten_thousand_spans_are_drawn_and_each_can_be_reached(opened: Open, screenshots: Path) -> None:
    page = opened(many(10_000))
    shown = [int(text) for text in re.findall(r"rank \d (\d+) spans", page.locator(".lanes").inner_text())]
    assert sum(shown) > 9_500
    page.locator(".timeline-view canvas.drawing").focus()
    for _ in range(40):
        page.keyboard.press("ArrowRight")
    expect(page.locator(".timeline-view .said")).to_contain_text("· at ")
    page.screenshot(path=screenshots / "timeline-many.png")


class Block(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = torch.nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner(x).relu().sin()


class Model(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.h = torch.nn.ModuleList(Block() for _ in range(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.h:
            x = block(x)
        return x * 2


@pytest.fixture(scope="module")
def modules() -> RecordingData:
    step = aotviz.compile(Model(), backend="eager")
    step(torch.ones(2, 4)).sum().backward()
    return answers.with_differences(step.recording)


@pytest.mark.parametrize(("width", "theme"), [(1280, "light"), (1280, "dark"), (500, "light"), (500, "dark")])
def test_the_compile_time_by_line_is_a_flame_graph_that_keys_walk_through(
    opened: Open, modules: RecordingData, width: int, theme: str, screenshots: Path
) -> None:
    page = opened(modules, width, theme)
    page.get_by_role("button", name="By line").click()
    frames, said = page.locator(".flame .frame"), page.locator(".timeline-view .said")
    expect(page.locator(".timeline-view .lanes")).to_be_hidden()
    block = frames.filter(has_text=re.compile(r"^h\.\*$"))
    inner = frames.filter(has_text=re.compile("^inner$"))
    expect(frames.first).to_have_text("h.*")  # the costliest

    def box(frame: Locator) -> tuple[float, float, float]:
        found = frame.bounding_box()
        assert found is not None
        return found["x"], found["y"], found["width"]

    assert box(block)[2] > box(inner)[2]
    assert box(block)[0] <= box(inner)[0] < box(block)[0] + box(block)[2]
    assert box(block)[1] < box(inner)[1]
    assert serious(page) == []
    page.screenshot(path=screenshots / f"flame-{width}-{theme}.png")
    block.focus()
    expect(said).to_contain_text("Block")
    page.keyboard.press("ArrowDown")
    expect(said).not_to_contain_text("Block")
    page.keyboard.press("ArrowUp")
    expect(block).to_be_focused()
    before = box(block)[2]
    page.keyboard.press("Enter")
    expect(frames.filter(has_text="x * 2")).to_have_count(0)
    expect(block).to_be_focused()
    assert box(block)[2] > before
    page.keyboard.press("Escape")
    expect(block).to_be_focused()
    assert box(block)[2] == pytest.approx(before)
    said.get_by_role("button", name=modules.compilations[0].name).click()
    page.get_by_role("button", name="Over time").click()
    expect(page.locator(".timeline-view .lanes")).to_be_visible()
    expect(page.locator(".flame")).to_be_hidden()


def test_a_live_recording_and_a_watch_send_what_a_saved_one_has() -> None:
    torch._dynamo.reset()
    with aotviz.watch() as watched:
        torch.compile(lambda x: x.sin() + 1, backend="aot_eager")(torch.ones(3))
    part = parts.rows(watched, "timeline")
    assert len(part.events.name) == parts.index(watched).rows["timeline"] > 5
    compiled = aotviz.compile(lambda x: x * 2, backend="eager")
    compiled(torch.ones(3))
    (spans,) = parts.rows(compiled.recording, "timeline").own.values()
    assert [span.name for span in spans] == [stage.name for stage in compiled.recording.data.compilations[0].stages]
    saved = aotviz.Recording(compiled.recording.data)
    assert parts.rows(saved, "timeline").own == parts.rows(compiled.recording, "timeline").own
    assert parts.index(saved).rows == parts.index(compiled.recording).rows
    with pytest.raises(parts.PartError, match="no rows of the kind nonsense"):
        parts.rows(saved, "nonsense")
