"""A workbench in a notebook whose kernel goes on: what is compiled later shows in its place, as it happens."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from playwright.sync_api import Locator, Page, expect

from aotviz.recording import sizes
from tests.ui import jupyter
from tests.ui.jupyter import Server
from tests.ui.views import code_of

MADE = """
import pathlib, time
import aotviz, torch

def traced(x, w):
    return (x @ w).relu().sum()

step = aotviz.compile(traced, backend="eager")
x, w = torch.ones(4, 4), torch.ones(4, 4, requires_grad=True)
step
"""
CALLED = "loss = step(x, w)"
BACKWARD = "loss.backward()"
AGAIN = "step(x.double(), w.detach().double().requires_grad_()); None"
SLOW = """
def waiting(graph, inputs):
    "A compiler that is done when a file says so."
    pathlib.Path("begun").touch()
    while not pathlib.Path("go on").exists():
        time.sleep(0.05)
    return graph.forward

slow = aotviz.compile(lambda x: x.sin() * 2, backend=waiting)
display(slow.recording)
slow(x)
"""
WATCHED = """
watch = aotviz.watch()
watch.start()
watch.recording
"""
STOCK = """
import os
os.environ["TORCHINDUCTOR_FORCE_DISABLE_CACHES"] = "1"
stock = torch.compile(lambda x: x.cos() + 1, backend="aot_eager")
stock(x); None
"""
TRAINED = """
torch.compiler.config.force_disable_caches = True
stock = torch.compile(lambda x, w: (x @ w).relu().sum())
loss = stock(x, w)
"""
DEEP = """
from functorch.compile import default_partition
deep = aotviz.compile(lambda x: x.sin().cos().exp().sum(), backend="eager", partition_fn=default_partition)
deep(w).backward()
"""

CUT = """
from aotviz.ir import partition_functions
from aotviz.widgets.replies import Answers
usual = partition_functions.named("default_partition")
cuts = []
for name in ("cut on", "cancelled"):
    pathlib.Path(name).unlink(missing_ok=True)

def cancel(self, question, cancel=Answers.cancel):
    cancel(self, question)
    pathlib.Path("cancelled").touch()

Answers.cancel = cancel

def slow(joint, inputs, **kept):
    "Cuts as usual; the second time when a file says so."
    cuts.append(1)
    pathlib.Path("cutting").write_text(str(len(cuts)))
    while len(cuts) == 2 and not pathlib.Path("cut on").exists():
        time.sleep(0.05)
    return usual(joint, inputs, **kept)

deep = aotviz.compile(lambda x: x.sin().cos().exp().sum(), backend="eager", partition_fn=slow)
deep(w).backward()
deep.recording
"""

STEPS = """
import aotviz, torch
net = torch.nn.Linear(64, 64)
optimizer = torch.optim.SGD(net.parameters(), momentum=0.9)
loss = aotviz.compile(lambda x: net(x).square().mean(), backend="eager")
update = aotviz.compile(lambda: optimizer.step(), backend="eager")
captured = aotviz.compiled_autograd(backend="eager")
watched = aotviz.record()
recording = watched.__enter__()

def step():
    with captured:
        loss(torch.ones(8, 64)).backward()
    update()
    optimizer.zero_grad()

step()
recording.show("memory", compilation=1)
"""
STEPPED = """
step()
print(recording.step_memory().peak.nbytes)
"""

LARGE = """
from benchmarks import synthetic_graphs
large = synthetic_graphs.recording("net", 7000, training=False)
large.show("memory")
"""

SHOW = """label => {
  const { shell } = window.jupyterapp;
  shell.activateById([...shell.widgets("main")].find(({ title }) => title.label === label).id);
}"""


@pytest.fixture
def page(lab_page: Page) -> Page:
    return lab_page


def stages(bench: Locator) -> Locator:
    return bench.locator(".stages .stage")


def test_what_is_compiled_later_shows_in_its_place(lab: Server, page: Page, screenshots: Path) -> None:
    jupyter.write_notebook(lab.work / "late.ipynb", MADE, CALLED, BACKWARD, AGAIN)
    jupyter.open_notebook(page, lab, "late.ipynb")
    jupyter.run_cell(page, 0)
    bench = page.locator(".workbench")
    expect(bench).to_contain_text("Nothing was compiled.", timeout=60_000)
    expect(bench).to_contain_text("Its compilation then appears here.")
    jupyter.run_cell(page, 1)
    expect(bench.locator(".overview .headline")).to_contain_text("Compiled once", timeout=30_000)
    bench.locator("[role=tab][data-view=code]").click()
    expect(bench.locator(".cm-content")).to_contain_text("operator.matmul", timeout=30_000)  # Dynamo's graph is first
    expect(bench.locator(".rail-divider")).to_have_count(0)
    bench.locator('.stage[data-stage="partition"]').click()
    bench.locator('[role=tab][data-view="saved"]').click()
    before = stages(bench).count()

    jupyter.run_cell(page, 2)
    expect(bench.locator(".rail-divider")).to_have_text("when the backward was first needed", timeout=30_000)
    expect(bench.locator(".rail-news")).to_contain_text("more stage")
    assert stages(bench).count() > before
    expect(bench.locator(".stage[aria-selected=true]")).to_have_attribute("data-stage", "partition")  # nobody moved it
    expect(bench.locator('[role=tab][data-view="saved"]')).to_have_attribute("aria-selected", "true")
    page.screenshot(path=screenshots / "live-light-late-backward.png")

    jupyter.run_cell(page, 3)
    again = bench.locator(".related[data-kind=again]")
    expect(again).to_contain_text("x.dtype", timeout=30_000)
    expect(bench.locator(".head select option")).to_have_count(2)
    jupyter.set_theme(page, "JupyterLab Dark")
    again.click()
    expect(bench.locator(".head select")).to_have_value("1")
    expect(bench.locator(".rail-news")).to_be_empty()
    expect(bench.locator(".related[data-kind=earlier]")).to_be_visible()
    expect(stages(bench)).to_have_count(15)  # they come from the kernel, and the link does not wait for them
    expect(bench.locator(".panel .notice.loading")).to_have_count(0)
    expect(bench.locator(".stage[aria-selected=true]")).to_have_attribute("data-stage", "partition")
    expect(bench.locator('[role=tab][data-view="saved"]')).to_have_attribute("aria-selected", "true")
    bench.evaluate("bench => bench.scrollIntoView({ block: 'end' })")  # the click scrolled the notebook to the link
    for shown in (".head", ".stage[aria-selected=true]", ".panel"):
        expect(bench.locator(shown)).to_be_in_viewport()
    page.screenshot(path=screenshots / "live-dark-compiled-again.png")
    jupyter.set_theme(page, "JupyterLab Light")


def test_a_compilation_is_followed_while_its_cell_runs(lab: Server, page: Page, screenshots: Path) -> None:
    jupyter.write_notebook(lab.work / "slow.ipynb", MADE, SLOW)
    jupyter.open_notebook(page, lab, "slow.ipynb")
    jupyter.run_cell(page, 0)
    jupyter.run_cell(page, 1)
    jupyter.wait_until(page, (lab.work / "begun").exists, "the cell did not come to its compiler")
    bench = page.locator(".workbench").last
    expect(bench.locator('.stage[data-stage="trace"]')).to_be_visible(timeout=30_000)
    expect(bench.locator('.stage[data-stage="link"]')).to_have_count(0)
    page.screenshot(path=screenshots / "live-light-running.png")
    (lab.work / "go on").touch()
    expect(bench.locator('.stage[data-stage="link"]')).to_be_visible(timeout=30_000)


def test_the_memory_of_a_training_step_is_planned_by_the_kernel(lab: Server, page: Page, screenshots: Path) -> None:
    jupyter.write_notebook(lab.work / "steps.ipynb", STEPS, STEPPED)
    jupyter.open_notebook(page, lab, "steps.ipynb")
    jupyter.run_cell(page, 0)
    view = page.locator(".workbench .memory-view")
    expect(view.get_by_role("radio", name="Training step")).to_be_checked(timeout=60_000)
    expect(view.locator(".phases")).to_contain_text("optimizer step")
    first = view.locator(".lead").inner_text()
    jupyter.run_cell(page, 1)  # now the optimizer has a state, and its step is compiled again
    expect(view.locator(".lead")).not_to_have_text(first, timeout=60_000)
    said = page.locator(".jp-OutputArea-output pre").last
    expect(said).to_have_text(re.compile(r"^\d+\s*$"))
    expect(view.locator(".lead")).to_contain_text(sizes.told(int(said.inner_text())))
    page.screenshot(path=screenshots / "live-training-step.png")


def test_what_lowers_the_peak_of_a_large_graph_is_computed_when_it_is_asked_for(lab: Server, page: Page) -> None:
    jupyter.write_notebook(lab.work / "large.ipynb", LARGE)
    jupyter.open_notebook(page, lab, "large.ipynb")
    jupyter.run_cell(page, 0)
    view = page.locator(".workbench .memory-view")
    expect(view.locator("canvas.live")).to_have_attribute("aria-busy", "false", timeout=60_000)
    expect(view.locator("canvas.live")).to_have_attribute("aria-label", re.compile("^Live bytes over 6,9"))
    lowering = view.locator(".lowering")
    expect(lowering).to_have_text(re.compile(r"^What would lower the peak\? .* it takes some seconds\. Compute$"))
    lowering.get_by_role("button", name="Compute").click()
    expect(lowering).to_have_text("Computing what would lower the peak …")
    expect(lowering).to_have_text("No change that is known lowers it.", timeout=60_000)  # as Python says of a chain


@pytest.mark.slow
def test_a_watch_grows_too(lab: Server, page: Page) -> None:
    jupyter.write_notebook(lab.work / "watched.ipynb", MADE, WATCHED, STOCK, CALLED)
    jupyter.open_notebook(page, lab, "watched.ipynb")
    jupyter.run_cell(page, 0)
    jupyter.run_cell(page, 1)
    bench = page.locator(".workbench").last
    expect(bench).to_contain_text("Nothing was compiled.", timeout=60_000)
    jupyter.run_cell(page, 2)
    expect(bench.locator('.stage[data-stage="inference"]')).to_be_visible(timeout=60_000)
    jupyter.run_cell(page, 3)
    expect(bench.locator(".head select option")).to_have_count(4, timeout=30_000)  # Dynamo's share, ours, and all
    expect(bench.locator(".head select option").first).to_contain_text("All 3 compilations")


@pytest.mark.slow
def test_another_cut_stands_beside_this_one_and_can_be_cancelled(lab: Server, page: Page, screenshots: Path) -> None:
    jupyter.write_notebook(lab.work / "cut.ipynb", MADE, CUT)
    jupyter.open_notebook(page, lab, "cut.ipynb")
    jupyter.run_cell(page, 0)
    jupyter.run_cell(page, 1)
    expect(page.locator(".workbench")).to_have_count(2, timeout=120_000)  # else `last` may be the first cell's
    bench = page.locator(".workbench").last
    bench.locator('[role=tab][data-view="saved"]').click(timeout=120_000)
    bench.locator(".what-if summary").click()
    partition_again = bench.get_by_role("button", name="Partition again")
    answer = bench.locator(".what-if .answer")

    partition_again.click()  # by the same partitioner, which waits
    expect(answer).to_contain_text("partitioning the graph again. It runs the stage partition", timeout=30_000)
    page.screenshot(path=screenshots / "live-light-what-if-running.png")
    answer.get_by_role("button", name="Cancel").click()
    expect(answer).to_contain_text("The kernel stops before its next stage")
    jupyter.wait_until(page, (lab.work / "cancelled").exists, "the kernel did not hear that it was cancelled")
    (lab.work / "cut on").touch()
    expect(answer).to_contain_text("Cancelled. The kernel has stopped.", timeout=30_000)
    expect(answer.locator("table")).to_have_count(0)

    bench.get_by_label("Partitioner").select_option("min_cut_rematerialization_partition")
    bench.get_by_label("Memory budget in percent").fill("0")
    partition_again.click()
    expect(answer.locator("tr", has_text="saved for the backward")).to_contain_text("−", timeout=30_000)
    expect(answer).to_contain_text("Recomputed")
    expect(answer.locator("tr", has_text="saved for the backward").locator("td.better")).to_have_count(1)
    expect(answer.locator("tr", has_text="memory that recomputing avoids").locator("td.better")).to_have_count(1)
    answer.scroll_into_view_if_needed()
    page.screenshot(path=screenshots / "live-light-what-if.png")
    answer.get_by_role("button", name="Close the comparison").click()
    expect(answer).to_be_empty()


@pytest.mark.slow
def test_the_panel_shows_torchs_own_compilations_while_a_watch_is_on(
    lab: Server, page: Page, screenshots: Path
) -> None:
    jupyter.write_notebook(lab.work / "stock.ipynb", MADE, WATCHED, STOCK)
    jupyter.open_notebook(page, lab, "stock.ipynb")
    page.evaluate("() => window.jupyterapp.commands.execute('aotviz:show-live-compilations')")
    panel = page.get_by_role("region", name="Live compilations").get_by_label("stock.ipynb")
    for cell in range(3):
        jupyter.run_cell(page, cell)
    row = panel.locator(".aotviz-row", has_text="torch 0/0")
    expect(row).to_have_attribute("data-state", "done", timeout=90_000)
    expect(row).to_contain_text("lambda")
    row.click()
    expect(code_of(page.locator(".aotviz-RecordingView"))).to_contain_text("cos", timeout=30_000)
    page.screenshot(path=screenshots / "live-light-panel-stock.png")


@pytest.mark.slow
def test_a_tab_that_the_panel_opened_cuts_in_another_way_too(lab: Server, page: Page, screenshots: Path) -> None:
    jupyter.write_notebook(lab.work / "tab.ipynb", MADE, DEEP)
    jupyter.open_notebook(page, lab, "tab.ipynb")
    page.evaluate("() => window.jupyterapp.commands.execute('aotviz:show-live-compilations')")
    jupyter.run_cell(page, 0)
    jupyter.run_cell(page, 1)
    row = page.get_by_role("region", name="Live compilations").get_by_label("tab.ipynb").locator(".aotviz-row")
    expect(row).to_have_attribute("data-state", "done", timeout=90_000)
    row.click()
    bench = page.locator(".aotviz-RecordingView .workbench")
    bench.locator('[role=tab][data-view="saved"]').click(timeout=30_000)
    bench.locator(".what-if summary").click()
    bench.get_by_label("Partitioner").select_option("min_cut_rematerialization_partition")
    bench.get_by_label("Memory budget in percent").fill("0")
    bench.get_by_role("button", name="Partition again").click()
    answer = bench.locator(".what-if .answer")
    expect(answer.locator("tr", has_text="saved for the backward")).to_contain_text("−", timeout=30_000)
    expect(row).to_have_count(1)  # the answer is no compilation of the user's
    page.screenshot(path=screenshots / "live-light-tab-what-if.png")


@pytest.mark.slow
def test_a_tab_of_a_watch_follows_torchs_compilation(lab: Server, page: Page, screenshots: Path) -> None:
    jupyter.write_notebook(lab.work / "follow.ipynb", MADE, WATCHED, TRAINED, "loss.backward()")
    jupyter.open_notebook(page, lab, "follow.ipynb")
    page.evaluate("() => window.jupyterapp.commands.execute('aotviz:show-live-compilations')")
    for cell in range(3):
        jupyter.run_cell(page, cell)
    row = page.get_by_role("region", name="Live compilations").get_by_label("follow.ipynb").locator(".aotviz-row")
    expect(row).to_have_attribute("data-state", "done", timeout=200_000)
    row.click()
    bench = page.locator(".aotviz-RecordingView .workbench")
    expect(code_of(bench)).to_contain_text("matmul", timeout=30_000)
    after = bench.locator('.stage[data-stage="post-grad passes"] .counts')
    expect(after).to_contain_text("forward")
    expect(after).not_to_contain_text("backward")
    page.screenshot(path=screenshots / "live-light-tab-watch.png")
    page.evaluate(SHOW, "follow.ipynb")
    jupyter.run_cell(page, 3)
    expect(after).to_contain_text("backward", timeout=120_000)  # which Inductor compiles when it is first needed
    page.evaluate(SHOW, "<lambda>")
    bench.locator('[role=tab][data-view="saved"]').click()
    bench.locator(".what-if summary").click()
    expect(bench.locator(".what-if")).to_contain_text("Torch partitioned this graph")
    page.screenshot(path=screenshots / "live-light-tab-watch-saved.png")


SIDE_BY_SIDE = """
import ipywidgets
from tests.ui.fixture import recording
from aotviz.widgets.workbench import Workbench
ipywidgets.HBox([Workbench(recording()), Workbench(recording())])
"""


def test_workbenches_side_by_side_share_the_width(lab: Server, page: Page, screenshots: Path) -> None:
    jupyter.write_notebook(lab.work / "beside.ipynb", SIDE_BY_SIDE)
    jupyter.open_notebook(page, lab, "beside.ipynb")
    jupyter.run_cell(page, 0)
    benches = page.locator(".workbench")
    expect(benches).to_have_count(2, timeout=60_000)
    for bench in benches.all():
        bench.locator("[role=tab][data-view=code]").click()
        expect(bench.locator(".cm-content")).to_contain_text("def joint(", timeout=30_000)
    widths = [box["width"] for bench in benches.all() if (box := bench.bounding_box())]
    assert len(widths) == 2
    assert min(widths) > 400
    assert abs(widths[0] - widths[1]) < 2
    page.screenshot(path=screenshots / "live-side-by-side.png")


@pytest.mark.slow
def test_another_cut_ends_when_the_kernel_is_gone_and_cancelling_stops_the_clock(
    lab: Server, page: Page, screenshots: Path
) -> None:
    """The kernel ends by itself: no frontend is told of that as of a restart that it asked for."""
    jupyter.write_notebook(lab.work / "gone.ipynb", MADE, CUT)
    jupyter.open_notebook(page, lab, "gone.ipynb")
    jupyter.run_cell(page, 0)
    jupyter.run_cell(page, 1)
    expect(page.locator(".workbench")).to_have_count(2, timeout=120_000)  # else `last` may be the first cell's
    bench = page.locator(".workbench").last
    bench.locator('[role=tab][data-view="saved"]').click(timeout=120_000)
    bench.locator(".what-if summary").click()
    answer = bench.locator(".what-if .answer")
    bench.get_by_role("button", name="Partition again").click()
    expect(answer).to_contain_text("partitioning the graph again. It runs the stage partition", timeout=30_000)
    answer.get_by_role("button", name="Cancel").click()
    expect(answer).to_have_text("Cancelled. The kernel stops before its next stage.")  # and no seconds
    jupyter.wait_until(page, (lab.work / "cancelled").exists, "the kernel did not hear that it was cancelled")
    (lab.work / "cut on").touch()
    expect(answer).to_contain_text("Cancelled. The kernel has stopped.", timeout=30_000)

    page.evaluate(
        "() => window.jupyterapp.shell.currentWidget.sessionContext.session.kernel"
        ".requestExecute({code: 'import os; os._exit(1)'}).done.catch(() => {})"
    )
    page.locator(".jp-Dialog", has_text="It will restart automatically").locator("button").last.click(timeout=60_000)
    bench.get_by_role("button", name="Partition again").click()
    expect(answer).to_contain_text("The graph could not be partitioned again.", timeout=60_000)
    expect(answer).to_contain_text(re.compile("restarted, or has ended|does not answer"))
    page.screenshot(path=screenshots / "live-what-if-gone.png")
