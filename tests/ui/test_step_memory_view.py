"""The view of memory shows a whole training step: forward, captured backward and the optimizer's step in one drawing,
each phase with its name and peak, and who holds what; and goes from there to the nodes of each compilation."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from playwright.sync_api import Browser, Locator, Page, expect
from torch import nn

import aotviz
from aotviz.explain import steps
from aotviz.recording import sizes
from aotviz.widgets import parts
from aotviz.widgets.html import write_html
from tests.ui.test_accessibility import serious
from tests.ui.test_memory_view import PAINTED, canvas, caption

PHASES = {"forward": "forward", "backward": "backward", "step": "optimizer step"}


def trained(captures: bool = True) -> aotviz.Recording:
    torch._dynamo.reset()
    aotviz.compiled_autograd.reset()
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(64, 256), nn.GELU(), nn.Linear(256, 10))
    optimizer = torch.optim.AdamW(net.parameters())
    loss = aotviz.compile(lambda x: net(x).square().mean(), backend="eager")
    update = aotviz.compile(lambda: optimizer.step(), backend="eager")
    captured = aotviz.compiled_autograd(backend="eager")
    with aotviz.record() as recording:
        for _ in range(2):
            if captures:
                with captured:
                    loss(torch.randn(512, 64)).backward()
            else:
                loss(torch.randn(512, 64)).backward()
            update()
            optimizer.zero_grad()
    return recording


@pytest.fixture(scope="module")
def recording() -> aotviz.Recording:
    return trained()


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    problems: list[str] = []
    page = browser.new_page(viewport={"width": 1280, "height": 800}, offline=True, reduced_motion="reduce")
    page.on("pageerror", lambda error: problems.append(str(error)))
    yield page
    assert problems == []
    page.close()


def opened(page: Page, recording: aotviz.Recording, folder: Path, at: str = "") -> Page:
    page.goto(write_html(recording, folder / "page.html").as_uri() + f"#view=memory{at}")
    page.wait_for_function(PAINTED)
    return page


def chosen(page: Page, name: str) -> Locator:
    return page.get_by_role("radiogroup", name="Memory of").get_by_role("radio", name=name)


@pytest.mark.parametrize("width", [500, 1280])
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_a_captured_backward_shows_the_whole_step(
    page: Page, recording: aotviz.Recording, tmp_path: Path, width: int, theme: str, screenshots: Path
) -> None:
    page.set_viewport_size({"width": width, "height": 800})
    page.emulate_media(color_scheme="dark" if theme == "dark" else "light")
    (backward,) = [one for one in recording if one.kind == "compiled autograd"]
    opened(page, recording, tmp_path, f"&compilation={backward.id}")
    page.screenshot(path=screenshots / f"memory-step-{width}-{theme}.png")
    memory = recording.step_memory()
    peak = memory.peak
    expect(page.locator(".memory-view .lead")).to_contain_text(
        f"At most {sizes.told(peak.nbytes)} are alive at once: while {peak.node} of the {PHASES[peak.phase]} runs"
    )
    peaks = [f"{name} {sizes.told(memory.peak_of(phase).nbytes)}" for phase, name in PHASES.items()]
    expect(page.locator(".memory-view .phases")).to_have_text("Peaks: " + " · ".join(peaks))
    expect(chosen(page, "Training step")).to_be_checked()
    expect(chosen(page, "This compilation")).to_be_disabled()
    assert f"in {len(memory.holders())} values" in caption(page)
    frame = page.locator(".memory-view").bounding_box()
    assert frame is not None
    assert frame["x"] + frame["width"] <= width
    assert serious(page) == []


@pytest.mark.parametrize("captures", [True, False])
def test_every_moment_has_the_bytes_and_the_holders_of_the_plan(page: Page, tmp_path: Path, captures: bool) -> None:
    recording = trained(captures)
    opened(page, recording, tmp_path, "&compilation=0")
    expect(chosen(page, "This compilation")).to_be_checked()
    own = recording[0].memory().peak
    expect(page.locator(".memory-view .lead")).to_contain_text(f"At most {sizes.told(own.nbytes)}")
    chosen(page, "Training step").click()
    canvas(page).focus()
    page.keyboard.press("Home")
    memory = recording.step_memory()
    for moment in memory.moments.itertuples():
        said = f"Alive while {moment.node} runs in the {PHASES[moment.phase]}: {sizes.told(moment.alive)} in "
        assert caption(page) == f"{said}{len(memory.holders(moment.at))} values"
        page.keyboard.press("ArrowRight")


class OnTwoDevices(nn.Module):
    """Two graphs, with tensors on "meta", which stands for an accelerator, and on the CPU."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(64, 128, device="meta"), nn.Linear(128, 64, device="meta")
        self.near = nn.Linear(32, 32)

    def forward(self, far: torch.Tensor, near: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        hidden = self.first(far).tanh()
        torch._dynamo.graph_break()
        return self.second(hidden).square().sum(), self.near(near).tanh().square().sum()


@pytest.mark.parametrize("width", [500, 1280])
def test_a_step_of_two_graphs_has_a_choice_of_device(page: Page, tmp_path: Path, width: int, screenshots: Path) -> None:
    torch._dynamo.reset()
    model = aotviz.compile(OnTwoDevices(), backend="eager")
    results = model(torch.empty(512, 64, device="meta"), torch.randn(512, 32))
    torch.autograd.backward(results, [torch.ones_like(one) for one in results])
    memory = model.recording.step_memory()
    assert memory.pieces == ("0", "1")
    assert memory.devices == ("meta", "cpu")
    page.set_viewport_size({"width": width, "height": 800})
    opened(page, model.recording, tmp_path, "&compilation=1")
    lead, choice = page.locator(".memory-view .lead"), page.get_by_label("Memory of the device")
    lowering = page.locator(".memory-view .lowering")
    for device in memory.devices:
        choice.select_option(device)
        expect(lowering).to_contain_text(f"the peak on {device}")
    chosen(page, "Training step").click()
    expect(choice.locator("option")).to_have_text(["all devices", *memory.devices])
    for device in memory.devices:
        choice.select_option(device)
        alone = memory.on(device)
        expect(lead).to_contain_text(f"At most {sizes.told(alone.peak.nbytes)} are alive at once")
        expect(lead).to_contain_text(f"This is the memory on {device} alone.")
        assert f"{sizes.told(alone.peak.nbytes)} in {len(alone.holders())} values" in caption(page)
    page.screenshot(path=screenshots / f"memory-step-on-cpu-{width}.png")
    assert serious(page) == []
    choice.select_option(label="all devices")
    expect(lead).to_contain_text(f"At most {sizes.told(memory.peak.nbytes)} are alive at once")


def test_the_switch_goes_there_and_back(page: Page, recording: aotviz.Recording, tmp_path: Path) -> None:
    opened(page, recording, tmp_path, "&compilation=0")
    lead = page.locator(".memory-view .lead")
    alone = lead.inner_text()
    lowering = page.locator(".memory-view .lowering")
    expect(lowering).to_contain_text("would lower it")
    chosen(page, "This compilation").focus()
    page.keyboard.press("ArrowRight")
    expect(chosen(page, "Training step")).to_be_focused()
    expect(chosen(page, "Training step")).to_be_checked()
    expect(lowering).to_be_empty()
    assert lead.inner_text() != alone
    page.locator("[role=tab][data-view=code]").click()
    page.locator("[role=tab][data-view=memory]").click()
    expect(chosen(page, "Training step")).to_be_checked()
    chosen(page, "This compilation").click()
    expect(lead).to_have_text(alone)
    expect(lowering).to_contain_text("would lower it")
    expect(page.locator(".memory-view .phases")).to_be_empty()


def test_a_moment_opens_its_node_in_its_compilation(page: Page, recording: aotviz.Recording, tmp_path: Path) -> None:
    opened(page, recording, tmp_path, "&compilation=0")
    chosen(page, "Training step").click()
    memory = recording.step_memory()
    compilations = page.locator("header select").first.locator("option:checked")
    for phase, name in reversed(PHASES.items()):
        peak = memory.peak_of(phase)
        page.locator(".memory-view .phases button", has_text=name).click()
        assert caption(page).startswith(f"Alive while {peak.node} runs in the {name}: {sizes.told(peak.nbytes)}")
        canvas(page).focus()
        page.keyboard.press("Enter")
        expect(page.locator(".facts h3")).to_have_text(peak.node)
        expect(compilations).to_contain_text({"forward": "<lambda>", "backward": "part 0", "step": "step"}[phase])
        expect(chosen(page, "Training step")).to_be_checked()
        assert caption(page).startswith(f"Alive while {peak.node} runs in the {name}: {sizes.told(peak.nbytes)}")


def test_a_row_lights_its_value_and_opens_who_makes_it(page: Page, recording: aotviz.Recording, tmp_path: Path) -> None:
    (update,) = [one for one in recording if one.name.startswith("step")]
    opened(page, recording, tmp_path, f"&compilation={update.id}")
    chosen(page, "Training step").click()
    page.locator(".memory-view .phases button", has_text="backward").click()
    before, dark = caption(page), canvas(page).screenshot()
    row = page.locator(".memory-view tbody tr").filter(has_text="saved").first
    memory = recording.step_memory()
    holders = memory.holders(memory.peak_of("backward").at)
    name = holders[holders.kind == "saved"].name.iloc[0]
    expect(row).to_contain_text(name)
    row.locator("td").first.click()
    expect(page.locator(".facts h3")).to_have_text(name)
    expect(page.locator("header select").first.locator("option:checked")).to_contain_text("<lambda>")
    assert caption(page) == before
    assert canvas(page).screenshot() != dark


def test_a_kernel_answers_with_the_same_step(recording: aotviz.Recording, tmp_path: Path) -> None:
    found = parts.rows(recording, "step").step
    assert found is not None
    assert found == steps.of(recording)
    assert parts.index(recording).rows["step"] == 1
    assert [one.nbytes for one in found.holders] == [one.nbytes for one in recording.step_memory().all_holders]
    recording.save(tmp_path / "step.aotviz")
    assert steps.of(aotviz.load(tmp_path / "step.aotviz")) == found


def test_a_recording_without_a_step_has_no_switch(page: Page, tmp_path: Path) -> None:
    f = aotviz.compile(lambda x: x.sin().sum(), backend="eager")
    f(torch.ones(4, requires_grad=True)).backward()
    assert parts.index(f.recording).rows["step"] == 0
    opened(page, f.recording, tmp_path)
    expect(page.get_by_role("radiogroup", name="Memory of")).to_be_hidden()
