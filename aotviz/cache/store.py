"""The store of compiled programs on this machine: one SQLite file in a folder, shared by any number of processes.

A *key* is the digest of everything that a program was compiled from: its *ingredients*, which are kept as text beside
it, so that a miss can be explained by the ingredient that differs. Programs that share a key differ in the shapes that
they are for; each is an *entry*, named by its *variant*, the digest of its guards. An entry has parts: `main`, which is
read at every look-up, and others that are read when they are asked for, such as the backward and the recording.

What is reported saved survives the end of the process by any signal. Once the file holds more than `limit_bytes`, the
entries that were not used for longest go, by a counter in the file and not by the clock. Every part has a checksum; one
that does not match is removed, with a warning, and is a miss. A `Shared` store for many machines may stand behind this
one: it is asked after a miss, and it is given what is saved.

Note [One main]: two processes may compile the same program at once, and not get the same result. The first `main` that
is saved stays. Parts belong to one `main`: those of another are neither stored nor found.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import cast

import msgspec

from aotviz.cache import ingredients as texts
from aotviz.cache.database import Connection, Database, NotOurs, connect, snapshot
from aotviz.cache.ingredients import MARKS, Nearest
from aotviz.cache.seals import MAIN, CacheWarning, Unavailable, checksum, entry_id, is_sound, warn_once
from aotviz.cache.shared import Shared

__all__ = ["CacheWarning", "Entry", "Held", "Kept", "Nearest", "Store", "Unavailable", "Verified", "default_folder"]

GB = 2**30
SHORT_BYTES = 120  # of an ingredient's text in `Store.keys`
REMARK_SECONDS = 60.0  # an entry that this process marked as used is not marked again for so long

NEXT_USE = "(SELECT coalesce(max(use), 0) + 1 FROM entries)"
LOOK_UP = """\
SELECT e.number, e.variant, p.checksum, p.data FROM entries e JOIN parts p ON p.entry = e.number AND p.name = 'main'
WHERE e.key = ? ORDER BY e.use DESC"""
LIST = """\
SELECT k.number, k.key, k.created, max(e.used), count(DISTINCT e.number), sum(length(p.data)),
    group_concat(p.name, char(10))
FROM keys k JOIN entries e ON e.key = k.key JOIN parts p ON p.entry = e.number
GROUP BY k.number ORDER BY max(e.use) DESC"""


class Entry(msgspec.Struct, frozen=True):
    """One program under a key."""

    id: str  # of the key and the variant
    key: str  # hex digest of the ingredients
    variant: str  # hex digest of its guards: several entries can share a key
    main: bytes  # opaque here

    def __repr__(self) -> str:
        return f"Entry(key={self.key[:12]!r}, variant={self.variant[:12]!r}, {len(self.main):,} bytes)"


class Kept(msgspec.Struct, frozen=True):
    """A key in a list of all."""

    key: str
    created: float  # seconds since 1970, for display only: clocks change
    used: float
    bytes: int  # of all parts of its entries
    entries: int
    parts: frozenset[str]  # the names of its entries' parts
    ingredients: dict[str, str]  # the beginning of each text


class Held(msgspec.Struct, frozen=True):
    """An entry, without its bytes."""

    id: str
    variant: str
    created: float  # seconds since 1970, for display only
    used: float
    parts: dict[str, int]  # name: bytes


class Verified(msgspec.Struct, frozen=True):
    """What `Store.verify` read, and what was wrong with it."""

    entries: int
    bytes: int
    damaged: list[str]  # one line for each fault; what was damaged has been removed


def default_folder() -> Path:
    """`AOTVIZ_CACHE_DIR`, or `aotviz` in the user's folder for caches."""
    chosen = os.environ.get("AOTVIZ_CACHE_DIR")
    if chosen:
        return Path(chosen).expanduser()
    caches = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(caches) if os.path.isabs(caches) else Path.home() / ".cache") / "aotviz"


class Store:
    """The programs in `folder`, which is created when the first is saved. For any thread, and after a fork.

    Every method may raise Unavailable. `limit_bytes` bounds the file.
    """

    def __init__(self, folder: Path, limit_bytes: int = 2 * GB, shared: Shared | None = None) -> None:
        self.folder = Path(folder)
        self.limit_bytes = limit_bytes
        self.shared = shared
        self._database = Database(self.folder)
        self._marked: dict[str, float] = {}  # entry id: time.monotonic() when this process last marked it as used

    # Looking up

    def entries(self, key: str) -> list[Entry]:
        """The programs under `key`, the last used first. Those of the shared store, if this machine has none."""
        with self._local_or_shared():
            found, damaged = self._database.read(lambda connection: _look_up(connection, key)) or ([], [])
            if damaged:
                self._remove_damaged(damaged, MAIN)
            if found:
                return found
        return self.entries_elsewhere(key)

    def entries_elsewhere(self, key: str, known: Sequence[Entry] = ()) -> list[Entry]:
        """The shared store's programs under `key`, but those with the variants of `known`. They are saved here, too.

        `entries` asks there only if this machine has no program under the key. After a guard miss, ask here.
        """
        if self.shared is None:
            return []
        ingredients, mains = self.shared.look_up(key)
        variants = {entry.variant for entry in known}
        found = [self._entry(key, variant, main) for variant, main in mains.items() if variant not in variants]
        with contextlib.suppress(Unavailable):  # what was found serves this process at least
            for entry in found:
                self._save(entry, ingredients, {})
        return found

    def used(self, entry: Entry) -> None:
        """Note that `entry` was used, so that it goes later. Never raises or waits: if it can't be noted, it is not."""
        now = time.monotonic()
        if now - self._marked.get(entry.id, -REMARK_SECONDS) < REMARK_SECONDS:
            return
        self._marked[entry.id] = now
        with contextlib.suppress(Unavailable):
            self._database.write(lambda connection: _mark(connection, entry.id), patient=False)

    def part(self, entry: Entry, name: str) -> bytes | None:
        """The part `name` of `entry`, here or in the shared store."""
        with self._local_or_shared():
            found = self._database.read(lambda connection: _part(connection, entry, name))
            number, seal, data = found or (0, None, None)
            if is_sound(entry.key, entry.variant, name, data, seal):
                return cast(bytes, data)
            if number:
                self._remove_damaged([number], name)
        if self.shared is None:
            return None
        elsewhere = self.shared.part(entry, name)
        if elsewhere is not None:
            with contextlib.suppress(Unavailable):
                self._database.write(lambda connection: self._add(connection, entry, name, elsewhere))
        return elsewhere

    def nearest(self, ingredients: Mapping[str, str]) -> Nearest | None:
        """This machine's key with the fewest ingredients that differ from these; of several, the newest.

        Ingredients that only one side has count as different. A key with just these ingredients is left out.
        """

        def search(connection: Connection) -> tuple[Nearest | None, list[int]]:
            with snapshot(connection):
                return texts.nearest(connection, ingredients)

        found, damaged = self._database.read(search) or (None, [])
        if damaged:
            self._warn_of_damage()
            with contextlib.suppress(Unavailable):
                self._database.write(lambda connection: _remove_keys(connection, damaged))
        return found

    # Saving

    def save(
        self,
        key: str,
        ingredients: Mapping[str, str],
        variant: str,
        main: bytes,
        parts: Mapping[str, bytes] = MappingProxyType({}),
    ) -> Entry:
        """Keep a program, and `parts` with it, here and in the shared store. See Note [One main].

        `ingredients` are texts by name, of any length. A part "guards" is text, and is what `aotviz cache show` prints.
        """
        entry = self._entry(key, variant, main)
        try:
            self._save(entry, ingredients, parts)
        finally:
            if self.shared is not None:
                self.shared.save(entry, ingredients, parts)
        return entry

    def add_part(self, entry: Entry, name: str, data: bytes) -> None:
        """Keep a part of `entry`. The first one stays. Nothing happens if the entry has gone."""
        try:
            self._database.write(lambda connection: self._add(connection, entry, name, data))
        finally:
            if self.shared is not None:
                self.shared.add_part(entry, name, data)

    def replace_part(self, entry: Entry, name: str, data: bytes) -> None:
        """Keep a part of `entry` in place of an earlier one. Nothing happens if the entry has gone."""
        try:
            self._database.write(lambda connection: self._add(connection, entry, name, data, replace=True))
        finally:
            if self.shared is not None:
                self.shared.replace_part(entry, name, data)

    # Removing

    def discard(self, entry: Entry) -> None:
        """Remove `entry` here and in the shared store, for instance because what it refers to is gone."""
        self._marked.pop(entry.id, None)
        try:
            self._database.write(lambda connection: _remove_entry(connection, _number(connection, entry)))
        finally:
            if self.shared is not None:
                self.shared.discard(entry)

    def clear(self) -> int:
        """Remove everything from this machine's store, and return how many entries there were."""

        def remove_all(connection: Connection) -> int:
            (count,) = connection.execute("SELECT count(*) FROM entries").fetchone()
            for table in ("parts", "entries", "ingredients", "texts", "keys"):
                connection.execute(f"DELETE FROM {table}")
            return int(count)

        def give_back(connection: Connection) -> None:
            connection.execute("VACUUM")
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")

        if not self._database.read(lambda connection: True):
            return 0
        self._marked.clear()
        count = self._database.write(remove_all)
        with contextlib.suppress(Unavailable):  # another process reads: its disk space is used again later
            self._database.read(give_back)
        return count

    # All of it

    def keys(self) -> list[Kept]:
        """Every key, the last used first."""

        def collect(connection: Connection) -> list[Kept]:
            with snapshot(connection):
                begins = texts.load_beginnings(connection, SHORT_BYTES)
                return [
                    Kept(
                        key=str(key),
                        created=_seconds(created),
                        used=_seconds(used),
                        bytes=size or 0,
                        entries=entries,
                        parts=frozenset((names or "").split("\n")),
                        ingredients=begins.get(number, {}),
                    )
                    for number, key, created, used, entries, size, names in connection.execute(LIST).fetchall()
                ]

        return self._database.read(collect) or []

    def matching(self, prefix: str) -> list[str]:
        """The keys that begin with `prefix`."""
        query = "SELECT key FROM keys WHERE substr(key, 1, ?) = ? ORDER BY key"
        found = self._database.read(lambda c: c.execute(query, (len(prefix), prefix)).fetchall())
        return [key for (key,) in found or []]

    def ingredients(self, key: str) -> dict[str, str]:
        """The whole texts that `key` was made of; empty if the key is unknown."""

        def collect(connection: Connection) -> dict[str, str]:
            with snapshot(connection):
                found = connection.execute("SELECT number FROM keys WHERE key = ?", (key,)).fetchone()
                return {} if found is None else texts.load(connection, found[0])

        return self._database.read(collect) or {}

    def held(self, key: str) -> list[Held]:
        """The entries under `key`, the last used first, with the sizes of their parts."""

        def collect(connection: Connection) -> list[Held]:
            with snapshot(connection):
                query = "SELECT number, id, variant, created, used FROM entries WHERE key = ? ORDER BY use DESC"
                sizes = "SELECT name, length(data) FROM parts WHERE entry = ? ORDER BY name"
                held = []
                for number, name, variant, created, used in connection.execute(query, (key,)).fetchall():
                    parts = {str(part): size for part, size in connection.execute(sizes, (number,))}
                    held.append(Held(str(name), str(variant), _seconds(created), _seconds(used), parts))
                return held

        return self._database.read(collect) or []

    def verify(self) -> Verified:
        """Read everything, compare all checksums, and remove what is damaged."""
        problems: list[str] = []

        def check(connection: Connection) -> Checked:
            found = [str(line) for (line,) in connection.execute("PRAGMA integrity_check(20)")]
            if found != ["ok"]:
                problems.extend(line for line in found if not line.startswith("*** "))
                raise NotOurs("is damaged (SQLite's integrity check found faults)")
            with snapshot(connection):
                return _check_all(connection, problems)

        before = len(self._database.set_aside)
        found = self._database.read(check) or (0, 0, [], [], [])
        problems.extend(f"the file {reason}, and was set aside" for reason in self._database.set_aside[before:])
        entries, size, damaged_entries, damaged_parts, damaged_keys = found

        def remove(connection: Connection) -> None:
            for number in damaged_entries:
                _remove_entry(connection, number)
            for number, name in damaged_parts:
                connection.execute("DELETE FROM parts WHERE entry = ? AND name = ?", (number, name))
            _remove_keys(connection, damaged_keys)

        if damaged_entries or damaged_parts or damaged_keys:
            self._database.write(remove)
        return Verified(entries, size, problems)

    def export(self, path: Path) -> int:
        """Write all entries to one file, for `import_`, and return how many. Raises OSError."""
        count = self._database.read(lambda c: int(c.execute("SELECT count(*) FROM entries").fetchone()[0]))
        if not count:
            raise Unavailable(f"the cache in {self.folder} is empty: nothing was written")
        path = Path(path)
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        os.close(handle)
        try:
            if self._database.read(lambda connection: connection.execute("VACUUM INTO ?", (name,))) is None:
                raise Unavailable(f"the cache in {self.folder} was damaged: nothing was written")
            os.replace(name, path)
        finally:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(name)
        return count

    def import_(self, path: Path) -> tuple[int, int]:
        """Add the entries of an exported file. Returns how many were new, and how many damaged ones were left out.

        Entries that are here already stay as they are. Raises OSError.
        """
        path = Path(path)
        os.stat(path)
        added = damaged = 0
        try:
            connection = connect(path, "mode=ro&immutable=1", create=False)
            if connection is None:
                raise NotOurs("is empty")
            with contextlib.closing(connection):
                for entry, ingredients, parts in _exported(connection):
                    if entry is None:
                        damaged += 1
                    else:
                        added += self._save(entry, ingredients, parts)
        except NotOurs as fault:
            raise Unavailable(f"{path} {fault}: expected a file of `aotviz cache export`") from fault
        except sqlite3.Error as fault:
            so_far = f", after {added} entries" if added else ""
            raise Unavailable(f"{path} cannot be read{so_far} ({fault}): export it again") from fault
        return added, damaged

    def close(self) -> None:
        """Close the file until it is next used. Not needed at the end of a process."""
        self._database.close()

    # The parts of these

    @staticmethod
    def _entry(key: str, variant: str, main: bytes) -> Entry:
        return Entry(entry_id(key, variant), key, variant, main)

    @contextlib.contextmanager
    def _local_or_shared(self) -> Iterator[None]:
        """Where this machine's store is unavailable, go on to the shared one, if there is one."""
        try:
            yield
        except Unavailable:
            if self.shared is None:
                raise

    def _save(self, entry: Entry, ingredients: Mapping[str, str], parts: Mapping[str, bytes]) -> bool:
        """Keep an entry here, and say whether it is new."""

        def insert(connection: Connection) -> bool:
            now = time.time()
            found = connection.execute("SELECT number FROM keys WHERE key = ?", (entry.key,)).fetchone()
            if found is None:
                marks = texts.marks_of(ingredients)
                row = (entry.key, checksum(entry.key, "", MARKS, marks), marks, now)
                columns = "INSERT INTO keys (key, checksum, marks, created) VALUES (?, ?, ?, ?)"
                texts.store(connection, _row(connection.execute(columns, row)), ingredients)
            known = connection.execute("SELECT number FROM entries WHERE id = ?", (entry.id,)).fetchone()
            if known is not None:
                _mark(connection, entry.id)
                return False
            columns = f"INSERT INTO entries (id, key, variant, use, created, used) VALUES (?, ?, ?, {NEXT_USE}, ?, ?)"
            values = (entry.id, entry.key, entry.variant, now, now)
            number = _row(connection.execute(columns, values))
            for name, data in {**parts, MAIN: entry.main}.items():
                _insert_part(connection, number, entry, name, data)
            self._make_room(connection, entry)
            return True

        return self._database.write(insert)

    def _add(self, connection: Connection, entry: Entry, name: str, data: bytes, *, replace: bool = False) -> None:
        number = _number(connection, entry)
        if number and name != MAIN:
            _mark(connection, entry.id)
            _insert_part(connection, number, entry, name, data, replace=replace)
            self._make_room(connection, entry)

    def _make_room(self, connection: Connection, entry: Entry) -> None:
        """Remove the entries that were not used for longest, but for `entry`, until the file is within its limit."""
        while _bytes_used(connection) > self.limit_bytes:
            query = "SELECT number FROM entries WHERE id != ? ORDER BY use LIMIT 1"
            found = connection.execute(query, (entry.id,)).fetchone()
            if found is None:
                limit = f"{self.limit_bytes:,} bytes"
                raise Unavailable(f"the program is larger than all of the cache in {self.folder} may be, {limit}")
            _remove_entry(connection, found[0])

    def _remove_damaged(self, numbers: list[int], name: str) -> None:
        """Remove entries whose `main` is damaged, or else their part `name`."""
        self._warn_of_damage()

        def remove(connection: Connection) -> None:
            for number in numbers:
                if name == MAIN:
                    _remove_entry(connection, number)
                else:
                    connection.execute("DELETE FROM parts WHERE entry = ? AND name = ?", (number, name))

        with contextlib.suppress(Unavailable):  # in a read-only store it is found, and left out, each time
            self._database.write(remove)

    def _warn_of_damage(self) -> None:
        where = str(self._database.path)
        warn_once(where, "entry", f"the cache file {where} had a damaged entry; it was removed")


def _look_up(connection: Connection, key: str) -> tuple[list[Entry], list[int]]:
    """The entries under a key, and the numbers of those that are damaged."""
    found: list[Entry] = []
    damaged: list[int] = []
    for number, variant, seal, main in connection.execute(LOOK_UP, (key,)):
        if is_sound(key, variant, MAIN, main, seal):
            found.append(Entry(entry_id(key, variant), key, variant, main))
        else:
            damaged.append(number)
    return found, damaged


def _number(connection: Connection, entry: Entry) -> int:
    """The number of `entry`, or 0 if it has gone or is another `main`'s: Note [One main]."""
    query = """\
SELECT e.number, p.checksum FROM entries e JOIN parts p ON p.entry = e.number AND p.name = 'main' WHERE e.id = ?"""
    found = connection.execute(query, (entry.id,)).fetchone()
    same = found is not None and found[1] == checksum(entry.key, entry.variant, MAIN, entry.main)
    return found[0] if same else 0


def _part(connection: Connection, entry: Entry, name: str) -> tuple[int, object, object]:
    """(number of the entry, checksum, data) of a part; the number is 0 if there is none."""
    with snapshot(connection):
        number = _number(connection, entry)
        query = "SELECT entry, checksum, data FROM parts WHERE entry = ? AND name = ?"
        return connection.execute(query, (number, name)).fetchone() or (0, None, None)


def _insert_part(
    connection: Connection, number: int, entry: Entry, name: str, data: bytes, *, replace: bool = False
) -> None:
    conflict = "REPLACE" if replace else "IGNORE"
    columns = f"INSERT OR {conflict} INTO parts (entry, name, checksum, data) VALUES (?, ?, ?, ?)"
    connection.execute(columns, (number, name, checksum(entry.key, entry.variant, name, data), data))


def _mark(connection: Connection, name: str) -> None:
    connection.execute(f"UPDATE entries SET use = {NEXT_USE}, used = ? WHERE id = ?", (time.time(), name))


def _row(cursor: sqlite3.Cursor) -> int:
    """The number of the row that was inserted."""
    assert cursor.lastrowid is not None
    return cursor.lastrowid


def _bytes_used(connection: Connection) -> int:
    """Of the file, but for pages that the next entries will fill."""
    pages, free, size = (
        connection.execute(f"PRAGMA {name}").fetchone()[0] for name in ("page_count", "freelist_count", "page_size")
    )
    return int((pages - free) * size)


def _remove_entry(connection: Connection, number: int) -> None:
    """Remove an entry, and its key with the last of them."""
    key = connection.execute("SELECT key FROM entries WHERE number = ?", (number,)).fetchone()
    connection.execute("DELETE FROM parts WHERE entry = ?", (number,))
    connection.execute("DELETE FROM entries WHERE number = ?", (number,))
    if key is not None and connection.execute("SELECT 1 FROM entries WHERE key = ?", key).fetchone() is None:
        for (of_key,) in connection.execute("SELECT number FROM keys WHERE key = ?", key).fetchall():
            texts.remove(connection, of_key)
            connection.execute("DELETE FROM keys WHERE number = ?", (of_key,))


def _remove_keys(connection: Connection, numbers: list[int]) -> None:
    """Remove keys with all their entries."""
    query = "SELECT e.number FROM entries e JOIN keys k ON k.key = e.key WHERE k.number = ?"
    for number in numbers:
        for (entry,) in connection.execute(query, (number,)).fetchall():
            _remove_entry(connection, entry)
        texts.remove(connection, number)
        connection.execute("DELETE FROM keys WHERE number = ?", (number,))


# entries, bytes, numbers of damaged entries, (entry, name) of damaged parts, numbers of damaged keys
Checked = tuple[int, int, list[int], list[tuple[int, str]], list[int]]


def _check_all(connection: Connection, problems: list[str]) -> Checked:
    count = size = 0
    entries: list[int] = []
    parts: list[tuple[int, str]] = []
    keys: list[int] = []
    for number, name, key, variant in connection.execute("SELECT number, id, key, variant FROM entries").fetchall():
        count += 1
        where = f"key {str(key)[:12]}, variant {str(variant)[:12]}"
        names = set()
        for part, seal, data in connection.execute("SELECT name, checksum, data FROM parts WHERE entry = ?", (number,)):
            if is_sound(key, variant, part, data, seal):
                names.add(part)
                size += len(data)
            else:
                problems.append(f"{where}: the part {part!r} is damaged")
                parts.append((number, part))
        if MAIN not in names or name != entry_id(key, variant):
            problems.append(f"{where}: the entry is damaged")
            entries.append(number)
    for number, key, seal, marks in connection.execute("SELECT number, key, checksum, marks FROM keys").fetchall():
        if not is_sound(key, "", MARKS, marks, seal) or texts.marks_of(texts.load(connection, number)) != marks:
            problems.append(f"key {str(key)[:12]}: its ingredients are damaged")
            keys.append(number)
    return count, size, entries, parts, keys


def _exported(connection: Connection) -> Iterator[tuple[Entry | None, dict[str, str], dict[str, bytes]]]:
    """(entry, ingredients, its other parts), the last used last. The entry is None where something is damaged."""
    order = """\
SELECT e.number, e.key, e.variant, k.number, k.checksum, k.marks FROM entries e JOIN keys k ON k.key = e.key
ORDER BY e.use"""
    for number, key, variant, of_key, seal, marks in connection.execute(order).fetchall():
        rows = connection.execute("SELECT name, checksum, data FROM parts WHERE entry = ?", (number,)).fetchall()
        parts = {name: data for name, seen, data in rows if is_sound(key, variant, name, data, seen)}
        ingredients = texts.load(connection, of_key)
        marked = is_sound(key, "", MARKS, marks, seal) and texts.marks_of(ingredients) == marks
        if len(parts) < len(rows) or MAIN not in parts or not marked:
            yield None, {}, {}
        else:
            main = parts.pop(MAIN)
            yield Entry(entry_id(key, variant), key, variant, main), ingredients, parts


def _seconds(value: object) -> float:
    return float(value) if isinstance(value, (int, float)) else 0.0
