"""The code of a graph in Inductor's cache, taken out on one machine and put in on another.

Inductor keeps the graph and its Python in one file, and for the CPU, each of its kernels as a shared library. The name
of a library is a digest of its C++ source and of the command that compiled it. So where the command differs, as on a
machine with another compiler or folder, the library is not used, and the kernel is compiled there.

All of it is code: loading a graph unpickles it and runs it. What is put in must come from someone whose programs may
run here.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import tempfile
from pathlib import Path
from typing import Any

from torch._inductor.output_code import CompiledFxGraphConstants

from aotviz.torch_private.inductor import folder_of_key

GRAPH = ""  # the name under which the file of a graph is listed
LIBRARY = re.compile(r"(c[a-z2-7]{51}\.main)\.so\Z")
_KERNEL = re.compile(rb"cpp_pybinding\(.*?r'''(.*?)'''", re.DOTALL)  # the C++ of a kernel, in the Python of a graph
MOST_BYTES = 2**28  # of the code of one graph


def no_constants() -> Any:
    """What `OutputCode.post_compile` takes for a result that has its constants itself."""
    return CompiledFxGraphConstants()


def taken_out(key: str) -> list[tuple[str, bytes]]:
    """(name, content) of what Inductor's cache has under one of its keys. Nothing is unpickled. Raises OSError."""
    folder = folder_of_key(key)
    if not folder.is_dir():
        return []
    files = sorted(one for one in folder.iterdir() if not one.name.startswith("."))
    graphs = [one.read_bytes() for one in files]
    found = [*((GRAPH, graph) for graph in graphs), *_libraries(folder.parents[2], graphs)]
    return found if sum(len(content) for _, content in found) <= MOST_BYTES else []


def _libraries(cache: Path, graphs: list[bytes]) -> list[tuple[str, bytes]]:
    """The libraries of all kernels in the Python of some graphs."""
    kernels = {kernel.strip() for graph in graphs for kernel in _KERNEL.findall(graph)}
    found = []
    for source in cache.glob("*/c*.main.cpp") if kernels else ():
        library = source.with_suffix(".so")
        if library.exists() and any(source.read_bytes().strip().startswith(kernel) for kernel in kernels):
            found.append((library.name, library.read_bytes()))
    return found


def put_in(key: str, name: str, content: bytes) -> None:
    """Add one of what `taken_out` gave. Raises ValueError for a name of another form, and OSError."""
    folder = folder_of_key(key)
    if name == GRAPH:
        place = folder / hashlib.sha256(content).hexdigest()
    elif LIBRARY.match(name):
        place = folder.parents[2] / name[1:3] / name
    else:
        raise ValueError(f"{name!r} is no name of Inductor's")
    if not place.exists():
        _write(place, content)


def _write(place: Path, content: bytes) -> None:
    """Other processes see the whole file or none."""
    place.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=place.parent, prefix=".")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        os.replace(temporary, place)
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)
