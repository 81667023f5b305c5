"""The texts that a key was made of: kept once however many keys share them, and compared to explain a miss.

A long text, such as a program's graph, is compressed. Each key also has `marks`, eight bytes for each of its
ingredients, so that `nearest` can compare thousands of keys without reading a text. They serve as the ingredients'
checksum, too: a text that was changed does not give the same mark.
"""

from __future__ import annotations

import sys
import zlib
from collections import Counter
from collections.abc import Mapping

import msgspec

from aotviz.cache.database import Connection
from aotviz.cache.seals import CHECKSUMS, decoded, encoded, text_digest

MARKS = "marks"  # the name under which a key's marks are sealed
MARK_BYTES = 8
COMPRESSED_FROM = 512  # bytes of text
LONGEST = 2**28  # bytes of text after decompression
MOST_COMPARED = 64  # keys whose texts are compared after a miss
PLAIN, COMPRESSED = b"t", b"z"  # the first byte of a stored text


class Nearest(msgspec.Struct, frozen=True):
    """The earlier key that differs least from one that was not found."""

    key: str
    differing: dict[str, tuple[str | None, str | None]]  # name: (text there, text here); None where there is none


def marks_of(ingredients: Mapping[str, str]) -> bytes:
    """Eight bytes of name and text for each ingredient, in the order of their names."""
    named = sorted((storable(name), text) for name, text in ingredients.items())
    return b"".join(CHECKSUMS.of("", "", name, encoded(text))[:MARK_BYTES] for name, text in named)


def store(connection: Connection, number: int, ingredients: Mapping[str, str]) -> None:
    """Keep the ingredients of key `number`."""
    for name, text in ingredients.items():
        plain = encoded(text)
        digest = text_digest(plain)
        found = connection.execute("SELECT number FROM texts WHERE digest = ?", (digest,)).fetchone()
        if found is None:
            long = len(plain) >= COMPRESSED_FROM
            kept = COMPRESSED + zlib.compress(plain, 1) if long else PLAIN + plain
            found = [connection.execute("INSERT INTO texts (digest, text) VALUES (?, ?)", (digest, kept)).lastrowid]
        row = (number, storable(name), found[0])
        connection.execute("INSERT OR REPLACE INTO ingredients (key, name, text) VALUES (?, ?, ?)", row)


def load(connection: Connection, number: int) -> dict[str, str]:
    """The ingredients of key `number`, sorted by name."""
    query = "SELECT i.name, t.text FROM ingredients i JOIN texts t ON t.number = i.text WHERE i.key = ? ORDER BY i.name"
    return {str(name): opened(kept) for name, kept in connection.execute(query, (number,))}


def load_beginnings(connection: Connection, limit: int) -> dict[int, dict[str, str]]:
    """The ingredients of each key by its number, with each text cut to about `limit` bytes."""
    begins = {
        number: opened(kept, limit)
        for number, kept in connection.execute("SELECT number, substr(text, 1, 1000) FROM texts")
    }
    found: dict[int, dict[str, str]] = {}
    for key, name, text in connection.execute("SELECT key, name, text FROM ingredients ORDER BY key, name"):
        found.setdefault(key, {})[str(name)] = begins.get(text, "")
    return found


def opened(kept: object, limit: int = LONGEST) -> str:
    """A stored text. A damaged one is told by its mark, so here it is only read as far as possible."""
    if not isinstance(kept, bytes):
        return ""
    plain = kept[1:]
    if kept[:1] == COMPRESSED:
        try:
            plain = zlib.decompressobj().decompress(plain, limit)
        except zlib.error:
            return ""
    try:
        return decoded(plain[:limit])
    except UnicodeDecodeError:
        return plain[:limit].decode("utf-8", "replace")


def remove(connection: Connection, number: int) -> None:
    """Forget the ingredients of key `number`, and the texts that no other key has."""
    texts = connection.execute("SELECT DISTINCT text FROM ingredients WHERE key = ?", (number,)).fetchall()
    connection.execute("DELETE FROM ingredients WHERE key = ?", (number,))
    unused = "DELETE FROM texts WHERE number = ? AND NOT EXISTS (SELECT 1 FROM ingredients WHERE text = number)"
    connection.executemany(unused, texts)


def nearest(connection: Connection, ingredients: Mapping[str, str]) -> tuple[Nearest | None, list[int]]:
    """The key that differs least, and the numbers of damaged keys.

    That is the key with the fewest ingredients that differ. Of several, it is the one with the least text that does,
    and of several of these the newest. A key that differs in nothing is left out.
    """
    ingredients = {storable(name): text for name, text in ingredients.items()}
    ours = frozenset(memoryview(marks_of(ingredients)).cast("Q"))
    damaged: list[int] = []
    candidates = []  # (the least number of names that can differ, age, key, checksum, marks)
    for number, key, seal, marks in connection.execute("SELECT number, key, checksum, marks FROM keys"):
        if not isinstance(marks, bytes) or len(marks) % MARK_BYTES:
            damaged.append(number)
            continue
        theirs = memoryview(marks).cast("Q")
        least = max(len(ours), len(theirs)) - len(ours.intersection(theirs))
        if least > 0:
            candidates.append((least, -number, key, seal, marks))
    best: Nearest | None = None
    best_score = sys.maxsize, 0, 0
    compared = 0
    for least, age, key, seal, marks in sorted(candidates, key=lambda found: found[:2]):
        if least > best_score[0] or compared == MOST_COMPARED:
            break
        texts = load(connection, -age)
        if not connection.seals.is_sound(key, "", MARKS, marks, seal) or marks_of(texts) != marks:
            damaged.append(-age)
            continue
        differing = differences(texts, ingredients)
        compared += 1
        score = len(differing), sum(_between(there or "", here or "") for there, here in differing.values()), age
        if score < best_score:
            best, best_score = Nearest(key, differing), score
    return best, damaged


def differences(theirs: Mapping[str, str], ours: Mapping[str, str]) -> dict[str, tuple[str | None, str | None]]:
    """Name -> (theirs, ours) of the texts that differ. Names that only one side has count as different."""
    pairs = {name: (theirs.get(name), ours.get(name)) for name in sorted({*theirs, *ours})}
    return {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}


def _between(one: str, other: str) -> int:
    """How many characters are in words that only one of two texts has.

    >>> _between("float32 (3) requires grad", "float32 (3)"), _between("float32 (3)", "float64 (3)")
    (12, 14)
    """
    first, second = Counter(one.split()), Counter(other.split())
    return sum(len(word) * count for word, count in ((first - second) + (second - first)).items())


def storable(name: str) -> str:
    """SQLite's texts are UTF-8, which has no half of a surrogate pair."""
    return name.encode("utf-8", "backslashreplace").decode()
