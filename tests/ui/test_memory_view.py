"""The view of memory says what `memory()` says, by mouse and by keys; its moment and the selected node follow each
other."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from playwright.sync_api import Browser, Locator, Page, expect
from torch import nn
from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts

import aotviz
from aotviz.explain import peaks
from aotviz.lowerings import run_graph
from aotviz.recording import sizes
from aotviz.widgets import parts
from aotviz.widgets.html import write_html
from tests import corpus
from tests.recorder.test_peak_changes import Cast
from tests.test_live_bytes import frozen_weight
from tests.test_offload import Layers, NoCopies

PAINTED = "() => performance.getEntriesByName('aotviz memory painted').length > 0"
Open = Callable[..., Page]


class Block(nn.Module):
    def __init__(self, width: int, inner: int) -> None:
        super().__init__()
        self.wide = nn.Linear(width, inner)
        self.back = nn.Linear(inner, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.back(torch.relu(self.wide(x)))


class Model(nn.Module):
    """Five equal blocks, and one that is twice as wide inside."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.Sequential(*(Block(16, 128 if layer == 2 else 64) for layer in range(6)))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.blocks(x).square().sum()


def trained() -> aotviz.Recording:
    torch.manual_seed(0)
    model = aotviz.aot_module(Model(), run_graph)
    model(torch.ones(32, 16)).backward()
    return model.recording


def dynamic() -> aotviz.Recording:
    f = aotviz.compile(lambda x, w: torch.cat([x, x[1:]]).exp() @ w, backend="eager", dynamic=True)
    f(torch.ones(5, 3, requires_grad=True), torch.ones(3, 3)).sum().backward()
    return f.recording


class Losses(nn.Module):
    """Operators that keep more than their sizes say (aotviz/recording/oversized.py)."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(8)

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        half = self.norm(x.bfloat16()).float()
        return nn.functional.mse_loss(half, y).exp() + nn.functional.smooth_l1_loss(x.sin(), y).exp()


def losses() -> aotviz.Recording:
    model = aotviz.aot_module(Losses(), run_graph, partition_fn="default_partition")
    model(torch.ones(5, 8), torch.ones(5, 8)).backward()
    return model.recording


def frozen() -> aotviz.Recording:
    """The kernel makes a gradient of the weight, which is not in the graph."""
    model = aotviz.aot_module(frozen_weight(), run_graph, partition_fn="default_partition")
    model(torch.ones(2, 3, 8, 8)).sum().backward()
    return model.recording


@pytest.fixture
def opened(browser: Browser, tmp_path: Path) -> Iterator[Open]:
    problems: list[str] = []
    pages: list[Page] = []

    def opened(recording: aotviz.Recording, width: int = 1280, theme: str = "light", node: str = "") -> Page:
        page = browser.new_page(
            viewport={"width": width, "height": 800}, offline=True, reduced_motion="reduce",
            color_scheme="dark" if theme == "dark" else "light",
        )  # fmt: skip
        pages.append(page)
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.goto(write_html(recording, tmp_path / "page.html").as_uri() + f"#view=memory{node}")
        page.wait_for_function(PAINTED)
        return page

    yield opened
    assert problems == []
    for page in pages:
        page.close()


def canvas(page: Page) -> Locator:
    return page.locator(".memory-view canvas.live")


def caption(page: Page) -> str:
    return page.locator(".memory-view caption").inner_text()


@pytest.mark.parametrize("width", [500, 1280])
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_the_peak_is_the_one_that_python_says(opened: Open, width: int, theme: str, screenshots: Path) -> None:
    recording = trained()
    page = opened(recording, width, theme)
    page.screenshot(path=screenshots / f"memory-{width}-{theme}.png")
    memory = recording[0].memory()
    peak = memory.peak
    lead = page.locator(".memory-view .lead")
    expect(lead).to_contain_text(f"At most {sizes.told(peak.nbytes)} are alive at once: while {peak.node} of the")
    holders = memory.holders()
    assert caption(page) == (
        f"Alive while {peak.node} runs in the {peak.phase}: {sizes.told(peak.nbytes)} in {len(holders)} values"
    )
    shares = (100 * holders.groupby("kind").nbytes.sum() / peak.nbytes).round().astype(int)
    assert f"{shares.parameter} % are parameters" in lead.inner_text()
    frame = page.locator(".memory-view").bounding_box()
    assert frame is not None
    assert frame["x"] + frame["width"] <= width


def logged() -> aotviz.Recording:
    return aotviz.read_trace(corpus.folder("ranks"), index=False)


def test_each_rank_of_a_log_of_a_job_has_its_own(opened: Open, screenshots: Path) -> None:
    log = logged()
    for rank, name in enumerate(("rank 0: 0/0", "rank 1: 0/1")):
        page = opened(log, node=f"&compilation={name}")
        peak = log[name].memory().peak
        lead = page.locator(".memory-view .lead")
        expect(lead).to_contain_text(f"At most {sizes.told(peak.nbytes)} are alive at once: while {peak.node} of the")
        expect(page.locator(".memory-view .sizes label")).to_have_count(rank)  # of a symbolic size
    page.screenshot(path=screenshots / "memory-log.png")


@pytest.mark.parametrize("made", [trained, dynamic, losses, frozen, logged])
def test_every_moment_has_the_bytes_of_the_plan_in_python(opened: Open, made: Callable[[], aotviz.Recording]) -> None:
    recording = made()
    page = opened(recording)
    canvas(page).focus()
    page.keyboard.press("Home")
    for moment in recording[0].memory().moments.itertuples():
        said = f"Alive while {moment.node} runs in the {moment.phase}: {sizes.told(moment.alive)} in "
        assert caption(page).startswith(said)
        page.keyboard.press("ArrowRight")


def test_equal_layers_are_one_row_and_the_other_one_says_what_differs(opened: Open) -> None:
    recording = trained()
    page = opened(recording)
    rows = page.locator(".memory-view tbody tr")
    folded = rows.filter(has_text="blocks.*.wide.weight")
    expect(folded).to_contain_text("5 × ")
    expect(folded).to_contain_text("20.0 KiB")
    expect(folded).to_contain_text("layers 0–1, 3–5")
    expect(folded).to_contain_text("the caller")
    odd = rows.filter(has_text="blocks.2.wide.weight")
    expect(odd).to_contain_text("differs from 5 equal ones: f32[64, 16]")
    moments = recording[0].memory().moments
    canvas(page).focus()
    page.keyboard.press("Home")
    for _ in range((moments.phase == "forward").sum() - 1):
        page.keyboard.press("ArrowRight")
    saved = rows.filter(has_text="saved").filter(has_text=re.compile(r"5 × relu"))
    expect(saved).to_contain_text("return x + self.back(torch.relu(self.wide(x)))")
    expect(saved).to_contain_text("the saved tensors, for its last reader")


def test_a_click_chooses_a_moment_and_its_node_in_every_view(opened: Open) -> None:
    page = opened(trained())
    box = canvas(page).bounding_box()
    assert box is not None
    canvas(page).hover(position={"x": box["width"] / 5, "y": 60})
    hovered = page.locator(".memory-view .said b").inner_text()
    canvas(page).click(position={"x": box["width"] / 5, "y": 60})
    assert f" {hovered} runs in the forward" in caption(page)
    expect(page.locator(".facts h3")).to_have_text(hovered)
    page.locator("[role=tab][data-view=code]").click()
    expect(page.locator(".aot-marked").first).to_contain_text(hovered)


@pytest.mark.parametrize("by", ["mouse", "keys"])
def test_a_row_selects_its_nodes_and_the_moment_stays(opened: Open, by: str) -> None:
    page = opened(trained())
    before = caption(page)
    row = page.locator(".memory-view tbody tr").filter(has_text="blocks.*.back.weight")
    if by == "mouse":
        row.locator("td").first.click()
    else:
        row.focus()
        page.keyboard.press("Enter")
    expect(page.locator(".facts h3")).to_be_visible()
    expect(page.locator(".memory-view tr[aria-current=true]")).to_have_count(1)
    assert caption(page) == before


@pytest.mark.parametrize(("stage", "role"), [("lower backward", "backward"), ("trace", "joint")])
def test_a_node_that_is_selected_elsewhere_is_the_moment(opened: Open, stage: str, role: str) -> None:
    recording = trained()
    moments = recording[0].memory().moments
    node = moments[moments.phase == "backward"].node.iloc[3]
    page = opened(recording, node=f"&stage={stage}&role={role}&node={node}")
    expect(page.locator(".memory-view caption")).to_contain_text(f"Alive while {node} runs in the backward")


def test_zoom_and_pan_by_wheel_drag_and_keys(opened: Open) -> None:
    page = opened(trained())

    def painted() -> int:
        return page.evaluate("performance.getEntriesByName('aotviz memory painted').length")

    before = canvas(page).screenshot()
    canvas(page).focus()
    for act in (lambda: page.keyboard.press("+"), lambda: page.mouse.wheel(0, -300)):
        count, shown = painted(), canvas(page).screenshot()
        canvas(page).hover()
        act()
        page.wait_for_function(f"{PAINTED[:-4]} > {count}")
        assert canvas(page).screenshot() != shown
    page.keyboard.press("0")
    page.mouse.move(0, 0)
    page.wait_for_function(
        "document.querySelector('#workbench').shadowRoot.querySelector('canvas.live').ariaBusy === 'false'"
    )
    assert canvas(page).screenshot() != b""
    assert len(before) > 1000


def test_stacked_by_module(opened: Open, screenshots: Path) -> None:
    page = opened(trained())
    page.get_by_label("Stacked by").select_option("module")
    legend = page.locator(".memory-view .legend")
    expect(legend).to_contain_text("blocks.*.wide")
    page.screenshot(path=screenshots / "memory-modules.png")


def test_other_sizes_can_be_tried_without_a_kernel(opened: Open, screenshots: Path) -> None:
    recording = dynamic()
    page = opened(recording)
    (symbol, *_) = recording[0].data.sizes
    exact = page.get_by_label(f"{symbol}, as a number")
    expect(exact).to_have_value(str(recording[0].data.sizes[symbol]))
    exact.fill("640")
    peak = recording[0].memory(sizes={symbol: 640}).peak
    expect(page.locator(".memory-view .lead")).to_contain_text(f"At most {sizes.told(peak.nbytes)}")
    page.get_by_label(f"{symbol}, as a slider").fill("7")
    peak = recording[0].memory(sizes={symbol: 7}).peak
    expect(page.locator(".memory-view .lead")).to_contain_text(f"At most {sizes.told(peak.nbytes)}")
    page.screenshot(path=screenshots / "memory-sizes.png")


def cast() -> aotviz.Recording:
    model = aotviz.aot_module(Cast(), run_graph, partition_fn="default_partition")
    model(torch.randn(64, 64, requires_grad=True))[0].backward()
    return model.recording


def attention() -> aotviz.Recording:
    torch.manual_seed(0)
    layers = (nn.TransformerEncoderLayer(64, 4, 256, batch_first=True, dropout=0.0) for _ in range(3))
    model = aotviz.aot_module(nn.Sequential(*layers), run_graph, partition_fn="default_partition")
    model(torch.randn(8, 64, 64)).sum().backward()
    return model.recording


@pytest.mark.parametrize("width", [500, 1280])
@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("made", [attention, cast])
def test_what_would_lower_the_peak_is_what_python_computes(
    opened: Open, made: Callable[[], aotviz.Recording], theme: str, width: int, screenshots: Path
) -> None:
    recording = made()
    page = opened(recording, width, theme)
    changes = recording[0].peak_changes()
    assert len(changes) == 3
    assert parts.rows(recording, f"peak {recording[0].id}").peaks == peaks.of_all(recording)  # what a kernel answers
    view = page.locator(".memory-view .lowering")
    most = changes[0].saves
    share = math.floor(100 * most / changes.memory.peak.nbytes + 0.5)  # as JavaScript rounds
    expect(view.locator("summary")).to_have_text(f"3 changes would lower it, by up to {sizes.told(most)} ({share} %).")
    items = view.locator("li")
    expect(items).to_have_count(3)
    for number, change in enumerate(changes):
        said = items.nth(number).inner_text()
        assert said.startswith(f"−{sizes.told(change.saves)} {change.what.replace('`', '')} ")
        assert f"The peak is then {sizes.told(change.peak)}, at {change.at}" in said
        assert change.source.rpartition("/")[2] in said
    expect(view.locator(".beside-eager")).to_have_text(
        str(recording[0].beside_eager()).replace("`", "").replace("\n", " ")
    )
    page.screenshot(path=screenshots / f"memory-lowering-{made.__name__}-{width}-{theme}.png")
    number = next(i for i, change in enumerate(changes) if change.values)
    lit = canvas(page).screenshot()
    before = caption(page)
    shown = items.nth(number).locator("button")
    expect(shown).to_have_text(f"Show {sizes.counted(len(changes[number].values), 'value')}")
    shown.focus()
    page.keyboard.press("Enter")
    expect(page.locator(".facts h3")).to_have_text(changes[number].values[0])
    assert caption(page) == before
    assert canvas(page).screenshot() != lit
    facts, drawing = page.locator(".facts").bounding_box(), canvas(page).bounding_box()
    legend = page.locator(".memory-view .legend").bounding_box()
    assert facts is not None
    assert drawing is not None
    assert legend is not None
    assert legend["y"] + legend["height"] <= 801  # all of the drawing is seen, beside or below the facts
    assert facts["y"] + facts["height"] <= drawing["y"] or drawing["x"] + drawing["width"] <= facts["x"] + 1
    page.screenshot(path=screenshots / f"memory-values-lit-{made.__name__}-{width}-{theme}.png")


@pytest.mark.parametrize("width", [500, 1280])
def test_each_device_has_its_own_peak_and_drawing(opened: Open, width: int, screenshots: Path) -> None:
    """Values that a policy moves to the CPU; "meta" stands for an accelerator."""
    net = Layers().to("meta")
    rules = aotviz.policy({"aten.sigmoid": "offload", "aten.tanh": "offload"})
    model = aotviz.aot_module(net, run_graph, partition_fn=rules)
    with NoCopies():
        model(torch.empty(1024, 8, device="meta")).backward(torch.empty((), device="meta"))
    page = opened(model.recording, width)
    memory = model.recording[0].memory()
    lead, choice = page.locator(".memory-view .lead"), page.get_by_label("Memory of the device")
    told = " and ".join(f"{sizes.told(memory.on(one).peak.nbytes)} on {one}" for one in memory.devices)
    expect(lead).to_contain_text(f"At most {sizes.told(memory.peak.nbytes)} are alive")
    expect(lead).to_contain_text(f"Each device by itself: at most {told}.")
    assert choice.locator("option").all_inner_texts() == ["all devices", *memory.devices]
    for device in memory.devices:
        choice.select_option(device)
        alone = memory.on(device)
        expect(lead).to_contain_text(
            f"At most {sizes.told(alone.peak.nbytes)} are alive at once: while {alone.peak.node}"
        )
        expect(lead).to_contain_text(f"This is the memory on {device} alone.")
        assert f"{sizes.told(alone.peak.nbytes)} in {len(alone.holders())} values" in caption(page)
        page.screenshot(path=screenshots / f"memory-on-{device}-{width}.png")


def test_one_device_is_no_choice(opened: Open) -> None:
    expect(opened(trained()).get_by_label("Memory of the device")).to_be_hidden()


@pytest.mark.parametrize("stage", ["", "&stage=lower&role=forward"])
def test_all_values_of_a_change_stay_lit_from_each_stage(opened: Open, stage: str) -> None:
    """The first of them is a result of a layer norm, which has several."""
    recording = attention()
    changes = recording[0].peak_changes()
    holders = recording[0].memory().holders()
    page = opened(recording, node=stage)
    before = caption(page)
    for number, change in enumerate(changes):
        page.locator(".memory-view .lowering li").nth(number).get_by_role("button").click()
        expect(page.locator(".facts h3")).to_have_text(change.values[0])
        rows = page.locator(".memory-view tr[aria-current=true]")
        page.locator(".facts").get_by_label("Close").click()
        expect(rows).not_to_have_count(0)
        assert caption(page) == before
        texts = [text.partition(" ×")[0] for text in rows.all_inner_texts()]
        alive = holders[holders.name.isin(change.values)]
        assert sum(int(text) if text.isdigit() else 1 for text in texts) == len(alive)
        told = f"lit values {sizes.told(int(alive.nbytes.sum()))}"
        expect(page.locator(".memory-view .legend")).to_contain_text(told)


@pytest.mark.parametrize("width", [500, 1280])
def test_what_inductors_program_needs_is_told_with_the_peak(opened: Open, width: int, screenshots: Path) -> None:
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(64, 4, 256, batch_first=True, dropout=0.0)
    model = aotviz.compile(layer, backend="inductor")
    model(torch.randn(8, 64, 64)).sum().backward()
    page = opened(model.recording, width)
    told = model.recording[0].inductor_memory().sentences
    expect(page.locator(".memory-view .of-inductor")).to_have_text(" ".join(told).replace("`", ""))
    assert told[0].startswith("Inductor's program needs at most ")
    page.screenshot(path=screenshots / f"memory-of-inductor-{width}.png")


def test_the_tags_of_a_checkpoint_are_told(opened: Open, screenshots: Path) -> None:
    def policy(context: object, op: object, *args: object, **kwargs: object) -> CheckpointPolicy:
        return CheckpointPolicy.MUST_SAVE if op is torch.ops.aten.mm.default else CheckpointPolicy.PREFER_RECOMPUTE

    def region(x: torch.Tensor) -> torch.Tensor:
        return (x.sin() @ x.exp()).tanh()

    def contexts() -> object:
        return create_selective_checkpoint_contexts(policy)

    f = aotviz.compile(lambda x: checkpoint(region, x, use_reentrant=False, context_fn=contexts).sum(), backend="eager")
    f(torch.rand(8, 8, requires_grad=True)).backward()
    page = opened(f.recording)
    canvas(page).focus()
    page.keyboard.press("Home")
    rows = page.locator(".memory-view tbody tr")
    expect(rows.filter(has_text="sin")).to_contain_text("checkpoint: prefer recompute")
    while not caption(page).startswith("Alive while mm "):
        page.keyboard.press("ArrowRight")
    expect(rows.filter(has_text="saved").filter(has_text="mm")).to_contain_text("checkpoint: must save")
    page.screenshot(path=screenshots / "memory-checkpoint.png")


def test_without_a_change_that_helps_the_view_says_so(opened: Open) -> None:
    f = aotviz.compile(lambda x: x + 1, backend="eager")
    f(torch.ones(4))
    page = opened(f.recording)
    expect(page.locator(".memory-view .lowering")).to_have_text("No change that is known lowers it.")


def test_graphs_that_are_too_large_for_a_page_say_how_to_compute_it(
    opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(peaks, "MOST_NODES", 10)
    page = opened(trained())
    expect(page.locator(".memory-view .lowering")).to_contain_text(
        "not computed for this page. recording[0].peak_changes() in Python computes it."
    )


def test_a_recording_without_a_plan_has_no_such_tab(opened: Open, browser: Browser, tmp_path: Path) -> None:
    def no_compiler(graph, inputs):
        raise RuntimeError("this compiler knows no sin")

    with aotviz.record() as recorded, pytest.raises(NotImplementedError):
        aotviz.aot_function(lambda x: x if x.sum() > 0 else -x, run_graph)(torch.ones(4))
    page = browser.new_page(offline=True)
    page.goto(write_html(recorded, tmp_path / "none.html").as_uri() + "#view=memory")
    expect(page.locator("[role=tab][data-view=code]")).to_be_visible()
    expect(page.locator("[role=tab][data-view=memory]")).to_have_count(0)
    page.close()


def test_the_colours_of_the_graph_show_the_bytes_alive(opened: Open, screenshots: Path) -> None:
    page = opened(trained(), node="&stage=lower backward&role=backward")
    page.locator("[role=tab][data-view=graph]").click()
    page.wait_for_function("() => performance.getEntriesByName('aotviz graph painted').length > 0")
    page.get_by_label("Colour by").select_option("alive")
    expect(page.locator(".graph-foot .legend")).to_contain_text("up to ")
    page.screenshot(path=screenshots / "memory-paint.png")
