"""A store's files, broken at random and bit by bit: `python -m tests.cache.broken_files FOLDER FIRST COUNT [flips]`.

Each mutation flips bytes, cuts the file short, exchanges two blocks, or fills a range with zeros, in the database or in
its write-ahead log, while the store is closed or while it is open. With `flips`, the numbers are those of bits of the
database, each flipped alone: the first page holds the schema, and a few bytes there decide what all others mean.
FIRST:STEP in place of FIRST takes each STEP-th.

A store that is used afterwards may find less. It must not raise anything but Unavailable, find anything that was not
saved, or warn of one kind of fault twice. The command line prints lines, and no traceback. Each flip is met by a few
operations, in turns, and each of them meets the file as it was flipped.
In a process of its own, so that a fault in SQLite's C code fails a test and does not end them all.
"""

from __future__ import annotations

import contextlib
import io
import os
import random
import shutil
import sys
import warnings
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from aotviz.__main__ import main as command_line
from aotviz.cache.seals import entry_id
from aotviz.cache.store import CacheWarning, Entry, Store, Unavailable

FILES = ["aot.sqlite", "aot.sqlite-wal"]
PAGE_BITS = 8 * 4096
OPERATIONS_A_FLIP = 3
KEYS = [f"{number:064x}" for number in range(12)]


def ingredients(number: int) -> dict[str, str]:
    return {
        "program": f"graph {number}\n" * 300,
        "torch": "2.13.0",
        **{f"option {i}": str(i * number) for i in range(9)},
    }


def data(number: int, variant: str, name: str) -> bytes:
    return random.Random(f"{number} {variant} {name}").randbytes(300 + 900 * number)


def fill(store: Store, numbers: range) -> None:
    for number in numbers:
        for variant in ("aa", "bb") if number % 3 == 0 else ("aa",):
            entry = store.save(KEYS[number], ingredients(number), variant, data(number, variant, "main"))
            store.add_part(entry, "backward", data(number, variant, "backward"))


def make(folder: Path) -> None:
    """A database and a log that both hold entries: the child that saves the last ones never closes its file."""
    fill(Store(folder), range(7))
    child = os.fork()
    if child == 0:
        store = Store(folder)
        fill(store, range(7, len(KEYS)))
        os._exit(0)
    os.waitpid(child, 0)


def mutate(path: Path, chance: random.Random) -> None:
    content = bytearray(path.read_bytes())
    size = len(content)
    at = chance.randrange(100) if chance.random() < 0.2 else chance.randrange(size)
    match chance.randrange(5):
        case 0 | 1:
            for _ in range(chance.choice([1, 1, 3, 50])):
                content[at] ^= 1 << chance.randrange(8)
                at = chance.randrange(size)
        case 2:
            del content[at:]
        case 3:
            content[at : at + 500] = bytes(len(content[at : at + 500]))
        case 4:
            other = chance.randrange(size)
            content[at : at + 64], content[other : other + 64] = content[other : other + 64], content[at : at + 64]
    with path.open("r+b") as file:  # in place: the file keeps its identity
        file.write(content)
        file.truncate(len(content))


def find(store: Store) -> list[Entry]:
    found: list[Entry] = []
    for number, key in enumerate(KEYS):
        for entry in store.entries(key):
            assert entry.main == data(number, entry.variant, "main"), "another program"
            found.append(entry)
    return found


def read_parts(store: Store) -> None:
    for number, key in enumerate(KEYS):
        entry = Entry(entry_id(key, "aa"), key, "aa", data(number, "aa", "main"))
        assert store.part(entry, "backward") in (None, data(number, "aa", "backward")), "another backward"
        store.used(entry)


def find_nearest(store: Store) -> None:
    near = store.nearest(ingredients(3) | {"torch": "2.14.0"})
    if near is not None:
        expected = ingredients(KEYS.index(near.key))
        assert all(there == expected.get(name) for name, (there, _) in near.differing.items()), "another text"


def read_all(store: Store) -> None:
    store.keys()
    for key in KEYS:
        store.held(key)
        store.ingredients(key)
        store.matching(key[:62])


def change(store: Store) -> None:
    for entry in [Entry(entry_id(key, "aa"), key, "aa", data(n, "aa", "main")) for n, key in enumerate(KEYS[:3])]:
        store.replace_part(entry, "recording", b"recording")
    store.discard(entry)
    saved = store.save("f" * 64, ingredients(3), "cc", b"new")
    assert store.entries("f" * 64) in ([saved], []), "another program"


def export(store: Store) -> None:
    """What was exported from a broken file is imported again, and so is the broken file itself."""
    exported, other = store.folder / "exported", store.folder / "other"
    for path in (store.folder / "aot.sqlite", exported):
        with contextlib.suppress(FileNotFoundError, Unavailable):
            if path == exported:
                store.export(exported)
            receiver = Store(other)
            receiver.import_(path)
            find(receiver)
            receiver.close()
    shutil.rmtree(other, ignore_errors=True)


def command(*arguments: str) -> Callable[[Store], None]:
    def run(store: Store) -> None:
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            status = command_line(["cache", *arguments, "--folder", str(store.folder)])
        assert status in (0, 1, 2), status
        lines = err.getvalue().splitlines()
        assert all(line.startswith("aotviz cache: ") and line.isprintable() for line in lines), lines
        assert len(lines) <= 2, lines

    return run


OPERATIONS: dict[str, Callable[[Store], object]] = {
    "entries": find,
    "part": read_parts,
    "nearest": find_nearest,
    "keys": read_all,
    "change": change,
    "export": export,
    "verify": Store.verify,
    "ls": command("ls"),
    "show": command("show", KEYS[3]),
    "explain": command("explain", KEYS[3], KEYS[4]),
    "verify, as a command": command("verify"),
    "clear, as a command": command("clear"),
    "clear": Store.clear,
}


def use(store: Store) -> None:
    """Everything that a program asks of a store; AssertionError if an answer was never saved."""
    for name in ("entries", "part", "nearest", "keys", "change", "verify"):
        OPERATIONS[name](store)


def flip(made: Path, folder: Path, number: int, counts: Counter[str]) -> str | None:
    """What went wrong with one flipped bit, or None."""
    content = bytearray((made / "aot.sqlite").read_bytes())
    content[number // 8] ^= 1 << number % 8
    folder.mkdir()
    names = list(OPERATIONS)
    for turn in range(OPERATIONS_A_FLIP):
        name = names[(OPERATIONS_A_FLIP * number + turn) % len(names)]
        for file in folder.iterdir():
            file.unlink()
        (folder / "aot.sqlite").write_bytes(content)
        store = Store(folder)
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            try:
                OPERATIONS[name](store)
            except Unavailable as fault:
                counts["unavailable"] += 1
                if not str(fault).isprintable():
                    return f"{name}: {fault!r} is not a line"
            except Exception as fault:
                return f"{name}: {type(fault).__name__}: {fault}"
            finally:
                store.close()
        lines = [str(warning.message) for warning in told]
        counts["warned of the file"] += any("renamed" in line for line in lines)
        counts["warned of an entry"] += any("entry" in line for line in lines)
        if any(not issubclass(w.category, CacheWarning) for w in told) or any(not line.isprintable() for line in lines):
            return f"{name}: another warning than one line of ours: {lines}"
        if len({*lines}) < len(lines):
            return f"{name}: the same warning twice: {lines}"
    shutil.rmtree(folder)
    return None


def run(made: Path, folder: Path, seed: int, counts: Counter[str]) -> str | None:
    """What went wrong with one mutation, or None. `counts` is given what happened to it."""
    chance = random.Random(seed)
    folder.mkdir()
    for name in FILES:
        shutil.copyfile(made / name, folder / name)
    store = Store(folder)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        try:
            if chance.random() < 0.3:
                store.entries(KEYS[0])  # which opens the files
            mutate(folder / chance.choice(FILES), chance)
            use(store)
        except Unavailable as fault:
            counts["unavailable"] += 1
            if "\n" in str(fault):
                return f"{fault} has several lines"
        except Exception as fault:
            return f"{type(fault).__name__}: {fault}"
        finally:
            store.close()
    said = [str(warning.message) for warning in told]
    counts["warned of the file"] += any("renamed" in line for line in said)
    counts["warned of an entry"] += any("entry" in line for line in said)
    shutil.rmtree(folder)
    if any(not issubclass(warning.category, CacheWarning) for warning in told) or any("\n" in line for line in said):
        return f"another warning than one line of ours: {said}"
    return f"the same warning twice: {said}" if len({*said}) < len(said) or len(said) > 2 else None


def main() -> int:
    folder, count = Path(sys.argv[1]), int(sys.argv[3])
    first, _, step = sys.argv[2].partition(":")
    flips = sys.argv[4:] == ["flips"]
    if flips:  # a database alone: a log would have newer pages
        store = Store(folder / "made")
        fill(store, range(len(KEYS)))
        store.close()
    else:
        make(folder / "made")
    counts: Counter[str] = Counter()
    failed = 0
    for number in range(int(first), int(first) + count * int(step or 1), int(step or 1)):
        wrong = (flip if flips else run)(folder / "made", folder / str(number), number, counts)
        if wrong is not None:
            failed += 1
            print(f"mutation {number}: {wrong}", flush=True)
    print(f"{count} mutations, {failed} failed; {dict(counts)}")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
