"""Whether compiled programs are cached, and where.

`cache=` of `aotviz.compile`, or `options={"cache": ...}` of `torch.compile`, is True, False or a folder. Without it,
the environment decides: AOTVIZ_CACHE_DIR is a folder, or "off"; AOTVIZ_CACHE_URL is the address of a Redis server that
many machines share; one that is wrong is told in one warning, and this machine's cache works without it. torch's own
switch (`force_disable_caches`) switches this cache off too.
"""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path

from aotviz.cache.seals import VARIABLE, Seals, Unavailable, seals_of_environment, warn_once
from aotviz.cache.shared import Shared
from aotviz.cache.store import Store
from aotviz.recording import user_folder
from aotviz.torch_private import configs

URL = "AOTVIZ_CACHE_URL"
Choice = bool | str | os.PathLike[str] | None


def store_for(choice: Choice) -> Store | None:
    """The store that a compilation uses; None if it is not cached.

    Raises:
        TypeError: `choice` is neither a bool nor a folder.
    """
    if choice is not None and not isinstance(choice, (bool, str, os.PathLike)):
        raise TypeError(f"cache is {choice!r}; it can be True, False or a folder")
    if choice is False or (choice is None and user_folder.is_off()):
        return None
    if not isinstance(choice, (str, os.PathLike)):
        choice = user_folder.folder()
    try:
        seals = seals_of_environment()
    except Unavailable as fault:
        warn_once(VARIABLE, "secret", f"aotviz's cache is not used: {fault}")
        return None
    return _store(Path(choice).expanduser().absolute(), os.environ.get(URL, "").strip(), seals)


def store_of_compilation(choice: Choice, is_debugged: bool) -> Store | None:
    """As `store_for`, but None where each stage is to run: with `debug`, and with torch's switch for all caches."""
    store = store_for(choice)
    return None if is_debugged or configs.caches_are_off() else store


@cache
def _store(folder: Path, url: str, seals: Seals) -> Store:
    return Store(folder, shared=_shared(url, seals) if url else None, seals=seals)


def _shared(url: str, seals: Seals) -> Shared | None:
    try:
        return Shared(url, seals=seals)
    except ValueError as fault:
        warn_once(URL, "address", f"no cache is shared, because {URL} is wrong: {fault}")
        return None
