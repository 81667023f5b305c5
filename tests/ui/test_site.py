"""The site of `make docs`: pages, notebooks, the gallery's recordings in the workbench, and files that are dropped."""

from __future__ import annotations

import base64
import doctest
import gzip
import importlib
import json
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

import aotviz
from aotviz.reading.recording import Recording
from aotviz.recording import files
from aotviz.widgets.html import empty_page, write_html
from tests.recorder.test_formats import FORMATS
from tests.tiers import SCREENS
from tests.ui.conftest import TOUR_ANSWERED
from tests.ui.fixture import ROOT, recording
from tests.ui.gallery import PICTURES, RECORDINGS, machine_folders

DOCS = ROOT / "docs"
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
DROP = """async ([name, text]) => {
  const bytes = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
  const dataTransfer = new DataTransfer();
  dataTransfer.items.add(new File([bytes], name));
  for (const type of ["dragover", "drop"])
    document.body.dispatchEvent(new DragEvent(type, { dataTransfer, bubbles: true, cancelable: true }));
}"""
CONNECT = """async (url) => {
  const refused = [];
  document.addEventListener("securitypolicyviolation", (event) => refused.push(event.effectiveDirective));
  await fetch(url).catch(() => undefined);
  navigator.sendBeacon(url, "x");
  await new Promise((done) => { const image = new Image(); image.onerror = done; image.src = url; });
  return refused;
}"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built as `make docs` does it: Sphinx fails on a link to a page, heading, picture or notebook that is broken."""
    folder = tmp_path_factory.mktemp("site")
    options = ["-W", "--keep-going", "-q", "-d", folder / "doctrees", "-c", DOCS / "site"]
    command = [sys.executable, "-m", "sphinx", "-b", "html", *options, ROOT, folder / "html"]
    built = subprocess.run(command, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr
    return folder / "html"


class Served(SimpleHTTPRequestHandler):
    def log_message(self, *_args: object) -> None:
        pass


@pytest.fixture
def dropping(browser: Browser, tmp_path: Path) -> Iterator[Page]:
    """The page on which a file is dropped, from a server, with a network: nothing but the page itself is requested."""
    (tmp_path / "open.html").write_text(empty_page(), encoding="utf-8")
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Served, directory=str(tmp_path)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    page = browser.new_page(viewport={"width": 1280, "height": 800})
    page.add_init_script(TOUR_ANSWERED)
    requests: list[str] = []
    page.on("request", lambda request: requests.append(request.url))
    page.goto(url := f"http://127.0.0.1:{server.server_port}/open.html")
    yield page
    assert [one for one in requests if not one.startswith("blob:")] == [url]
    page.close()
    server.shutdown()
    server.server_close()


def drop(page: Page, path: Path) -> None:
    page.evaluate(DROP, [path.name, base64.b64encode(path.read_bytes()).decode()])


def test_a_dropped_recording_or_page_opens_and_nothing_is_sent(
    dropping: Page, tmp_path: Path, screenshots: Path
) -> None:
    made = Recording(recording().data)
    made.save(tmp_path / "made.aotviz")
    write_html(made, tmp_path / "made.html")
    for name in ("made.aotviz", "made.html"):  # the second replaces the first
        drop(dropping, tmp_path / name)
        expect(dropping.get_by_text(f"{name}, read by this page and not sent anywhere.")).to_be_visible()
        dropping.locator('.stage[data-stage="trace"]').click()
        dropping.locator("[role=tab][data-view=code]").click()
        expect(dropping.locator(".cm-content")).to_contain_text("gelu: f32[8, 64] = aten.gelu.default")
    dropping.locator("[role=tab][data-view=graph]").click()
    expect(dropping.locator(".graph-foot .status")).to_have_text("43 nodes in 11 boxes")
    assert dropping.evaluate("document.documentElement.scrollHeight <= innerHeight")
    dropping.screenshot(path=screenshots / "site-dropped.png")


def test_a_file_of_each_earlier_version_opens(dropping: Page) -> None:
    for path in sorted(FORMATS.iterdir()):
        drop(dropping, path)
        expect(dropping.get_by_text(f"{path.name}, read by this page")).to_be_visible()
        dropping.locator('.stage[data-stage="trace"]').click()
        dropping.locator("[role=tab][data-view=graph]").click()
        expect(dropping.locator(".graph-foot .status")).to_have_text("43 nodes in 11 boxes")
        expect(dropping.get_by_role("alert")).to_have_count(0)


def test_a_chosen_file_opens_and_what_is_none_says_so(dropping: Page, tmp_path: Path) -> None:
    cases = {
        "page.html": (b"<!doctype html><script>document.title = 'ran'</script>", "This page contains no recording."),
        "cut.html": (b'<html><script id="aotviz-recording">a!</script>', "The recording in this page is damaged."),
        "text.aotviz": (b"nonsense", "This is not an aotviz recording"),
        "later.aotviz": (files.MAGIC + b"\x00\x63 more", "written in format 99; this viewer reads up to"),
    }
    for name, (content, message) in cases.items():
        (tmp_path / name).write_bytes(content)
        dropping.locator("input[type=file]").set_input_files(tmp_path / name)
        expect(dropping.get_by_role("alert")).to_contain_text(message)
    assert dropping.title() == "later.aotviz · aotviz"  # no script of the page has run
    (tmp_path / "fine.aotviz").write_bytes(Recording(recording().data).to_bytes())
    dropping.locator("input[type=file]").set_input_files(tmp_path / "fine.aotviz")
    expect(dropping.locator(".stage").first).to_be_visible()


def test_the_page_for_dropped_files_cannot_connect(browser: Browser, tmp_path: Path) -> None:
    """Even if its script tried: the browser refuses a request, a beacon and a picture."""
    (tmp_path / "open.html").write_text(empty_page(), encoding="utf-8")
    page = browser.new_page()
    requests: list[str] = []
    page.on("requestfinished", lambda request: requests.append(request.url))
    page.goto((tmp_path / "open.html").as_uri())
    assert page.evaluate(CONNECT, "http://127.0.0.1:9/") == ["connect-src", "connect-src", "img-src"]
    assert len(requests) == 1
    page.close()


@pytest.mark.parametrize(("width", "theme"), SCREENS)
def test_the_place_to_drop_a_file_fits(
    browser: Browser, width: int, theme: str, tmp_path: Path, screenshots: Path
) -> None:
    (tmp_path / "open.html").write_text(empty_page(), encoding="utf-8")
    page = browser.new_page(viewport={"width": width, "height": 800}, color_scheme=theme)  # type: ignore[arg-type]
    page.goto((tmp_path / "open.html").as_uri())
    expect(page.get_by_role("heading")).to_have_text("Drop a recording here")
    assert page.evaluate("document.documentElement.scrollWidth") == width
    page.screenshot(path=screenshots / f"site-open-{width}-{theme}.png")
    page.keyboard.press("Tab")
    expect(page.locator("input[type=file]")).to_be_focused()
    page.close()


def test_the_example_of_notebook_pages_is_as_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(DOCS / "site")
    tried = doctest.testmod(importlib.import_module("notebook_pages"))
    assert (tried.failed, tried.attempted) == (0, 2)


@pytest.mark.slow
def test_each_page_and_each_public_name_is_on_the_site(site: Path) -> None:
    names = (site / "docs" / "site" / "reference.html").read_text(encoding="utf-8")
    assert not [name for name in aotviz.__all__ if f'id="aotviz.{name}"' not in names]
    listed = (site / "docs" / "index.html").read_text(encoding="utf-8")
    pages = {page.relative_to(DOCS).with_suffix(".html").as_posix() for page in DOCS.rglob("*.md")} - {"index.html"}
    pages |= {f"../notebooks/{path.stem}.html" for path in NOTEBOOKS} | {"../CHANGELOG.html", "../open.html"}
    assert not [page for page in pages if f'href="{page}"' not in listed]


@pytest.mark.slow
def test_the_site_says_nothing_of_the_machine_that_built_it(site: Path) -> None:
    folders = [folder.encode() for folder in (*machine_folders(), f"{Path.home()}/")]
    for path in site.rglob("*.html"):
        text = path.read_bytes()
        held = re.search(rb'id="aotviz-recording">([^<]{100,})<', text)  # the page for dropped files holds none
        text += gzip.decompress(base64.b64decode(held[1])) if held else b""
        assert not [folder for folder in folders if folder in text], path.name


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_a_page_with_its_stored_outputs(
    site: Path, path: Path, browser: Browser, screenshots: Path
) -> None:
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    outputs = [output for cell in cells for output in cell.get("outputs", ())]
    page = browser.new_page(viewport={"width": 1280, "height": 900}, offline=True)
    page.goto((site / "notebooks" / f"{path.stem}.html").as_uri())
    expect(page.locator("h1").first).to_be_visible()
    pictures = page.locator("img.output")
    assert pictures.count() == sum("image/png" in output.get("data", {}) for output in outputs)
    assert pictures.evaluate_all("all => all.every((one) => one.naturalWidth > 0)")
    code = sum(cell["cell_type"] == "code" and "".join(cell["source"]).strip() != "" for cell in cells)
    assert page.locator(".highlight-ipython3").count() == code
    shown = page.locator(".output").count()
    assert shown == sum(
        output["output_type"] != "stream" or bool("".join(output["text"]).strip()) for output in outputs
    )
    page.screenshot(path=screenshots / f"site-{path.stem}.png")
    page.close()


@pytest.mark.slow
@pytest.mark.parametrize(("width", "theme"), [(1280, "light"), (1280, "dark"), (500, "light"), (500, "dark")])
def test_the_pages_fit_in_both_themes(site: Path, width: int, theme: str, browser: Browser, screenshots: Path) -> None:
    page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=theme, offline=True)  # type: ignore[arg-type]
    for name in ("docs/gallery", "notebooks/05_saved_tensors", "docs/releases"):
        page.goto((site / f"{name}.html").as_uri())
        background = page.evaluate("getComputedStyle(document.body).backgroundColor")
        assert (sum(map(int, re.findall(r"\d+", background)[:3])) > 380) == (theme == "light")
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        page.screenshot(path=screenshots / f"site-{name.rpartition('/')[2]}-{width}-{theme}.png")
    page.close()


@pytest.mark.slow
def test_the_gallery_opens_each_recording_in_the_workbench(site: Path, browser: Browser, screenshots: Path) -> None:
    page = browser.new_page(viewport={"width": 1280, "height": 900}, offline=True)
    page.add_init_script(TOUR_ANSWERED)
    requests: list[str] = []
    page.on("request", lambda request: requests.append(request.url))
    page.goto((site / "index.html").as_uri())
    page.get_by_role("link", name="twelve questions, twelve pictures").first.click()
    links = page.locator("a.live")
    expect(links).to_have_count(len(PICTURES))
    addresses = [link.get_attribute("href") or "" for link in links.all()]
    assert [address.rpartition("/")[2] for address in addresses] == [live.address for live in PICTURES.values()]
    assert {live.page for live in PICTURES.values()} == set(RECORDINGS)
    for number, (picture, live) in enumerate(PICTURES.items()):
        links.nth(number).click()
        chosen = page.locator("[role=tab][aria-selected=true]")
        expect(chosen).to_have_attribute("data-view", live.view or re.compile("overview|compared|graph"))
        expect(page.locator(".notice.loading, canvas.drawing[aria-busy=true]")).to_have_count(0)
        expect(page.get_by_role("alert")).to_have_count(0)
        if live.stage:
            expect(page.locator(".stage[aria-selected=true]")).to_have_attribute("data-stage", live.stage)
        page.screenshot(path=screenshots / f"site-live-{picture}.png")
        page.go_back()
    assert not [one for one in requests if not one.startswith(("file:", "blob:", "data:"))]
    page.close()
