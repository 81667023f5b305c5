"""The user's folder for what aotviz keeps between processes: compiled programs, and what was read from logs."""

from __future__ import annotations

import os
from pathlib import Path

VARIABLE = "AOTVIZ_CACHE_DIR"
OFF = ("0", "off", "false", "no")  # values of the variable that stop the keeping of compiled programs


def is_off() -> bool:
    """Whether the user's environment switches the cache of compiled programs off."""
    return os.environ.get(VARIABLE, "").strip().lower() in OFF


def folder() -> Path:
    """AOTVIZ_CACHE_DIR if that names a folder, else `aotviz` in the user's folder for caches."""
    chosen = os.environ.get(VARIABLE)
    if chosen and not is_off():
        return Path(chosen).expanduser()
    caches = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(caches) if os.path.isabs(caches) else Path.home() / ".cache") / "aotviz"
