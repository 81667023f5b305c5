"""`python -m aotviz verify MODULE:FUNCTION`: find the program and its arguments, and compare."""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from aotviz.comparing.verifying import verify


class NoProgram(Exception):
    """There is no such program or no arguments for it; the message says what to do."""


def run(program: str, inputs: str | None, backend: str) -> int:
    """Print the comparison. 0 if aotviz is right, 1 if not. Raises NoProgram."""
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
    if path.suffix == ".py":
        if not path.exists():
            raise NoProgram(f"there is no file {place}")
        spec = importlib.util.spec_from_file_location(path.stem, path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[path.stem] = module
        sys.path.insert(0, str(path.resolve().parent))
        spec.loader.exec_module(module)
        return module
    sys.path.insert(0, os.getcwd())
    try:
        return importlib.import_module(place)
    except ModuleNotFoundError as error:
        raise NoProgram(f"module {place!r} can't be imported: {error}") from error


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
    try:
        made = _attribute(module, wanted)()
    except TypeError as error:
        raise NoProgram(f"{wanted} must be callable without arguments: {error}") from error
    if isinstance(made, dict):
        return (), made
    if isinstance(made, (tuple, list)):
        return tuple(made), {}
    raise NoProgram(f"{wanted} returned {type(made).__name__}; it must return a tuple or dict of arguments")
