"""A store's files, broken at random: `python -m tests.cache.broken_files FOLDER FIRST COUNT`.

Each mutation flips bytes, cuts the file short, exchanges two blocks, or fills a range with zeros, in the database or in
its write-ahead log, while the store is closed or while it is open. A store that is used afterwards may find less. It
must not raise anything but Unavailable, find anything that was not saved, or warn of one kind of fault twice.
In a process of its own, so that a fault in SQLite's C code fails a test and does not end them all.
"""

from __future__ import annotations

import os
import random
import shutil
import sys
import warnings
from collections import Counter
from pathlib import Path

from aotviz.cache.store import CacheWarning, Entry, Store, Unavailable

FILES = ["aot.sqlite", "aot.sqlite-wal"]
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


def use(store: Store) -> None:
    """Everything that a store is asked for; AssertionError if an answer was never saved."""
    found: list[Entry] = []
    for number, key in enumerate(KEYS):
        for entry in store.entries(key):
            assert entry.main == data(number, entry.variant, "main"), "another program"
            found.append(entry)
            assert store.part(entry, "backward") in (None, data(number, entry.variant, "backward")), "another backward"
            store.used(entry)
    near = store.nearest(ingredients(3) | {"torch": "2.14.0"})
    if near is not None:
        expected = ingredients(KEYS.index(near.key))
        assert all(there == expected.get(name) for name, (there, _) in near.differing.items()), "another text"
    store.keys()
    if found:
        store.replace_part(found[0], "recording", b"recording")
        store.discard(found[-1])
    saved = store.save("f" * 64, ingredients(3), "cc", b"new")
    assert store.entries("f" * 64) in ([saved], []), "another program"
    store.verify()


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
    folder, first, count = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    make(folder / "made")
    counts: Counter[str] = Counter()
    failed = 0
    for seed in range(first, first + count):
        wrong = run(folder / "made", folder / str(seed), seed, counts)
        if wrong is not None:
            failed += 1
            print(f"mutation {seed}: {wrong}", flush=True)
    print(f"{count} mutations, {failed} failed; {dict(counts)}")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
