"""The workbench says what aotviz's cache answered: in the list, in the head, first in the rail, and at each stage that
the cache replayed."""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from playwright.sync_api import Locator, Page, expect

import aotviz
import aotviz.frontends.backend
from aotviz.ir.lookup import LookUp, Outcome
from aotviz.reading.recording import Recording
from aotviz.widgets.html import write_html
from tests.from_cache import answering
from tests.ui.test_accessibility import serious
from tests.ui.views import code_of

NOW = {
    "program": "input\ninput\n%2 = .sin(%0)",
    "Inductor's settings": "max_autotune = True\nall 391: 5b",
    "torch": "2.13.0",
}
HIT = LookUp(Outcome.HIT, key="c0ffee" * 6, ingredients=NOW, saved_ns=8_300_000_000, saved_at_unix_s=1_793_000_000.0)
MISS = LookUp(
    Outcome.MISS,
    key="b0b0" * 9,
    ingredients=NOW,
    nearest="c0ffee" * 6,
    differs={
        "Inductor's settings": ("all 391: 4a", "max_autotune = True\nall 391: 5b"),
        "inputs": (
            "torch.float32 (16, 8) strides (8, 1) on cpu requires grad",
            "torch.bfloat16 (16, 8) strides (8, 1) on cpu requires grad",
        ),
        "torch": ("2.12.1", "2.13.0"),
    },
)
INPUTS = MISS.differs["inputs"][1] + "\ntorch.float32 (8) strides (1) on cpu" * 9
MISS_OF_MANY_INPUTS = replace(MISS, differs={**MISS.differs, "inputs": ("", INPUTS)})
GUARD_MISS = LookUp(Outcome.GUARD_MISS, key="ab" * 18, reason="`x.shape[0]` must be at least 17, and it is 16")
BYPASS = LookUp(
    Outcome.BYPASS,
    reason="option 'partition_fn': the content of a partial is not known; give it a method uuid()",
    where="train.py:12 in <module>",
)


def train(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return (x @ w).relu().sum()


def compiled(*lookups: LookUp) -> Recording:
    """A recording with a compilation for each look-up."""
    recorded = b""
    with aotviz.record() as recording:
        for lookup in lookups:
            torch._dynamo.reset()
            answer = (lookup, recorded)
            with answering(lambda request, answer=answer: answer) as seen:
                x, w = torch.ones(16, 8), torch.ones(8, 4, requires_grad=True)
                result = torch.compile(train, backend="aotviz_eager")(x, w)
                if lookup is not HIT:  # the cache has the backward
                    result.backward()
            recorded = recorded or seen[0].recorded() or b""
    return recording


@pytest.fixture(scope="module")
def html(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_html(
        compiled(MISS_OF_MANY_INPUTS, HIT, GUARD_MISS, BYPASS), tmp_path_factory.mktemp("cache") / "cache.html"
    )


@pytest.fixture
def page(still_page: Page, html: Path) -> Page:
    still_page.goto(html.as_uri())
    return still_page


def opened(page: Page) -> Locator:
    """The cache's answer: one line, until it is clicked."""
    answer = page.get_by_role("region", name="The cache's answer")
    assert answer.bounding_box()["height"] < 48  # type: ignore[index] # a line, and what is around it
    answer.locator("summary.answer").click()
    return answer


def test_a_miss_shows_the_ingredients_that_differ_side_by_side(page: Page, theme: str, screenshots: Path) -> None:
    answer = opened(page)
    expect(answer).to_contain_text("the nearest earlier key differs in Inductor's settings", ignore_case=True)
    first = answer.get_by_role("group", name="Inductor's settings")
    expect(first.locator("dd")).to_have_text(["the default", "max_autotune = True"])
    boxes = [first.locator("dl > div").nth(i).bounding_box() for i in range(2)]
    assert boxes[0]["y"] == boxes[1]["y"]
    assert boxes[0]["x"] + boxes[0]["width"] <= boxes[1]["x"]
    assert "c0ffee" not in answer.inner_text()
    now = answer.get_by_role("group", name="inputs").locator("dd").nth(1)  # long, so it is folded
    assert now.bounding_box()["height"] < 100
    now.locator("summary").click()
    expect(now.locator("details > code")).to_contain_text("on cpu\ntorch.float32 (8) strides (1) on cpu")
    assert now.bounding_box()["height"] > 200
    now.locator("summary").click()
    third = answer.get_by_role("group", name="torch", exact=True)
    expect(third).to_be_hidden()
    answer.get_by_text("1 other ingredient").focus()
    page.keyboard.press("Enter")
    expect(third.locator("dd")).to_have_text(["2.12.1", "2.13.0"])
    code_of(page)
    expect(page.locator(".head .chip").nth(1)).to_have_text("cache miss")
    page.screenshot(path=screenshots / f"cache-miss-{theme}.png")


def test_a_hit_marks_the_stages_that_it_replayed(page: Page, theme: str, screenshots: Path) -> None:
    page.locator(".head select").select_option("1")
    answer = opened(page)
    expect(answer.locator(".chip")).to_have_text("hit · saved 8.3 s")
    expect(answer).to_contain_text("made 2026-10-")
    stages = page.locator(".stage")
    expect(stages.first).to_have_attribute("data-stage", "dynamo")
    expect(stages.first).not_to_contain_text("replayed")
    expect(page.locator(".stage.replayed .replay")).to_have_count(stages.count() - 1)
    expect(page.locator(".rail-divider").first).to_contain_text("replayed from the cache")
    page.locator('.stage[data-stage="partition"]').click()
    expect(page.locator(".stage-head .chip.added")).to_have_text("replayed")
    expect(page.locator(".cm-content")).to_contain_text("def forward")
    page.screenshot(path=screenshots / f"cache-hit-{theme}.png")
    page.locator('[role=tab][data-view="saved"]').click()
    expect(page.locator(".panel .notice")).to_have_count(0)


def test_the_list_has_a_badge_for_each_answer_and_filters_by_it(page: Page, theme: str, screenshots: Path) -> None:
    page.locator('[role=tab][data-view="compilations"]').click()
    rows = page.locator(".compilations tbody tr")
    expect(rows.locator("td .chip")).to_have_text(["miss", "hit · saved 8.3 s", "guard miss", "bypass"])
    chip = rows.nth(3).locator("td .chip")
    expect(chip).to_have_attribute("title", re.compile(rf"^{re.escape(BYPASS.reason)}\ntrain\.py:12 in <module>\n"))
    page.screenshot(path=screenshots / f"cache-list-{theme}.png")
    page.get_by_label("Which").select_option(label="from the cache")
    expect(rows).to_have_count(1)
    page.get_by_label("Which").select_option(label="not from the cache")
    expect(rows).to_have_count(3)


def test_a_guard_miss_and_a_bypass_say_why(page: Page) -> None:
    page.locator(".head select").select_option("2")
    answer = opened(page)
    expect(answer).to_contain_text("x.shape[0] must be at least 17, and it is 16.")
    page.locator(".head select").select_option("3")
    opened(page)
    expect(answer).to_contain_text("the content of a partial is not known", ignore_case=True)
    expect(answer.locator("code")).to_have_text("train.py:12 in <module>")


@pytest.mark.parametrize("position", range(4))
def test_axe_finds_nothing_serious(page: Page, position: int) -> None:
    page.locator(".head select").select_option(str(position))
    opened(page)
    assert serious(page) == []


def test_the_text_says_it_too() -> None:
    text = str(compiled(MISS, HIT))
    assert "cache miss: the nearest earlier key differs in Inductor's settings, inputs and torch" in text
    assert "torch: 2.12.1 before, now 2.13.0" in text
    assert "cache hit: the program was not compiled, because the cache has it; which saved 8,300.0 ms" in text
    assert "of them replayed from the cache" in text
    assert "replayed: " in text


def test_a_saved_recording_with_a_hit_shows_all_of_it_when_it_is_opened_again(still_page: Page, tmp_path: Path) -> None:
    for turn in ("miss", "hit"):
        torch._dynamo.reset()
        x, w = torch.ones(16, 8), torch.ones(8, 4, requires_grad=True)
        with aotviz.record() as recording:
            aotviz.compile(train, backend="eager", cache=tmp_path / "cache")(x, w).backward()
        recording.save(tmp_path / f"{turn}.aotviz")
    script = "import sys, aotviz; aotviz.load(sys.argv[1]).to_html(sys.argv[2])"
    names = str(tmp_path / "hit.aotviz"), str(tmp_path / "hit.html")
    subprocess.run([sys.executable, "-c", script, *names], check=True)
    still_page.goto((tmp_path / "hit.html").as_uri())
    expect(still_page.get_by_role("region", name="The cache's answer").locator(".chip")).to_contain_text("hit · saved")
    stages = still_page.locator(".stage")
    expect(still_page.locator(".stage.replayed")).to_have_count(stages.count() - 1)
    still_page.locator('.stage[data-stage="partition"]').click()
    expect(still_page.locator(".cm-content")).to_contain_text("def forward")
    still_page.locator('[role=tab][data-view="graph"]').click()
    expect(still_page.locator(".panel .notice")).to_have_count(0)
