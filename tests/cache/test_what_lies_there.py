"""What lies where the cache's file should be, or who can have put it there, is told in one sentence that names it.

Every row of the tables is made on the real file system. It is met by the store, by `aotviz cache`, and by a
compilation, which gives eager's result with one warning. What lies there is left alone, and nothing waits for it.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

import aotviz
from aotviz.__main__ import main
from aotviz.cache import database
from aotviz.cache.seals import Seals
from aotviz.cache.store import CacheWarning, Entry, Store, Unavailable
from tests.cache.lying_there import KEY, KINDS, ROWS, WRITERS, arranged, filled
from tests.cache.other_users import STRANGER, takes_root

SLOW = pytest.mark.slow
SEALS = Seals(b"a secret of our team")
SOME_ROWS = [row if n % 4 == 1 else pytest.param(*row.values, marks=[*row.marks, SLOW]) for n, row in enumerate(ROWS)]
KINDS_OF_THE_FILE = [name for name, (_, sentence) in KINDS.items() if sentence.startswith("{file} ")]

pytestmark = pytest.mark.usefixtures("no_hang")


def tree(folder: Path) -> list[object]:
    """What lies below a folder: names, inodes, modes and owners."""
    found = [(str(path), os.lstat(path)) for path in sorted(folder.rglob("*"))]
    return [(path, seen.st_ino, seen.st_mode, seen.st_uid, seen.st_size) for path, seen in found]


@pytest.mark.parametrize("name", ROWS)
def test_the_store_says_what_lies_there_and_leaves_it_alone(name: str, place: Path) -> None:
    folder, sentence = arranged(name, place)
    before = tree(place)
    store = Store(folder)
    uses: list[Callable[[], object]] = [
        lambda: store.entries(KEY),
        lambda: store.save("1" * 64, {}, "aa", b"program"),
        store.keys,
        store.verify,
        store.clear,
        lambda: store.export(place / "exported"),
    ]
    for use in uses:
        with pytest.raises(Unavailable) as raised:
            use()
        assert str(raised.value).startswith(sentence)
        assert str(raised.value).isprintable()
    store.used(Entry("id", KEY, "aa", b""))  # never raises
    assert tree(place) == before


@pytest.mark.parametrize("name", ROWS)
def test_the_command_says_what_lies_there(name: str, place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder, sentence = arranged(name, place)
    for action in (["ls"], ["show", KEY], ["explain", KEY, KEY], ["verify"], ["clear"], ["export", str(place / "out")]):
        assert main(["cache", *action, "--folder", str(folder)]) == 2
        printed = capsys.readouterr()
        assert printed.out == ""
        assert printed.err.startswith(f"aotviz cache: {sentence}")
        assert printed.err.count("\n") == 1


def test_the_command_in_a_process_of_its_own_has_no_traceback(place: Path) -> None:
    folder, sentence = arranged("a FIFO", place)
    command = [sys.executable, "-m", "aotviz", "cache", "ls", "--folder", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"aotviz cache: {sentence}")
    assert done.stderr.count("\n") == 1


def scaled(x: torch.Tensor) -> torch.Tensor:
    return (x * 3).sin()


@pytest.mark.parametrize("name", SOME_ROWS)
def test_a_compilation_gives_eagers_result_and_one_warning(name: str, place: Path, clean_dynamo: None) -> None:
    folder, sentence = arranged(name, place)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", CacheWarning)
        compiled = aotviz.compile(scaled, backend="eager", cache=folder)
        for size in (3, 4, 5):
            x = torch.ones(size, requires_grad=True)
            torch.testing.assert_close(compiled(x), scaled(x))
            compiled(x).sum().backward()
    (told,) = [str(warning.message) for warning in caught if warning.category is CacheWarning]
    assert told.startswith(f"aotviz's cache is not used: {sentence}")
    assert set(compiled.recording.cache_lookups["outcome"]) == {"bypass"}


@takes_root
@pytest.mark.parametrize("name", WRITERS)
def test_signed_entries_may_lie_where_others_write(name: str, place: Path) -> None:
    folder, _ = arranged(name, place)
    saved = Store(folder, seals=SEALS).save(KEY, {}, "aa", b"signed")
    assert Store(folder, seals=SEALS).entries(KEY) == [saved]


@pytest.mark.parametrize("name", KINDS_OF_THE_FILE)
def test_signed_entries_need_a_file_too(name: str, place: Path) -> None:
    arrange, _ = KINDS[name]
    path = place / "parent" / "cache" / database.SIGNED_NAME.format(SEALS.name)
    arrange(path)
    with pytest.raises(Unavailable, match=r"is needed there|does not exist|in a circle") as raised:
        Store(path.parent, seals=SEALS).entries(KEY)
    assert str(raised.value).startswith(f"{path} is ")


# What changes while the cache is used

CHANGES: dict[str, tuple[Callable[[Path], object], str]] = {
    "the file is opened to all": (lambda path: path.chmod(0o666), "{file} can be written by every user"),
    "the folder is opened to all": (lambda path: path.parent.chmod(0o777), "{folder} can be written by every user"),
    "a FIFO takes the file's place": (lambda path: (path.unlink(), os.mkfifo(path)), "{file} is a named pipe (FIFO)"),
    "a folder takes its place": (lambda path: (path.unlink(), path.mkdir()), "{file} is a folder"),
    "a file takes the folder's place": (
        lambda path: (path.parent.rename(path.parents[1] / "aside"), path.parent.touch()),
        "{folder} is a file",
    ),
    "the file is given away": (lambda path: os.chown(path, STRANGER, -1), f"{{file}} belongs to user {STRANGER}"),
}


@pytest.mark.parametrize("name", [pytest.param(name, marks=takes_root if "given" in name else ()) for name in CHANGES])
def test_what_changes_later_is_noticed_at_the_next_use(name: str, place: Path) -> None:
    change, sentence = CHANGES[name]
    path = place / "cache" / "aot.sqlite"
    store = Store(path.parent)
    entry = store.save(KEY, {}, "aa", b"program")
    assert store.entries(KEY) == [entry]
    change(path)
    for use in (lambda: store.entries(KEY), lambda: store.save("1" * 64, {}, "aa", b"program")):
        with pytest.raises(Unavailable) as raised:
            use()
        assert str(raised.value).startswith(sentence.format(file=path, folder=path.parent))


@pytest.mark.parametrize("remove", [shutil.rmtree, lambda folder: folder.rename(f"{folder}{os.urandom(4).hex()}")])
def test_a_folder_that_is_removed_again_and_again_is_said_to_be(
    remove: Callable[[Path], object], place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not that the disk is ill."""
    real = database.connect

    def removed_first(path: Path, *rest: object) -> object:
        remove(path.parent)
        return real(path, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(database, "connect", removed_first)
    store = Store(place / "cache")
    with pytest.raises(Unavailable, match=f"{place}/cache was deleted or replaced, again and again"):
        store.save(KEY, {}, "aa", b"program")
    monkeypatch.undo()
    saved = store.save(KEY, {}, "aa", b"program")
    assert store.entries(KEY) == [saved]


def test_a_lock_that_is_never_given_back_is_not_waited_for(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    filled(place / "cache")
    monkeypatch.setattr(database, "BUSY_SECONDS", 0.1)
    held = os.open(place / "cache", os.O_RDONLY)
    fcntl.flock(held, fcntl.LOCK_EX)
    try:
        with pytest.raises(Unavailable, match="other processes kept it locked for too long"):
            Store(place / "cache").entries(KEY)
    finally:
        os.close(held)
    assert Store(place / "cache").entries(KEY)


# Exported files


@pytest.mark.parametrize("name", KINDS_OF_THE_FILE)
def test_an_import_says_what_the_file_is(name: str, place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder, sentence = arranged(name, place)
    expected = sentence.removesuffix("remove it") + "give a file of `aotviz cache export`"
    with pytest.raises(Unavailable) as raised:
        Store(place / "mine").import_(folder / "aot.sqlite")
    assert str(raised.value) == expected
    assert main(["cache", "import", str(folder / "aot.sqlite"), "--folder", str(place / "mine")]) == 2
    assert capsys.readouterr().err == f"aotviz cache: {expected}\n"


@takes_root
def test_an_exported_file_may_be_of_any_user(place: Path) -> None:
    filled(place / "theirs")
    Store(place / "theirs").export(place / "exported")
    os.chown(place / "exported", STRANGER, STRANGER)
    (place / "exported").chmod(0o666)
    assert Store(place / "mine").import_(place / "exported")[:2] == (1, 0)
