"""What the workbench says where it has nothing to show: each kind of recording in each view, and a kernel that is gone.

A reader must learn from it what is the case and what to do, and where a button leads on, it must lead there.
"""

from __future__ import annotations

import base64
import gzip
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch
from msgspec.structs import replace
from playwright.sync_api import Browser, Page, expect

import aotviz
from aotviz.lowerings import run_graph
from aotviz.recording.schema import RecordingData
from aotviz.widgets import packing, static_files
from aotviz.widgets.html import to_html
from aotviz.widgets.workbench import Workbench
from tests.ui.fixture import recording
from tests.ui.views import VIEWS


def nothing() -> RecordingData:
    with aotviz.record() as recorded:
        pass
    return recorded.data


def without_backward() -> RecordingData:
    """Compiled with gradients; nobody has called backward."""
    compiled = aotviz.compile(lambda x, w: (x * w).sin(), backend="eager")
    compiled(torch.ones(4), torch.ones(4, requires_grad=True))
    return compiled.recording.data


def inference() -> RecordingData:
    compiled = aotviz.compile(lambda x, y: x + y * 2, backend="eager")
    compiled(torch.ones(4), torch.ones(4))
    return compiled.recording.data


def one_node() -> RecordingData:
    compiled = aotviz.compile(lambda x: x.view(2, 2), backend="eager")
    compiled(torch.ones(4))
    return compiled.recording.data


def refused() -> RecordingData:
    """Fails in the second stage, before there is a graph. Of aot_function: Dynamo breaks its graph at such a line."""

    def branching(x, w):
        return x if (x * w).sum() > 0 else w

    with aotviz.record() as recorded, pytest.raises(NotImplementedError):
        aotviz.aot_function(branching, run_graph)(torch.ones(4), torch.ones(4, requires_grad=True))
    return recorded.data


def not_lowered() -> RecordingData:
    """Fails in a late stage, when all graphs are there."""

    def no_compiler(graph: Any, inputs: Any) -> Any:
        raise RuntimeError("this compiler knows no sin")

    with aotviz.record() as recorded, pytest.raises(RuntimeError):
        aotviz.compile(lambda x, w: (x * w).sin(), backend=no_compiler)(
            torch.ones(4), torch.ones(4, requires_grad=True)
        )
    return recorded.data


NO_GRAPH = "This stage made no graph."
FIRST = "This is the first graph."
INFERENCE = "No input requires grad, or grad mode was off"
FAILED = "The compilation failed in metadata, which comes before that."
# recording, stage, and for each view that has nothing to show what it says
KINDS: dict[str, tuple[Callable[[], RecordingData], str, dict[str, str]]] = {
    "no backward yet": (without_backward, "metadata", {"evidence": "This stage left no evidence."}),
    "the first graph": (inference, "dynamo", {"diff": FIRST, "saved": INFERENCE}),
    "a stage without a graph": (
        without_backward,
        "flatten",
        dict.fromkeys(("code", "diff", "graph"), NO_GRAPH) | {"evidence": "This stage left no evidence."},
    ),
    "inference": (inference, "metadata", {"saved": INFERENCE, "evidence": "The stage had nothing to decide"}),
    "one node": (one_node, "metadata", {"saved": INFERENCE}),
    "failed early": (
        refused,
        "metadata",
        dict.fromkeys(("code", "diff", "graph"), "metadata failed, and no earlier stage made a graph.")
        | dict.fromkeys(("aliasing", "saved", "wrapper"), FAILED)
        | {"evidence": "metadata failed before it gave its reasons."},
    ),
    "failed late": (
        not_lowered,
        "lower",
        dict.fromkeys(("code", "diff", "graph"), "lower failed, so it made no graph.")
        | {"wrapper": "The compilation failed in lower", "evidence": "lower failed before it gave its reasons."},
    ),
}


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    page = browser.new_page(viewport={"width": 1100, "height": 700}, offline=True, reduced_motion="reduce")
    problems: list[str] = []
    page.on("pageerror", lambda error: problems.append(str(error)))
    yield page
    assert problems == []
    page.close()


def open_page(page: Page, folder: Path, data: RecordingData, file: bytes | None = None) -> None:
    html = folder / "states.html"
    html.write_text(to_html(data, file), encoding="utf-8")
    page.goto(html.as_uri())


@pytest.mark.every(3)
@pytest.mark.parametrize("kind", KINDS)
def test_each_view_shows_something_or_says_why_not(kind: str, page: Page, tmp_path: Path, screenshots: Path) -> None:
    make, stage, said = KINDS[kind]
    open_page(page, tmp_path, make())
    page.locator(f'.stage[data-stage="{stage}"]').click()
    for view in VIEWS:
        page.locator(f'[role=tab][data-view="{view}"]').click()
        panel = page.locator(".panel")
        expect(panel.locator(".notice.loading")).to_have_count(0)
        if view in said:
            expect(panel.locator(".notice.empty")).to_contain_text(said[view])
        else:
            expect(panel.locator(".notice")).to_have_count(0)
            expect(panel.locator(".cm-content, canvas.drawing, table").first).to_be_visible()
        page.screenshot(path=screenshots / f"states-{kind.replace(' ', '-')}-{view}.png")


def test_a_notice_leads_to_the_stage_that_has_what_is_missing(page: Page, tmp_path: Path) -> None:
    open_page(page, tmp_path, not_lowered())
    chosen = page.locator(".stage[aria-selected=true]")
    page.locator(".failure").get_by_role("button", name="lower").click()
    expect(chosen).to_have_attribute("data-stage", "lower")
    page.locator(".panel").get_by_role("button", name="Go to donated buffers").click()
    expect(chosen).to_have_attribute("data-stage", "donated buffers")
    expect(page.locator(".cm-content")).to_contain_text("def forward(")
    page.locator('.stage[data-stage="flatten"]').click()
    page.locator(".panel").get_by_role("button", name="Go to metadata").click()
    page.locator('.stage[data-stage="dynamo"]').click()
    page.locator("[role=tab][data-view=diff]").click()
    page.locator(".panel").get_by_role("button", name="Go to metadata").click()
    expect(page.locator(".panel .cm-content")).to_contain_text("aten.mul.Tensor")
    page.locator("[role=tab][data-view=evidence]").click()
    page.locator(".panel").get_by_role("button", name="Go to joint").click()
    expect(page.locator(".panel table")).to_be_visible()


def test_a_failure_is_told_in_the_words_that_the_caller_got(page: Page, tmp_path: Path) -> None:
    open_page(page, tmp_path, refused())
    failure = page.get_by_role("alert")
    expect(failure).to_contain_text(
        "Refused in metadata: the program asks for the value of a tensor that depends on 'x' and 'w', at"
    )
    expect(failure).to_contain_text("Use torch.where, or torch.cond for a choice")
    expect(failure.locator("code").first).to_have_text("return x if (x * w).sum() > 0 else w")
    expect(failure).not_to_contain_text("`")
    expect(page.locator(".head .chip")).to_have_text("failed")  # training or inference was not decided


def ran_in_eager() -> RecordingData:
    """A graph of Dynamo's that the pipeline refuses, and one that it compiles."""

    def transposed(x):
        y = x * 2
        view = y[0]
        y.t_()
        view.mul_(2)
        return y + 1

    torch._dynamo.reset()
    with aotviz.record() as recorded, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.compile(transposed, backend="aotviz_eager")(torch.ones(3, 4, requires_grad=True))
        torch.compile(lambda x: x.sin(), backend="aotviz_eager")(torch.ones(3))
    return recorded.data


def test_a_program_that_ran_in_eager_is_shown_with_the_reason_and_without_empty_views(
    page: Page, tmp_path: Path, screenshots: Path
) -> None:
    open_page(page, tmp_path, ran_in_eager())
    expect(page.locator(".head .chip").first).to_have_text("ran in eager")
    reason = page.get_by_role("note")
    expect(reason).to_contain_text("Ran in eager, refused in joint: an intermediate: a metadata op")
    expect(reason).to_contain_text("in transposed")
    expect(page.locator(".stage.refused .name")).to_contain_text("joint")
    expect(page.get_by_role("alert")).to_have_count(0)
    expect(page.locator(".workbench")).not_to_contain_text("failed")
    tabs = page.locator("[role=tab]")
    shown = [str(tab.get_attribute("data-view")) for tab in tabs.all()]
    assert not {"saved", "wrapper"} & set(shown)
    page.locator('.stage[data-stage="metadata"]').click()
    for view in ("code", "graph", "aliasing"):
        page.locator(f'[role=tab][data-view="{view}"]').click()
        expect(page.locator(".panel .notice")).to_have_count(0)
        expect(page.locator(".panel").locator(".cm-content, canvas.drawing, table").first).to_be_visible()
        page.screenshot(path=screenshots / f"states-ran-in-eager-{view}.png")
    page.locator('[role=tab][data-view="compilations"]').click()
    rows = page.locator(".compilations tbody tr")
    expect(rows.first).to_contain_text("ran in eager")
    expect(rows.first).to_contain_text("changes the shape or strides in place")
    page.get_by_label("Which").select_option("ran in eager")
    expect(rows).to_have_count(1)
    page.get_by_label("Which").select_option("failed")
    expect(rows).to_contain_text("No compilation matches")
    page.get_by_label("Which").select_option("all")
    page.screenshot(path=screenshots / "states-ran-in-eager-compilations.png")
    rows.nth(1).click()
    expect(tabs).to_have_count(12)


def whole() -> bytes:
    return packing.pack(recording().data)


FILES: dict[str, tuple[Callable[[], bytes], str]] = {
    "truncated": (lambda: whole()[:-900], "it does not unzip. Was it copied in full?"),
    "newer": (
        lambda: gzip.compress(msgspec.msgpack.encode(replace(recording().data, version=99))),
        "written in format 99; this viewer reads up to",
    ),
    "another": (lambda: b"PK\x03\x04 a zip file", "This is not an aotviz recording"),
    "without bytes": (lambda: b"", "This is not an aotviz recording"),
    "without compilations": (
        lambda: gzip.compress(msgspec.msgpack.encode(nothing())),
        "A function is compiled when it is first called. Call it once",
    ),
}


@pytest.mark.parametrize("kind", FILES)
def test_a_file_that_can_not_be_shown_says_why(kind: str, page: Page, tmp_path: Path, screenshots: Path) -> None:
    make, said = FILES[kind]
    open_page(page, tmp_path, recording().data, make())
    expect(page.locator(".workbench .notice")).to_contain_text(said)
    page.screenshot(path=screenshots / f"states-file-{kind.replace(' ', '-')}.png")


WIDGET = """async (entry) => {
  const bytes = (text) => Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
  const handlers = { "msg:custom": new Set(), comm_live_update: new Set() };
  const model = {
    get: () => ({}), set() {}, save_changes() {},
    on: (name, handler) => handlers[name].add(handler), off: (name, handler) => handlers[name].delete(handler),
    async send(message) {
      const answered = await window.kernel(message);
      if (!answered) return;
      const buffers = answered.bytes === null ? [] : [new DataView(bytes(answered.bytes).buffer)];
      for (const hear of [...handlers["msg:custom"]]) hear(answered.content, buffers);
    },
  };
  const el = document.getElementById("out");
  window.changed = () => {
    for (const hear of [...handlers["msg:custom"]]) hear({ changed: true }, []);
  };
  window.restart = () => {
    for (const hear of handlers.comm_live_update) hear();
    el.className = "jupyter-widgets-disconnected";
  };
  const { default: widget } = await import(URL.createObjectURL(new Blob([entry], { type: "text/javascript" })));
  void widget.render({ model, el });
}"""


class Kernel:
    """The Python side of a widget, for a page without Jupyter: it can fall silent, and forget."""

    def __init__(self, page: Page, monkeypatch: pytest.MonkeyPatch, recorded: Any = None) -> None:
        self.silent_to = ""
        self.sent: list[tuple[dict[str, Any], list[bytes]]] = []
        monkeypatch.setattr(Workbench, "send", lambda _, content, buffers=None: self.sent.append((content, buffers)))
        self.recording = recorded or recording()
        self.widget = Workbench(self.recording)
        page.expose_function("kernel", self.answer)
        page.set_content("<!doctype html><div id=out></div>")
        page.evaluate(WIDGET, static_files.read("widget.js").decode())

    def answer(self, message: dict[str, Any]) -> dict[str, Any] | None:
        if "ask" not in message or (self.silent_to and self.silent_to == message["ask"][0]):
            return None
        self.widget._answer(self.widget, message, [])
        content, buffers = self.sent[-1]
        return {"content": content, "bytes": base64.b64encode(buffers[0]).decode() if buffers else None}


@pytest.fixture
def kernel(page: Page, monkeypatch: pytest.MonkeyPatch) -> Kernel:
    return Kernel(page, monkeypatch)


def test_what_still_loads_says_so_and_can_be_cancelled_and_begun_again(
    kernel: Kernel, page: Page, screenshots: Path
) -> None:
    page.locator("[role=tab][data-view=code]").click()
    expect(page.locator(".cm-content")).to_be_visible()
    kernel.silent_to = "graph"
    page.locator('.stage[data-stage="partition"]').click()
    panel = page.locator(".panel")
    expect(panel).to_contain_text("Loading from the kernel …")
    expect(panel).to_have_attribute("aria-busy", "true")
    page.screenshot(path=screenshots / "states-kernel-loading.png")
    panel.get_by_role("button", name="Cancel").click()
    expect(panel).to_contain_text("The loading was cancelled.")
    page.locator("[role=tab][data-view=aliasing]").click()  # which needs no graph
    expect(panel.locator("table").first).to_be_visible()


def test_the_rail_is_never_empty_while_a_compilation_loads(kernel: Kernel, page: Page, screenshots: Path) -> None:
    page.locator("[role=tab][data-view=code]").click()
    expect(page.locator(".cm-content")).to_be_visible()
    kernel.silent_to = "compilation"
    compilation = page.get_by_label("Compilation", exact=True)
    compilation.select_option(index=1)
    expect(page.locator(".rail .coming")).to_have_text("3 stages, not loaded yet")
    panel = page.locator(".panel")
    expect(panel).to_contain_text("Loading from the kernel …")
    page.screenshot(path=screenshots / "states-kernel-compilation-loading.png")
    kernel.silent_to = ""
    panel.get_by_role("button", name="Cancel").click()
    compilation.select_option(index=2)
    compilation.select_option(index=0)
    expect(page.locator(".rail .stage")).to_have_count(15)
    expect(page.locator(".rail .coming")).to_have_count(0)
    expect(page.locator(".notice.loading")).to_have_count(0)  # no hidden one either


def test_a_kernel_that_is_restarted_is_known_at_once_to_be_gone(kernel: Kernel, page: Page, screenshots: Path) -> None:
    page.locator("[role=tab][data-view=code]").click()
    expect(page.locator(".cm-content")).to_be_visible()
    shown = page.locator(".stage[aria-selected=true]").get_attribute("data-stage")
    kernel.silent_to = "graph"
    page.locator('.stage[data-stage="partition"]').click()
    expect(page.locator(".panel")).to_contain_text("Loading from the kernel …")
    page.evaluate("window.restart()")
    panel = page.locator(".panel")
    expect(panel.get_by_role("alert")).to_contain_text("was restarted, or has ended. Run the cell again.")
    page.screenshot(path=screenshots / "states-kernel-gone.png")
    panel.get_by_role("button", name="Try again").click()
    expect(panel.get_by_role("alert")).to_contain_text("Run the cell again.")
    page.locator(f'.stage[data-stage="{shown}"]').click()
    expect(page.locator(".cm-content")).to_be_visible()  # what has come before stays


def test_what_the_kernel_has_no_more_is_told_with_its_reason(kernel: Kernel, page: Page) -> None:
    page.locator("[role=tab][data-view=code]").click()
    expect(page.locator(".cm-content")).to_be_visible()
    kernel.recording.data = replace(kernel.recording.data, compilations=[])
    page.locator('.stage[data-stage="partition"]').click()
    alert = page.locator(".panel").get_by_role("alert")
    expect(alert).to_contain_text("compilation 0 is no longer in the recording")
