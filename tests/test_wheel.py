"""What a user installs: the wheel has the front end inside, and needs neither Node nor torch to read a recording.

One wheel is built (with the build backend of this environment), opened, and installed into an empty virtual
environment, from which a recording is then loaded and exported with an empty PATH. JupyterLab is not downloaded for
this: this environment's lists the extensions of that one.

The sdist has the sources with the front end built already, so the wheel that is made of it, without Node, is the same.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest

import aotviz
import hatch_build
from aotviz.reading.recording import Recording
from tests.ui import fixture

ROOT = Path(__file__).resolve().parents[1]
STATIC = "aotviz/widgets/static/"
FRONT_END = ("core.js.gz", "editor.js.gz", "graphviz.js.gz", "page.html", "widget.js")
EXTENSION = "share/jupyter/labextensions/@aotviz/jupyterlab/"


def pip(python: str | Path, *arguments: str) -> None:
    command = [str(python), "-m", "pip", "--disable-pip-version-check", *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    pip(sys.executable, "wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", str(folder), str(ROOT))
    (built,) = folder.glob("aotviz-*.whl")
    return built


@pytest.mark.slow
def test_the_wheel_holds_the_front_end_and_no_sources_of_it(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        sizes = {entry.filename: entry.file_size for entry in archive.infolist()}
        entry_points = next(name for name in sizes if name.endswith("entry_points.txt"))
        declared = archive.read(entry_points).decode()
    assert all(sizes.get(STATIC + name, 0) > 100 for name in FRONT_END)
    assert not [name for name in sizes if name.endswith((".ts", ".map")) or "node_modules" in name]
    assert not [name for name in sizes if name.startswith(("tests/", "notebooks/"))]
    assert "aotviz/py.typed" in sizes
    assert "aotviz_eager = aotviz.frontends.backend:aotviz_eager" in declared
    assert "aotviz = aotviz.frontends.backend:aotviz_inductor" in declared


def test_the_wheel_holds_the_prebuilt_extension_of_the_same_version(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        held = {name.partition(EXTENSION)[2]: name for name in archive.namelist() if EXTENSION in name}
        package = json.loads(archive.read(held["package.json"]))
    assert package["version"] == aotviz.__version__
    assert package["jupyterlab"]["_build"]["load"] in held
    assert {"install.json", package["jupyterlab"]["_build"]["load"]} < set(held)
    assert sum(name.endswith(".html") for name in held) == 1  # the page that an export fills in


@pytest.fixture(scope="module")
def sdist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sdist's folder, unpacked."""
    folder = tmp_path_factory.mktemp("sdist")
    command = [sys.executable, "-m", "build", "--sdist", "--no-isolation", "--outdir", str(folder), str(ROOT)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    with tarfile.open(folder / f"aotviz-{aotviz.__version__}.tar.gz") as archive:
        archive.extractall(folder, filter="data")
    return folder / f"aotviz-{aotviz.__version__}"


def contents(wheel: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


@pytest.mark.slow
def test_a_wheel_made_of_the_sdist_without_node_is_the_same(
    sdist: Path, wheel: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(
        "PATH", str(tmp_path)
    )  # no node, and none of the Python index: there is no network in `pip wheel`
    pip(sys.executable, "wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", str(tmp_path), str(sdist))
    (made,) = tmp_path.glob("aotviz-*.whl")
    assert hatch_build.digest(sdist / "extensions") == (sdist / STATIC / "sources.sha256").read_text().strip()
    ours, theirs = contents(wheel), contents(made)
    assert sorted(ours) == sorted(theirs)
    assert [name for name in ours if ours[name] != theirs[name]] == []


@pytest.mark.slow
def test_the_sdist_has_the_sources_and_nothing_of_this_machine(sdist: Path, wheel: Path) -> None:
    files = (
        path for path in sdist.rglob("*") if path.is_file() and path.suffix != ".pyc"
    )  # a build made of it adds some
    held = {path.relative_to(sdist).as_posix() for path in files}
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    packed = ("aotviz/", "extensions/", "notebooks/")
    wanted = {name for name in listed if name.startswith(packed)} | {"CHANGELOG.md", "LICENSE", "README.md"}
    assert wanted <= held
    built = {name for name in held - wanted if not name.startswith((STATIC, "extensions/jupyterlab/labextension/"))}
    assert built == {"PKG-INFO", "pyproject.toml", "hatch_build.py", ".gitignore"} & held
    texts = {**contents(wheel), **{name: (sdist / name).read_bytes() for name in held}}
    local = [str(ROOT).encode(), f"{Path.home()}/".encode(), str(Path(sys.prefix)).encode()]
    assert [name for name, text in texts.items() if any(one in text for one in local)] == []


def test_the_front_end_and_the_sources_are_within_bounds(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        sizes = {entry.filename: entry.compress_size for entry in archive.infolist()}
    front_end = sum(size for name, size in sizes.items() if STATIC in name or EXTENSION in name)
    sources = sum(sizes.values()) - front_end
    assert front_end < 4_000_000, f"the front end has grown to {front_end / 1e6:.2f} MB"
    assert sources < 1_300_000, f"the sources have grown to {sources / 1e6:.2f} MB"


@pytest.mark.slow
def test_an_installed_wheel_reads_a_recording_without_torch_or_node(wheel: Path, tmp_path: Path) -> None:
    home = tmp_path / "empty"
    venv.create(home, with_pip=True)
    python = home / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    pip(python, "install", "--constraint", str(ROOT / "requirements.lock"), str(wheel))
    assert "@aotviz/jupyterlab" in listed(home)
    path = tmp_path / "made.aotviz"
    Recording(fixture.recording().data).save(path)
    program = f"""
import shutil, sys, importlib.util
assert not any(map(importlib.util.find_spec, ("torch", "jupyterlab"))) and shutil.which("node") is None
import aotviz
assert {str(home)!r} in aotviz.__file__, aotviz.__file__
recording = aotviz.load({str(path)!r})
assert len(recording[0].stages)
recording.to_html({str(tmp_path / "made.html")!r})
shown = recording._repr_mimebundle_()
data = shown[0] if isinstance(shown, tuple) else shown
assert "application/vnd.jupyter.widget-view+json" in data, data.keys()
print("read", len(recording))
"""
    environment = {"PATH": str(python.parent), "HOME": str(tmp_path)}
    done = subprocess.run(
        [python, "-I", "-c", program], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("read ")
    assert (tmp_path / "made.html").stat().st_size > 100_000


def listed(home: Path) -> str:
    """What `jupyter labextension list` says of the extensions in an environment: those that are enabled and fit."""
    environment = {
        **os.environ,
        "JUPYTER_PATH": str(home / "share" / "jupyter"),
        "JUPYTER_NO_CONFIG": "1",
        "NO_COLOR": "1",
    }
    command = [sys.executable, "-m", "jupyter", "labextension", "list"]
    done = subprocess.run(command, cwd=home, env=environment, capture_output=True, text=True, check=True)
    text = re.sub(r"\x1b\[\d*m", "", done.stdout + done.stderr)
    here = text[text.index(str(home)) :].split("\n\n")[0]
    return "\n".join(line for line in here.splitlines() if "enabled OK" in line)
