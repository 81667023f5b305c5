"""The site of `make docs`: pages to try, notebooks, the gallery's recordings in the workbench, and dropped files."""

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
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import nbformat
import pytest
from playwright.sync_api import Browser, Page, expect

import aotviz
from aotviz.reading.recording import Recording
from aotviz.recording import files
from aotviz.widgets.html import empty_page, write_html
from tests import test_page_notebooks
from tests.recorder.test_formats import FORMATS
from tests.test_page_notebooks import WITHOUT_RECORDING
from tests.tiers import SCREENS
from tests.ui.conftest import TOUR_ANSWERED, still
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


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """The address of a server of the folder."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Served, directory=str(folder)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


@pytest.fixture
def dropping(browser: Browser, tmp_path: Path) -> Iterator[Page]:
    """The page on which a file is dropped, from a server, with a network: nothing but the page itself is requested."""
    (tmp_path / "open.html").write_text(empty_page(), encoding="utf-8")
    page = browser.new_page(viewport={"width": 1280, "height": 800})
    page.add_init_script(TOUR_ANSWERED)
    requests: list[str] = []
    page.on("request", lambda request: requests.append(request.url))
    with served(tmp_path) as address:
        page.goto(f"{address}/open.html")
        yield page
        assert [one for one in requests if not one.startswith("blob:")] == [f"{address}/open.html"]
        page.close()


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


def tried(site: Path, page: str) -> list[str]:
    """Where the links of a page's "Try it" lead, without what is after the "#"."""
    text = (site / "docs" / f"{page}.html").read_text(encoding="utf-8")
    box = re.findall(r'<div class="try-it">(.*?)</div>', text, re.DOTALL)
    return [address.partition("#")[0] for address in re.findall(r'href="([^"]+)"', "".join(box))]


@pytest.mark.slow
def test_each_page_whose_python_runs_has_a_notebook_and_what_it_records(site: Path) -> None:
    pages = {path.stem for path in test_page_notebooks.PAGES} - {"cache-misses", "traces"}
    assert len(pages) >= 20
    for page in pages:
        links = tried(site, page)
        assert f"../try/{page}.ipynb" in links
        assert (f"../try/{page}.html" in links) == (page not in WITHOUT_RECORDING)
        nbformat.validate(nbformat.read(site / "try" / f"{page}.ipynb", as_version=4))
    assert {path.stem for path in (site / "try").glob("*.ipynb")} == pages
    assert {path.stem for path in (site / "try").glob("*.html")} == pages - WITHOUT_RECORDING


@pytest.mark.slow
def test_a_page_without_a_recording_of_its_own_opens_those_of_the_gallery_that_belong_to_it(site: Path) -> None:
    assert tried(site, "graph-view") == ["../recordings/gpt2.html"], "a page that shows the picture"
    assert tried(site, "stages") == ["../recordings/puzzle.html"], "a page to which the picture leads"
    assert len(tried(site, "traces")) == 3
    stage = (site / "docs" / "adding-a-stage.html").read_text(encoding="utf-8")
    assert "make test ARGS=tests/test_adding_a_stage.py" in stage
    assert not [page for page in ("gallery", "security", "design/decisions") if tried(site, page)]


@pytest.mark.slow
def test_what_can_be_tried_is_there(site: Path) -> None:
    for page in DOCS.rglob("*.md"):
        name = page.relative_to(DOCS).with_suffix("").as_posix()
        assert not [link for link in tried(site, name) if not (site / "docs" / name).parent.joinpath(link).exists()]


@pytest.mark.slow
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_a_page_opens_what_it_records_in_the_workbench(
    site: Path, theme: str, browser: Browser, screenshots: Path
) -> None:
    with still(browser, theme, TOUR_ANSWERED) as page:
        for name, stage in (("recordings", "trace"), ("watching", "inference"), ("memory", "trace")):
            page.goto((site / "docs" / f"{name}.html").as_uri())
            page.screenshot(path=screenshots / f"site-try-{name}-{theme}.png")
            page.get_by_role("link", name="Open what this page records in the workbench").click()
            page.locator(f'.stage[data-stage="{stage}"]').click()
            page.locator("[role=tab][data-view=graph]").click()
            expect(page.locator(".graph-foot .status")).to_have_text(re.compile(r"^\d+ nodes"))
            expect(page.locator("canvas.drawing[aria-busy=true]")).to_have_count(0)
            expect(page.get_by_role("alert")).to_have_count(0)
            page.screenshot(path=screenshots / f"site-try-{name}-graph-{theme}.png")


@pytest.mark.slow
def test_a_page_is_downloaded_as_a_notebook(site: Path, browser: Browser, tmp_path: Path) -> None:
    page = browser.new_page()
    with served(site) as address:
        page.goto(f"{address}/docs/backward.html")
        with page.expect_download() as download:
            page.get_by_role("link", name="Download this page as a notebook").click()
        assert download.value.suggested_filename == "backward.ipynb"
        download.value.save_as(tmp_path / "backward.ipynb")
        page.close()
    assert (tmp_path / "backward.ipynb").read_bytes() == (site / "try" / "backward.ipynb").read_bytes()


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
    for name in ("docs/gallery", "notebooks/05_saved_tensors", "docs/releases", "docs/comparing-inputs"):
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
