"""An exception is the file's fault if the file does not pass an examination, and the caller's if it does."""

from __future__ import annotations

import sqlite3
import threading
import warnings
from pathlib import Path

import pytest
import torch

import aotviz
from aotviz.__main__ import main
from aotviz.cache import database
from aotviz.cache.store import CacheWarning, Store, Unavailable
from tests.cache.lying_there import KEY, filled


def flip_a_name(path: Path) -> None:
    """The first letter of a table's name, in the schema, is no UTF-8 any more. SQLite's message has the name."""
    content = bytearray(path.read_bytes())
    content[content.index(b"tablekeyskeys") + len("table")] ^= 0x80
    path.write_bytes(content)


def test_a_schema_that_is_no_text_is_damage_to_a_compilation(place: Path, clean_dynamo: None) -> None:
    """One bit of it. It is told once, and the cache goes on with a fresh file."""
    filled(place / "cache")
    flip_a_name(place / "cache" / "aot.sqlite")
    outcomes = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", CacheWarning)
        for _ in range(2):
            torch._dynamo.reset()
            compiled = aotviz.compile(lambda x: x.sin() * 3, backend="eager", cache=place / "cache")
            torch.testing.assert_close(compiled(torch.ones(3)), torch.ones(3).sin() * 3)
            outcomes += list(compiled.recording.cache_lookups["outcome"])
    (told,) = [str(warning.message) for warning in caught if warning.category is CacheWarning]
    assert told.startswith(f"the cache file {place}/cache/aot.sqlite is damaged (UnicodeDecodeError: ")
    assert told.endswith("; it was renamed to aot.sqlite.damaged")
    assert outcomes == ["miss", "hit"]


@pytest.mark.parametrize(
    ("action", "status"), [("ls", 0), ("verify", 1), ("clear", 0), ("show", 2)], ids=lambda value: str(value)
)
def test_a_schema_that_is_no_text_is_damage_to_the_command(
    action: str, status: int, place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    filled(place / "cache")
    flip_a_name(place / "cache" / "aot.sqlite")
    key = [KEY] if action == "show" else []
    assert main(["cache", action, *key, "--folder", str(place / "cache")]) == status
    lines = capsys.readouterr().err.splitlines()
    assert lines[0].startswith(f"aotviz cache: the cache file {place}/cache/aot.sqlite is damaged (UnicodeDecodeError")
    assert len(lines) == 1 + (status == 2)


@pytest.mark.parametrize(
    "fault", [ZeroDivisionError, UnicodeDecodeError("utf-8", b"\xff", 0, 1, "of the caller"), TypeError]
)
def test_an_exception_of_the_callers_leaves_the_file_alone(fault: type[Exception] | Exception, place: Path) -> None:
    filled(place / "cache")
    opened = database.Database(place / "cache")

    def work(connection: object) -> None:
        raise fault

    for use in (opened.read, opened.write):
        with pytest.raises(fault if isinstance(fault, type) else type(fault)):
            use(work)
    assert opened.set_aside == []
    assert Store(place / "cache").entries(KEY)


@pytest.mark.parametrize("key", [object(), 2**70, "\ud800"], ids=["an object", "a large int", "half a pair"])
def test_a_key_that_cannot_be_stored_leaves_the_file_alone(key: object, place: Path) -> None:
    """sqlite3 has an error of its own for each, and they have no code of SQLite's."""
    filled(place / "cache")
    with pytest.raises((sqlite3.Error, OverflowError, UnicodeEncodeError)):
        Store(place / "cache").entries(key)  # type: ignore[arg-type]
    assert not (place / "cache" / "aot.sqlite.damaged").exists()
    assert Store(place / "cache").entries(KEY)


def test_a_value_of_another_type_is_to_blame_for_what_reading_it_raises(place: Path) -> None:
    filled(place / "cache")
    opened = database.Database(place / "cache")
    opened.write(lambda connection: connection.execute("UPDATE parts SET data = 7"))

    def work(connection: database.Connection) -> int:
        return sum(len(data) for (data,) in connection.execute("SELECT data FROM parts"))

    with pytest.warns(CacheWarning, match="is damaged .TypeError"):
        assert opened.read(work) is None
    assert (place / "cache" / "aot.sqlite.damaged").exists()


def test_memory_that_is_short_is_not_the_files_fault(place: Path) -> None:
    filled(place / "cache")

    def work(connection: object) -> None:
        raise MemoryError

    with pytest.raises(Unavailable, match="memory is short"):
        database.Database(place / "cache").read(work)
    assert not (place / "cache" / "aot.sqlite.damaged").exists()


def test_no_lock_is_held_while_a_warning_runs_code_of_the_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store(tmp_path)
    store.save("0" * 64, {"torch": "2.13.0"}, "aa", b"program")
    store.close()
    (tmp_path / "aot.sqlite").write_bytes(b"another program's")
    free: list[bool] = []

    def asked_by_another_thread(*told: object, **more: object) -> None:
        def ask() -> None:
            free.append(store._database.lock.acquire(timeout=5))
            store._database.lock.release()

        other = threading.Thread(target=ask)
        other.start()
        other.join()

    with warnings.catch_warnings():
        warnings.simplefilter("always")
        monkeypatch.setattr(warnings, "showwarning", asked_by_another_thread)
        assert store.entries("0" * 64) == []
    assert free == [True]
