"""Where a cache may lie: where this user and root alone can write, or anywhere if its entries are signed."""

from __future__ import annotations

import os
import pwd
from collections.abc import Callable
from pathlib import Path

import pytest

from aotviz.cache import path_checks
from aotviz.cache.seals import Seals
from aotviz.cache.store import Store, Unavailable
from tests.cache.lying_there import KEY, filled
from tests.cache.other_users import MEMBER, STRANGER, as_user, takes_root

SEALS = Seals(b"a secret of our team")


def saves_and_finds(folder: Path) -> bool:
    saved = Store(folder).save(KEY, {}, "aa", b"program")
    return Store(folder).entries(KEY) == [saved]


def test_a_folder_below_a_sticky_one_is_used(place: Path) -> None:
    (place / "open").mkdir()
    (place / "open").chmod(0o1777)
    assert saves_and_finds(place / "open" / "cache")


def test_a_symlink_to_a_folder_is_followed_and_judged_by_its_target(place: Path) -> None:
    (place / "link").symlink_to("target")
    (place / "target").mkdir()
    assert saves_and_finds(place / "link" / "cache")
    (place / "target").chmod(0o777)
    with pytest.raises(Unavailable, match=f"{place}/target can be written by every user"):
        Store(place / "link" / "cache").entries(KEY)


def test_a_way_back_after_a_symlink_leads_where_the_system_goes(place: Path) -> None:
    """`link/..` is the folder above the link's target, and not the one that holds the link."""
    (place / "far" / "target").mkdir(parents=True)
    (place / "link").symlink_to("far/target")
    assert saves_and_finds(place / "link" / ".." / "cache")
    assert (place / "far" / "cache" / "aot.sqlite").is_file()


def test_a_folder_whose_name_is_no_text_is_used(place: Path) -> None:
    assert saves_and_finds(Path(os.fsdecode(os.fsencode(place) + b"/caf\xe9?#%41")))


def test_folders_that_the_store_creates_are_for_this_user_alone(place: Path) -> None:
    before = os.umask(0)
    try:
        assert saves_and_finds(place / "new" / "cache")
    finally:
        os.umask(before)
    modes = [(place / name).stat().st_mode & 0o777 for name in ("new", "new/cache", "new/cache/aot.sqlite")]
    assert modes == [0o700, 0o700, 0o600]


def test_what_is_above_the_home_is_not_asked_for(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place.chmod(0o777)
    (place / "home").mkdir()
    cache = place / "home" / ".cache" / "aotviz"
    with pytest.raises(Unavailable, match="every user"):
        saves_and_finds(cache)
    monkeypatch.setenv("HOME", str(place / "home"))
    assert saves_and_finds(cache)
    (place / "home").chmod(0o777)
    with pytest.raises(Unavailable, match=f"{place}/home can be written by every user"):
        Store(cache).entries(KEY)


def test_a_group_of_this_user_alone_may_write(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As Debian's sshd does. Where this user is not listed, nobody knows who else is not."""
    filled(place / "cache")
    os.chmod(place / "cache", 0o775)
    me = pwd.getpwuid(os.geteuid())
    monkeypatch.setattr(path_checks.grp, "getgrgid", lambda gid: struct_group([]))
    for listed, accepted in [
        ([me.pw_name], True),
        ([me.pw_name, "another"], False),
        (["another"], False),
        ([], False),
    ]:
        users = [pwd.struct_passwd((name, "", 1, (place / "cache").stat().st_gid, "", "", "")) for name in listed]
        monkeypatch.setattr(path_checks.pwd, "getpwall", lambda users=users: users)
        path_checks._is_alone_in.cache_clear()
        if accepted:
            assert Store(place / "cache").entries(KEY)
        else:
            with pytest.raises(Unavailable, match="can be written by its group team"):
                Store(place / "cache").entries(KEY)
    path_checks._is_alone_in.cache_clear()


def struct_group(members: list[str]) -> object:
    return path_checks.grp.struct_group(("team", "", 1, members))


@takes_root
def test_roots_folder_is_read_by_others_and_a_users_is_not(place: Path) -> None:
    filled(place / "cache")
    (place / "cache").chmod(0o755)
    (place / "cache" / "aot.sqlite").chmod(0o644)
    store = Store(place / "cache")

    def ask() -> object:
        return [entry.main for entry in store.entries(KEY)]

    assert as_user(STRANGER, ask) == "[b'program']"
    os.chown(place / "cache" / "aot.sqlite", STRANGER, STRANGER)
    assert as_user(STRANGER, ask) == "[b'program']"
    assert f"belongs to user {STRANGER}, and this process runs as user {MEMBER}" in as_user(MEMBER, ask)


@takes_root
def test_a_team_shares_a_folder_with_a_secret_and_not_without(place: Path) -> None:
    """Two users of one group: the second finds what the first saved, and adds to it."""
    (place / "team").mkdir()
    os.chown(place / "team", 0, STRANGER)
    (place / "team").chmod(0o2770)

    def work(key: str, seals: Seals) -> Callable[[], object]:
        def run() -> object:
            store = Store(place / "team", seals=seals)
            found = [len(store.entries(digit * 64)) for digit in "01"]
            store.save(key * 64, {}, "aa", b"program")
            return found

        return run

    assert as_user(STRANGER, work("0", SEALS), STRANGER) == "[0, 0]"
    assert as_user(MEMBER, work("1", SEALS), STRANGER) == "[1, 0]"
    assert as_user(STRANGER, work("1", SEALS), STRANGER) == "[1, 1]"
    assert f"can be written by its group {STRANGER}" in as_user(MEMBER, work("1", Seals()), STRANGER)


@takes_root
def test_a_folder_that_may_not_be_entered_is_named(place: Path) -> None:
    filled(place / "private" / "cache")
    said = as_user(STRANGER, lambda: Store(place / "private" / "cache").entries(KEY))
    assert said.startswith(f"Unavailable: {place}/private may not be entered by user {STRANGER}: ")
