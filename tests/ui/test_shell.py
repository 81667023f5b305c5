"""The workbench's frame in the exported page: the rail, the compilations, the keys, the place kept in the URL."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
import torch
from playwright.sync_api import Browser, Page, expect

import aotviz
from aotviz.recording.schema import CompilationData
from aotviz.widgets.html import write_html
from tests import corpus
from tests.ui.fixture import FixtureRecording, recording

FRAMES = "() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))"  # two are drawn


def several() -> FixtureRecording:
    """The fixture, its first function compiled twice, with the program for a gradient of its gradient."""
    made = recording()
    first, second, failed = made.data.compilations

    def copy(of: CompilationData, id: str, name: str, *because: str) -> CompilationData:
        return msgspec.structs.replace(of, id=id, name=name, because=list(because))

    again = copy(first, "4", "Net", "x.shape changed from (8, 64) to (9, 64)")
    fewer = msgspec.structs.replace(again, stages=[s for s in again.stages if s.name != "decompose"], inputs=[])
    compilations = [first, second, failed, copy(second, "3", "gradient of Net"), fewer]
    made.data = msgspec.structs.replace(made.data, compilations=compilations)
    return made


@pytest.fixture
def page(browser: Browser, theme: str) -> Iterator[Page]:
    page = browser.new_page(viewport={"width": 1280, "height": 900}, color_scheme=theme, offline=True)  # type: ignore[arg-type]
    problems: list[str] = []
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on("console", lambda line: problems.append(line.text) if line.type == "error" else None)
    yield page
    assert problems == []
    page.close()


def selected(page: Page, name: str) -> None:
    expect(page.locator(".stage[aria-selected=true]")).to_have_attribute("data-stage", name)


def test_the_rail_hides_what_changed_nothing_and_plays(
    page: Page, theme: str, tmp_path: Path, screenshots: Path
) -> None:
    page.goto(write_html(several(), tmp_path / "rail.html").as_uri())
    rail = page.locator(".rail")
    same = rail.locator(".stage.same")
    hidden = same.count()
    assert hidden > 0
    expect(same.first).to_be_hidden()
    show = rail.get_by_role("button", name=f"{hidden} changed nothing: show")
    show.click()
    expect(same.first).to_be_visible()
    page.reload()
    expect(same.first).to_be_visible()  # it is remembered
    expect(rail.locator('[data-stage="decompose"] .more')).to_be_visible()
    expect(rail.locator(".rail-divider")).to_have_text("when the backward was first needed")
    expect(rail.locator('.related[data-kind="gradient"]')).to_contain_text("gradient of Net [3]")
    expect(rail.locator('.related[data-kind="again"]')).to_contain_text("x.shape was (8, 64) and is now (9, 64)")
    page.screenshot(path=screenshots / f"shell-{theme}-rail.png")
    rail.get_by_role("button", name=f"hide {hidden} that changed nothing").click()
    expect(same.first).to_be_hidden()
    rail.locator(".stage").first.click()
    page.get_by_role("button", name="Play").click()
    expect(rail.locator(".stage[aria-selected=true]")).not_to_have_attribute("data-stage", "flatten", timeout=4000)
    page.get_by_role("button", name="Pause").click()
    rail.locator('.related[data-kind="again"]').click()
    expect(page.locator('.related[data-kind="earlier"]')).to_contain_text("Net [0]")


def test_compilations_are_searched_sorted_and_compared(
    page: Page, theme: str, tmp_path: Path, screenshots: Path
) -> None:
    page.goto(write_html(several(), tmp_path / "compilations.html").as_uri())
    page.locator("[role=tab][data-view=compilations]").click()
    rows = page.locator(".compilations tbody tr")
    expect(rows).to_have_count(5)
    page.get_by_label("Search the recording").fill("net shape")
    expect(rows).to_have_count(1)
    page.get_by_label("Search the recording").fill("nowhere")
    expect(rows).to_contain_text("No compilation matches.")
    page.get_by_label("Search the recording").fill("")
    page.get_by_role("button", name="Nodes").click()
    expect(page.locator("th[aria-sort=ascending]")).to_contain_text("Nodes")
    page.screenshot(path=screenshots / f"shell-{theme}-compilations.png")
    rows.filter(has=page.locator("th", has_text="4")).get_by_role("button", name="compare").click()
    compared = page.locator(".comparison")
    expect(compared).to_contain_text("x.shape was (8, 64) and is now (9, 64)")
    expect(compared.locator("tr", has_text="decompose")).to_contain_text("–")
    page.screenshot(path=screenshots / f"shell-{theme}-comparison.png")
    compared.locator("tr", has_text="partition").click()
    expect(page.locator("[role=tab][data-view=diff]")).to_have_attribute("aria-selected", "true")
    expect(page.locator(".panel")).to_contain_text("The graph is the same.")
    page.get_by_label("Compare with").select_option(label="the previous stage")
    expect(page.locator(".bar .chip.added")).to_be_visible()
    page.get_by_role("radio", name="by nodes").click()
    expect(page.locator(".panel tbody tr").first).to_be_visible()
    page.screenshot(path=screenshots / f"shell-{theme}-nodes.png")


def test_any_two_stages_are_compared(page: Page, tmp_path: Path) -> None:
    page.goto(write_html(several(), tmp_path / "stages.html").as_uri())
    page.locator('.stage[data-stage="partition"]').click()
    page.locator("[role=tab][data-view=diff]").click()
    page.get_by_role("radio", name="by nodes").click()
    trace = page.get_by_label("Compare with").locator("option", has_text="trace · joint").last.inner_text()
    page.get_by_label("Compare with").select_option(label=trace)
    expect(page.locator(".lead .removed")).to_be_visible()
    page.locator(".panel tbody tr", has=page.locator(".chip.warn")).first.click()
    expect(page.locator(".facts h3")).to_be_visible()


def test_a_line_of_code_and_the_users_line_point_at_each_other(
    page: Page, theme: str, tmp_path: Path, screenshots: Path
) -> None:
    page.goto(write_html(several(), tmp_path / "code.html").as_uri())
    page.locator('.stage[data-stage="trace"]').click()
    page.locator(".cm-line", has_text="gelu_1:").click()
    line = page.locator('.source[aria-pressed="true"]')
    expect(line).to_contain_text("h = self.act(h)")
    page.locator(".source", has_text="return x + h").click()
    expect(page.locator(".aot-marked", has_text="add_1:")).to_be_visible()
    expect(page.locator(".facts h3")).to_have_text("add")
    page.screenshot(path=screenshots / f"shell-{theme}-code.png")
    page.get_by_role("button", name="Your code").click()
    expect(page.locator(".sources")).to_have_count(0)
    page.keyboard.press("2")
    expect(page.locator(".cm-content")).to_be_visible()


def test_kernels_stand_beside_the_graph_that_they_compute(
    page: Page, theme: str, tmp_path: Path, screenshots: Path
) -> None:
    html = tmp_path / "kernels.html"
    aotviz.read_trace(corpus.folder("training")).to_html(html)
    page.goto(html.as_uri())
    page.get_by_role("button", name="changed nothing: show").click()
    page.locator('.stage[data-stage="post-grad passes"]').click()
    page.get_by_role("button", name="Kernels").click()
    kernels = page.locator(".kernels")
    expect(kernels.locator(".bar")).to_contain_text("kernel")
    page.locator(".columns > .editor .cm-line", has_text="= aten.addmm.default(").first.click()
    expect(kernels.locator(".bar")).to_contain_text("extern_kernels.addmm")
    expect(kernels.locator(".aot-marked").first).to_contain_text("extern_kernels.addmm(")
    kernels.locator(".cm-line", has_text="extern_kernels.addmm(").first.click()
    expect(page.locator(".columns > .editor .aot-marked").first).to_contain_text("aten.addmm.default(")
    page.screenshot(path=screenshots / f"shell-{theme}-kernels.png")


def test_a_click_marks_the_one_call_that_computes_a_node(
    page: Page, theme: str, tmp_path: Path, screenshots: Path
) -> None:
    """Two nodes have one operator, and are computed by two calls of one kernel."""

    def chain(x: torch.Tensor, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return x @ a @ b

    with torch._inductor.config.patch(fx_graph_cache=True):
        for _ in range(2):  # Inductor's cache has the second, if not the first
            compiled = aotviz.compile(chain)
            compiled(*(torch.ones(4, 4) for _ in range(3)))
    html = tmp_path / "calls.html"
    compiled.recording.to_html(html)
    page.goto(html.as_uri())
    page.locator(".stage[data-stage=lower]").click()
    page.get_by_role("button", name="Kernels").click()
    kernels = page.locator(".kernels")
    nodes = page.locator(".columns > .editor .cm-line", has_text="= aten.mm.default(")
    calls = kernels.locator(".cm-line", has_text="extern_kernels.mm(")
    marked = kernels.locator(".cm-line.aot-marked")
    for which in (0, 1):
        nodes.nth(which).click()
        expect(kernels.locator(".bar")).to_have_text("extern_kernels.mm")
        expect(marked).to_have_count(1)
        assert marked.inner_text() == calls.nth(which).inner_text()
    calls.nth(0).click()
    expect(page.locator(".facts h3")).to_have_text("mm")
    expect(page.locator(".rail-replay")).to_contain_text("Found in Inductor's FX graph cache")
    page.screenshot(path=screenshots / f"shell-{theme}-calls.png")


def test_what_a_cache_had_stands_in_its_place_on_the_rail(
    page: Page, theme: str, tmp_path: Path, screenshots: Path
) -> None:
    html = tmp_path / "cached.html"
    aotviz.read_trace(corpus.folder("cache_second")).to_html(html)
    page.goto(html.as_uri())
    rail = page.locator(".rail .stages > li")
    expect(page.locator(".rail-replay")).to_have_count(2)
    shown = rail.evaluate_all("rows => rows.map(row => row.dataset.stage || row.querySelector('.name').textContent)")
    at = shown.index("lower")
    assert shown[at : at + 4] == [
        "lower",
        "Found in Inductor's FX graph cache",
        "wrapper",
        "Found in AOTAutograd's cache",
    ]
    expect(page.locator(".rail-replay").last).to_contain_text("saved 29.1 s of compile time")
    page.locator(".rail-replay").last.scroll_into_view_if_needed()
    page.screenshot(path=screenshots / f"shell-{theme}-replays.png")
    page.locator("select[aria-label=Compilation]").select_option("1")  # which missed both
    expect(page.locator(".rail .stage").first).to_be_visible()
    expect(page.locator(".rail-replay")).to_have_count(0)


BACKTICKS = """body => {
  const code = 'pre, .cm-editor';
  const walk = document.createTreeWalker(body, NodeFilter.SHOW_TEXT);
  const found = [...body.querySelectorAll('[title*="`"]')].map(({ title }) => `tooltip: ${title}`);
  while (walk.nextNode())
    if (walk.currentNode.data.includes('`') && !walk.currentNode.parentElement.closest(code))
      found.push(walk.currentNode.parentElement.textContent);
  return found;
}"""


def test_code_in_a_sentence_is_code_and_no_backtick_is_left(
    page: Page, theme: str, tmp_path: Path, screenshots: Path
) -> None:
    """Summaries, reasons, notes of the wrapper, what was compiled again and why: in every view of every stage."""

    def broken(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        y = (x @ w).sin()
        torch._dynamo.graph_break()
        return y.cos().sum()

    torch._dynamo.reset()
    compiled = aotviz.compile(broken, backend="eager")
    for rows in (4, 5):
        compiled(torch.ones(rows, 4), torch.ones(4, 4, requires_grad=True)).backward()
    html = tmp_path / "code.html"
    compiled.recording.to_html(html)
    assert "`" not in re.sub(r"<script.*?</script>", "", html.read_text(), flags=re.DOTALL)
    page.goto(html.as_uri())
    body = page.locator(".workbench")
    summary = page.locator('.stage[data-stage="dynamo"] .what')
    expect(summary.locator("code")).to_have_text("broken")
    for stage in ("dynamo", "link"):
        page.locator(f'.stage[data-stage="{stage}"]').click()
        for tab in page.locator("[role=tab]").all():
            tab.click()
            expect(page.locator(".notice.loading")).to_have_count(0)
            assert body.evaluate(BACKTICKS) == [], tab.inner_text()
            for code in page.locator(".note span code").all():
                expect(code).to_have_css("display", "inline")
    page.locator('.stage[data-stage="dynamo"]').click()
    page.locator("[role=tab][data-view=evidence]").click()
    reason = page.locator(".panel tbody tr", has_text="the graph ends at")
    expect(reason.locator("code", has_text="graph_break()").first).to_be_visible()
    page.screenshot(path=screenshots / f"shell-{theme}-code-in-sentences.png")


def test_another_compilation_opens_at_the_same_stage_and_view(
    page: Page, theme: str, tmp_path: Path, screenshots: Path
) -> None:
    page.goto(write_html(several(), tmp_path / "same.html").as_uri())
    compilation = page.get_by_label("Compilation", exact=True)
    tab = page.locator("[role=tab][aria-selected=true]")
    page.locator('.stage[data-stage="partition"]').click()
    page.locator('.roles [data-role="backward"]').click()
    page.locator("[role=tab][data-view=graph]").click()
    page.locator('.related[data-kind="again"]').click()
    expect(page.locator('.related[data-kind="earlier"]')).to_be_visible()
    selected(page, "partition")
    expect(tab).to_have_attribute("data-view", "graph")
    expect(page.locator('.roles [aria-checked="true"]')).to_have_text("backward")
    page.screenshot(path=screenshots / f"shell-{theme}-same-stage.png")
    compilation.select_option(index=1)  # of flatten, metadata, synthetic bases, trace
    selected(page, "trace")
    expect(tab).to_have_attribute("data-view", "graph")


def test_a_tab_opens_though_the_page_is_drawn_again_while_it_is_pressed(page: Page, tmp_path: Path) -> None:
    """As while something is compiled, when each stage that ends draws it again."""
    page.goto(write_html(several(), tmp_path / "pressed.html").as_uri())
    tab = page.locator("[role=tab][data-view=diff]")
    tab.hover()
    page.mouse.down()
    page.keyboard.press("3")
    expect(page.locator("[role=tab][aria-selected=true]")).not_to_have_attribute("data-view", "code")
    page.mouse.up()
    expect(tab).to_have_attribute("aria-selected", "true")


def test_keys_reach_everything(page: Page, theme: str, tmp_path: Path, screenshots: Path) -> None:
    page.goto(write_html(several(), tmp_path / "keys.html").as_uri())
    expect(page.locator("[role=tab]").last).to_be_in_viewport(ratio=1)
    page.keyboard.press("2")
    expect(page.locator(".cm-content")).to_be_visible()
    selected(page, "trace")
    page.keyboard.press("ArrowRight")
    selected(page, "decompose")
    page.keyboard.press("ArrowLeft")
    selected(page, "trace")
    page.keyboard.press("3")
    expect(page.locator("[role=tab][data-view=diff]")).to_have_attribute("aria-selected", "true")
    page.keyboard.press("2")
    page.keyboard.press("/")
    page.keyboard.type("gelu")
    page.keyboard.press("Enter")
    expect(page.locator(".facts h3")).to_contain_text("gelu")
    page.keyboard.press("Escape")
    page.keyboard.press("n")
    page.keyboard.press("Escape")
    expect(page.locator(".facts")).to_be_hidden()
    page.keyboard.press("?")
    keys = page.get_by_role("dialog", name="What is this?")
    expect(keys).to_be_visible()
    page.screenshot(path=screenshots / f"shell-{theme}-keys.png")
    page.keyboard.press("ArrowRight")
    selected(page, "trace")  # the dialog is in the way
    page.keyboard.press("Escape")
    expect(keys).to_be_hidden()


def test_keys_work_wherever_a_click_left_the_focus(page: Page, tmp_path: Path) -> None:
    page.goto(write_html(several(), tmp_path / "focus.html").as_uri())
    tab = page.locator("[role=tab][aria-selected=true]")
    help = page.get_by_role("dialog", name="What is this?")
    page.locator('.stage[data-stage="trace"]').click()
    page.locator(".cm-line", has_text="gelu_1:").click()  # in code
    page.keyboard.press("ArrowRight")
    selected(page, "decompose")
    page.locator(".cm-line").first.click()
    page.keyboard.press("?")
    expect(help).to_contain_text("on a tab, a choice or the drawing")
    page.keyboard.press("Escape")
    expect(help).to_be_hidden()
    page.keyboard.press("ArrowLeft")  # the focus is in the code again
    selected(page, "trace")
    page.locator(".cm-content").focus()
    page.keyboard.press("Escape")
    expect(page.locator(".facts")).to_be_hidden()
    page.keyboard.press("/")
    page.keyboard.type("p2")  # text, and no keys
    expect(page.get_by_label("Search the recording")).to_have_value("p2")
    page.keyboard.press("Escape")
    page.get_by_role("button", name="Your code").click()  # which is drawn again
    page.keyboard.press("3")
    expect(tab).to_have_attribute("data-view", "diff")
    page.keyboard.press("ArrowRight")
    selected(page, "decompose")
    page.locator(".cm-line").first.click()  # in the diff
    page.keyboard.press("ArrowLeft")
    selected(page, "trace")
    page.locator("[role=tab][data-view=saved]").click()  # on a tab
    page.keyboard.press("ArrowLeft")
    expect(tab).to_have_attribute("data-view", "events")
    page.keyboard.press("ArrowLeft")
    expect(tab).to_have_attribute("data-view", "aliasing")
    page.keyboard.press("?")
    page.keyboard.press("Escape")
    page.locator('.stage[data-stage="partition"]').click()
    page.locator('.roles [data-role="backward"]').click()
    chosen = page.locator('.roles [aria-checked="true"]')
    chosen.focus()  # on a choice
    page.keyboard.press("ArrowLeft")
    expect(chosen).to_have_text("forward")
    page.keyboard.press("ArrowLeft")
    expect(chosen).to_have_text("backward")
    page.locator(".panel .page").click(position={"x": 4, "y": 4})  # on nothing
    page.keyboard.press("Home")
    page.keyboard.press("ArrowLeft")
    expect(page.locator(".stage[aria-selected=true]")).not_to_have_attribute("data-stage", "partition")


def test_the_page_around_the_workbench_never_scrolls_by_itself(page: Page, tmp_path: Path) -> None:
    page.goto(write_html(several(), tmp_path / "scroll.html").as_uri())
    page.keyboard.press("2")
    expect(page.locator(".cm-content")).to_be_visible()
    page.add_style_tag(content="body, html { display: block !important; height: auto !important; overflow: auto }")
    page.evaluate(
        """() => {
          const place = document.getElementById("workbench");
          place.style.cssText = "display: block; height: 640px; margin: 2000px 0; --aotviz-height: 640px";
          window.scrollTo(0, place.getBoundingClientRect().top + window.scrollY - 600);  // the head and 200 pixels
        }"""
    )
    before = page.evaluate("window.scrollY")
    assert before > 1000
    for stage in ("trace", "partition"):
        page.locator(f'.stage[data-stage="{stage}"]').evaluate("row => row.click()")
        for tab in page.locator("[role=tab]").all():
            tab.evaluate("tab => { tab.focus({ preventScroll: true }); tab.click(); }")
            expect(page.locator(".notice.loading")).to_have_count(0)
            page.keyboard.press("n")
            page.keyboard.press("n")
            page.evaluate(FRAMES)  # what scrolls later does it by then
            assert page.evaluate("window.scrollY") == before, tab.inner_text()
    page.keyboard.press("?")
    page.locator(".help-tour").evaluate("button => button.click()")
    for step in range(1, 9):  # of the tour
        expect(page.locator(".tour-card")).to_contain_text(f"{step} of 8")
        expect(page.locator(".tour-ring")).not_to_have_attribute("style", "")
        page.keyboard.press("Enter")
        assert page.evaluate("window.scrollY") == before, step
    page.keyboard.press("/")
    page.keyboard.type("slice")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    assert page.evaluate("window.scrollY") == before
    page.keyboard.press("Escape")
    page.locator("[role=tab][data-view=code]").evaluate("tab => tab.click()")
    page.locator(".cm-content").evaluate("code => code.focus({ preventScroll: true })")
    for _ in range(3):
        page.keyboard.press("PageDown")
    page.keyboard.press("ArrowRight")
    assert page.evaluate("window.scrollY") == before
    scroller = page.locator(".cm-scroller")
    page.keyboard.press("Home")
    page.locator(".cm-content").evaluate("code => code.focus({ preventScroll: true })")
    page.keyboard.press("PageDown")
    page.keyboard.press("PageDown")
    assert scroller.evaluate("place => place.scrollTop") > 0  # but the code does


def test_the_place_is_kept_when_the_page_is_loaded_again(page: Page, tmp_path: Path) -> None:
    page.goto(write_html(several(), tmp_path / "place.html").as_uri())
    page.locator('.stage[data-stage="partition"]').click()
    page.locator('.roles [data-role="backward"]').click()
    page.locator(".work").evaluate("work => work.scrollIntoView({ block: 'end' })")  # only lines on the screen exist
    page.locator(".cm-line", has_text="gelu_backward:").first.click()
    expect(page.locator(".facts h3")).to_have_text("gelu_backward")
    page.locator("[role=tab][data-view=graph]").click()
    page.reload()
    selected(page, "partition")
    expect(page.locator("[role=tab][data-view=graph]")).to_have_attribute("aria-selected", "true")
    expect(page.locator('.roles [aria-checked="true"]')).to_have_text("backward")
    expect(page.locator(".facts h3")).to_have_text("gelu_backward")
