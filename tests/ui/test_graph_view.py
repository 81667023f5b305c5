"""The graph view as a person uses it: pointer, keyboard, search, colours; real and hostile recordings, both themes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import pytest
import torch
from playwright.sync_api import Browser, Locator, Page, expect

import aotviz
from aotviz.frontends import demo
from aotviz.reading.recording import Recording
from aotviz.recording import schema
from aotviz.widgets.html import write_html
from tests.tiers import THEMES
from tests.ui.fixture import Builder, Ref, Strings, recording
from tests.ui.test_accessibility import serious

INK = """(canvas) => {
  const { data } = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
  const colours = new Map();
  for (let i = 0; i < data.length; i += 4) {
    const colour = (data[i] << 16) | (data[i + 1] << 8) | data[i + 2];
    colours.set(colour, (colours.get(colour) ?? 0) + 1);
  }
  return 1 - Math.max(...colours.values()) / (data.length / 4);
}"""  # the share of pixels that are not background

TOWARDS = """(canvas, name) => {
  const painted = (context) => context.getImageData(0, 0, context.canvas.width, context.canvas.height).data;
  const probe = Object.assign(document.createElement("canvas"), { width: 1, height: 1 }).getContext("2d");
  probe.fillStyle = getComputedStyle(canvas).getPropertyValue(name);
  probe.fillRect(0, 0, 1, 1);
  const wanted = painted(probe);
  const data = painted(canvas.getContext("2d"));
  const towards = [0, 1, 2].map((c) => wanted[c] - data[c]); // a corner of the drawing is background
  const far = Math.hypot(...towards);
  let count = 0;
  for (let i = 0; i < data.length; i += 4) {
    const step = [0, 1, 2].map((c) => data[i + c] - data[c]);
    const size = Math.hypot(...step);
    const along = step.reduce((sum, one, c) => sum + one * towards[c], 0) / far;
    if (size > 0.2 * far && along > 0.99 * size) count++;
  }
  return count;
}"""  # how many pixels have the colour of this name, thin lines of it included, which are mixed with the background


def aliasing_puzzle(a: torch.Tensor, b: torch.Tensor, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    a.mul_(2)
    view = x.t()
    view.add_(1)
    y = x[0] * b
    return y, x.view(-1), a[0], b.detach()


@pytest.fixture(scope="module")
def gpt2(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A page of the training of a GPT-2 of 12 layers."""
    step, batch = demo.gpt2(12)
    with aotviz.record() as recorded:
        loss, _ = aotviz.compile(step, backend="eager")(*batch)
        loss.backward()
    html = tmp_path_factory.mktemp("graph") / "gpt2.html"
    recorded.to_html(html)
    return html


@pytest.fixture(scope="module")
def puzzle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    base = torch.randn(4, 4)
    with aotviz.record() as recorded:
        compiled = aotviz.compile(aliasing_puzzle, backend="eager")
        y, *_ = compiled(base[0], base[:, 0], torch.randn(4, 4, requires_grad=True).clone())
        y.sum().backward()
    html = tmp_path_factory.mktemp("graph") / "puzzle.html"
    recorded.to_html(html)
    return html


@pytest.fixture
def plain(tmp_path: Path) -> Path:
    return write_html(recording(), tmp_path / "plain.html")


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    page = browser.new_page(viewport={"width": 1280, "height": 800}, offline=True, reduced_motion="reduce")
    problems: list[str] = []
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on("console", lambda line: problems.append(line.text) if line.type == "error" else None)
    yield page
    page.close()
    assert problems == []


def open_graph(page: Page, html: Path, stage: str = "trace") -> None:
    page.goto(html.as_uri())
    page.locator('[role=tab][data-view="graph"]').click()  # where it is narrow, the Overview shows no stages
    page.locator(f'.stage[data-stage="{stage}"]').first.click()
    expect(page.locator(".graph-foot .status")).to_contain_text("box")


def row(page: Page, text: str) -> None:
    page.locator(".outline .row", has_text=text).first.click()


def settle(page: Page) -> None:
    """Waits until all of the drawing is painted where it is to be."""
    expect(page.locator("canvas.drawing")).to_have_attribute("aria-busy", "false")


def status(page: Page) -> str:
    return page.locator(".graph-foot .status").inner_text()


@pytest.mark.parametrize("theme", THEMES)
def test_gpt2_opens_closed_and_opens_module_by_module(page: Page, gpt2: Path, theme: str, screenshots: Path) -> None:
    page.emulate_media(color_scheme=theme)  # type: ignore[arg-type]
    open_graph(page, gpt2)
    expect(page.locator(".workbench")).to_have_attribute("data-theme", theme)
    settle(page)
    page.screenshot(path=screenshots / f"graph-gpt2-{theme}.png")
    assert page.locator("canvas.drawing").evaluate(INK) > 0.02
    before = status(page)
    row(page, "h.3")
    row(page, "attn")
    expect(page.locator(".graph-foot .status")).not_to_have_text(before)
    expect(page.locator(".outline .row", has_text="c_attn").first).to_be_visible()
    page.get_by_label("Colour by").select_option("kind")
    expect(page.locator(".graph-foot .keys")).to_contain_text("matrix product, convolution")
    settle(page)
    page.screenshot(path=screenshots / f"graph-gpt2-open-{theme}.png")
    page.locator("[data-toggle=flat]").click()
    expect(page.locator(".graph-foot .status")).to_contain_text("plain layout")
    page.get_by_label("Fit to the view").click()
    settle(page)
    page.screenshot(path=screenshots / f"graph-gpt2-flat-{theme}.png")
    assert page.locator("canvas.drawing").evaluate(INK) > 0.001


TEXTS = """
window.texts = [];  // what is painted, and the height of its letters on the page
const { fillText } = CanvasRenderingContext2D.prototype;
CanvasRenderingContext2D.prototype.fillText = function (words, ...place) {
  const size = parseFloat(/([\\d.]+)px/.exec(this.font)[1]);
  window.texts.push([words, (size * this.getTransform().a) / devicePixelRatio]);
  return fillText.call(this, words, ...place);
};
"""


MIDDLE = """(canvas) => {
  const { left, top, width, height } = canvas.getBoundingClientRect();
  return canvas.getRootNode().elementFromPoint(left + width / 2, top + height / 2).tagName;
}"""


@pytest.mark.every(2)
@pytest.mark.parametrize("width", [1280, 500])
def test_gpt2_is_readable_before_anything_is_clicked(page: Page, gpt2: Path, width: int, screenshots: Path) -> None:
    page.set_viewport_size({"width": width, "height": 640})
    page.add_init_script(TEXTS)
    for stage, whole in [
        ("dynamo", {"arange", "wpe"}),
        ("joint", {"arange", "add"}),
        ("partition", {"arange", "view"}),
    ]:
        open_graph(page, gpt2, stage)
        settle(page)
        there = "names => names.every(name => window.texts.some(([words]) => words === name))"
        page.wait_for_function(there, arg=sorted(whole))
        texts = page.evaluate("window.texts")
        assert whole <= {words for words, _ in texts}
        assert min(size for _, size in texts) > 9.9, texts
    page.screenshot(path=screenshots / f"graph-gpt2-first-{width}.png")
    page.get_by_label("Search the recording").fill("name:addmm")
    page.keyboard.press("Enter")
    expect(page.locator(".facts h3")).to_contain_text("addmm")
    settle(page)
    middle = page.locator("canvas.drawing").evaluate(MIDDLE)
    assert middle == "CANVAS", "the selected node is in the middle, and nothing may cover it"
    page.screenshot(path=screenshots / f"graph-gpt2-found-{width}.png")


@pytest.mark.parametrize("theme", THEMES)
def test_the_aliases_of_a_puzzle_are_drawn_and_can_be_hidden(
    page: Page, puzzle: Path, theme: str, screenshots: Path
) -> None:
    page.emulate_media(color_scheme=theme)  # type: ignore[arg-type]
    open_graph(page, puzzle)
    expect(page.locator(".graph-foot .keys")).to_contain_text("shares memory")
    page.get_by_label("Colour by").select_option("storage")
    expect(page.locator(".graph-foot .keys")).to_contain_text("memory of ")
    settle(page)
    page.screenshot(path=screenshots / f"graph-puzzle-{theme}.png")
    with_aliases = page.locator("canvas.drawing").evaluate(TOWARDS, "--aot-alias")
    page.locator("[data-toggle=aliases]").click()
    expect(page.locator(".graph-foot .keys")).not_to_contain_text("shares memory")
    settle(page)
    assert page.locator("canvas.drawing").evaluate(TOWARDS, "--aot-alias") < with_aliases


POINT = """(canvas, words) => {
  const { left, top, right, bottom } = canvas.getBoundingClientRect();
  const tip = canvas.getRootNode().querySelector(".tip");
  for (let clientY = top + 8; clientY < bottom; clientY += 9) {
    for (let clientX = left + 8; clientX < right; clientX += 40) {
      canvas.dispatchEvent(new PointerEvent("pointermove", { clientX, clientY, pointerId: 1 }));
      if (!tip.hidden && tip.textContent.includes(words)) return [clientX, clientY];
    }
  }
  return null;
}"""


def test_a_click_on_the_canvas_opens_a_module_selects_a_node_and_closes_again(page: Page, plain: Path) -> None:
    open_graph(page, plain)

    def point_at(words: str) -> None:
        """Moves the pointer to where the drawing's tip says so."""
        point = page.locator("canvas.drawing").evaluate(POINT, words)
        assert point, f"nothing on the canvas says {words!r}"
        page.mouse.move(*point)
        expect(page.locator(".tip")).to_contain_text(words)

    point_at("blocks.1 Block")
    page.mouse.down()
    page.mouse.up()
    expect(page.locator(".graph-foot .status")).to_have_text("43 nodes in 13 boxes")
    expect(page.locator('.outline [aria-expanded="true"]', has_text="blocks.1")).to_have_count(1)
    point_at("add_1 = aten.add.Tensor")
    page.mouse.down()
    page.mouse.up()
    expect(page.locator(".facts h3")).to_have_text("add_1")
    expect(page.locator('.outline [aria-selected="true"]')).to_contain_text("add_1")
    point_at("blocks.1: click to close")
    page.mouse.down()
    page.mouse.up()
    expect(page.locator(".graph-foot .status")).to_have_text("43 nodes in 11 boxes")


def test_everything_is_reached_with_the_keyboard_alone(page: Page, plain: Path) -> None:
    open_graph(page, plain)
    page.locator("[data-toggle=outline]").focus()
    for _ in range(20):
        page.keyboard.press("Tab")
        if page.evaluate("document.querySelector('main').shadowRoot.activeElement?.getAttribute('role')") == "treeitem":
            break
    focused = page.locator(".outline [tabindex='0']")
    expect(focused).to_be_focused()
    expect(focused).to_have_attribute("aria-level", "1")
    for key in ["ArrowDown", "ArrowDown", "ArrowDown", "ArrowRight", "ArrowRight", "End", "Home", "ArrowRight"]:
        page.keyboard.press(key)
    expect(focused).to_contain_text("Net")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowDown")
    expect(focused).to_contain_text("blocks.1")
    expect(focused).to_have_attribute("aria-expanded", "true")
    for _ in range(3):
        page.keyboard.press("ArrowDown")
    expect(focused).to_contain_text("add_1")
    page.keyboard.press("Enter")
    expect(page.locator(".facts h3")).to_have_text("add_1")
    page.keyboard.press("u")
    expect(page.locator(".facts h3")).to_have_text("addmm_2")
    page.keyboard.press("i")
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("/")
    expect(page.get_by_label("Search the recording")).to_be_focused()
    page.locator("canvas.drawing").focus()
    page.keyboard.press("Escape")
    expect(page.locator(".facts h3")).to_be_hidden()


SHARE = """() => {
  const root = document.querySelector("#workbench").shadowRoot;
  const area = (of) => {
    const { width, height } = root.querySelector(of).getBoundingClientRect();
    return width * height;
  };
  return area(".stage-area") / area(".workbench");
}"""


@pytest.mark.parametrize("theme", THEMES)
def test_at_200_percent_zoom_the_graph_has_half_of_the_workbench(
    browser: Browser, plain: Path, theme: Literal["light", "dark"], screenshots: Path
) -> None:
    page = browser.new_page(  # a window of 1280 x 800
        viewport={"width": 640, "height": 400}, device_scale_factor=2, color_scheme=theme, reduced_motion="reduce"
    )
    open_graph(page, plain, "partition")
    assert page.evaluate(SHARE) > 0.5
    rail = page.locator(".rail-list").bounding_box()
    stage = page.locator(".stage[aria-selected=true]").bounding_box()
    assert rail
    assert stage
    assert rail["x"] - 1 <= stage["x"]
    assert stage["x"] + stage["width"] <= rail["x"] + rail["width"] + 1  # it is scrolled to
    assert serious(page) == []
    page.screenshot(path=screenshots / f"graph-zoomed-{theme}.png")
    page.close()


def found(page: Page) -> Locator:
    """What the search lists of the open graph."""
    return page.locator(".results [role=group]").first.locator("[role=option]")


def test_a_search_lists_jumps_and_opens_what_hides_a_node(page: Page, plain: Path, screenshots: Path) -> None:
    open_graph(page, plain)
    search = page.get_by_label("Search the recording")
    search.fill("op:gelu_backward")
    expect(found(page)).to_have_count(3)
    page.screenshot(path=screenshots / "graph-search.png")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    expect(page.locator(".facts h3")).to_have_text("gelu_backward_1")
    expect(page.locator(".find output")).to_have_text("2 of 3")
    expect(page.locator('.outline [aria-selected="true"]')).to_contain_text("gelu_backward_1")
    page.get_by_label("Next node found").click()
    expect(page.locator(".facts h3")).to_have_text("gelu_backward")
    page.get_by_label("Previous node found").click()
    expect(page.locator(".facts h3")).to_have_text("gelu_backward_1")
    search.fill("shape:[64, 8]")
    expect(page.locator(".find output")).to_contain_text("3 results")
    search.fill("line:model.py:13 module:blocks.2")
    expect(found(page)).to_have_count(2)
    search.fill("nothing-like-this")
    expect(page.locator(".results")).to_contain_text("Nothing matches.")


def test_a_node_that_a_stage_does_not_have_is_said_to_be_gone(page: Page, plain: Path) -> None:
    open_graph(page, plain, "decompose")
    page.get_by_label("Search the recording").fill("name:mm_1")
    page.keyboard.press("Enter")
    expect(page.locator(".facts h3")).to_have_text("mm_1")
    page.locator('.stage[data-stage="trace"]').click()
    note = page.locator(".note-line")
    expect(note).to_contain_text("mm_1 is not in trace. Stage decompose is the first that has it.")
    note.get_by_role("button", name="addmm_1").click()
    expect(page.locator(".facts h3")).to_have_text("addmm_1")
    expect(note).to_be_empty()


def test_a_node_is_followed_through_stages_that_do_not_have_it(page: Page, plain: Path) -> None:
    open_graph(page, plain, "decompose")
    search = page.get_by_label("Search the recording")
    search.fill("name:gelu_backward")
    page.keyboard.press("Enter")
    expect(page.locator(".facts h3")).to_have_text("gelu_backward")  # not the first that begins so
    note = page.locator(".note-line")
    page.get_by_role("button", name="changed nothing: show").click()
    for stage in ("partition", "saved hooks"):  # one graph; and the sentence names the stage that is looked at
        page.locator(f'.stage[data-stage="{stage}"]').click()
        expect(note).to_contain_text(f"gelu_backward is not in {stage} (forward).")
        expect(page.locator(".facts h3")).to_be_hidden()
    page.locator('.stage[data-stage="link"]').click()  # no graph at all
    page.locator('.stage[data-stage="lower backward"]').click()
    expect(page.locator(".facts h3")).to_have_text("gelu_backward")
    page.locator('.stage[data-stage="partition"]').click()
    page.locator(".roles [aria-checked]", has_text="forward").click()
    expect(note).to_contain_text("gelu_backward is not in partition (forward). It is in the backward graph.")
    note.get_by_role("button", name="backward").click()
    expect(page.locator(".facts h3")).to_have_text("gelu_backward")
    page.locator(".roles [aria-checked]", has_text="forward").click()
    expect(note).to_contain_text("gelu_backward is not in partition (forward).")
    page.locator("canvas.drawing").focus()
    page.keyboard.press("Escape")
    expect(note).to_be_empty()
    page.locator('.stage[data-stage="decompose"]').click()
    expect(page.locator(".graph-foot .status")).to_contain_text("box")
    expect(page.locator(".facts h3")).to_be_hidden()


def test_a_search_by_shape_shows_the_shapes_and_where_each_node_is(page: Page, gpt2: Path, screenshots: Path) -> None:
    open_graph(page, gpt2)
    page.get_by_label("Search the recording").fill("[2, 64, 128]")
    option = found(page).first
    expect(option).to_contain_text("f32[2, 64, 128]")
    page.screenshot(path=screenshots / "graph-search-shape.png")
    cut = "(option) => [...option.children].slice(0, 3).some((cell) => cell.scrollWidth > cell.clientWidth)"
    assert not option.evaluate(cut)


def test_what_is_open_and_how_it_is_coloured_stays_through_the_stages(page: Page, plain: Path) -> None:
    open_graph(page, plain)
    row(page, "blocks.1")
    page.get_by_label("Colour by").select_option("fate")
    expect(page.locator(".graph-foot .keys")).to_contain_text("saved for the backward · 9")
    page.locator('.stage[data-stage="decompose"]').click()
    expect(page.locator('.outline [aria-expanded="true"]', has_text="blocks.1")).to_have_count(1)
    expect(page.get_by_label("Colour by")).to_have_value("fate")


def flat_recording(nodes: int, reads: int = 1) -> Recording:
    """One stage, no modules, each node reading so many before it: with one, a chain."""
    strings = Strings()
    values: list[schema.ValueRecord] = []
    builder = Builder(strings, values)
    value = builder.tensor((4,))
    for i in range(nodes):
        builder.node("f", f"n{i}", "aten.relu.default", [Ref(f"n{i - k}") for k in range(1, 1 + min(i, reads))], value)
    builder.node("o", "output", "output", [[Ref(f"n{nodes - 1}")]])
    stage = schema.StageRecord("trace", "InferenceGraph", "", True, False, 0, 1, {"inference": 0}, [], {})
    compilation = schema.CompilationData(
        id="0", name="flat", kind="inference", started_unix_ns=0, options={}, stages=[stage],
        graphs=[builder.snapshot(["out"])], values=values, inputs=[], outputs=[], saved_tensors=[], wrapper=None,
        error=None,
    )  # fmt: skip
    data = schema.RecordingData(schema.FORMAT, schema.VERSION, {}, strings.all, [compilation], 0)
    return Recording(data)


@pytest.mark.slow
def test_a_graph_of_a_hundred_thousand_nodes_without_modules_opens_run_by_run(page: Page, tmp_path: Path) -> None:
    html = write_html(flat_recording(100_000), tmp_path / "flat.html")
    open_graph(page, html)
    expect(page.locator(".graph-foot .status")).to_have_text("100,001 nodes in 101 boxes", timeout=30_000)
    row(page, "n4000 … n4999")
    row(page, "n4100 … n4199")
    expect(page.locator(".outline .row", has_text="n4100").last).to_be_visible()
    page.locator("[data-toggle=flat]").click()
    expect(page.locator(".overlay")).to_contain_text("too many to draw")
    page.get_by_role("button", name="Close all modules").last.click()
    expect(page.locator(".graph-foot .status")).to_have_text("100,001 nodes in 101 boxes")


def test_a_page_without_workers_draws_with_the_plain_layout_and_says_so(page: Page, plain: Path) -> None:
    page.add_init_script("window.Worker = class { constructor() { throw new Error('barred'); } }")
    open_graph(page, plain)
    expect(page.locator(".graph-foot .status")).to_have_text("43 nodes in 11 boxes · plain layout")
    assert page.locator("canvas.drawing").evaluate(INK) > 0.02
