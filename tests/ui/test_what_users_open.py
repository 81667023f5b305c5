"""What a user has at the end of the first hour: the file of README's program, and that of `make demo`.

Each is made as a user makes it, in a process and a folder of its own, and opened by a double-click in a real JupyterLab
and a real Notebook 7.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from tests.tiers import slow
from tests.ui import jupyter
from tests.ui.fixture import ROOT
from tests.ui.jupyter import Server

(README,) = re.findall(r"## In code\n+```python\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL)
COMMANDS = {
    "step.aotviz": ("readme.py",),
    "demo.aotviz": ("-m", "aotviz", "demo", "--layers", "1", "--backend", "eager"),
}
SHOWN = {"step.aotviz": "step", "demo.aotviz": "TrainingStep"}  # the name of what was compiled


@pytest.fixture(scope="module", params=["step.aotviz", slow("demo.aotviz")])
def written(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What README's program or the demo writes."""
    folder, name = tmp_path_factory.mktemp("written"), request.param
    (folder / "readme.py").write_text(README)
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, *COMMANDS[name]]
    subprocess.run(command, cwd=folder, env=environment, check=True, stdout=subprocess.DEVNULL)
    assert [path.name for path in folder.glob("*.aotviz")] == [name]
    return folder / name


@pytest.fixture(params=["lab", slow("notebook_7")])
def served(request: pytest.FixtureRequest, written: Path) -> Server:
    """A server, with this file in its folder."""
    server = request.getfixturevalue(request.param)
    assert isinstance(server, Server)
    shutil.copy(written, server.work)
    return server


def test_a_double_click_opens_what_was_saved(
    served: Server, written: Path, browser: Browser, screenshots: Path
) -> None:
    app, url, name = served.app, served.url, written.name
    page = browser.new_context(viewport={"width": 1400, "height": 900}).new_page()
    page.goto(f"{url}/{'lab' if app == 'jupyterlab' else 'tree'}?token={jupyter.TOKEN}&reset")
    item = page.locator(".jp-DirListing-item", has_text=name)
    expect(item).to_be_visible(timeout=60_000)
    if app == "notebook":  # which opens documents in tabs of the browser
        with page.expect_popup() as popup:
            item.dblclick()
        shown = popup.value
    else:
        item.dblclick()
        shown = page
    bench = shown.locator(".workbench")
    expect(bench.locator(".head")).to_contain_text(SHOWN[name])
    expect(bench.locator(".stages .stage").first).to_be_visible()
    bench.locator('.stage[data-stage="partition"]').click()
    expect(bench.locator(".cm-content")).to_contain_text("def forward(")
    expect(shown.get_by_role("alert")).to_have_count(0)
    shown.screenshot(path=screenshots / f"opened-{app}-{name.removesuffix('.aotviz')}.png")
    shown.context.close()
