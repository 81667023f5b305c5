"""Load what needs torch, on a machine that may have none: reading a recording does not."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType


class NeedsTorch(ImportError):
    """torch is not installed, and what was asked for needs it."""


def loaded(module: str, what: str) -> ModuleType:
    """A module of aotviz. Where it needs torch and torch is not installed, NeedsTorch says that `what` needs it."""
    try:
        return import_module(module)
    except ImportError as error:
        if error.name != "torch":
            raise
        told = f"{what} needs torch, which is not installed: pip install 'aotviz[torch]'"
        raise NeedsTorch(told, name="torch") from error
