"""What VS Code and Colab ask of a widget, which can't be run here: their outputs are frames of another (or no) origin.

So the widget's module runs in a sandboxed frame with no origin, offline: no storage, no cookies, no require.js, no
style of JupyterLab's, and a model that only sends and hears messages with binary buffers. This stands in for them; it
is not them.
"""

from __future__ import annotations

import base64
import gzip
import html
import json
import re
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from aotviz.widgets import static_files
from aotviz.widgets.workbench import BUNDLES
from tests.ui.fixture import packed_parts
from tests.ui.views import code_of

FRAME = """<!doctype html><body><div id="out"></div><script type="module">
const answers = __ANSWERS__;
const bytes = (text) => Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
const heard = new Set();
const model = {
  get: () => ({}), set() {}, save_changes() {},
  on: (_, handler) => heard.add(handler), off: (_, handler) => heard.delete(handler),
  send({ ask, question }) {
    const answer = answers[typeof ask === "string" ? ask : JSON.stringify(ask)];
    const view = answer && new DataView(bytes(answer).buffer);
    const message = answer ? { answer: question } : { answer: question, error: "not here" };
    setTimeout(() => [...heard].forEach((hear) => hear(message, view ? [view] : [])));
  },
};
window.onerror = (said) => document.body.append(`problem: ${said}`);
const entry = URL.createObjectURL(new Blob([bytes("__ENTRY__")], { type: "text/javascript" }));
const { default: widget } = await import(entry);
document.body.dataset.origin = self.origin;
await widget.render({ model, el: document.getElementById("out") });
</script></body>"""


def test_the_widget_works_in_a_frame_without_an_origin(browser: Browser, screenshots: Path) -> None:
    answers = {question: base64.b64encode(part).decode() for question, part in packed_parts().items()}
    answers |= {name: base64.b64encode(static_files.read(f"{name}.gz")).decode() for name in BUNDLES}
    entry = base64.b64encode(static_files.read("widget.js")).decode()
    frame = FRAME.replace("__ANSWERS__", json.dumps(answers)).replace("__ENTRY__", entry)
    page = browser.new_page(viewport={"width": 1200, "height": 760}, offline=True)
    requests: list[str] = []
    problems: list[str] = []
    page.on("request", lambda request: requests.append(request.url))
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.set_content(
        f'<iframe sandbox="allow-scripts" style="width: 1150px; height: 700px" srcdoc="{html.escape(frame)}"></iframe>',
        wait_until="commit",
    )
    inside = page.frame_locator("iframe")
    bench = inside.locator(".workbench")
    expect(code_of(bench)).to_contain_text("def joint(", timeout=90_000)
    expect(inside.locator("body")).to_have_attribute("data-origin", "null")
    bench.locator('[role=tab][data-view="graph"]').click()
    expect(bench.locator(".graph-foot .status")).to_contain_text("boxes", timeout=30_000)
    page.screenshot(path=screenshots / "sandbox-graph.png")
    bench.locator('[role=tab][data-view="aliasing"]').click()
    expect(bench.locator("table").first).to_be_visible()
    assert [url for url in requests if not url.startswith(("blob:", "about:", "data:"))] == []
    assert problems == []
    page.close()


@pytest.mark.parametrize("name", ["widget.js", *BUNDLES])
def test_a_bundle_imports_nothing_by_name_and_names_no_server(name: str) -> None:
    text = static_files.read(name) if name == "widget.js" else gzip.decompress(static_files.read(f"{name}.gz"))
    code = text.decode()
    assert not re.search(r"""(?:^|[;}])import(?:[\w${},* ]+from)?\s*["'][^"']""", code)
    assert not re.search(r"""\bimport\(["']""", code)
    assert not re.search(r"""https?://(?!www\.w3\.org/)[\w.-]+\.(?:js|mjs|css|wasm)\b""", code)
    assert not re.search(r"\b(?:sessionStorage|document\.cookie)\b", code)
    # A sandbox raises where it is read. The tour remembers there that it was offered, and copes with the error.
    stored = re.findall(r"\blocalStorage\b", code)
    assert len(stored) == len(re.findall(r"try\{(?:return )?localStorage\b[^{}]*\}catch", code))
