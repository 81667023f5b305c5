"""Real logs of torch, to read and to explain: what `programs/` wrote with TORCH_TRACE set, kept in `logs.tar.xz`.

`python -m tests.corpus.make` writes them anew. Each program provokes a family of things that torch logs; its log is
in a folder of the program's name, one file a process. Frames of the programs are "corpus/<program>.py".

    folder("graph_breaks")       the folder with the log of programs/graph_breaks.py
    source("graph_breaks")       its source, for tests that say on which line something happens
    line("graph_breaks", "y.numpy(")   the number of the one line that has this text
"""

from __future__ import annotations

import atexit
import functools
import shutil
import tarfile
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
ARCHIVE = HERE / "logs.tar.xz"
PROGRAMS = HERE / "programs"


@functools.cache
def unpacked() -> Path:
    """All logs, in a folder for the time of this process."""
    target = Path(tempfile.mkdtemp(prefix="aotviz-corpus-"))
    atexit.register(shutil.rmtree, target, ignore_errors=True)
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(target, filter="data")
    return target


def names() -> list[str]:
    return sorted(path.name for path in unpacked().iterdir())


def folder(name: str) -> Path:
    path = unpacked() / name
    if not path.is_dir():
        raise FileNotFoundError(f"no program {name!r} in the corpus; there are {names()}")
    return path


def logs() -> list[Path]:
    return sorted(unpacked().glob("*/*.log"))


def source(program: str) -> str:
    return (PROGRAMS / f"{program}.py").read_text(encoding="utf-8")


def line(program: str, text: str) -> int:
    found = [number for number, line in enumerate(source(program).splitlines(), 1) if text in line]
    if len(found) != 1:
        raise ValueError(f"{text!r} stands on lines {found} of {program}.py, and should on one")
    return found[0]
