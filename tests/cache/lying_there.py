"""Two tables: what can lie where the cache's file should be, and who can have put it there, each with its sentence.

An arrangement is given the path of the cache's file, whose folder and parent do not exist yet. A sentence has {file},
{folder} and {parent} for these.
"""

from __future__ import annotations

import contextlib
import os
import socket
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from aotviz.cache.store import Store
from tests.cache.other_users import STRANGER, takes_root

KEY = "0" * 64


def filled(folder: Path) -> None:
    store = Store(folder)
    store.save(KEY, {"program": "graph"}, "aa", b"program")
    store.close()


Arrangement = Callable[[Path], object]


def beside(name: str, make: Arrangement) -> Arrangement:
    """`make` at a path next to the file, of a cache that is sound."""

    def arrange(path: Path) -> None:
        filled(path.parent)
        make(path.with_name(name))

    return arrange


def at_file(make: Arrangement) -> Arrangement:
    def arrange(path: Path) -> None:
        path.parent.mkdir(parents=True)
        make(path)

    return arrange


def at_folder(make: Arrangement) -> Arrangement:
    def arrange(path: Path) -> None:
        path.parent.parent.mkdir()
        make(path.parent)

    return arrange


def a_socket(path: Path) -> None:
    with contextlib.closing(socket.socket(socket.AF_UNIX)) as made:
        made.bind(str(path))


def to(target: str) -> Arrangement:
    return lambda path: path.symlink_to(target)


KINDS: dict[str, tuple[Arrangement, str]] = {
    "a folder": (at_file(Path.mkdir), "{file} is a folder, and a file is needed there: remove it"),
    "a FIFO": (at_file(os.mkfifo), "{file} is a named pipe (FIFO), and a file is needed there: remove it"),
    "a socket": (at_file(a_socket), "{file} is a socket, and a file is needed there: remove it"),
    "a device": (at_file(to("/dev/zero")), "{file} is a device, and a file is needed there: remove it"),
    "a dangling symlink": (at_file(to("/none/x")), "{file} is a symlink to /none/x, which does not exist: remove it"),
    "a symlink to itself": (
        at_file(lambda path: path.symlink_to(path)),
        "{file} is a symlink that leads in a circle: remove it",
    ),
    "a file as folder": (at_folder(Path.touch), "{folder} is a file, and a folder is needed there: remove it"),
    "a FIFO as folder": (at_folder(os.mkfifo), "{folder} is a named pipe (FIFO), and a folder is needed there"),
    "a device as folder": (at_folder(to("/dev/null")), "{folder} is a device, and a folder is needed there"),
    "a dangling folder": (at_folder(to("gone")), "{folder} is a symlink to gone, which does not exist: remove it"),
    "a folder in a circle": (at_folder(to("cache")), "{folder} is a symlink that leads in a circle: remove it"),
    "a file as parent": (lambda path: path.parent.parent.touch(), "{parent} is a file, and a folder is needed there"),
    "a dangling parent": (
        lambda path: path.parent.parent.symlink_to("x"),
        "{parent} is a symlink to x, which does not",
    ),
    "a folder as log": (beside("aot.sqlite-wal", Path.mkdir), "{file}-wal is a folder, and a file is needed there"),
    "a FIFO as journal": (beside("aot.sqlite-journal", os.mkfifo), "{file}-journal is a named pipe (FIFO)"),
}


def made(mode: int = 0, user: int = 0, group: int = 0, above: int = 0, suffix: str = "") -> Arrangement:
    """A sound cache, with a mode or an owner of the file (or of the folder `above` it by so many)."""

    def arrange(path: Path) -> None:
        filled(path.parent)
        changed = Path(f"{path}{suffix}") if above == 0 else path.parents[above - 1]
        changed.touch()
        if user or group:
            os.chown(changed, user or -1, group or -1)
        if mode:
            changed.chmod(mode)

    return arrange


def acl(path: Path) -> None:
    """The folder's ACL lets a stranger write."""
    filled(path.parent)
    nobody = 0xFFFFFFFF
    entries = [(1, 7, nobody), (2, 7, STRANGER), (4, 0, nobody), (16, 7, nobody), (32, 0, nobody)]
    data = struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *entry) for entry in entries)
    try:
        os.setxattr(path.parent, "system.posix_acl_access", data)
    except OSError:
        pytest.skip("the disk has no ACLs")


ALL = "can be written by every user: chmod go-w"
GROUP = f"can be written by its group {STRANGER}: chmod go-w"
OWNER = (
    f"belongs to user {STRANGER}, and this process runs as user root: choose another folder, or set AOTVIZ_CACHE_KEY"
)
WRITERS: dict[str, tuple[Arrangement, str]] = {
    "a file that all can write": (
        made(0o666),
        f"{{file}} {ALL} {{file}}, choose another folder, or set AOTVIZ_CACHE_KEY",
    ),
    "a file of a group": (made(0o660, group=STRANGER), f"{{file}} {GROUP} {{file}}"),
    "a log that all can write": (made(0o666, suffix="-wal"), f"{{file}}-wal {ALL} {{file}}-wal"),
    "a folder that all can write": (made(0o777, above=1), f"{{folder}} {ALL} {{folder}}"),
    "a sticky folder": (made(0o1777, above=1), "{folder} can be written by every user: choose a folder in it"),
    "a folder of a group": (made(0o2770, group=STRANGER, above=1), f"{{folder}} {GROUP} {{folder}}"),
    "a parent that all can write": (made(0o777, above=2), f"{{parent}} {ALL} {{parent}}"),
    "a parent of a group": (made(0o775, group=STRANGER, above=2), f"{{parent}} {GROUP} {{parent}}"),
    "another user's file": (made(user=STRANGER), f"{{file}} {OWNER}"),
    "another user's log": (made(user=STRANGER, suffix="-wal"), f"{{file}}-wal {OWNER}"),
    "another user's folder": (made(user=STRANGER, above=1), f"{{folder}} {OWNER}"),
    "another user's parent": (made(user=STRANGER, above=2), f"{{parent}} {OWNER}"),
    "an ACL": (acl, "{folder} can be written by users that its ACL names: chmod go-w {folder}"),
}

TABLE = {**KINDS, **WRITERS}
ROWS = [pytest.param(name, marks=takes_root if name in WRITERS else (), id=name) for name in TABLE]


def arranged(name: str, place: Path) -> tuple[Path, str]:
    """The folder of a row, and the sentence for it."""
    arrange, sentence = TABLE[name]
    path = place / "parent" / "cache" / "aot.sqlite"
    arrange(path)
    return path.parent, sentence.format(file=path, folder=path.parent, parent=path.parent.parent)
