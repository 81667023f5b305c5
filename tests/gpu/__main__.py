"""`make gpu`: on a machine with a GPU, run its tests, the sweeps and step times, and keep the figures.

python -m tests.gpu                    # all parts, some minutes each
python -m tests.gpu tests step         # some; the figures of the others stay as they are in the file

Needs no environment of its own: it takes the torch of the Python that runs it. What that Python lacks it takes from
wheels in the folder `.whl`, and names before it starts if they are not there. Writes benchmarks/results/gpu.json.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[2]
WHEELS = ROOT / ".whl"
NEEDED = ("torch", "numpy", "msgspec", "pandas", "pytest", "expecttest")  # to compile, record and test
PARTS = ("tests", "operators", "models", "inductor", "step")


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.gpu", description=__doc__.split("\n")[0])
    parser.add_argument("parts", nargs="*", metavar="part", help=f"any of {', '.join(PARTS)}; all if none")
    parser.add_argument("--folder", type=Path, help="where to write gpu.json (benchmarks/results)")
    parser.add_argument(
        "--limit-s", type=float, metavar="SECONDS", help="end the tests or the sweep of a part then; what it did counts"
    )
    options = parser.parse_args(arguments)
    if unknown := [part for part in options.parts if part not in PARTS]:
        parser.error(f"unknown: {', '.join(unknown)}; there are {', '.join(PARTS)}")
    with tempfile.TemporaryDirectory() as site:
        if missing():
            unpack(WHEELS, Path(site))
        if lacking := missing():
            print(how_to_bring(lacking))
            return 2
        from . import THERE, figures  # need what may have been missing

        if not THERE:
            print("torch sees no GPU here. `AOTVIZ_GPU=cpu` runs on the CPU what has a meaning there.")
            return 2
        return figures.gather(options.parts or list(PARTS), options.folder, options.limit_s)


def unpack(wheels: Path, site: Path) -> None:
    """Install the wheels into the folder `site`, for this process and its children."""
    found = sorted(map(str, wheels.glob("*.whl")))
    if not found:
        return
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps", "--target", str(site)]
    subprocess.run([*command, *found], check=True)
    sys.path.insert(0, str(site))
    os.environ["PYTHONPATH"] = os.pathsep.join([str(site), str(ROOT), os.environ.get("PYTHONPATH", "")])


def missing() -> list[str]:
    """Packages that must be there and are not, as they are called on PyPI."""
    return [name for name in NEEDED if importlib.util.find_spec(name) is None]


def how_to_bring(lacking: list[str]) -> str:
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    return (
        f"Missing here: {', '.join(lacking)}. Where there is a network, run in the checkout\n"
        f"  python3 -m pip download --no-deps --only-binary=:all: --python-version {version} "
        f"--platform manylinux_2_28_x86_64 --platform manylinux2014_x86_64 -d .whl {' '.join(lacking)}\n"
        f"and bring the folder .whl along: `make gpu` installs what is in it, into a folder that it deletes again."
    )


if __name__ == "__main__":
    raise SystemExit(main())
