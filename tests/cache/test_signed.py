"""With a secret, only who has it can add entries; without one, whoever can write to a store or a file is trusted."""

from __future__ import annotations

import contextlib
import sqlite3
import subprocess
import sys
import warnings
from pathlib import Path

import pytest

from aotviz.__main__ import main
from aotviz.cache import switch
from aotviz.cache.seals import CODE, MAIN, SHORTEST_SECRET, VARIABLE, Seals, Unavailable
from aotviz.cache.shared import Shared
from aotviz.cache.store import Entry, Store
from tests.cache.redis_server import Server

KEY = "0" * 64
OURS, THEIRS = Seals(b"the secret of our team"), Seals(b"another one of theirs")
INGREDIENTS = {"program": "graph", "torch": "2.13.0"}


def save(store: Store, key: str = KEY) -> Entry:
    return store.save(key, INGREDIENTS, "aa", b"program", {"backward": b"backward", f"{CODE}f": b"code"})


def reseal(path: Path, seals: Seals, main: bytes) -> None:
    """What a stranger does who can write to the file: another program, sealed anew."""
    with sqlite3.connect(path) as connection:
        seal = seals.of(KEY, "aa", MAIN, main)
        connection.execute("UPDATE parts SET data = ?, checksum = ? WHERE name = 'main'", (main, seal))
    connection.close()


def test_an_entry_that_a_stranger_sealed_again_is_found_without_a_secret_and_not_with_one(tmp_path: Path) -> None:
    for seals, found in ((Seals(), [b"other"]), (OURS, [])):
        store = Store(tmp_path / f"cache{seals.name}", seals=seals)
        save(store)
        store.close()
        (path,) = store.folder.glob("aot*.sqlite")
        for stranger in (Seals(), THEIRS):
            reseal(path, stranger if seals.name else Seals(), b"other")
        with pytest.warns(UserWarning, match="damaged") if seals.name else contextlib.nullcontext():
            assert [entry.main for entry in store.entries(KEY)] == found


def test_signed_and_unsigned_entries_lie_side_by_side(tmp_path: Path) -> None:
    stores = [Store(tmp_path, seals=seals) for seals in (Seals(), OURS, THEIRS)]
    for store in stores:
        assert store.entries(KEY) == []
        save(store)
    assert [len(store.entries(KEY)) for store in stores] == [1, 1, 1]
    assert [store.verify().damaged for store in stores] == [[], [], []]


def test_on_a_server_only_those_with_the_secret_meet(server: Server, tmp_path: Path) -> None:
    stores = {
        name: Store(tmp_path / name, shared=Shared(server.url, seals=seals), seals=seals)
        for name, seals in (("a", OURS), ("b", OURS), ("c", THEIRS), ("d", Seals()))
    }
    save(stores["a"])
    assert [name for name, store in stores.items() if store.entries(KEY)] == ["a", "b"]
    assert stores["b"].part(stores["b"].entries(KEY)[0], "backward") == b"backward"


def test_what_a_server_offers_under_a_signed_name_needs_a_signature(server: Server, tmp_path: Path) -> None:
    import redis

    first, second = (
        Store(tmp_path / name, shared=Shared(server.url, seals=OURS), seals=OURS) for name in ("first", "second")
    )
    save(first)
    with redis.Redis.from_url(server.url) as client:
        (name,) = client.keys(f"*{KEY}")
        for seals in (Seals(), THEIRS):
            client.hset(name, "aa", seals.sealed(KEY, "aa", MAIN, b"other"))
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of a damaged entry, once
                assert second.entries(KEY) == []


def test_a_signed_export_is_taken_with_its_code_by_who_has_the_secret(tmp_path: Path) -> None:
    maker, friend, other = (
        Store(tmp_path / name, seals=seals) for name, seals in (("maker", OURS), ("friend", OURS), ("other", THEIRS))
    )
    entry = save(maker)
    assert maker.export(tmp_path / "file") == (1, 1, 0)
    assert friend.import_(tmp_path / "file") == (1, 0, 0)
    assert friend.part(entry, f"{CODE}f") == b"code"
    assert other.import_(tmp_path / "file") == (0, 1, 0)
    with pytest.raises(Unavailable, match=f"is signed: set {VARIABLE}"):
        Store(tmp_path / "none").import_(tmp_path / "file")


def test_without_a_signature_code_is_taken_only_from_who_is_trusted(tmp_path: Path) -> None:
    maker, careful, trusting = (Store(tmp_path / name) for name in ("maker", "careful", "trusting"))
    entry = save(maker)
    maker.export(tmp_path / "file")
    assert careful.import_(tmp_path / "file") == (1, 0, 1)
    assert careful.part(entry, f"{CODE}f") is None
    assert careful.part(entry, "backward") == b"backward"
    assert trusting.import_(tmp_path / "file", trusts_code=True) == (1, 0, 0)
    assert trusting.part(entry, f"{CODE}f") == b"code"
    assert careful.import_(tmp_path / "file", trusts_code=True) == (0, 0, 0), "the entry was here"
    assert careful.part(entry, f"{CODE}f") == b"code"


def test_the_command_signs_what_was_kept_without_a_secret(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    save(Store(tmp_path / "mine"))
    file, mine, friend = (str(tmp_path / name) for name in ("file", "mine", "friend"))
    monkeypatch.setenv(VARIABLE, "the secret of our team")
    assert main(["cache", "export", file, "--folder", mine]) == 0
    assert "wrote 1 entry" in (said := capsys.readouterr().out)
    assert f"signed with {VARIABLE}" in said
    assert main(["cache", "import", file, "--folder", friend]) == 0
    assert f"for processes that have {VARIABLE}" in (said := capsys.readouterr().out)
    assert "trusts" not in said
    monkeypatch.delenv(VARIABLE)
    assert main(["cache", "import", file, "--folder", friend]) == 2
    assert f"is signed: set {VARIABLE}" in capsys.readouterr().err


def test_a_short_secret_is_one_sentence_and_no_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(VARIABLE, "x" * (SHORTEST_SECRET - 1))
    assert main(["cache", "ls", "--folder", str(tmp_path)]) == 2
    said = capsys.readouterr().err
    assert f"{VARIABLE} has {SHORTEST_SECRET - 1} characters" in said
    assert "xxx" not in said
    with pytest.warns(UserWarning, match=f"is not used: {VARIABLE} has"):
        assert switch.store_for(str(tmp_path)) is None


def test_the_secret_is_in_no_file_and_no_name(tmp_path: Path) -> None:
    secret = "a secret that is nowhere"
    command = "from aotviz.cache import switch; switch.store_for(None).save('0' * 64, {}, 'aa', b'program')"
    environment = {"AOTVIZ_CACHE_DIR": str(tmp_path), VARIABLE: secret}
    done = subprocess.run([sys.executable, "-c", command], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert files
    assert not [path for path in files if secret.encode() in path.read_bytes() or secret in path.name]


def test_only_this_machine_says_that_it_rehearsed_a_program(server: Server, tmp_path: Path) -> None:
    first, second, third = (
        Store(tmp_path / "first", shared=Shared(server.url)),
        Store(tmp_path / "second", shared=Shared(server.url)),
        Store(tmp_path / "third"),
    )
    entry = save(first)
    assert not first.is_rehearsed(entry)
    first.note_rehearsed(entry)
    assert first.is_rehearsed(entry)
    assert second.entries(KEY) == [entry]
    first.export(tmp_path / "file")
    third.import_(tmp_path / "file")
    assert [store.is_rehearsed(entry) for store in (second, third)] == [False, False]
    first.close()
    reseal(first.folder / "aot.sqlite", Seals(), b"other")
    (other,) = first.entries(KEY)
    assert other.main == b"other"
    assert not first.is_rehearsed(other)
