"""`python -m aotviz verify MODULE:FUNCTION`: find the function and its arguments, and verify it."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import os
import sys
import sysconfig
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

from aotviz.comparing.verifying import verify

# Parts of file names that mark code as not the user's.
NOT_THEIRS = (__file__, sysconfig.get_paths()["stdlib"], "<frozen", "site-packages", "dist-packages")


class NoProgram(Exception):
    """The function or its arguments cannot be found or used; the message says what to do."""


def run(program: str, inputs: str | None, backend: str) -> int:
    """Print the comparison and return the exit status: 0 if aotviz is right, else 1. Raises NoProgram."""
    place, _, name = program.partition(":")
    if not name:
        raise NoProgram(f"{program!r} names no function: write MODULE:FUNCTION, e.g. train:step or train.py:step")
    module = _module(place)
    fn = _attribute(module, name)
    args, kwargs = _arguments(module, name, inputs)
    try:
        found = verify(fn, *args, options={"backend": backend}, **kwargs)
    except (TypeError, RuntimeError) as error:
        raise NoProgram(f"{name}: {error}") from error
    print(found)
    return 0 if found else 1


def _module(place: str) -> ModuleType:
    path = Path(place)
    if path.suffix != ".py":
        sys.path.insert(0, os.getcwd())
        with _told_in_one_line(f"module {place!r} can't be imported"):
            return importlib.import_module(place)
    if not path.exists():
        raise NoProgram(f"there is no file {place}")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    sys.path.insert(0, str(path.resolve().parent))
    with _told_in_one_line(f"{place} can't be imported"):
        spec.loader.exec_module(module)
    return module


@contextmanager
def _told_in_one_line(what: str) -> Iterator[None]:
    """Turn any error of the user's code into a NoProgram error whose message is one line."""
    try:
        yield
    except (Exception, SystemExit) as error:
        said = error.msg if isinstance(error, SyntaxError) else " ".join(str(error).split())
        parts = (what, _line_of(error), type(error).__name__, said)
        raise NoProgram(": ".join(part for part in parts if part)) from error


def _line_of(error: BaseException) -> str:
    """The user's line that failed, e.g. `train.py:12`; "" if no line of the user's code is in the traceback."""
    if isinstance(error, SyntaxError):
        return f"{os.path.basename(error.filename)}:{error.lineno}" if error.filename else ""
    lines = [f for f in traceback.extract_tb(error.__traceback__) if not any(part in f.filename for part in NOT_THEIRS)]
    return f"{os.path.basename(lines[-1].filename)}:{lines[-1].lineno}" if lines else ""


def _attribute(module: ModuleType, name: str) -> Any:
    found: Any = module
    for part in name.split("."):
        if not hasattr(found, part):
            names = ", ".join(n for n in vars(module) if not n.startswith("_") and callable(getattr(module, n)))
            raise NoProgram(f"{module.__name__} has no {name!r}; there are {names or 'no functions'}")
        found = getattr(found, part)
    if not callable(found):
        raise NoProgram(f"{module.__name__}:{name} is {found!r}, which can't be called")
    return found


def _arguments(module: ModuleType, name: str, inputs: str | None) -> tuple[tuple[Any, ...], dict[str, Any]]:
    wanted = inputs or f"{name}_inputs"
    if inputs is None and not hasattr(module, wanted):
        return (), {}
    make = _attribute(module, wanted)
    try:
        inspect.signature(make).bind()
    except TypeError as error:
        raise NoProgram(f"{wanted} must be callable without arguments: {error}") from error
    except ValueError:
        pass  # a builtin, which has no signature
    with _told_in_one_line(f"{wanted} fails"):
        made = make()
    if isinstance(made, dict):
        return (), made
    if isinstance(made, (tuple, list)):
        return tuple(made), {}
    raise NoProgram(f"{wanted} returned {type(made).__name__}; it must return a tuple or dict of arguments")
