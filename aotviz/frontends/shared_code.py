"""The code that Inductor made of an entry's graphs, for machines that did not make it.

An entry refers to Inductor's own cache by keys, and that cache belongs to one machine. What leaves the machine, by a
shared store or an export, carries the code too, as parts of the entry. Another machine puts it into its own Inductor's
cache when it first finds the program. If it has no code, it compiles the entry's graphs, without tracing.

Code is run, not read. It is only taken from who is trusted: see docs/security.md.
"""

from __future__ import annotations

import contextlib
import zlib
from collections.abc import Mapping

import msgspec

from aotviz.cache import entry as entries
from aotviz.cache.entry import Compiled
from aotviz.cache.seals import CODE
from aotviz.cache.values import Broken

LONGEST = 2**30  # bytes of the code of one graph, decompressed


def name_of(compiled: Compiled) -> str:
    """The name of the part that holds the code of a graph."""
    return f"{CODE}{compiled.key}"


def of_graph(compiled: Compiled | None) -> dict[str, bytes]:
    """The part that holds the code of a graph; none if this machine does not have the code either."""
    if compiled is None:
        return {}
    from aotviz.torch_private import inductor_code  # takes a second, and only Inductor's programs need it

    found: list[tuple[str, bytes]] = []
    with contextlib.suppress(OSError):
        found = inductor_code.taken_out(compiled.key)
    return {name_of(compiled): zlib.compress(msgspec.msgpack.encode(found), 1)} if found else {}


def of_entry(main: bytes, parts: Mapping[str, bytes]) -> dict[str, bytes]:
    """The code of all graphs of an entry, for an export. `parts` are its other parts."""
    found: list[Compiled | None] = []
    with contextlib.suppress(Broken):
        found.append(entries.read(main).forward)
    for data in parts.values():  # those that are no backward cannot be read as one
        with contextlib.suppress(Broken):
            found.append(entries.read_backward(data))
    return {name: code for one in found for name, code in of_graph(one).items()}


def add(compiled: Compiled, code: bytes) -> None:
    """Put the code of a graph, which `of_graph` gave, into Inductor's cache on this machine. Raises Broken."""
    from aotviz.torch_private import inductor_code

    try:
        unpacked = zlib.decompressobj().decompress(code, LONGEST)
        for name, content in msgspec.msgpack.decode(unpacked, type=list[tuple[str, bytes]]):
            inductor_code.put_in(compiled.key, name, content)
    except Exception as error:  # whatever is wrong with it
        raise Broken(f"the code of a graph is damaged: {error}") from error
