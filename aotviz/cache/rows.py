"""The queries of a store: each function is a few statements on the tables of database.py.

A damaged file may hold any value of any type, and lack any row. So a reader takes nothing for sound that `seals` has
not compared, and converts what is only shown.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator, Mapping

from aotviz.cache import ingredients as texts
from aotviz.cache.database import Connection, snapshot
from aotviz.cache.ingredients import MARKS
from aotviz.cache.kept import Entry, Held, Kept
from aotviz.cache.seals import MAIN, entry_id

SHORT_BYTES = 120  # of an ingredient's text in a list

NEXT_USE = "(SELECT coalesce(max(use), 0) + 1 FROM entries)"
LOOK_UP = """\
SELECT e.number, e.variant, p.checksum, p.data FROM entries e JOIN parts p ON p.entry = e.number AND p.name = 'main'
WHERE e.key = ? ORDER BY e.use DESC"""
LIST = """\
SELECT k.number, k.key, k.created, max(e.used), count(DISTINCT e.number), sum(length(p.data)),
    group_concat(p.name, char(10)), (SELECT n.data FROM parts n JOIN entries o ON n.entry = o.number
        WHERE o.key = k.key AND n.name = 'name' ORDER BY o.use DESC LIMIT 1)
FROM keys k JOIN entries e ON e.key = k.key JOIN parts p ON p.entry = e.number
GROUP BY k.number ORDER BY max(e.use) DESC"""


def look_up(connection: Connection, key: str) -> tuple[list[Entry], list[int]]:
    """The entries under a key, and the numbers of those that are damaged."""
    found: list[Entry] = []
    damaged: list[int] = []
    for number, variant, seal, main in connection.execute(LOOK_UP, (key,)):
        if connection.seals.is_sound(key, variant, MAIN, main, seal):
            found.append(Entry(entry_id(key, variant), key, variant, main))
        else:
            damaged.append(number)
    return found, damaged


def number_of(connection: Connection, entry: Entry) -> int:
    """The number of `entry`, or 0 if it has gone or is another `main`'s: Note [One main] in store.py."""
    query = """\
SELECT e.number, p.checksum FROM entries e JOIN parts p ON p.entry = e.number AND p.name = 'main' WHERE e.id = ?"""
    found = connection.execute(query, (entry.id,)).fetchone()
    same = found is not None and found[1] == connection.seals.of(entry.key, entry.variant, MAIN, entry.main)
    return found[0] if same else 0


def find_part(connection: Connection, entry: Entry, name: str) -> tuple[int, object, object]:
    """(number of the entry, checksum, data) of a part; the number is 0 if there is none."""
    with snapshot(connection):
        number = number_of(connection, entry)
        query = "SELECT entry, checksum, data FROM parts WHERE entry = ? AND name = ?"
        return connection.execute(query, (number, name)).fetchone() or (0, None, None)


def insert_entry(
    connection: Connection, entry: Entry, ingredients: Mapping[str, str], parts: Mapping[str, bytes]
) -> bool:
    """Keep an entry under a key with `ingredients`, and say whether it is new: Note [One main] in store.py."""
    now = time.time()
    whole = (
        "SELECT number, EXISTS (SELECT 1 FROM parts WHERE entry = number AND name = 'main') FROM entries WHERE id = ?"
    )
    number, has_main = connection.execute(whole, (entry.id,)).fetchone() or (0, False)
    if has_main:
        mark(connection, entry.id)
        return False
    if number:  # a damaged file lost its main
        remove_entry(connection, number)
    if connection.execute("SELECT 1 FROM keys WHERE key = ?", (entry.key,)).fetchone() is None:
        marks = texts.marks_of(ingredients)
        seal = connection.seals.of(entry.key, "", MARKS, marks)
        columns = "INSERT INTO keys (key, checksum, marks, created) VALUES (?, ?, ?, ?)"
        of_key = _inserted(connection.execute(columns, (entry.key, seal, marks, now)))
        texts.store(connection, of_key, ingredients)
    columns = f"INSERT INTO entries (id, key, variant, use, created, used) VALUES (?, ?, ?, {NEXT_USE}, ?, ?)"
    number = _inserted(connection.execute(columns, (entry.id, entry.key, entry.variant, now, now)))
    for name, data in {**parts, MAIN: entry.main}.items():
        insert_part(connection, number, entry, name, data)
    return True


def insert_part(
    connection: Connection, number: int, entry: Entry, name: str, data: bytes, *, replace: bool = False
) -> None:
    conflict = "REPLACE" if replace else "IGNORE"
    columns = f"INSERT OR {conflict} INTO parts (entry, name, checksum, data) VALUES (?, ?, ?, ?)"
    connection.execute(columns, (number, name, connection.seals.of(entry.key, entry.variant, name, data), data))


def mark(connection: Connection, name: str) -> None:
    connection.execute(f"UPDATE entries SET use = {NEXT_USE}, used = ? WHERE id = ?", (time.time(), name))


def _inserted(cursor: sqlite3.Cursor) -> int:
    """The number of the row that was inserted."""
    assert cursor.lastrowid is not None
    return cursor.lastrowid


def bytes_used(connection: Connection) -> int:
    """Of the file, but for pages that the next entries will fill."""
    pages, free, size = (
        connection.execute(f"PRAGMA {name}").fetchone()[0] for name in ("page_count", "freelist_count", "page_size")
    )
    return int((pages - free) * size)


def remove_entry(connection: Connection, number: int) -> None:
    """Remove an entry, and its key with the last of them."""
    key = connection.execute("SELECT key FROM entries WHERE number = ?", (number,)).fetchone()
    connection.execute("DELETE FROM parts WHERE entry = ?", (number,))
    connection.execute("DELETE FROM entries WHERE number = ?", (number,))
    if key is not None and connection.execute("SELECT 1 FROM entries WHERE key = ?", key).fetchone() is None:
        for (of_key,) in connection.execute("SELECT number FROM keys WHERE key = ?", key).fetchall():
            texts.remove(connection, of_key)
            connection.execute("DELETE FROM keys WHERE number = ?", (of_key,))


def remove_keys(connection: Connection, numbers: list[int]) -> None:
    """Remove keys with all their entries."""
    query = "SELECT e.number FROM entries e JOIN keys k ON k.key = e.key WHERE k.number = ?"
    for number in numbers:
        for (entry,) in connection.execute(query, (number,)).fetchall():
            remove_entry(connection, entry)
        texts.remove(connection, number)
        connection.execute("DELETE FROM keys WHERE number = ?", (number,))


def list_keys(connection: Connection) -> list[Kept]:
    """Every key, the last used first."""
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
                name=name.decode("utf-8", "replace") if isinstance(name, bytes) else "",
            )
            for number, key, created, used, entries, size, names, name in connection.execute(LIST).fetchall()
        ]


def list_entries(connection: Connection, key: str) -> list[Held]:
    """The entries under `key`, the last used first."""
    query = "SELECT number, id, variant, created, used FROM entries WHERE key = ? ORDER BY use DESC"
    sizes = "SELECT name, length(data) FROM parts WHERE entry = ? ORDER BY name"
    held = []
    with snapshot(connection):
        for number, name, variant, created, used in connection.execute(query, (key,)).fetchall():
            parts = {str(part): size or 0 for part, size in connection.execute(sizes, (number,))}
            held.append(Held(str(name), str(variant), _seconds(created), _seconds(used), parts))
    return held


# entries, bytes, numbers of damaged entries, (entry, name) of damaged parts, numbers of damaged keys
Checked = tuple[int, int, list[int], list[tuple[int, str]], list[int]]


def check_all(connection: Connection, problems: list[str]) -> Checked:
    """Compare every checksum. What is damaged is added to `problems`, in words."""
    count = size = 0
    entries: list[int] = []
    parts: list[tuple[int, str]] = []
    keys: list[int] = []
    for number, name, key, variant in connection.execute("SELECT number, id, key, variant FROM entries").fetchall():
        count += 1
        where = f"key {str(key)[:12]}, variant {str(variant)[:12]}"
        names = set()
        for part, seal, data in connection.execute("SELECT name, checksum, data FROM parts WHERE entry = ?", (number,)):
            if connection.seals.is_sound(key, variant, part, data, seal):
                names.add(part)
                size += len(data)
            else:
                problems.append(f"{where}: the part {part!r} is damaged")
                parts.append((number, part))
        if MAIN not in names or name != entry_id(key, variant):
            problems.append(f"{where}: the entry is damaged")
            entries.append(number)
    for number, key, seal, marks in connection.execute("SELECT number, key, checksum, marks FROM keys").fetchall():
        if (
            not connection.seals.is_sound(key, "", MARKS, marks, seal)
            or texts.marks_of(texts.load(connection, number)) != marks
        ):
            problems.append(f"key {str(key)[:12]}: its ingredients are damaged")
            keys.append(number)
    return count, size, entries, parts, keys


def exported(connection: Connection) -> Iterator[tuple[Entry | None, dict[str, str], dict[str, bytes]]]:
    """(entry, ingredients, its other parts), the last used last. The entry is None where something is damaged."""
    order = """\
SELECT e.number, e.key, e.variant, k.number, k.checksum, k.marks FROM entries e JOIN keys k ON k.key = e.key
ORDER BY e.use"""
    for number, key, variant, of_key, seal, marks in connection.execute(order).fetchall():
        rows = connection.execute("SELECT name, checksum, data FROM parts WHERE entry = ?", (number,)).fetchall()
        parts = {name: data for name, seen, data in rows if connection.seals.is_sound(key, variant, name, data, seen)}
        ingredients = texts.load(connection, of_key)
        marked = connection.seals.is_sound(key, "", MARKS, marks, seal) and texts.marks_of(ingredients) == marks
        if len(parts) < len(rows) or MAIN not in parts or not marked:
            yield None, {}, {}
        else:
            main = parts.pop(MAIN)
            yield Entry(entry_id(key, variant), key, variant, main), ingredients, parts


def _seconds(value: object) -> float:
    return float(value) if isinstance(value, (int, float)) else 0.0
