"""A process that looks up and saves until it is killed: `python -m tests.cache.worker FOLDER SEED [--tolerant]`.

It prints a line after each operation. A line with `saved` or `added` is the store's promise. A tolerant one goes on
where the store is unavailable, and without a word from it.
"""

from __future__ import annotations

import random
import sys
import warnings
from pathlib import Path

from aotviz.cache.store import CacheWarning, Store, Unavailable

KEYS = 400
VARIANTS = ["aa", "bb"]
PARTS = ["backward", "partial 101"]


def key(number: int) -> str:
    return f"{number:064x}"


def ingredients(key: str) -> dict[str, str]:
    return {"program": f"graph of {key}\n" * 50, "torch": "2.13.0"}


def data(key: str, variant: str, name: str) -> bytes:
    chance = random.Random(f"{key} {variant} {name}")
    return chance.randbytes(chance.randrange(100, 20_000))


def work(store: Store, chance: random.Random) -> str:
    """One look-up, and what follows from it. AssertionError if something was found that was never saved."""
    chosen, variant = key(chance.randrange(KEYS)), chance.choice(VARIANTS)
    found = {entry.variant: entry for entry in store.entries(chosen)}
    for entry in found.values():
        assert entry.main == data(chosen, entry.variant, "main"), f"another program under {chosen}"
        store.used(entry)
    if variant not in found:
        store.save(chosen, ingredients(chosen), variant, data(chosen, variant, "main"))
        return f"saved {chosen} {variant} main"
    name = chance.choice(PARTS)
    kept = store.part(found[variant], name)
    assert kept in (None, data(chosen, variant, name)), f"another part under {chosen}"
    if kept is None:
        store.add_part(found[variant], name, data(chosen, variant, name))
        return f"added {chosen} {variant} {name}"
    if chance.random() < 0.3:
        store.replace_part(found[variant], "recording", data(chosen, variant, "recording"))
        return f"added {chosen} {variant} recording"
    return "found"


def main(folder: Path, seed: str, tolerant: bool) -> None:
    store = Store(folder)
    chance = random.Random(seed)
    if tolerant:
        warnings.simplefilter("ignore", CacheWarning)
    while True:
        try:
            print(work(store, chance), flush=True)
        except Unavailable as fault:
            if not tolerant:
                raise
            print("unavailable:", fault, flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], "--tolerant" in sys.argv)
