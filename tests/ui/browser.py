"""Finds a browser for the UI tests: one on the machine, else Playwright's own, else says how to get one.

Playwright's download needs a server that many machines can't reach; Debian's chromium does as well. With root and
apt at hand it is installed, so that a clean machine needs nothing done before the tests. Its headless shell is the same
engine without the windows around it, and takes 60 % of the processor's time. `python -m tests.ui.browser` installs it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import Browser, Playwright, sync_playwright

NAMES = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
PACKAGES = ("chromium-headless-shell", "chromium")  # Debian has both, others the second
ARGUMENTS = ["--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu"]  # root in a container has no sandbox


class NoBrowser(RuntimeError):
    """No browser is here and none could be installed."""


def on_path() -> str | None:
    return next((found for name in NAMES if (found := shutil.which(name))), None)


def install() -> str | None:
    """Installs Debian's chromium where that needs no question; its path, or None."""
    if not hasattr(os, "geteuid") or os.geteuid() != 0 or not shutil.which("apt-get"):
        return None
    apt_get("update", "-qq")
    installed = any(apt_get("install", "-qqy", "--no-install-recommends", p, "fonts-dejavu-core") for p in PACKAGES)
    return on_path() if installed else None


def apt_get(*arguments: str) -> bool:
    """Whether it did that."""
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    return subprocess.run(["apt-get", *arguments], env=environment, stdout=subprocess.DEVNULL).returncode == 0


def executable(playwright: Playwright) -> str | None:
    """The browser's path; None where Playwright's own is to be used. Raises NoBrowser."""
    found = on_path()
    if found:
        return found
    if Path(playwright.chromium.executable_path).exists():
        return None
    found = install()
    if found:
        return found
    raise NoBrowser(
        "the UI tests need a browser, and there is none. Install chromium or google-chrome so that it is on PATH "
        "(Debian, Ubuntu: apt-get install chromium), or run `python -m playwright install chromium`."
    )


@contextmanager
def browser() -> Iterator[Browser]:
    """A headless browser. Raises NoBrowser."""
    with sync_playwright() as playwright:
        path = executable(playwright)
        instance = playwright.chromium.launch(executable_path=path, args=ARGUMENTS)
        try:
            yield instance
        finally:
            instance.close()


if __name__ == "__main__":
    install()
