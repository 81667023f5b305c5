"""The JupyterLab extension in a real JupyterLab: files, palette, launcher, and the panel of live compilations."""

from __future__ import annotations

import json
import re
import urllib.request
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import msgspec
import pytest
from playwright.sync_api import Browser, Locator, Page, WebSocketRoute, expect

from aotviz.recording.files import MAGIC
from tests.ui import jupyter
from tests.ui.fixture import MARKUP, TARGET, recording
from tests.ui.jupyter import Server
from tests.ui.test_accessibility import serious
from tests.ui.views import code_of

SLOW = """
import pathlib, time
import aotviz, torch

def waiting(graph, inputs):
    "A compiler that is done when a file says so, so that the panel has something to show meanwhile."
    pathlib.Path("begun").touch()
    while not pathlib.Path("go on").exists():
        time.sleep(0.05)
    return graph.forward

@aotviz.compile(backend=waiting)
def step(x, w):
    return (x @ w).relu().sum()

step(torch.ones(4, 4), torch.ones(4, 4)).item()
"""

IMPORTS_LATE = """
import pathlib, time
pathlib.Path("begun").touch()
while not pathlib.Path("import").exists():
    time.sleep(0.05)
"""

FAILING = """
def failing(graph, inputs):
    raise ValueError("no such <b>shape</b>")

@aotviz.compile(backend=failing)
def broken(x):
    return x + 1

try:
    broken(torch.ones(3))
except Exception:
    pass
"""


LATE = """
import aotviz, torch

@aotviz.compile(backend="eager")
def late(x, w):
    return (x @ w).relu().sum()

loss = late(torch.ones(4, 4), torch.ones(4, 4, requires_grad=True))
"""

# As the notebook's own button does, and as another window or program does: this window hears of it, if at all, when the
# server asks the new kernel something, which may be before this window's connections have found it.
BY_SERVER = """async () => {
    const { serverSettings: { baseUrl, token } } = window.jupyterapp.serviceManager;
    await fetch(`${baseUrl}api/kernels/${window.late.id}/restart?token=${token}`, { method: "POST" });
}"""
RESTART = {"kernel": "() => window.late.restart()", "server": BY_SERVER, "server, unheard": BY_SERVER}


@pytest.fixture
def page(lab_page: Page) -> Page:
    return lab_page


def double_click(page: Page, name: str) -> None:
    page.locator(".jp-DirListing-item", has_text=name).dblclick()


def test_a_double_click_opens_a_recording_without_a_kernel(lab: Server, page: Page, screenshots: Path) -> None:
    recording().save(lab.work / "made.aotviz")
    jupyter.open_lab(page, lab)
    double_click(page, "made.aotviz")
    workbench = page.locator(".workbench")
    expect(code_of(workbench)).to_contain_text("def joint(", timeout=30_000)
    expect(workbench).to_have_attribute("data-theme", "light")
    expect(workbench.locator(".cm-content")).to_contain_text(MARKUP)
    page.screenshot(path=screenshots / "extension-light-file.png")

    jupyter.set_theme(page, "JupyterLab Dark")
    expect(workbench).to_have_attribute("data-theme", "dark")
    workbench.locator('[role=tab][data-view="graph"]').click()
    expect(workbench.locator(".notice.loading")).to_have_count(0)
    page.screenshot(path=screenshots / "extension-dark-file.png")
    jupyter.set_theme(page, "JupyterLab Light")
    assert page.evaluate("() => [...window.jupyterapp.serviceManager.kernels.running()].length") == 0
    assert page.locator("img[src=x]").count() == 0

    # What a run saves anew is shown anew.
    renamed = recording()
    first, *rest = renamed.data.compilations
    others = [msgspec.structs.replace(first, name="Renamed"), *rest]
    renamed.data = msgspec.structs.replace(renamed.data, compilations=others)
    renamed.save(lab.work / "made.aotviz")
    page.evaluate("() => window.jupyterapp.shell.currentWidget.context.revert()")
    expect(page.locator(".workbench .head")).to_contain_text("Renamed")


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("text.aotviz", b"nonsense", "This is not an aotviz recording"),
        ("half.aotviz", TARGET.read_bytes()[:900], "This recording is damaged: it does not unzip"),
        ("head.aotviz", TARGET.read_bytes()[:9], "This recording is damaged: it ends too early"),
        ("newer.aotviz", MAGIC + b"\0\x63", "written in format 99; this viewer reads up to"),
        ("empty.aotviz", b"", "This is not an aotviz recording"),
    ],
)
def test_a_broken_file_gives_one_clear_error(lab: Server, page: Page, name: str, content: bytes, message: str) -> None:
    (lab.work / name).write_bytes(content)
    jupyter.open_lab(page, lab)
    double_click(page, name)
    expect(page.get_by_role("alert")).to_contain_text(message, timeout=30_000)
    expect(page.locator(".jp-Dialog")).to_have_count(0)


def test_the_palette_and_the_launcher_offer_what_there_is(lab: Server, page: Page, screenshots: Path) -> None:
    recording().save(lab.work / "shown.aotviz")
    jupyter.open_lab(page, lab)
    cards = page.locator(".jp-Launcher-section", has_text="aotviz").locator(".jp-LauncherCard")
    expect(cards).to_have_text(["Live Compilations", "Open Recording…"])
    page.screenshot(path=screenshots / "extension-launcher.png")
    cards.first.click()
    expect(page.get_by_role("region", name="Live compilations")).to_contain_text("No Python kernel is running.")

    page.keyboard.press("Control+Shift+C")
    page.locator(".lm-CommandPalette-input").fill("aotviz")
    offered = page.locator(".lm-CommandPalette-item:visible .lm-CommandPalette-itemLabel")
    expect(offered).to_have_text(["aotviz: Live Compilations", "aotviz: Open Recording…"])  # nothing to export yet
    page.screenshot(path=screenshots / "extension-palette.png")
    page.locator(".lm-CommandPalette-item", has_text="Open Recording").click()
    chooser = page.locator(".jp-Dialog")
    chooser.locator(".jp-DirListing-item", has_text="shown.aotviz").click()
    chooser.locator("button.jp-mod-accept").click()
    expect(code_of(page.locator(".workbench"))).to_contain_text("def joint(", timeout=30_000)


def test_a_recording_is_exported_as_a_page_that_opens_offline(
    lab: Server, page: Page, browser: Browser, tmp_path: Path
) -> None:
    recording().save(lab.work / "sent.aotviz")
    jupyter.open_lab(page, lab)
    command = "() => window.jupyterapp.commands.isEnabled('aotviz:export-html')"
    assert page.evaluate(command) is False
    double_click(page, "sent.aotviz")
    expect(code_of(page.locator(".workbench"))).to_be_visible(timeout=30_000)
    page.wait_for_function(command)
    with page.expect_download() as saved:
        page.evaluate("() => window.jupyterapp.commands.execute('aotviz:export-html')")
    assert saved.value.suggested_filename == "sent.html"
    html = tmp_path / "sent.html"
    saved.value.save_as(html)
    other = browser.new_page(offline=True)
    requests: list[str] = []
    other.on("request", lambda request: requests.append(request.url))
    other.goto(html.as_uri())
    expect(code_of(other)).to_contain_text("def joint(", timeout=30_000)
    expect(other).to_have_title("sent · aotviz")
    assert [url for url in requests if not url.startswith("blob:")] == [html.as_uri()]
    other.close()


def test_the_panel_follows_a_compilation_while_the_cell_runs(lab: Server, page: Page, screenshots: Path) -> None:
    write_slow(lab, "train.ipynb", SLOW, FAILING)
    jupyter.open_notebook(page, lab, "train.ipynb")
    page.evaluate("() => window.jupyterapp.commands.execute('aotviz:show-live-compilations')")
    panel = page.get_by_role("region", name="Live compilations")
    expect(panel).to_contain_text("No running kernel has imported aotviz.")
    page.evaluate("() => { window.jupyterapp.commands.execute('notebook:run-all-cells') }")  # and not wait for it
    row = panel.locator(".aotviz-row", has_text="step")
    jupyter.wait_until(page, (lab.work / "begun").exists, "the cell did not come to its compiler")
    expect(row).to_have_attribute("data-state", "running", timeout=60_000)
    expect(row).to_contain_text("runs lower")
    page.screenshot(path=screenshots / "extension-light-live-running.png")
    (lab.work / "go on").touch()
    expect(row).to_have_attribute("data-state", "done", timeout=60_000)
    failed = panel.locator(".aotviz-row", has_text="broken")
    expect(failed).to_have_attribute("data-state", "failed", timeout=60_000)
    expect(failed).to_contain_text("ValueError: no such <b>shape</b>")
    jupyter.set_theme(page, "JupyterLab Dark")
    page.screenshot(path=screenshots / "extension-dark-live-done.png")

    row.click()
    expect(page.locator(".workbench .head")).to_contain_text("step", timeout=30_000)
    expect(code_of(page.locator(".workbench"))).to_contain_text("operator.matmul", timeout=30_000)  # Dynamo's graph
    page.screenshot(path=screenshots / "extension-dark-live-opened.png")
    jupyter.set_theme(page, "JupyterLab Light")

    # A panel that is hidden leaves the kernel alone, once no tab shows a compilation of it.
    jupyter.wait_until(
        page, lambda: connections(lab, "train.ipynb") == 2, "not the notebook and the panel are connected"
    )
    page.evaluate("() => window.jupyterapp.shell.currentWidget.close()")
    page.evaluate("() => window.jupyterapp.shell.collapseLeft()")
    jupyter.wait_until(page, lambda: connections(lab, "train.ipynb") == 1, "the panel is still connected to the kernel")


@pytest.mark.slow
def test_a_panel_that_is_opened_while_a_cell_runs_shows_what_it_compiles(lab: Server, page: Page) -> None:
    write_slow(lab, "early.ipynb", SLOW)
    jupyter.open_notebook(page, lab, "early.ipynb")
    page.evaluate("() => { window.jupyterapp.commands.execute('notebook:run-all-cells') }")
    jupyter.wait_until(page, (lab.work / "begun").exists, "the cell did not come to its compiler")
    page.evaluate("() => window.jupyterapp.commands.execute('aotviz:show-live-compilations')")
    row = compilations(page, "early.ipynb").locator(".aotviz-row", has_text="step")
    expect(row).to_have_attribute("data-state", "running", timeout=60_000)
    (lab.work / "go on").touch()
    expect(row).to_have_attribute("data-state", "done", timeout=60_000)


@pytest.mark.slow
def test_a_cell_that_begins_before_the_panel_has_its_subshell_is_followed(lab: Server, fresh_page: Page) -> None:
    page, ears = fresh_page, opened_with_ears(lab, fresh_page)
    ears.late = b"create_subshell"
    page.evaluate("() => window.jupyterapp.commands.execute('aotviz:show-live-compilations')")
    jupyter.wait_until(page, lambda: len(ears.held) > 0, "no subshell was asked for")
    page.evaluate("() => { window.jupyterapp.commands.execute('notebook:run-all-cells') }")
    jupyter.wait_until(page, (lab.work / "begun").exists, "the cell did not begin")
    before = ears.lists_of_comms
    ears.hear_the_late()
    jupyter.wait_until(page, lambda: ears.lists_of_comms > before, "the kernel was not asked for aotviz")
    (lab.work / "import").touch()
    row = compilations(page, "early.ipynb").locator(".aotviz-row", has_text="step")
    expect(row).to_have_attribute("data-state", "running", timeout=60_000)
    (lab.work / "go on").touch()
    expect(row).to_have_attribute("data-state", "done", timeout=60_000)


@pytest.mark.slow
def test_a_kernel_whose_answer_was_lost_is_asked_again_while_the_cell_runs(lab: Server, fresh_page: Page) -> None:
    page, ears = fresh_page, opened_with_ears(lab, fresh_page)
    page.evaluate("() => { window.jupyterapp.commands.execute('notebook:run-all-cells') }")
    jupyter.wait_until(page, (lab.work / "begun").exists, "the cell did not begin")
    ears.late = b"comm_info_reply"
    page.evaluate("() => window.jupyterapp.commands.execute('aotviz:show-live-compilations')")
    jupyter.wait_until(page, lambda: len(ears.held) > 0, "the kernel was not asked for aotviz")
    ears.lose_the_late()
    (lab.work / "import").touch()
    row = compilations(page, "early.ipynb").locator(".aotviz-row", has_text="step")
    expect(row).to_have_attribute("data-state", "running", timeout=60_000)
    (lab.work / "go on").touch()
    expect(row).to_have_attribute("data-state", "done", timeout=60_000)


@pytest.mark.slow
def test_a_tab_that_the_panel_opened_follows_its_compilation(lab: Server, page: Page, screenshots: Path) -> None:
    jupyter.write_notebook(lab.work / "late.ipynb", LATE)
    jupyter.open_notebook(page, lab, "late.ipynb")
    page.evaluate("() => { window.late = window.jupyterapp.shell.currentWidget.sessionContext.session.kernel; }")
    jupyter.run_all(page)
    page.evaluate("() => window.jupyterapp.commands.execute('aotviz:show-live-compilations')")
    row = compilations(page, "late.ipynb").locator(".aotviz-row", has_text="late")
    expect(row).to_have_attribute("data-state", "done", timeout=60_000)
    row.click()
    bench = page.locator(".workbench")
    expect(code_of(bench)).to_contain_text("operator.matmul", timeout=30_000)
    expect(bench.locator(".rail-divider")).to_have_count(0)
    chosen = bench.locator(".stage[aria-selected=true]").get_attribute("data-stage")

    # Hidden, the panel leaves the tab its kernel.
    page.evaluate("() => window.jupyterapp.shell.collapseLeft()")
    page.evaluate("() => window.late.requestExecute({code: 'loss.backward()'}).done.then(() => {})")
    expect(bench.locator(".rail-divider")).to_have_text("when the backward was first needed", timeout=20_000)
    expect(bench.locator(".stage[aria-selected=true]")).to_have_attribute("data-stage", str(chosen))
    bench.locator(".stages .stage").last.click()
    expect(bench.locator(".cm-content")).to_contain_text("aten.threshold_backward", timeout=30_000)
    page.screenshot(path=screenshots / "extension-light-live-followed.png")

    page.evaluate("() => window.jupyterapp.shell.currentWidget.close()")
    jupyter.wait_until(page, lambda: connections(lab, "late.ipynb") == 1, "the tab is still connected to the kernel")


@pytest.mark.slow
def test_launcher_palette_and_panel_need_no_mouse(lab: Server, fresh_page: Page, screenshots: Path) -> None:
    page = fresh_page
    recording().save(lab.work / "keys.aotviz")
    jupyter.open_lab(page, lab)
    card = page.locator('.jp-LauncherCard[data-category="aotviz"]', has_text="Live Compilations")
    expect(card).to_be_visible(timeout=30_000)
    tab_to(page, card)
    page.keyboard.press("Enter")
    expect(page.locator("#aotviz-live")).to_be_focused()
    assert serious(page, "'#aotviz-live'") == []

    from_palette(page, "Open Recording")
    dialog = page.locator(".jp-Dialog")
    expect(dialog).to_contain_text("Open an aotviz recording")
    assert dialog.evaluate("dialog => dialog.contains(document.activeElement)")
    page.screenshot(path=screenshots / "extension-keys-dialog.png")
    page.keyboard.press("Escape")
    expect(dialog).to_have_count(0)

    page.evaluate("() => window.jupyterapp.commands.execute('docmanager:open', { path: 'keys.aotviz' })")
    bench = page.locator(".workbench")
    expect(bench).to_be_focused(timeout=30_000)
    page.keyboard.press("5")
    expect(bench.locator("[role=tab][aria-selected=true]")).to_have_attribute("data-view", "aliasing")
    assert serious(page, "'.aotviz-RecordingView'") == []


@pytest.mark.slow
def test_a_live_compilation_is_opened_by_keys(lab: Server, page: Page, screenshots: Path) -> None:
    jupyter.write_notebook(lab.work / "keys.ipynb", LATE)
    jupyter.open_notebook(page, lab, "keys.ipynb")
    jupyter.run_all(page)
    from_palette(page, "Live Compilations")
    row = compilations(page, "keys.ipynb").locator(".aotviz-row", has_text="late")
    expect(row).to_have_attribute("data-state", "done", timeout=60_000)
    tab_to(page, row)
    assert serious(page, "'#aotviz-live'") == []
    page.screenshot(path=screenshots / "extension-keys-panel.png")
    page.keyboard.press("Enter")
    bench = page.locator(".workbench")
    expect(bench).to_be_focused(timeout=30_000)
    page.keyboard.press("2")
    expect(bench.locator(".cm-content")).to_contain_text("operator.matmul", timeout=30_000)
    chosen = bench.locator(".stage[aria-selected=true]")
    before = str(chosen.get_attribute("data-stage"))
    page.keyboard.press("ArrowRight")
    expect(chosen).not_to_have_attribute("data-stage", before)


@pytest.mark.slow
def test_a_restart_of_the_kernel_empties_the_panel(lab: Server, fresh_page: Page) -> None:
    page = fresh_page
    ears = Ears(page)
    jupyter.write_notebook(lab.work / "restarted.ipynb", LATE)
    jupyter.open_notebook(page, lab, "restarted.ipynb")
    page.evaluate("() => window.jupyterapp.commands.execute('aotviz:show-live-compilations')")
    page.evaluate("() => { window.late = window.jupyterapp.shell.currentWidget.sessionContext.session.kernel; }")
    section = compilations(page, "restarted.ipynb")
    row = section.locator(".aotviz-row", has_text="late")
    bench = page.locator(".workbench")
    jupyter.run_all(page)
    for how, script in RESTART.items():
        expect(row).to_have_attribute("data-state", "done", timeout=60_000)
        expect(row).to_have_count(1)
        row.click()
        expect(code_of(bench)).to_contain_text("operator.matmul")
        ears.hear_all = "unheard" not in how
        page.evaluate(script)
        expect(section, how).to_have_count(0, timeout=60_000)
        ears.hear_all = True
        bench.locator('.stage[data-stage="partition"]').click()
        expect(bench).to_contain_text("was restarted, or has ended")
        page.evaluate("() => window.jupyterapp.shell.currentWidget.close()")
        jupyter.run_all(page)
    expect(row).to_have_attribute("data-state", "done", timeout=60_000)
    expect(row).to_have_count(1)
    row.click()
    expect(code_of(bench)).to_contain_text("operator.matmul")


class Ears:
    """What a page hears of its kernels: all they say, or only the answers to its own questions; some of it late."""

    def __init__(self, page: Page) -> None:
        self.hear_all = True
        self.late = b""  # what is said of this is held back
        self.lists_of_comms = 0  # that were heard
        self.held: list[tuple[WebSocketRoute, str | bytes]] = []
        page.route_web_socket(re.compile(r"/api/kernels/.*/channels"), self._connect)

    def _connect(self, page_side: WebSocketRoute) -> None:
        server_side = page_side.connect_to_server()
        (asking,) = parse_qs(urlsplit(page_side.url).query)["session_id"]

        def pass_on(message: str | bytes) -> None:
            content = message.encode() if isinstance(message, str) else message
            self.lists_of_comms += b"comm_info_reply" in content
            if self.late and self.late in content:
                self.held.append((page_side, message))
            elif self.hear_all or asking.encode() in content:
                page_side.send(message)

        server_side.on_message(pass_on)

    def hear_the_late(self) -> None:
        for page_side, message in self.held:
            page_side.send(message)
        self.lose_the_late()

    def lose_the_late(self) -> None:
        self.late = b""
        self.held.clear()


def write_slow(lab: Server, name: str, *cells: str) -> None:
    """A notebook whose compiler waits, with no file left that tells it to go on."""
    for signal in ("begun", "import", "go on"):
        (lab.work / signal).unlink(missing_ok=True)
    jupyter.write_notebook(lab.work / name, *cells)


def opened_with_ears(lab: Server, page: Page) -> Ears:
    """Opens a notebook whose cell imports aotviz late."""
    write_slow(lab, "early.ipynb", IMPORTS_LATE + SLOW)
    ears = Ears(page)
    jupyter.open_notebook(page, lab, "early.ipynb")
    return ears


def compilations(page: Page, notebook: str) -> Locator:
    """One notebook's part of the panel, which shows all running kernels."""
    return page.get_by_role("region", name="Live compilations").get_by_label(notebook)


def connections(lab: Server, notebook: str) -> int:
    """How many connections a notebook's kernel has."""
    with urllib.request.urlopen(f"{lab.url}/api/sessions?token={jupyter.TOKEN}", timeout=10) as answer:
        (kernel,) = [session["kernel"] for session in json.load(answer) if session["path"] == notebook]
    return int(kernel["connections"])


def tab_to(page: Page, target: Locator) -> None:
    """Presses Tab until the focus is at an element or in it."""
    for _ in range(150):
        page.keyboard.press("Tab")
        if target.evaluate("target => target.contains(document.activeElement)"):
            return
    raise AssertionError(f"Tab never comes to {target}")


def from_palette(page: Page, command: str) -> None:
    """Runs a command of ours by keys alone."""
    page.keyboard.press("Control+Shift+C")
    expect(page.locator(".lm-CommandPalette-input")).to_be_focused()
    page.keyboard.type(f"aotviz: {command}")
    found = page.locator(".lm-CommandPalette-item")  # what was typed is looked for a moment later
    expect(found).to_have_count(1)
    expect(found).to_have_class(re.compile("lm-mod-active"))
    page.keyboard.press("Enter")
