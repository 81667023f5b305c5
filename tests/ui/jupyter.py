"""A real JupyterLab, or Notebook 7, for a test: its own directories, a fixed token, nothing asked of the network.

What took time to find out: the toolbar says "idle" before the kernel is connected, and Shift+Enter is then lost, so
`ready` asks the session itself; a news box covers the notebook unless it is off in two places; a busy port must fail
rather than open the neighbour's server.
"""

from __future__ import annotations

import itertools
import json
import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Dialog, Error, Page

TOKEN = "aotviz-tests"
NUMBERS = itertools.count()  # of what pages wait for
ROOT = Path(__file__).resolve().parents[2]
LABEXTENSION = ROOT / "extensions" / "jupyterlab" / "labextension"

CONFIG = f"""
c.ServerApp.ip = "127.0.0.1"
c.ServerApp.allow_root = True
c.ServerApp.open_browser = False
c.ServerApp.port_retries = 0
c.IdentityProvider.token = "{TOKEN}"
c.LabApp.expose_app_in_browser = True
c.JupyterNotebookApp.expose_app_in_browser = True
c.LabApp.news_url = None
c.LabApp.extension_manager = "readonly"
"""

OVERRIDES = {
    "@jupyterlab/apputils-extension:notification": {"fetchNews": "false", "checkForUpdates": False},
    "@jupyterlab/codemirror-extension:plugin": {"defaultConfig": {"autoClosingBrackets": False}},
}

READY = """async () => {
  const app = window.jupyterapp;
  await app.restored;
  const panel = app.shell.currentWidget;
  if (!panel || !panel.context) return false;
  await panel.context.ready;
  await panel.sessionContext.ready;
  const kernel = panel.sessionContext.session?.kernel;
  if (!kernel) return false;
  await kernel.info;
  return kernel.connectionStatus === "connected" && kernel.status === "idle";
}"""

STATE = """() => {
  const panel = window.jupyterapp.shell.currentWidget;
  const session = panel?.sessionContext;
  const kernel = session?.session?.kernel;
  const dialogs = [...document.querySelectorAll(".jp-Dialog")].map((dialog) => dialog.textContent);
  return { open: panel?.title.label, ready: session?.isReady, kernel: kernel?.status,
           connection: kernel?.connectionStatus, unanswered: window.unanswered, dialogs };
}"""


@dataclass(frozen=True)
class Server:
    """A server that runs, and the folder that it serves."""

    app: str  # "jupyterlab" | "notebook"
    url: str  # without the token
    work: Path

    @property
    def documents(self) -> str:
        """Where the application opens a document."""
        return "lab/tree" if self.app == "jupyterlab" else "notebooks"


@contextmanager
def serve(folder: Path, app: str) -> Iterator[Server]:
    """A JupyterLab, or with app="notebook" a Notebook 7, serving `folder`/work."""
    if not LABEXTENSION.exists():
        pytest.fail("the extension is not built: run `npm run build:jupyterlab` in extensions/")
    for name in ("config", "data", "runtime", "settings", "work"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    (folder / "config" / "jupyter_server_config.py").write_text(CONFIG)
    extensions = folder / "data" / "labextensions" / "@aotviz"
    extensions.mkdir(parents=True, exist_ok=True)
    (extensions / "jupyterlab").symlink_to(LABEXTENSION)  # this checkout's, before any that is installed
    (folder / "settings" / "overrides.json").write_text(json.dumps(OVERRIDES))
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    environment = {
        **os.environ,
        "JUPYTER_CONFIG_DIR": str(folder / "config"),
        "JUPYTER_PREFER_ENV_PATH": "0",  # or what is installed goes before JUPYTER_DATA_DIR
        "JUPYTER_DATA_DIR": str(folder / "data"),
        "JUPYTER_RUNTIME_DIR": str(folder / "runtime"),
        "IPYTHONDIR": str(folder / "ipython"),
        "PYTHONPATH": str(ROOT),
    }
    log = folder / "lab.log"
    command = [sys.executable, "-m", app, f"--port={port}", f"--ServerApp.root_dir={folder / 'work'}"]
    if app == "jupyterlab":
        command.append(f"--LabApp.app_settings_dir={folder / 'settings'}")
    with log.open("wb") as output:
        server = subprocess.Popen(command, env=environment, stdout=output, stderr=output, cwd=folder)
    url = f"http://127.0.0.1:{port}"
    try:
        wait_for(url, server, log)
        yield Server(app, url, folder / "work")
    finally:
        server.terminate()
        try:
            server.wait(10)
        except subprocess.TimeoutExpired:
            server.kill()


def wait_for(url: str, server: subprocess.Popen[bytes], log: Path, seconds: float = 180) -> None:
    """Returns when the server answers. Raises RuntimeError with its log."""
    end = time.monotonic() + seconds
    while time.monotonic() < end and server.poll() is None:
        try:
            with urllib.request.urlopen(f"{url}/api/status?token={TOKEN}", timeout=2):
                return
        except (urllib.error.URLError, OSError):
            with suppress(subprocess.TimeoutExpired):
                server.wait(0.2)  # it is still starting, or has ended
    raise RuntimeError(f"Jupyter did not start:\n{log.read_text(errors='replace')[-4000:]}")


def end_kernels(server: Server) -> None:
    sessions = f"{server.url}/api/sessions"
    with urllib.request.urlopen(f"{sessions}?token={TOKEN}", timeout=30) as answer:
        running = [session["id"] for session in json.load(answer)]
    for session in running:
        end = urllib.request.Request(f"{sessions}/{session}?token={TOKEN}", method="DELETE")
        urllib.request.urlopen(end, timeout=60).close()


@contextmanager
def watched(page: Page) -> Iterator[None]:
    """Fails at its end if the page raised something, or asked something, meanwhile."""
    problems: list[str] = []

    def raised(error: Error) -> None:
        problems.append(f"{error}\n{error.stack}")

    def asked(dialog: Dialog) -> None:
        problems.append(f"dialog: {dialog.message}")

    page.on("pageerror", raised)
    page.on("dialog", asked)
    yield
    page.remove_listener("pageerror", raised)
    page.remove_listener("dialog", asked)
    assert not problems, problems


# For a page before JupyterLab is loaded. A document that is shown still makes a checkpoint and starts a kernel.
COUNT_REQUESTS = """
window.unanswered = 0;
const { fetch } = window;
window.fetch = (...asked) => { window.unanswered++; return fetch(...asked).finally(() => window.unanswered--); };
"""
QUIET = """async () => {
  await new Promise((done) => setTimeout(done));  // an answer may lead to the next request
  return window.unanswered === 0;
}"""
CLOSE_ALL = """() => {
  for (const widget of [...window.jupyterapp.shell.widgets("main")]) widget.dispose();
}"""
# What a command returns may be too deep for Playwright to take.
OPEN = "path => window.jupyterapp.commands.execute('docmanager:open', { path }).then(() => {})"
TIDY = """async () => {
  const { shell, commands } = window.jupyterapp;
  for (const dialog of document.querySelectorAll(".jp-Dialog .jp-mod-reject")) dialog.click();
  shell.collapseLeft();
  shell.collapseRight();
  await commands.execute("apputils:change-theme", { theme: "JupyterLab Light" });
}"""
REFRESH = """async () => {
  const { shell, commands, serviceManager } = window.jupyterapp;
  await Promise.all([serviceManager.sessions.refreshRunning(), serviceManager.kernels.refreshRunning()]);
  shell.activateById("filebrowser");
  await commands.execute("filebrowser:go-to-path", { path: "/", dontShowBrowser: true });
  await commands.execute("filebrowser:refresh");
}"""


def tidy(page: Page, server: Server) -> None:
    """Closes what is open in JupyterLab, saved or not, ends the kernels and empties the folder."""
    page.evaluate(CLOSE_ALL)
    if not until(page, QUIET, 60):
        raise RuntimeError("JupyterLab still asks its server for something")
    page.evaluate(TIDY)
    clear(server)
    page.evaluate(REFRESH)


def clear(server: Server) -> None:
    """Ends all that runs and removes all files, so that the next test on this server finds it as the first one did."""
    end_kernels(server)
    for path in server.work.iterdir():
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()


def write_notebook(path: Path, *cells: str) -> None:
    code: list[dict[str, Any]] = [
        {"cell_type": "code", "id": f"cell{i}", "metadata": {}, "source": cell, "outputs": [], "execution_count": None}
        for i, cell in enumerate(cells)
    ]
    kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    path.write_text(json.dumps({"cells": code, "metadata": kernel, "nbformat": 4, "nbformat_minor": 5}))


def open_notebook(page: Page, server: Server, name: str, seconds: float = 180) -> None:
    """Opens a notebook and returns when its kernel takes input. JupyterLab is loaded only where it is not yet."""
    if server.app == "jupyterlab" and is_open(page, server):
        page.evaluate(OPEN, name)
    else:
        page.goto(f"{server.url}/{server.documents}/{name}?token={TOKEN}&reset")
        page.wait_for_function("() => window.jupyterapp !== undefined", timeout=seconds * 1000)
    if not until(page, READY, seconds):
        raise RuntimeError(f"the notebook's kernel did not become ready: {page.evaluate(STATE)}")


def open_lab(page: Page, server: Server) -> None:
    """JupyterLab without a document, and with the files that are there now."""
    if not is_open(page, server):
        page.goto(f"{server.url}/lab?token={TOKEN}&reset")
        page.wait_for_function("() => window.jupyterapp !== undefined", timeout=60_000)
        page.evaluate("() => window.jupyterapp.restored.then(() => {})")
    page.evaluate(REFRESH)


def is_open(page: Page, server: Server) -> bool:
    return page.url.startswith(server.url) and page.evaluate("() => window.jupyterapp !== undefined")


def run_cell(page: Page, cell: int) -> None:
    """Begins to run a cell of the open notebook."""
    page.evaluate(
        """index => {
          const { content } = window.jupyterapp.shell.currentWidget;
          content.activeCellIndex = index;
          void window.jupyterapp.commands.execute('notebook:run-cell');
        }""",
        cell,
    )


def run_all(page: Page) -> None:
    page.evaluate("() => window.jupyterapp.commands.execute('notebook:run-all-cells')")


def saved(page: Page, notebook: Path, holds: Callable[[Any], bool], seconds: float = 60) -> Any:
    """Saves the open notebook, again and again until `holds` of what is in the file, and returns that.

    What is looked at is written into the notebook a moment later, and makes it unsaved again.
    """
    save = "await window.jupyterapp.commands.execute('docmanager:save')"
    wait_until(
        page, lambda: holds(json.loads(notebook.read_text())), f"{notebook.name} is not saved with it", seconds, save
    )
    return json.loads(notebook.read_text())


def wait_until(page: Page, holds: Callable[[], bool], otherwise: str, seconds: float = 60, before: str = "") -> None:
    """Returns when something holds that only Python can see. The page asks for it, each time after the script `before`.

    Raises AssertionError with `otherwise`.
    """
    name = f"holds{next(NUMBERS)}"
    page.expose_function(name, lambda: holds())  # bound methods of some classes will not do
    assert until(page, f"async () => {{ {before}; return window.{name}(); }}", seconds), otherwise


def until(page: Page, holds: str, seconds: float) -> bool:
    """Whether an asynchronous function of the page comes to return true in that time."""
    script = f"""async (ms) => {{
      const holds = {holds};
      for (const end = performance.now() + ms; performance.now() < end; ) {{
        if (await holds()) return true;
        await new Promise((done) => setTimeout(done, 50));
      }}
      return false;
    }}"""
    return bool(page.evaluate(script, seconds * 1000))


def set_theme(page: Page, name: str) -> None:
    page.evaluate("name => window.jupyterapp.commands.execute('apputils:change-theme', { theme: name })", name)
    page.wait_for_selector(f'body[data-jp-theme-name="{name}"]', state="attached")
    page.wait_for_selector("#jupyterlab-splash", state="detached")  # JupyterLab takes it away twice if changed again
