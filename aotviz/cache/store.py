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
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple, cast

from aotviz.cache import ingredients as texts
from aotviz.cache import rows
from aotviz.cache.database import Connection, Database, NotOurs, exported, immediate, new_file, snapshot
from aotviz.cache.ingredients import Nearest
from aotviz.cache.kept import Entry, Held, Kept, Verified
from aotviz.cache.seals import CHECKSUMS, CODE, MAIN, REHEARSED, CacheWarning, Seals, Unavailable, entry_id, warn_once
from aotviz.cache.shared import Shared

__all__ = ["CacheWarning", "Entry", "Held", "Kept", "Nearest", "Store", "Unavailable", "Verified"]

GB = 2**30
CodeOf = Callable[[bytes, Mapping[str, bytes]], Mapping[str, bytes]]
REMARK_SECONDS = 60.0  # an entry that this process marked as used is not marked again for so long


class Exported(NamedTuple):
    """What `Store.export` wrote."""

    entries: int
    code: int  # graphs whose code is in the file
    damaged: int  # entries that were left out


class Imported(NamedTuple):
    """What `Store.import_` did with a file."""

    added: int  # entries that were not here
    damaged: int  # entries that were left out, because they are damaged or signed with another secret
    code_left_out: int  # graphs whose code was left out


class Store:
    """The programs in `folder`, which is created when the first is saved. For any thread, and after a fork.

    Every method may raise Unavailable. `limit_bytes` bounds the file.
    """

    def __init__(
        self, folder: Path, limit_bytes: int = 2 * GB, shared: Shared | None = None, seals: Seals = CHECKSUMS
    ) -> None:
        self.folder = Path(folder)
        self.limit_bytes = limit_bytes
        self.shared = shared
        self._seals = seals
        self._database = Database(self.folder, seals)
        self.damaged: set[str] = set()  # keys of which this process removed a damaged entry
        self._marked: dict[str, float] = {}  # entry id: time.monotonic() when this process last marked it as used

    @property
    def is_signed(self) -> bool:
        """Whether its entries carry MACs: see seals.py."""
        return bool(self._seals.name)

    # Looking up

    def entries(self, key: str) -> list[Entry]:
        """The programs under `key`, the last used first. Those of the shared store, if this machine has none."""
        with self._local_or_shared():
            found, damaged = self._database.read(lambda connection: rows.look_up(connection, key)) or ([], [])
            if damaged:
                self._remove_damaged(damaged, MAIN)
                self.damaged.add(key)
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
            self._database.write(lambda connection: rows.mark(connection, entry.id), patient=False)

    def part(self, entry: Entry, name: str) -> bytes | None:
        """The part `name` of `entry`, here or in the shared store."""
        with self._local_or_shared():
            found = self._database.read(lambda connection: rows.find_part(connection, entry, name))
            number, seal, data = found or (0, None, None)
            if self._seals.is_sound(entry.key, entry.variant, name, data, seal):
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

    def is_rehearsed(self, entry: Entry) -> bool:
        """Whether this machine compiled `entry`, or has tried it before: see frontends/rehearsal.py."""
        with contextlib.suppress(Unavailable):
            _, seal, data = self._database.read(lambda c: rows.find_part(c, entry, REHEARSED)) or (0, None, None)
            is_of_main = data == self._seal_of_main(entry)
            return is_of_main and self._seals.is_sound(entry.key, entry.variant, REHEARSED, data, seal)
        return False

    def note_rehearsed(self, entry: Entry) -> None:
        """Let `is_rehearsed` be true from now on, for this very program."""
        seal = self._seal_of_main(entry)
        self._database.write(lambda connection: self._add(connection, entry, REHEARSED, seal, replace=True))

    def _seal_of_main(self, entry: Entry) -> bytes:
        return self._seals.of(entry.key, entry.variant, MAIN, entry.main)

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
                self._database.write(lambda connection: rows.remove_keys(connection, damaged))
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

        `ingredients` are texts by name, of any length. Parts "guards" and "name" are text, and are what `aotviz cache
        show` and `ls` print.
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

    def share(self, entry: Entry, parts: Mapping[str, bytes]) -> None:
        """Give parts of `entry` to the shared store alone, if there is one."""
        if self.shared is not None:
            for name, data in parts.items():
                self.shared.add_part(entry, name, data)

    def discard(self, entry: Entry, *, everywhere: bool = True) -> None:
        """Remove `entry` here and, if `everywhere`, in the shared store: for a fault that the entry itself has. What
        this machine lacks is no reason to remove it."""
        self._marked.pop(entry.id, None)
        try:
            self._database.write(lambda connection: rows.remove_entry(connection, rows.number_of(connection, entry)))
        finally:
            if everywhere and self.shared is not None:
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

        return self._database.read(rows.list_keys) or []

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

        return self._database.read(lambda connection: rows.list_entries(connection, key)) or []

    def verify(self) -> Verified:
        """Read everything, compare all checksums, and remove what is damaged."""
        problems: list[str] = []

        def check(connection: Connection) -> rows.Checked:
            found = [str(line) for (line,) in connection.execute("PRAGMA integrity_check(20)")]
            if found != ["ok"]:
                problems.extend(line for line in found if not line.startswith("*** "))
                raise NotOurs("is damaged (SQLite's integrity check found faults)")
            with snapshot(connection):
                return rows.check_all(connection, problems)

        before = len(self._database.set_aside)
        found = self._database.read(check) or (0, 0, [], [], [])
        problems.extend(f"the file {reason}, and was set aside" for reason in self._database.set_aside[before:])
        entries, size, damaged_entries, damaged_parts, damaged_keys = found

        def remove(connection: Connection) -> None:
            for number in damaged_entries:
                rows.remove_entry(connection, number)
            for number, name in damaged_parts:
                connection.execute("DELETE FROM parts WHERE entry = ? AND name = ?", (number, name))
            rows.remove_keys(connection, damaged_keys)

        if damaged_entries or damaged_parts or damaged_keys:
            self._database.write(remove)
        return Verified(entries, size, problems)

    def export(self, path: Path, code: CodeOf | None = None, also: Sequence[Store] = ()) -> Exported:
        """Write all entries to one file, for `import_`, sealed as this store's are. Raises OSError.

        `code` gives the parts with the compiler's code for an entry, from its main and its other parts. `also` are
        stores whose entries are written too.
        """
        path = Path(path)
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        os.close(handle)
        try:
            with contextlib.closing(new_file(Path(name), self._seals)) as target:
                found = [store._copied(target, code or (lambda main, parts: {})) for store in (*also, self)]
            entries, graphs, damaged = map(sum, zip(*found, strict=True))
            if not entries:
                cure = "all of it is damaged, and `aotviz cache verify` removes it" if damaged else "it is empty"
                raise Unavailable(f"nothing of the cache in {self.folder} was written: {cure}")
            os.replace(name, path)
        finally:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(name)
        return Exported(entries, graphs, damaged)

    def _copied(self, target: Connection, code: CodeOf) -> Exported:
        """Copy all sound entries to the open file `target`."""

        def copy(connection: Connection) -> Exported:
            entries = graphs = damaged = 0
            with immediate(target):
                for entry, ingredients, parts in rows.exported(connection):
                    damaged += entry is None
                    if entry is not None:
                        held = {**parts, **code(entry.main, parts)}
                        entries += rows.insert_entry(target, entry, ingredients, held)
                        graphs += sum(name.startswith(CODE) for name in held)
            return Exported(entries, graphs, damaged)

        return self._database.read(copy) or Exported(0, 0, 0)

    def check_export(self, path: Path) -> None:
        """Raise Unavailable or OSError if `import_` cannot read a file."""
        for _ in exported(Path(path), self._seals, lambda connection: iter(())):
            pass

    def import_(self, path: Path, *, trusts_code: bool = False) -> Imported:
        """Add the entries of an exported file. Entries that are here already stay as they are. Raises OSError.

        Parts with a compiler's code are taken only if the file is signed, or the caller trusts its maker.
        """
        trusts_code = trusts_code or bool(self._seals.name)
        added = damaged = left_out = 0
        for entry, ingredients, parts in exported(Path(path), self._seals, rows.exported):
            if entry is None:
                damaged += 1
                continue
            code = {name: data for name, data in parts.items() if name.startswith(CODE)}
            left_out += 0 if trusts_code else len(code)
            left_here = {REHEARSED, *(() if trusts_code else code)}
            wanted = {name: data for name, data in parts.items() if name not in left_here}
            is_new = self._save(entry, ingredients, wanted)
            added += is_new
            if trusts_code and not is_new:
                self._database.write(partial(self._add_all, entry=entry, parts=code))
        return Imported(added, damaged, left_out)

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
            is_new = rows.insert_entry(connection, entry, ingredients, parts)
            self._make_room(connection, entry)
            return is_new

        return self._database.write(insert)

    def _add_all(self, connection: Connection, entry: Entry, parts: Mapping[str, bytes]) -> None:
        for name, data in parts.items():
            self._add(connection, entry, name, data)

    def _add(self, connection: Connection, entry: Entry, name: str, data: bytes, *, replace: bool = False) -> None:
        number = rows.number_of(connection, entry)
        if number and name != MAIN:
            rows.mark(connection, entry.id)
            rows.insert_part(connection, number, entry, name, data, replace=replace)
            self._make_room(connection, entry)

    def _make_room(self, connection: Connection, entry: Entry) -> None:
        """Remove the entries that were not used for longest, but for `entry`, until the file is within its limit."""
        while rows.bytes_used(connection) > self.limit_bytes:
            query = "SELECT number FROM entries WHERE id != ? ORDER BY use LIMIT 1"
            found = connection.execute(query, (entry.id,)).fetchone()
            if found is None:
                limit = f"{self.limit_bytes:,} bytes"
                raise Unavailable(f"the program is larger than all of the cache in {self.folder} may be, {limit}")
            rows.remove_entry(connection, found[0])

    def _remove_damaged(self, numbers: list[int], name: str) -> None:
        """Remove entries whose `main` is damaged, or else their part `name`."""
        self._warn_of_damage()

        def remove(connection: Connection) -> None:
            for number in numbers:
                if name == MAIN:
                    rows.remove_entry(connection, number)
                else:
                    connection.execute("DELETE FROM parts WHERE entry = ? AND name = ?", (number, name))

        with contextlib.suppress(Unavailable):  # in a read-only store it is found, and left out, each time
            self._database.write(remove)

    def _warn_of_damage(self) -> None:
        where = str(self._database.path)
        warn_once(where, "entry", f"the cache file {where} had a damaged entry; it was removed")
