"""What UI tests share: a browser, a JupyterLab with a window that stays open, a Notebook 7, a folder of screenshots.

To start JupyterLab and to load its page takes longer than most tests of it. So a test gets the window that the one
before had, with nothing open and no kernel running.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.tiers import THEMES
from tests.ui import browser as finder
from tests.ui import jupyter

# Of what is to come sooner or later. Five seconds, Playwright's own, are too few where others use the machine too.
expect.set_options(timeout=30_000)


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    with finder.browser() as instance:
        yield instance


@pytest.fixture(scope="session")
def screenshots() -> Path:
    folder = Path(__file__).parent / "screenshots"
    folder.mkdir(exist_ok=True)
    return folder


@pytest.fixture(params=THEMES)
def theme(request: pytest.FixtureRequest) -> str:
    return str(request.param)


TOUR_ANSWERED = "localStorage.setItem('aotviz.tour', 'answered')"


@contextmanager
def still(browser: Browser, theme: str, *scripts: str) -> Iterator[Page]:
    """A page without network and without motion, which runs `scripts` first. Whatever it raises fails the test."""
    page = browser.new_page(
        viewport={"width": 1280, "height": 900}, color_scheme=theme, offline=True, reduced_motion="reduce"
    )  # type: ignore[arg-type]
    for script in scripts:
        page.add_init_script(script)
    problems: list[str] = []
    page.on("pageerror", lambda error: problems.append(str(error)))
    yield page
    assert problems == []
    page.close()


@pytest.fixture
def still_page(browser: Browser, theme: str) -> Iterator[Page]:
    """Such a page, without the offer of a tour."""
    with still(browser, theme, TOUR_ANSWERED) as page:
        yield page


@pytest.fixture(scope="session")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[jupyter.Server]:
    with jupyter.serve(tmp_path_factory.mktemp("lab"), "jupyterlab") as server:
        yield server


@pytest.fixture(scope="session")
def notebook_7(tmp_path_factory: pytest.TempPathFactory) -> Iterator[jupyter.Server]:
    pytest.importorskip("notebook", reason="Notebook 7 is not installed; the test extra brings it")
    with jupyter.serve(tmp_path_factory.mktemp("notebook"), "notebook") as server:
        yield server


@pytest.fixture(scope="session")
def window(browser: Browser, lab: jupyter.Server) -> Iterator[Page]:
    page = browser.new_page()
    page.add_init_script(jupyter.COUNT_REQUESTS)
    jupyter.open_lab(page, lab)
    yield page
    page.close()


@pytest.fixture
def lab_page(window: Page, lab: jupyter.Server) -> Iterator[Page]:
    """JupyterLab with nothing open. Whatever the page raises fails the test."""
    window.set_viewport_size({"width": 1400, "height": 900})
    with jupyter.watched(window):
        yield window
    jupyter.tidy(window, lab)


@pytest.fixture
def fresh_page(browser: Browser, lab: jupyter.Server) -> Iterator[Page]:
    """The same for a test that must be there before JupyterLab is loaded."""
    page = browser.new_page(viewport={"width": 1400, "height": 900})
    with jupyter.watched(page):
        yield page
    page.close()
    jupyter.clear(lab)
