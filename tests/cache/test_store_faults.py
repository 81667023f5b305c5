"""What can happen to the store's folder: nothing wrong is found, and what is damaged is told in one line."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from aotviz.cache.database import APPLICATION, FORMAT, TABLES
from aotviz.cache.store import CacheWarning, Entry, Store, Unavailable
from tests.cache import broken_files
from tests.cache.other_users import READER, as_user
from tests.tiers import slow

INGREDIENTS = {"program": "graph", "torch": "2.13.0"}
KEY = "0" * 64
PART_OF_MUTATIONS = 300
PART_OF_FLIPS = 160


def save(store: Store, key: str = KEY) -> Entry:
    return store.save(key, INGREDIENTS, "aa", b"program")


def of(message: str, told: list[warnings.WarningMessage]) -> None:
    """One line of warning was given, and it says `message`."""
    assert [warning.category for warning in told] == [CacheWarning]
    said = str(told[0].message)
    assert message in said
    assert "\n" not in said


@pytest.fixture
def told() -> Iterator[list[warnings.WarningMessage]]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield caught


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "cache")


# Damage


def break_files(*arguments: object) -> None:
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None  # a disk that waits for nothing
    with tempfile.TemporaryDirectory(dir=memory) as folder:
        command = [sys.executable, "-m", "tests.cache.broken_files", folder, *map(str, arguments)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("first", [0, *(slow(first) for first in range(PART_OF_MUTATIONS, 5_000, 970))])
def test_a_broken_file_never_gives_what_was_not_saved(first: int) -> None:
    break_files(first, 970 if first else PART_OF_MUTATIONS)


SAMPLE = f"0:{broken_files.PAGE_BITS // PART_OF_FLIPS}"
PRIME = 31  # `python -m tests.cache.broken_files FOLDER 0 32768 flips` flips each bit of the first page


@pytest.mark.parametrize(
    ("first", "count"),
    [
        pytest.param(SAMPLE, PART_OF_FLIPS, id="a sample"),
        pytest.param(f"1:{PRIME}", broken_files.PAGE_BITS // PRIME, id="each 31st", marks=pytest.mark.slow),
        pytest.param(f"{broken_files.PAGE_BITS}:611", 300, id="later pages", marks=pytest.mark.slow),
    ],
)
def test_a_flipped_bit_of_the_first_page_is_damage_and_never_an_exception(first: int | str, count: int) -> None:
    break_files(first, count, "flips")


@pytest.mark.parametrize(
    "content",
    [b"not a database", b"SQLite format 3\0" + bytes(4080), os.urandom(8192)],
    ids=["text", "the head of a database", "random bytes"],
)
def test_a_foreign_file_is_set_aside_and_a_fresh_one_begun(
    store: Store, content: bytes, told: list[warnings.WarningMessage]
) -> None:
    store.folder.mkdir()
    (store.folder / "aot.sqlite").write_bytes(content)
    assert store.entries(KEY) == []
    saved = save(store)
    assert Store(store.folder).entries(KEY) == [saved]
    assert (store.folder / "aot.sqlite.damaged").read_bytes() == content
    of("renamed to aot.sqlite.damaged", told)


def test_another_programs_database_is_set_aside(store: Store, told: list[warnings.WarningMessage]) -> None:
    store.folder.mkdir()
    with sqlite3.connect(store.folder / "aot.sqlite") as other:
        other.execute("CREATE TABLE entries (key, data)")
    other.close()
    assert store.entries(KEY) == []
    of("was not written by aotviz", told)
    with sqlite3.connect(store.folder / "aot.sqlite.damaged") as other:
        assert other.execute("SELECT name FROM sqlite_schema").fetchall() == [("entries",)]
    other.close()


def test_a_file_of_ours_with_a_trigger_of_a_strangers_is_set_aside(
    store: Store, told: list[warnings.WarningMessage]
) -> None:
    store.folder.mkdir()
    with sqlite3.connect(store.folder / "aot.sqlite") as hostile:
        hostile.executescript(TABLES)
        hostile.execute(f"PRAGMA application_id={APPLICATION}")
        hostile.execute(f"PRAGMA user_version={FORMAT}")
        hostile.execute("CREATE TRIGGER t AFTER INSERT ON entries BEGIN DELETE FROM parts; END")
    hostile.close()
    saved = save(store)
    assert store.entries(KEY) == [saved]
    of("its tables are not those of a cache", told)


def test_a_newer_format_is_left_alone(store: Store, told: list[warnings.WarningMessage]) -> None:
    save(store)
    store.close()
    with sqlite3.connect(store.folder / "aot.sqlite") as newer:
        newer.execute(f"PRAGMA user_version={FORMAT + 1}")
        newer.execute("CREATE TABLE more (x)")
    newer.close()
    before = (store.folder / "aot.sqlite").read_bytes()
    for use in (lambda: store.entries(KEY), lambda: save(store), store.keys, store.verify, store.clear):
        with pytest.raises(Unavailable, match="newer aotviz"):
            use()
    store.close()
    assert (store.folder / "aot.sqlite").read_bytes() == before
    assert told == []


def change(store: Store, statement: str, *values: object) -> None:
    with sqlite3.connect(store.folder / "aot.sqlite") as file:
        file.execute(statement, values)
    file.close()


def test_a_flipped_entry_is_a_miss_and_is_removed(store: Store, told: list[warnings.WarningMessage]) -> None:
    save(store)
    other = save(store, "1" * 64)
    change(store, "UPDATE parts SET data = ? WHERE entry = 1", b"prograM")
    assert store.entries(KEY) == []
    assert [kept.key for kept in store.keys()] == [other.key]  # noqa: SIM118 - a method of the store's
    assert store.verify().damaged == []
    of("had a damaged entry; it was removed", told)


def test_an_entry_that_an_index_finds_under_another_key_is_a_miss(
    store: Store, told: list[warnings.WarningMessage]
) -> None:
    save(store)
    change(store, "UPDATE entries SET key = ?", "1" * 64)
    assert store.entries("1" * 64) == []
    of("damaged entry", told)


def test_a_flipped_part_is_removed_and_its_entry_stays(store: Store, told: list[warnings.WarningMessage]) -> None:
    entry = save(store)
    store.add_part(entry, "backward", b"backward")
    store.add_part(entry, "recording", b"recording")
    change(store, "UPDATE parts SET data = ? WHERE name = 'backward'", b"backwarD")
    assert store.part(entry, "backward") is None
    assert store.part(entry, "recording") == b"recording"
    assert store.entries(KEY) == [entry]
    store.add_part(entry, "backward", b"again")
    assert store.part(entry, "backward") == b"again"
    of("damaged entry", told)


def test_an_entry_whose_main_was_lost_is_saved_again(store: Store) -> None:
    entry = save(store)
    change(store, "DELETE FROM parts")
    assert store.entries(KEY) == []
    save(store)
    assert store.entries(KEY) == [entry]
    assert store.verify().damaged == []


def test_a_key_with_a_changed_ingredient_explains_no_miss(store: Store, told: list[warnings.WarningMessage]) -> None:
    save(store)
    change(store, "UPDATE texts SET text = ? WHERE text = ?", b"t2.12.0", b"t2.13.0")
    assert store.nearest(INGREDIENTS | {"program": "other"}) is None
    of("damaged entry", told)


def test_verify_finds_and_removes_what_is_damaged(store: Store) -> None:
    for number in range(4):
        store.add_part(save(store, f"{number:064x}"), "backward", b"backward")
    change(store, "UPDATE parts SET data = ? WHERE entry = 2 AND name = 'main'", b"")
    change(store, "UPDATE parts SET data = ? WHERE entry = 3 AND name = 'backward'", "a text")
    change(store, "UPDATE keys SET marks = ? WHERE number = 4", b"12345678")
    found = store.verify()
    assert found.entries == 4
    assert [line.partition(": ")[2] for line in found.damaged] == [
        "the part 'main' is damaged",
        "the entry is damaged",
        "the part 'backward' is damaged",
        "its ingredients are damaged",
    ]
    after = store.verify()
    assert (after.entries, after.damaged) == (2, [])


def test_verify_of_a_torn_file_says_so(store: Store, told: list[warnings.WarningMessage]) -> None:
    for number in range(30):
        store.save(f"{number:064x}", {"n": str(number)}, "aa", os.urandom(9000))
    store.close()
    path = store.folder / "aot.sqlite"
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2] + bytes(len(content) // 2))
    assert store.verify().damaged
    of("renamed to aot.sqlite.damaged", told)
    assert store.verify().damaged == []


COLUMNS = {
    "keys": "key checksum marks created",
    "texts": "digest text",
    "ingredients": "name text",
    "entries": "id key variant use created used",
    "parts": "name checksum data",
}


PLACES = [f"{table} {column}" for table in COLUMNS for column in COLUMNS[table].split()]


def reword(store: Store, old: str, new: str) -> None:
    """Change the text of the schema: a damaged row does not ask whether its column may be NULL."""
    with sqlite3.connect(store.folder / "aot.sqlite") as file:
        file.execute("PRAGMA writable_schema = ON")
        file.execute("UPDATE sqlite_schema SET sql = replace(sql, ?, ?) WHERE type = 'table'", (old, new))
    file.close()


@pytest.mark.parametrize("value", [b"\xff\xfe", "\ufffd", -(2**63), 2**63 - 1, 1.5, float("inf"), None], ids=repr)
@pytest.mark.parametrize("place", PLACES)
def test_a_value_of_any_type_is_only_ever_a_miss(place: str, value: object, store: Store, tmp_path: Path) -> None:
    table, column = place.split()
    broken_files.fill(store, range(len(broken_files.KEYS)))
    row = "key = 3 AND name = 'torch'" if table == "ingredients" else "rowid = 3"
    if value is None and place == "ingredients name":
        pytest.skip("SQLite stores no NULL in the key of a table without rowid")
    reword(store, " NOT NULL", "/*******/")
    change(store, f"UPDATE {table} SET {column} = ? WHERE {row}", value)
    reword(store, "/*******/", " NOT NULL")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CacheWarning)
        if place == "texts text":  # all keys have this one
            with pytest.raises(Unavailable, match="all of it is damaged"):
                store.export(tmp_path / "exported")
        else:
            store.export(tmp_path / "exported")
            Store(tmp_path / "other").import_(tmp_path / "exported")
        for key in store.keys():  # noqa: SIM118 - a method of the store's
            assert sum(held.parts.get("main", 0) for held in store.held(key.key)) >= 0
            store.ingredients(key.key)
        for name in ("ls", "show", "explain"):
            broken_files.OPERATIONS[name](store)
        if value is not None:  # SQLite's own check finds NULL, and the file goes
            assert not (store.folder / "aot.sqlite.damaged").exists()
        broken_files.use(store)
        assert store.verify().damaged == []


def test_two_processes_that_find_the_same_damage_set_it_aside_once(
    store: Store, told: list[warnings.WarningMessage]
) -> None:
    """The second finds what the first has saved since, and must not set that aside."""
    second = Store(store.folder)
    for each in (store, second):
        save(each)
    for name in ("aot.sqlite", "aot.sqlite-wal"):
        path = store.folder / name
        path.write_bytes(bytes(path.stat().st_size))
    assert store.entries(KEY) == []
    saved = save(store, "1" * 64)
    assert second.entries("1" * 64) == [saved]
    assert store.entries("1" * 64) == [saved]
    of("renamed", told)


# Folders that go, or cannot be written


def test_a_folder_deleted_under_way_is_created_again(store: Store, told: list[warnings.WarningMessage]) -> None:
    other = Store(store.folder)
    entry = save(store)
    assert other.entries(KEY) == [entry]
    shutil.rmtree(store.folder)
    assert other.entries(KEY) == []
    assert other.part(entry, "backward") is None
    store.add_part(entry, "backward", b"backward")
    saved = save(other)
    assert store.entries(KEY) == [saved]
    assert told == []


def test_a_folder_deleted_while_an_entry_is_saved_is_created_again(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    save(store)
    real = Store._make_room
    gone = []

    def deleted_meanwhile(*arguments: object) -> None:
        real(*arguments)  # type: ignore[arg-type]
        if not gone:
            gone.append(shutil.rmtree(store.folder))

    monkeypatch.setattr(Store, "_make_room", deleted_meanwhile)
    saved = save(store, "1" * 64)
    assert Store(store.folder).entries("1" * 64) == [saved]


@pytest.mark.parametrize("where", ["cache", "cache/inner"])
def test_a_file_where_the_folder_should_be_is_unavailable(tmp_path: Path, where: str) -> None:
    (tmp_path / "cache").write_text("a file")
    store = Store(tmp_path / where)
    for use in (lambda: save(store), lambda: store.entries(KEY), store.keys):
        with pytest.raises(Unavailable, match="choose another folder") as raised:
            use()
        assert "\n" not in str(raised.value)
    store.used(Entry("id", KEY, "aa", b""))  # never raises


def as_reader(work: Callable[[], object]) -> str:
    """What `work` returned or raised, as text, as a user that may read the tests' folders and not write them."""
    return as_user(READER, work)


@pytest.fixture
def readable() -> Iterator[Path]:
    """A folder with a cache that all may read, and none but root may write. pytest's own folders are private."""
    outer = Path(tempfile.mkdtemp())
    outer.chmod(0o755)
    folder = outer / "cache"
    store = Store(folder)
    store.add_part(save(store), "backward", b"backward")
    store.close()
    (folder / "aot.sqlite").chmod(0o444)
    folder.chmod(0o555)
    yield folder
    folder.chmod(0o755)
    shutil.rmtree(outer)


def test_a_read_only_folder_is_read_and_not_written(readable: Path) -> None:
    store = Store(readable)
    entry = Entry(id="", key=KEY, variant="aa", main=b"program")
    assert as_reader(lambda: [found.main for found in store.entries(KEY)]) == "[b'program']"
    assert as_reader(lambda: store.part(store.entries(KEY)[0], "backward")) == "b'backward'"
    assert as_reader(lambda: store.used(entry)) == "None"
    for use in (lambda: save(store, "1" * 64), lambda: store.add_part(entry, "more", b"")):
        said = as_reader(use)
        assert said.startswith("Unavailable: ")
        assert "choose another folder" in said or "check the permissions" in said
    assert sorted(path.name for path in readable.iterdir()) == ["aot.sqlite"]


OWNER = """
import sys
from pathlib import Path
from aotviz.cache.store import Store
store = Store(Path(sys.argv[1]))
store.save("1" * 64, {}, "aa", b"program")
print("saved", flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("signal", [None, 9], ids=["running", "killed"])
def test_a_read_only_folder_is_read_while_its_owner_has_it_open(readable: Path, signal: int | None) -> None:
    readable.chmod(0o755)
    (readable / "aot.sqlite").chmod(0o644)
    command = [sys.executable, "-c", OWNER, str(readable)]
    owner = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert owner.stdout is not None
    assert owner.stdout.readline() == b"saved\n"
    if signal is not None:
        owner.send_signal(signal)
        owner.wait()
    store = Store(readable)
    assert as_reader(lambda: [len(store.entries(key * 64)) for key in "012"]) == "[1, 1, 0]"
    owner.communicate()


def test_damage_in_a_read_only_folder_is_unavailable(readable: Path) -> None:
    content = (readable / "aot.sqlite").read_bytes()
    (readable / "aot.sqlite").chmod(0o644)
    (readable / "aot.sqlite").write_bytes(bytes(len(content)))
    store = Store(readable)
    said = as_reader(lambda: store.entries(KEY))
    assert said.startswith("Unavailable: ")
    assert "\n" not in said


def test_a_file_that_may_not_be_read_is_unavailable(readable: Path) -> None:
    (readable / "aot.sqlite").chmod(0o600 if os.getuid() == 0 else 0)
    store = Store(readable)
    assert "check the permissions" in as_reader(lambda: store.entries(KEY))


# Disks that are full

FULL = """
import os, resource, sys, warnings
from pathlib import Path
from aotviz.cache.store import Store, Unavailable

warnings.simplefilter("error")
store = Store(Path(sys.argv[1]))
saved = []
if sys.argv[2] == "limit":  # a write beyond this size of a file fails
    resource.setrlimit(resource.RLIMIT_FSIZE, (700_000, resource.RLIM_INFINITY))
try:
    for number in range(200):
        saved.append(store.save(f"{number:064x}", {"n": str(number)}, "aa", os.urandom(20_000)))
    sys.exit("the disk was never full")
except Unavailable as fault:
    print(fault)
assert len(saved) > 3, saved
for entry in saved:
    assert store.entries(entry.key) == [entry], entry
    store.used(entry)
if sys.argv[2] == "limit":
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
else:
    os.unlink(sys.argv[1] + "/filler")
again = store.save("f" * 64, {}, "aa", b"program")
for entry in [*saved, again]:
    assert Store(Path(sys.argv[1])).entries(entry.key) == [entry], entry
assert store.verify().damaged == []
"""


def test_a_file_that_may_not_grow_is_unavailable_and_loses_nothing(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", FULL, tmp_path, "limit"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("\n") == 1
    assert "cannot be used" in done.stdout


def test_a_full_disk_is_unavailable_and_loses_nothing(tmp_path: Path) -> None:
    """On a disk of 2 MB, in a namespace of its own: nothing is left mounted."""
    if subprocess.run(
        "unshare --mount mount -t tmpfs t /tmp".split(), check=False, stderr=subprocess.DEVNULL
    ).returncode:
        pytest.skip("a small disk cannot be mounted here (it takes root)")
    mount = 'mount -t tmpfs -o size=2m,mode=700 tmpfs "$1" && head -c 600000 /dev/zero >"$1/filler"'
    script = f'{mount} && exec "$2" -c "$3" "$1" full'
    command = ["unshare", "--mount", "sh", "-c", script, "sh", str(tmp_path), sys.executable, FULL]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("\n") == 1
    assert "the disk is full" in done.stdout
