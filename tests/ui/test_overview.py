"""The overview is what a person sees first, and each of its links leads to the place that says the same."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from playwright.sync_api import Browser, Locator, Page, expect

from aotviz.reading.recording import Recording
from aotviz.widgets.html import write_html
from tests import corpus
from tests.explain.logs import logged, recording
from tests.explain.test_overview import job
from tests.explain.test_own_cache import missed, recorded
from tests.raw_texts import RAW
from tests.tiers import SCREENS
from tests.ui.test_accessibility import serious
from tests.ui.test_states import ran_in_eager

Open = Callable[..., Page]
CHOSEN = """() => {
  const host = [...document.querySelectorAll("*")].find((one) => one.shadowRoot);
  return host.shadowRoot.querySelector(".head select").selectedOptions[0].text;
}"""
SEEN = """() => {
  const walk = (node) => {
    if (node.nodeType === Node.TEXT_NODE) return node.textContent.trim() ? [node.textContent] : [];
    if (node.hidden || node.matches(".as-written, .cm-editor")) return [];
    return [node.title ?? "", node.ariaLabel ?? "", ...[...node.childNodes].flatMap(walk)].flat();
  };
  const host = [...document.querySelectorAll("*")].find((one) => one.shadowRoot);
  return walk(host.shadowRoot.querySelector(".workbench"));
}"""
MOST = 10  # compilations of a log that are opened
JOBS = ("aoti", "training", "graph_breaks", "errors", "ranks_diverge", "exports", "cache_second")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Recording:
    return job(tmp_path_factory.mktemp("cache"))


@pytest.fixture
def opened(browser: Browser, tmp_path: Path) -> Iterator[Open]:
    pages: list[Page] = []
    problems: list[str] = []

    def show(of: Recording, width: int = 1280, theme: str = "light") -> Page:
        page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=theme, offline=True)  # type: ignore[arg-type]
        pages.append(page)
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.goto(write_html(of, tmp_path / "page.html").as_uri())
        expect(page.locator(".overview .headline")).to_be_visible()
        return page

    yield show
    assert problems == []
    for page in pages:
        page.close()


def plain(text: str) -> str:
    return text.replace("`", "")


@pytest.mark.parametrize(("width", "theme"), SCREENS)
@pytest.mark.parametrize("name", ["job", *JOBS])
def test_it_is_seen_first_and_says_what_recording_overview_says(
    opened: Open, made: Recording, name: str, width: int, theme: str, screenshots: Path
) -> None:
    of = made if name == "job" else recording(name)
    page, said = opened(of, width, theme), of.overview()
    expect(page.get_by_role("tab", name="Overview")).to_have_attribute("aria-selected", "true")
    expect(page.locator(".headline")).to_have_text(plain(said.headline))
    expect(page.locator(".causes .what")).to_have_text([plain(title) for title in said.causes.title])
    expect(page.locator(".times .named")).to_have_count(len(said.times))
    expect(page.locator(".overview tbody tr")).to_have_count(len(said.functions))
    expect(page.locator(".stage-head")).to_be_hidden()
    assert page.locator(".overview").evaluate("(one) => one.scrollWidth <= one.clientWidth + 1")
    page.screenshot(path=screenshots / f"overview-{name}-{width}-{theme}.png")
    assert serious(page) == []


def follow(page: Page, title: str) -> None:
    cause = page.locator(".causes details").filter(has=page.locator(".what", has_text=title)).first
    if cause.get_attribute("open") is None:
        cause.locator("summary").click()
    cause.locator(".links button").click()


def shown(page: Page, view: str) -> Locator:
    expect(page.locator(f"[role=tab][data-view={view}]")).to_have_attribute("aria-selected", "true")
    return page.locator(".panel")


def test_a_recompile_leads_to_its_compilation_which_says_why(opened: Open, made: Recording) -> None:
    page = opened(made)
    follow(page, "was recompiled: self.scale was 1.0 and is now 2.0")
    row = shown(page, "compilations").locator("tr[aria-selected=true]")
    expect(row).to_contain_text("self.scale")


def test_a_graph_break_leads_to_the_graph_breaks(opened: Open) -> None:
    page = opened(recording("graph_breaks"))
    follow(page, "print cannot be part of a graph")
    panel = shown(page, "records")
    expect(panel.locator("[data-page=graph_breaks]")).to_have_attribute("aria-checked", "true")
    expect(panel).to_contain_text("graph_breaks.py:18")


def test_ranks_that_differ_lead_to_the_differences(opened: Open) -> None:
    page = opened(recording("ranks_diverge"))
    follow(page, "Ranks 0 to 3 will hang")
    panel = shown(page, "records")
    expect(panel.locator("[data-page=ranks]")).to_have_attribute("aria-checked", "true")
    expect(panel).to_contain_text("The ranks run different collectives in reduce_loss")


@pytest.mark.parametrize(
    ("title", "error", "compilation"),
    [
        ("wrong_shapes [1/0] failed: matmul raised RuntimeError", "TorchRuntimeError", "1"),
        # without a stage of its own
        ("the backend broken_backend raised RuntimeError", "this backend cannot compile anything", "0"),
    ],
    ids=("in a stage", "of the backend"),
)
def test_a_failure_leads_to_the_compilation_that_failed(opened: Open, title: str, error: str, compilation: str) -> None:
    page = opened(recording("errors"))
    follow(page, title)
    shown(page, "code")
    expect(page.locator(".stage-head .failure")).to_contain_text(error)
    expect(page.locator(".head select")).to_have_value(compilation)


def test_a_bypassed_cache_leads_to_its_lookup(opened: Open) -> None:
    page = opened(recording("cache_second"))
    follow(page, "The graph calls a custom torch.autograd.Function")
    panel = shown(page, "records")
    expect(panel.locator("[data-page=cache_lookups]")).to_have_attribute("aria-checked", "true")
    rows = panel.locator("tr[aria-current=true]")
    expect(rows.first).to_be_in_viewport()
    expect(rows.first).to_contain_text("7/0")
    expect(rows.filter(has_text="bypass").first).to_contain_text("autograd_function_apply")
    assert rows.count() < panel.locator("tbody tr").count()


def test_what_missed_aotvizs_own_cache_leads_to_what_differs(opened: Open) -> None:
    page = opened(recorded(missed(torch=("2.12.1", "2.13.0"))))
    follow(page, "step was compiled again although it was cached before")
    expect(shown(page, "records").locator("tr[aria-current=true]")).to_contain_text("2.12.1")
    page.locator("[role=tab][data-view=compilations]").click()
    title = page.locator(".compilations td .chip").first.get_attribute("title") or ""
    assert "torch: 2.12.1 before, now 2.13.0" in title


def floats_that_change(folder: Path) -> Recording:
    def clamped(x: torch.Tensor, least: float) -> torch.Tensor:
        return torch.clamp(x, least) + torch.nn.functional.threshold(x, least, 2.0 * least)

    def program() -> None:
        torch._dynamo.reset()
        with torch._dynamo.config.patch(specialize_float=False):  # type: ignore[no-untyped-call]
            compiled = torch.compile(clamped, backend="aot_eager")
            for least in (1.5, 2.5):
                compiled(torch.ones(3), least)

    return logged(program, folder)


def test_a_restart_leads_to_its_mark_in_the_timeline(opened: Open, tmp_path: Path) -> None:
    page = opened(floats_that_change(tmp_path))
    assert raw(page) == []
    follow(page, "Dynamo analysed clamped again from the first line")
    readout = shown(page, "timeline").locator(".readout")
    why = "a number that it had made a symbol has to be a constant"
    expect(readout).to_contain_text(f"Dynamo started again (attempt 2): {why} · clamped [0/1]")


def test_what_ran_in_eager_leads_to_the_stage_that_refused_it(opened: Open) -> None:
    of = Recording(ran_in_eager())
    page = opened(of)
    follow(page, "ran in eager")
    shown(page, "code")
    refused = page.locator(".stage-head .failure.refused")
    expect(refused).to_contain_text("Ran in eager, refused in joint: an intermediate: a metadata op")
    page.locator("[role=tab][data-view=overview]").click()
    row = page.locator(".overview tbody tr").filter(has_text="a metadata op")
    row.click()
    expect(refused).to_contain_text("Ran in eager, refused in joint")


@pytest.mark.parametrize("width", [1280, 500])
def test_the_head_speaks_of_the_whole_job_until_a_compilation_is_chosen(
    opened: Open, made: Recording, width: int
) -> None:
    page = opened(made, width)
    chosen, rail = page.locator(".head select"), page.locator(".rail-of")
    total = page.locator(".times .total").inner_text().removeprefix("= ")
    assert page.evaluate(CHOSEN) == f"All {len(made)} compilations · {total}"
    expect(page.locator(".head .chip")).to_have_count(0)
    expect(page.locator(".head .muted")).to_have_count(0)
    if width == 1280:
        expect(rail).to_contain_text(f"Stages of {made[0].name}")
    else:
        expect(page.locator(".rail .stages")).to_be_hidden()
    chosen.select_option("1")
    expect(page.locator("[role=tab][data-view=overview]")).to_have_attribute("aria-selected", "false")
    expect(chosen).to_have_value("1")
    expect(chosen.locator("option")).to_have_count(len(made))
    expect(rail).to_be_empty()
    expect(page.locator(".head .muted")).to_contain_text("stages · ")
    page.locator("[role=tab][data-view=overview]").click()
    assert page.evaluate(CHOSEN).startswith("All ")


def test_a_narrow_page_begins_with_the_headline(opened: Open) -> None:
    page = opened(recording("errors"), 500)
    bench, headline = page.locator(".workbench").bounding_box(), page.locator(".headline").bounding_box()
    assert bench
    assert headline
    assert headline["y"] - bench["y"] < 100  # pixels: a line of the recording, and one of tabs
    find, help = page.locator(".head .find").bounding_box(), page.locator(".help-button").bounding_box()
    assert find
    assert help
    assert find["x"] + find["width"] <= help["x"]
    last = page.locator("[role=tab][data-view=records]")
    last.click()
    expect(last).to_be_in_viewport(ratio=1)


def test_a_function_leads_to_the_graph_of_its_last_compilation(opened: Open, made: Recording) -> None:
    page = opened(made)
    page.locator(".overview tbody tr").first.click()
    shown(page, "graph")
    last = made.overview().functions.compilations[0][-1]
    expect(page.locator(".head select")).to_have_value(str([one.id for one in made].index(last)))


def test_j_and_k_move_between_the_causes_and_enter_opens_one(opened: Open, made: Recording) -> None:
    page = opened(made)
    lines = page.locator(".causes summary")
    lines.first.focus()
    page.keyboard.press("j")
    expect(lines.nth(1)).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator(".causes details").nth(1)).to_have_attribute("open", "")
    page.keyboard.press("k")
    expect(lines.first).to_be_focused()


def test_choosing_a_stage_leaves_it(opened: Open, made: Recording) -> None:
    page = opened(made)
    page.locator(".rail .stage[data-stage=partition]").click()
    shown(page, "code")
    expect(page.locator(".stage-head h2")).to_have_text("partition")


@pytest.mark.parametrize("name", ["recompiles_values", "recompiles_modules", "recompile_limit", "compiled_autograd"])
def test_what_was_compiled_again_is_told_in_words_everywhere(opened: Open, name: str) -> None:
    of = recording(name)
    page = opened(of)
    page.locator("[role=tab][data-view=compilations]").click()
    assert RAW.search(page.locator(".panel").inner_text()) is None
    again = of.recompiles().compilation
    for id in (again.iloc[0], again.iloc[-1]):
        page.locator(f'.compilations tbody tr[data-compilation="{id}"]').click()
        expect(page.locator(".rail .related[data-kind=earlier] .what")).not_to_be_empty()
        assert RAW.search(page.locator(".rail").inner_text()) is None


def raw(page: Page) -> list[str]:
    """Texts of the workbench that no user would have written, apart from those that are shown as torch's own."""
    return [text for text in page.evaluate(SEEN) if RAW.search(text)]


@pytest.mark.every(6)
@pytest.mark.parametrize("name", ["job", *corpus.names()])
def test_torchs_own_words_stand_only_where_they_are_called_that(opened: Open, made: Recording, name: str) -> None:
    of = made if name == "job" else recording(name)
    page = opened(of)
    found = {}
    for tab in page.locator("[role=tab]:not([data-view=code], [data-view=graph], [data-view=diff])").all():
        tab.click()
        expect(page.locator(".panel .notice.loading")).to_have_count(0)
        for choice in page.locator(".pages [data-page]").all() or [tab]:
            choice.click()
            found[tab.inner_text(), choice.inner_text()] = raw(page)
    compared = page.locator(".compilations tbody tr").get_by_role("button", name="compare")
    page.locator("[role=tab][data-view=compilations]").click()
    for row in page.locator(".compilations tbody tr").all()[:MOST]:
        row.click()
        found["rail", row.inner_text()] = raw(page)
    if compared.count():
        compared.last.click()
        expect(page.locator(".comparison")).to_be_visible()
        found["compared", name] = raw(page)
    assert {place: texts for place, texts in found.items() if texts} == {}


LINES = """(pattern) => {
  const host = [...document.querySelectorAll("*")].find((one) => one.shadowRoot);
  const walker = document.createTreeWalker(host.shadowRoot.querySelector(".workbench"), NodeFilter.SHOW_TEXT);
  const wrapped = [];
  let seen = 0;
  for (let node = walker.nextNode(); node; node = walker.nextNode())
    for (const { index, 0: id } of node.textContent.matchAll(new RegExp(pattern, "g"))) {
      const range = document.createRange();
      range.setStart(node, index);
      range.setEnd(node, index + id.length);
      const tops = new Set([...range.getClientRects()].map(({ top }) => Math.round(top)));
      seen += tops.size > 0;
      if (tops.size > 1) wrapped.push(node.textContent);
    }
  return [seen, wrapped];
}"""


@pytest.mark.parametrize("width", [1280, 500])
def test_the_id_of_a_compilation_stands_on_one_line(opened: Open, width: int) -> None:
    page = opened(recording("graph_breaks"), width)
    ids, wrapped = 0, []
    for view in ("overview", "compilations", "records", "timeline"):
        page.locator(f"[role=tab][data-view={view}]").click()
        pages = page.locator(".pages [data-page]")
        for choice in pages.all() or [page.locator(f"[role=tab][data-view={view}]")]:
            choice.click()
            seen, found = page.evaluate(LINES, r"\b\d+/\d+(_\d+)?\b")
            ids += seen
            wrapped += found
    assert ids > len(recording("graph_breaks"))
    assert wrapped == []
