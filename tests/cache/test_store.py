"""The store of compiled programs: what is saved is found, by any process, and nothing else is."""

from __future__ import annotations

import os
import random
import stat
import subprocess
import sys
import threading
import time
import warnings
from pathlib import Path

import pytest

from aotviz.cache.store import CacheWarning, Entry, Store, Unavailable
from aotviz.recording import user_folder

INGREDIENTS = {"program": "def forward(x):\n    return x.sin()\n", "torch": "2.13.0", "grad mode": "True"}


def key(number: int) -> str:
    return f"{number:064x}"


def fill(store: Store, number: int, size: int = 20_000) -> Entry:
    ingredients = {**INGREDIENTS, "program": f"graph {number}\n" * 500}
    return store.save(key(number), ingredients, "aa", bytes([number % 256]) * size)


def keys_of(store: Store) -> list[str]:
    kept = store.keys()
    return [key.key for key in kept]


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "cache")


def test_what_is_saved_is_found_by_another_store(store: Store) -> None:
    saved = store.save(key(1), INGREDIENTS, "aa", b"program")
    assert Store(store.folder).entries(key(1)) == [saved]
    assert store.entries(key(2)) == []


def test_a_look_up_of_nothing_creates_nothing(store: Store) -> None:
    assert store.entries(key(1)) == []
    assert store.nearest(INGREDIENTS) is None
    assert store.keys() == []
    assert not store.folder.exists()


def test_files_are_for_their_owner_alone(store: Store) -> None:
    store.save(key(1), INGREDIENTS, "aa", b"program")
    assert stat.S_IMODE(store.folder.stat().st_mode) == 0o700
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in store.folder.iterdir()}
    assert modes == {"aot.sqlite": 0o600, "aot.sqlite-shm": 0o600, "aot.sqlite-wal": 0o600}


def test_entries_of_a_key_come_last_used_first(store: Store) -> None:
    first, second = (store.save(key(1), INGREDIENTS, variant, variant.encode()) for variant in ("aa", "bb"))
    assert store.entries(key(1)) == [second, first]
    store.used(first)
    assert store.entries(key(1)) == [first, second]


def test_the_first_part_stays_and_a_recording_is_replaced(store: Store) -> None:
    entry = store.save(key(1), INGREDIENTS, "aa", b"program", {"guards": b"s0 > 1"})
    assert store.part(entry, "backward") is None
    for data in (b"first", b"second"):
        store.add_part(entry, "backward", data)
        store.replace_part(entry, "recording", data)
    assert [store.part(entry, name) for name in ("guards", "backward", "recording")] == [b"s0 > 1", b"first", b"second"]


def test_parts_of_one_main_are_not_found_for_another(store: Store, tmp_path: Path) -> None:
    """Two processes compile a program at once, and get two results: a backward fits its own forward alone."""
    first = store.save(key(1), INGREDIENTS, "aa", b"one")
    second = Store(store.folder).save(key(1), INGREDIENTS, "aa", b"two")
    assert store.entries(key(1)) == [first]
    store.add_part(second, "backward", b"of two")
    assert store.part(first, "backward") is None
    store.add_part(first, "backward", b"of one")
    assert store.part(second, "backward") is None
    assert store.part(first, "backward") == b"of one"


def test_what_is_discarded_is_gone_with_its_texts(store: Store) -> None:
    entry = store.save(key(1), INGREDIENTS, "aa", b"program")
    store.discard(entry)
    assert store.entries(key(1)) == []
    assert store.keys() == []
    assert store.nearest(INGREDIENTS | {"torch": "2.14.0"}) is None
    store.add_part(entry, "backward", b"late")
    assert store.part(entry, "backward") is None


def test_the_nearest_key_differs_in_the_fewest_ingredients(store: Store) -> None:
    store.save(key(1), INGREDIENTS | {"torch": "2.12.0", "grad mode": "False"}, "aa", b"1")
    store.save(key(2), INGREDIENTS | {"torch": "2.12.0"}, "aa", b"2")
    store.save(key(3), INGREDIENTS | {"torch": "2.11.0"}, "aa", b"3")
    store.save(key(4), INGREDIENTS | {"dtype": "float64", "device": "cpu"}, "aa", b"4")
    found = store.nearest(INGREDIENTS)
    assert found is not None
    assert found.key == key(3), "of two that differ in one ingredient, the newest"
    assert found.differing == {"torch": ("2.11.0", "2.13.0")}


def test_the_nearest_of_random_keys_is_the_one_that_a_plain_search_finds(store: Store) -> None:
    chance = random.Random(0)
    kept: dict[str, dict[str, str]] = {}

    def made_up() -> dict[str, str]:
        return {name: chance.choice("xyz") for name in chance.sample("abcdefgh", chance.randrange(9))}

    for number in range(60):
        kept[key(number)] = made_up()
        store.save(key(number), kept[key(number)], "aa", b"program")
    for _ in range(200):
        ours = made_up()
        counts = {
            name: sum(ours.get(each) != theirs.get(each) for each in {*ours, *theirs}) for name, theirs in kept.items()
        }
        texts = {  # all are of one character
            name: sum(
                (name_in in ours) + (name_in in theirs)
                for name_in in {*ours, *theirs}
                if ours.get(name_in) != theirs.get(name_in)
            )
            for name, theirs in kept.items()
        }
        differing = [name for name in kept if counts[name]]
        expected = min(differing, key=lambda name: (counts[name], texts[name], -int(name, 16)))
        found = store.nearest(ours)
        assert found is not None
        assert (found.key, len(found.differing)) == (expected, counts[expected])


def test_of_keys_that_differ_in_one_ingredient_the_nearest_is_the_one_with_less_other_text(store: Store) -> None:
    now = "float32 (3) requires grad\nfloat32 (3)"
    for number, inputs in enumerate(["float32 (3)\nfloat32 (3)", "float64 (3) requires grad\nfloat64 (3)"]):
        store.save(key(number), INGREDIENTS | {"inputs": inputs}, "aa", b"program")
    found = store.nearest(INGREDIENTS | {"inputs": now})
    assert found is not None
    assert found.key == key(0), "the newer one has another dtype"


def test_names_that_one_side_lacks_differ(store: Store) -> None:
    store.save(key(1), INGREDIENTS | {"hook": "h"}, "aa", b"1")
    found = store.nearest(INGREDIENTS | {"pass": "p"})
    assert found is not None
    assert found.differing == {"hook": ("h", None), "pass": (None, "p")}


def test_a_key_with_the_same_ingredients_is_not_the_nearest(store: Store) -> None:
    store.save(key(1), INGREDIENTS, "aa", b"1")
    assert store.nearest(INGREDIENTS) is None


@pytest.mark.parametrize(
    "text", ["", "x" * 1_000_000, "\ud800 \x00 é", "a\r\nb"], ids=["empty", "long", "odd", "lines"]
)
def test_ingredients_come_back_as_they_were(store: Store, text: str) -> None:
    store.save(key(1), INGREDIENTS | {"text": text}, "aa", b"1")
    assert store.ingredients(key(1)) == INGREDIENTS | {"text": text}
    found = store.nearest(INGREDIENTS)
    assert found is not None
    assert found.differing == {"text": (text, None)}
    assert store.verify().damaged == []


def test_a_text_that_many_keys_share_is_kept_once(store: Store) -> None:
    long = os.urandom(200_000).hex()
    for number in range(10):
        store.save(key(number), {"program": long, "number": str(number)}, "aa", b"1")
    store.close()
    assert (store.folder / "aot.sqlite").stat().st_size < 2 * len(long)


def test_the_least_recently_used_go_first_and_the_file_stays_within_its_limit(tmp_path: Path) -> None:
    store = Store(tmp_path, limit_bytes=400_000)
    entries = [fill(store, number) for number in range(10)]
    for number in range(10, 40):
        Store(tmp_path).used(entries[3])  # another store: one marks an entry once a minute
        fill(store, number)
    kept = keys_of(store)
    assert key(3) in kept
    assert key(39) in kept
    assert key(9) not in kept
    store.close()
    assert (tmp_path / "aot.sqlite").stat().st_size <= 450_000
    assert store.verify().damaged == []


def test_a_growing_recording_takes_the_room_of_others_and_not_its_own(tmp_path: Path) -> None:
    store = Store(tmp_path, limit_bytes=400_000)
    first, *_ = [fill(store, number) for number in range(5)]
    store.replace_part(first, "recording", os.urandom(250_000))
    assert store.entries(first.key) == [first]
    assert 1 < len(store.keys()) < 5


def test_what_is_larger_than_the_limit_is_refused_and_removes_nothing(tmp_path: Path) -> None:
    store = Store(tmp_path, limit_bytes=400_000)
    entry = fill(store, 1)
    with pytest.raises(Unavailable, match="larger than all of the cache"):
        fill(store, 2, size=500_000)
    with pytest.raises(Unavailable, match="larger than all of the cache"):
        store.replace_part(entry, "recording", os.urandom(500_000))
    assert store.entries(key(1)) == [entry]
    assert len(store.keys()) == 1


def test_a_clock_that_is_set_back_changes_no_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store(tmp_path, limit_bytes=200_000)
    now = time.time()
    for number in range(20):
        monkeypatch.setattr(time, "time", lambda number=number: now - number * 86400)
        fill(store, number)
        assert store.entries(key(number))
    kept = keys_of(store)
    assert kept == [key(number) for number in range(19, 19 - len(kept), -1)]
    found = store.nearest({**INGREDIENTS, "program": "other"})
    assert found is not None
    assert found.key == key(19)


def test_a_fork_and_its_parent_both_go_on(store: Store) -> None:
    """The child is forked while the file is open. Then one leaves while the other writes: neither takes the other's."""
    fill(store, 1)
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.close(write)
            fill(store, 2)
            os.read(read, 1)  # until the parent has closed the file
            fill(store, 3)
            found = [len(store.entries(key(number))) for number in (1, 2, 3, 4)]
            os._exit(0 if found == [1, 1, 1, 1] else 1)
        finally:
            os._exit(2)
    os.close(read)
    fill(store, 4)
    store.close()
    os.close(write)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert {*keys_of(store)} == {key(number) for number in (1, 2, 3, 4)}
    assert store.verify().damaged == []


def test_threads_share_a_store(store: Store) -> None:
    failed: list[BaseException] = []

    def work(start: int) -> None:
        try:
            for number in range(start, start + 25):
                entry = fill(store, number, size=500)
                assert store.entries(key(number)) == [entry]
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=work, args=(100 * index,)) for index in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed
    assert len(store.keys()) == 100


def test_clear_removes_everything_and_gives_the_disk_back(store: Store) -> None:
    entry, *_ = [fill(store, number) for number in range(20)]
    assert store.clear() == 20
    assert store.keys() == []
    assert store.part(entry, "main") is None
    store.close()
    assert (store.folder / "aot.sqlite").stat().st_size < 100_000


def test_an_export_is_imported_elsewhere(store: Store, tmp_path: Path) -> None:
    entries = [fill(store, number) for number in range(5)]
    store.add_part(entries[2], "backward", b"backward")
    assert store.export(tmp_path / "exported").entries == 5
    assert stat.S_IMODE((tmp_path / "exported").stat().st_mode) == 0o600
    other = Store(tmp_path / "other")
    own = fill(other, 3, size=7)
    assert other.import_(tmp_path / "exported") == (4, 0, 0)
    assert other.entries(key(3)) == [own]
    assert other.entries(key(2)) == [entries[2]]
    assert other.part(entries[2], "backward") == b"backward"
    assert other.ingredients(key(2)) == store.ingredients(key(2))
    assert other.import_(tmp_path / "exported") == (0, 0, 0)


@pytest.mark.parametrize("content", [b"", b"not ours", b"SQLite format 3\x00" + bytes(84)])
def test_an_import_of_another_file_is_refused(store: Store, tmp_path: Path, content: bytes) -> None:
    (tmp_path / "file").write_bytes(content)
    with pytest.raises(Unavailable, match="export"):
        store.import_(tmp_path / "file")
    assert (tmp_path / "file").read_bytes() == content
    with pytest.raises(FileNotFoundError):
        store.import_(tmp_path / "none")


def test_the_folder_is_the_users_choice_or_the_systems(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("AOTVIZ_CACHE_DIR", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert user_folder.folder() == tmp_path / ".cache" / "aotviz"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "caches"))
    assert user_folder.folder() == tmp_path / "caches" / "aotviz"
    monkeypatch.setenv("AOTVIZ_CACHE_DIR", "~/mine")
    assert user_folder.folder() == tmp_path / "mine"


def test_the_store_needs_neither_torch_nor_redis() -> None:
    script = "import aotviz.cache.store, sys; sys.exit(bool({'torch', 'redis'} & {*sys.modules}))"
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0


def test_no_connection_is_left_open(tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        store = Store(tmp_path)
        fill(store, 1)
        del store
    assert [path.name for path in tmp_path.iterdir()] == ["aot.sqlite"]


def test_damage_is_a_warning_of_ours() -> None:
    assert issubclass(CacheWarning, UserWarning)
