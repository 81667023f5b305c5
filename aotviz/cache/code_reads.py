"""What the bytecode of a user's function says about what the function reads: names, attributes, and what no key has."""

from __future__ import annotations

import dis
import functools
import sys
import types

from aotviz.cache import bypasses
from aotviz.cache.bypasses import Bypass

_WITH_VERSION = frozenset(("torch", "aotviz", "numpy", "sympy", "triton"))  # their versions are ingredients of a key
_STANDARD = (sys.stdlib_module_names | {"builtins"}) - {"__main__"}
_BY_NAME = frozenset(("globals", "eval", "exec", "__import__", "import_module"))
# What these modules return, and these functions read, is not in the key: files, time, chance, the process.
_OUTSIDE = frozenset(
    "_io ctypes datetime dbm fileinput gc getpass glob io linecache locale mmap multiprocessing nt os pathlib pickle "
    "platform posix random resource secrets select shelve shutil signal socket sqlite3 ssl subprocess sys tempfile "
    "threading time tracemalloc urllib uuid zipfile".split()
)
_READERS = frozenset("open input load loadtxt genfromtxt fromfile memmap fromregex read_text read_bytes".split())
_LOADS = ("LOAD_GLOBAL", "LOAD_NAME", "LOAD_DEREF", "LOAD_CLASSDEREF")


def is_versioned(module: str) -> bool:
    """Whether the code of a module is determined by versions that are ingredients of each key."""
    top = module.partition(".")[0]
    return top in _WITH_VERSION or top in _STANDARD


@functools.lru_cache(4096)
def global_names(code: types.CodeType) -> tuple[str, ...]:
    """The names that a function, and the functions in it, look up outside of it."""
    found = {str(one.argval): None for one in dis.get_instructions(code) if one.opname in ("LOAD_GLOBAL", "LOAD_NAME")}
    for const in code.co_consts:
        if isinstance(const, types.CodeType):
            found.update(dict.fromkeys(global_names(const)))
    return tuple(sorted(found))


@functools.lru_cache(4096)
def attributes(code: types.CodeType) -> tuple[str, ...]:
    found = set(code.co_names)
    for const in code.co_consts:
        if isinstance(const, types.CodeType):
            found.update(attributes(const))
    return tuple(sorted(found))


@functools.lru_cache(4096)
def reads_elsewhere(code: types.CodeType) -> tuple[tuple[Bypass, str], ...]:
    """What a function reads that its content does not show."""
    found = [(bypasses.BY_NAME, f"imports {one.argval}") for one in dis.get_instructions(code) if _imports_users(one)]
    names = set(code.co_names)
    if {"environ", "getenv"} & names:
        found.append((bypasses.OUTSIDE, "reads the environment"))
    if _READERS & names:
        found.append((bypasses.OUTSIDE, f"reads a file ({', '.join(sorted(_READERS & names))})"))
    if _BY_NAME & names or {"sys", "modules"} <= names:
        found.append((bypasses.BY_NAME, "looks up variables by their names"))
    return tuple(found)


@functools.lru_cache(4096)
def used_whole(code: types.CodeType) -> frozenset[str]:
    """The variables that a function, or one in it, uses otherwise than for one of their attributes."""
    found = set()
    instructions = list(dis.get_instructions(code))
    for one, after in zip(instructions, [*instructions[1:], None], strict=True):
        if one.opname in _LOADS and (after is None or after.opname not in ("LOAD_ATTR", "LOAD_METHOD")):
            found.add(str(one.argval))
    for const in code.co_consts:
        if isinstance(const, types.CodeType):
            found |= used_whole(const)
    return frozenset(found)


def _imports_users(instruction: dis.Instruction) -> bool:
    name = str(instruction.argval) or "."
    return instruction.opname == "IMPORT_NAME" and (not is_versioned(name) or is_outside(name))


def is_outside(module: str) -> bool:
    return module.partition(".")[0] in _OUTSIDE or module.startswith("numpy.random")
