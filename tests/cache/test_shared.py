"""Two machines share what they compile by a Redis server, and neither waits for it when it is away."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import warnings
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from aotviz.cache import seals, shared
from aotviz.cache.address import read_address
from aotviz.cache.redis_connection import Command, Connection, Deadline, Reply
from aotviz.cache.shared import EXPIRY_SECONDS, PAUSE_SECONDS, Shared
from aotviz.cache.store import CacheWarning, Entry, Store, Unavailable
from tests.cache.redis_server import Server

INGREDIENTS = {"program": "graph " * 1000, "torch": "2.13.0", "odd": "\ud800"}
KEY = "0" * 64


@pytest.fixture(autouse=True)
def told(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[warnings.WarningMessage]]:
    monkeypatch.setattr(seals, "_told", set())  # a port may be used by two tests
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield caught


class Clock:
    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def stores(server: Server, tmp_path: Path, clock: Clock) -> tuple[Store, Store]:
    """Of two machines."""
    first, second = (Store(tmp_path / name, shared=Shared(server.url, clock)) for name in ("first", "second"))
    return first, second


def save(store: Store, key: str = KEY, variant: str = "aa") -> Entry:
    return store.save(key, INGREDIENTS, variant, f"program {variant}".encode(), {"guards": b"s0 > 1"})


def of(message: str, told: list[warnings.WarningMessage]) -> None:
    """One line of warning was given, and it says `message`."""
    said = [str(warning.message) for warning in told]
    assert [warning.category for warning in told] == [CacheWarning], said
    assert message in said[0]
    assert "\n" not in said[0]


def test_what_one_machine_saves_another_finds_and_keeps(server: Server, stores: tuple[Store, Store]) -> None:
    first, second = stores
    entry = save(first)
    first.add_part(entry, "backward", b"backward")
    assert second.entries(KEY) == [entry]
    assert second.part(entry, "guards") == b"s0 > 1"
    assert second.part(entry, "backward") == b"backward"
    assert second.part(entry, "partial 1") is None
    server.kill()
    assert Store(second.folder).entries(KEY) == [entry]
    assert Store(second.folder).part(entry, "backward") == b"backward"
    assert second.ingredients(KEY) == {**INGREDIENTS, "odd": "\\ud800"}
    assert second.verify().damaged == []
    server.start()


def test_two_processes_with_folders_of_their_own_share(server: Server, tmp_path: Path) -> None:
    script = """
import sys, warnings
from pathlib import Path
from aotviz.cache.redis_connection import Command, Connection, Deadline, Reply
from aotviz.cache.shared import Shared
from aotviz.cache.store import Store
warnings.simplefilter("error")
store = Store(Path(sys.argv[1]), shared=Shared(sys.argv[2]))
found = store.entries("0" * 64)
print(found, store.part(found[0], "backward") if found else None)
if not found:
    store.add_part(store.save("0" * 64, {"torch": "2.13.0"}, "aa", b"program"), "backward", b"backward")
"""
    said = []
    for folder in ("first", "second"):
        command = [sys.executable, "-c", script, str(tmp_path / folder), server.url]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        said.append(done.stdout)
    assert said[0] == "[] None\n"
    assert said[1].endswith("b'backward'\n")


def test_a_part_is_the_first_ones_and_a_recording_grows(stores: tuple[Store, Store]) -> None:
    first, second = stores
    entry = save(first)
    for store, data in ((first, b"first"), (second, b"second")):
        store.shared.add_part(entry, "backward", data)  # type: ignore[union-attr]
        store.shared.replace_part(entry, "recording", data)  # type: ignore[union-attr]
    assert second.entries(KEY) == [entry]
    assert second.part(entry, "backward") == b"first"
    assert second.part(entry, "recording") == b"second"


def test_a_part_belongs_to_the_main_that_it_was_compiled_with(stores: tuple[Store, Store]) -> None:
    first, second = stores
    one = first.save(KEY, INGREDIENTS, "aa", b"one")
    other = second.save(KEY, INGREDIENTS, "aa", b"two")
    first.add_part(one, "backward", b"of one")
    assert second.part(other, "backward") is None
    assert second.part(one, "backward") == b"of one"


def test_after_a_guard_miss_other_variants_are_found(stores: tuple[Store, Store]) -> None:
    first, second = stores
    own = save(second, variant="aa")
    elsewhere = save(first, variant="bb")
    assert second.entries(KEY) == [own]
    assert second.entries_elsewhere(KEY, [own]) == [elsewhere]
    assert {entry.variant for entry in second.entries(KEY)} == {"aa", "bb"}


def test_what_is_discarded_is_gone_everywhere(stores: tuple[Store, Store]) -> None:
    first, second = stores
    entry, other = save(first), save(first, variant="bb")
    first.discard(entry)
    assert second.entries(KEY) == [other]
    assert second.part(entry, "guards") is None


def test_a_full_or_broken_disk_leaves_the_server(server: Server, stores: tuple[Store, Store], tmp_path: Path) -> None:
    entry = save(stores[0])
    (tmp_path / "file").write_text("no folder")
    diskless = Store(tmp_path / "file", shared=Shared(server.url))
    assert diskless.entries(KEY) == [entry]
    assert diskless.part(entry, "guards") == b"s0 > 1"
    with pytest.raises(Unavailable):
        save(diskless, "1" * 64)
    assert stores[1].entries("1" * 64) != []


def test_what_is_on_the_server_expires_after_a_month_without_use(server: Server, stores: tuple[Store, Store]) -> None:
    import redis

    save(stores[0])
    with redis.Redis.from_url(server.url) as client:
        names = client.keys()
        assert len(names) == 2
        for name in names:
            assert EXPIRY_SECONDS - 100 < client.ttl(name) <= EXPIRY_SECONDS
            client.expire(name, 60)
        assert len(stores[1].entries(KEY)) == 1
        assert max(client.ttl(name) for name in names) > 60


def test_a_server_that_is_killed_costs_one_warning_and_no_error(
    server: Server, stores: tuple[Store, Store], clock: Clock, told: list[warnings.WarningMessage]
) -> None:
    first, second = stores
    entry = save(first)
    assert second.entries(KEY) == [entry]
    server.kill()
    for number in range(1, 6):
        saved = save(first, str(number) * 64)
        assert second.entries(saved.key) == []
        assert first.entries(saved.key) == [saved]
        assert first.part(saved, "backward") is None
        second.discard(saved)
        clock.seconds += PAUSE_SECONDS  # each time it is tried again
    of("is not used", told)
    server.start()
    later = save(first, "6" * 64)
    assert second.entries(later.key) == [later]


def test_a_server_that_is_away_is_not_tried_again_for_a_while(
    server: Server, stores: tuple[Store, Store], clock: Clock, told: list[warnings.WarningMessage]
) -> None:
    server.kill()
    assert stores[0].entries(KEY) == []
    server.start()
    clock.seconds += PAUSE_SECONDS / 2
    save(stores[0])
    assert stores[1].entries(KEY) == [], "the server was not asked"
    clock.seconds += PAUSE_SECONDS
    entry = save(stores[0], "1" * 64)
    assert stores[1].entries("1" * 64) == [entry]
    of("is not used", told)


def test_a_server_that_does_not_answer_is_a_miss(
    server: Server, stores: tuple[Store, Store], told: list[warnings.WarningMessage]
) -> None:
    entry = save(stores[0])
    server.process.send_signal(signal.SIGSTOP)
    assert stores[1].entries(KEY) == []
    assert stores[1].part(entry, "guards") is None
    server.process.send_signal(signal.SIGCONT)
    of("did not answer within 1 s", told)


@pytest.mark.parametrize("what", ["flipped", "another key's", "another variant's", "short", "ingredients"])
def test_a_damaged_value_is_a_miss_and_is_removed(
    what: str, server: Server, stores: tuple[Store, Store], told: list[warnings.WarningMessage]
) -> None:
    import redis

    save(stores[0])
    save(stores[0], "1" * 64)
    other = save(stores[0], variant="bb")
    with redis.Redis.from_url(server.url) as client:
        name = f"aotviz:1:{KEY}"
        value = client.hget(name, "aa")
        assert value is not None
        values = {
            "flipped": value[:-1] + b"?",
            "another key's": client.hget(f"aotviz:1:{'1' * 64}", "aa"),
            "another variant's": client.hget(name, "bb"),
            "short": value[:10],
            "ingredients": value,
        }
        client.hset(name, "ingredients" if what == "ingredients" else "aa", values[what])
        assert stores[1].entries(KEY) == ([] if what == "ingredients" else [other])
        assert client.hget(name, "aa") is None
    entry = save(stores[0], variant="cc")
    assert entry in stores[1].entries_elsewhere(KEY), "what is saved again replaces it"
    of("had a damaged entry", told)


@pytest.mark.parametrize("how", ["look_up", "save"])
def test_a_key_of_another_type_is_a_miss_and_does_not_stay(
    how: str, server: Server, stores: tuple[Store, Store], told: list[warnings.WarningMessage]
) -> None:
    """Whether it is met by a look-up or by a save, of both keys of an entry; and other keys are not concerned."""
    import redis

    first, second = stores
    other = save(first, "1" * 64)
    entry = save(first)
    with redis.Redis.from_url(server.url) as client:
        for name in client.keys(f"aotviz:1:{KEY}*"):
            client.delete(name)
            client.set(name, b"a string")
        if how == "look_up":
            assert second.entries(KEY) == []
            assert second.part(entry, "guards") is None
            assert client.keys(f"aotviz:1:{KEY}*") == []
        assert save(first) == entry
    assert second.entries(KEY) == [entry]
    assert second.part(entry, "guards") == b"s0 > 1"
    assert second.entries("1" * 64) == [other]
    of("had a damaged entry; it was removed", told)


def test_a_server_that_refuses_to_save_is_still_asked(
    server: Server, stores: tuple[Store, Store], clock: Clock, told: list[warnings.WarningMessage]
) -> None:
    import redis

    first, second = stores
    entry = save(first)
    with redis.Redis.from_url(server.url) as client:
        client.config_set("maxmemory", 1)
        save(second, "1" * 64)
        assert second.entries(KEY) == [entry], "a look-up does not pause"
        client.config_set("maxmemory", 0)
        save(second, "2" * 64)
        assert first.entries("2" * 64) == [], "saves do"
        clock.seconds += PAUSE_SECONDS
        later = save(second, "3" * 64)
        assert first.entries("3" * 64) == [later]
    of("its memory is full", told)


def test_a_connection_that_the_server_closed_meanwhile_is_opened_again(
    server: Server, stores: tuple[Store, Store], told: list[warnings.WarningMessage]
) -> None:
    import redis

    entry = save(stores[0])
    assert stores[1].entries("1" * 64) == []
    with redis.Redis.from_url(server.url) as client:
        client.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
    assert stores[1].entries(KEY) == [entry]
    assert told == []


def test_an_operation_has_one_deadline_for_all_that_it_needs(
    server: Server, stores: tuple[Store, Store], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also for the repairs of what it finds, and for connections that it opens again."""
    import redis

    deadlines: list[Deadline] = []
    ask = Connection.ask

    def noted(self: Connection, commands: Sequence[Command], deadline: Deadline) -> list[Reply]:
        deadlines.append(deadline)
        return ask(self, commands, deadline)

    monkeypatch.setattr(Connection, "ask", noted)
    entry = save(stores[0])
    found = Shared(server.url)
    with redis.Redis.from_url(server.url) as client:
        parts = client.keys(f"aotviz:1:{KEY}:*")[0]
        for damage, operation in (
            (lambda: client.hset(f"aotviz:1:{KEY}", "aa", b"damaged"), lambda: found.look_up(KEY)),
            (lambda: client.hset(parts, "guards", b"damaged"), lambda: found.part(entry, "guards")),
            (lambda: (client.delete(parts), client.set(parts, b"")), lambda: found.part(entry, "guards")),
            (lambda: (client.delete(parts), client.set(parts, b"")), lambda: found.add_part(entry, "guards", b"")),
        ):
            damage()
            deadlines.clear()
            operation()
            assert len(deadlines) > 1
            assert len(set(deadlines)) == 1


def test_threads_and_a_forked_child_have_connections_of_their_own(server: Server) -> None:
    """Each asks for a program of its own, and would get another's if two used one connection."""
    shared = Shared(server.url)
    entries = [Entry(str(n), str(n) * 64, "aa", b"program %d" % n * 1000) for n in range(8)]

    def ask(entry: Entry) -> bool:
        return all(shared.look_up(entry.key)[1] == {"aa": entry.main} for _ in range(50))

    for entry in entries:
        shared.save(entry, INGREDIENTS, {})
    child = os.fork()
    if child == 0:
        was_right = False
        try:
            was_right = ask(entries[0])
        finally:
            os._exit(0 if was_right else 1)
    with ThreadPoolExecutor(len(entries)) as threads:
        assert all(threads.map(ask, entries))
    assert os.waitpid(child, 0)[1] == 0


PARTS_OF_SECRETS = ("hunter2", "sesame")


@pytest.mark.parametrize(
    "url",
    [
        "localhost:6379",
        "hunter2",
        "http://localhost",
        "http://user:hunter2@localhost",
        "redis://localhost:port/0",
        "redis://:hunter2@localhost:0/0",
        "redis://:hunter2@localhost:99999/0",
        "redis://:hunter2@localhost/hunter2",
        "redis://:hunter2@[localhost/0",
        "redis://:hunter2\u2100@localhost/0",  # urlsplit's own error quotes it
        "redis://sesame:12/hunter2@localhost/0",
        "redis://sesame:12?hunter2=@localhost/0",
        "redis://sesame:12#hunter2@localhost/0",
        "redis://localhost/0?foo=hunter2",
        "redis://localhost/0?hunter2",
        "redis://localhost/0?ssl_ca_certs=hunter2",
        "rediss://localhost/0?ssl_cert_reqs=hunter2",
        "unix://localhost/hunter2?db=0",
        "unix:///tmp/redis?db=hunter2",
        "redis://local%0ahost/0",
        "redis://localhost/0?" + "db=1&" * 1000,
        "",
    ],
)
def test_another_address_is_refused_and_nothing_of_it_is_told(url: str) -> None:
    with pytest.raises(ValueError, match=r"such as redis://host:6379/0") as caught:
        Shared(url)
    for fault in (caught.value, caught.value.__cause__, caught.value.__context__):
        assert not any(part in str(fault) for part in PARTS_OF_SECRETS)


@pytest.mark.parametrize(
    ("url", "place"),
    [
        ("redis://", "localhost:6379/0"),
        ("redis://cache.example", "cache.example:6379/0"),
        ("redis://user:hunter2@cache.example:7000/3", "cache.example:7000/3"),
        ("redis://cache.example?db=4&password=hunter2", "cache.example:6379/4"),
        ("redis://:hunter2%2F%40@[::1]:7000/3", "[::1]:7000/3"),
        ("rediss://cache.example/0?ssl_ca_certs=/hunter2&ssl_check_hostname=false", "cache.example:6379/0"),
        ("unix:///run/redis.sock?db=2&password=hunter2", "/run/redis.sock"),
        ("unix://sesame:hunter2@/run/redis.sock", "/run/redis.sock"),
    ],
)
def test_of_an_address_only_host_port_and_database_are_shown(url: str, place: str) -> None:
    assert Shared(url).place == place
    assert not any(part in repr(read_address(url)) for part in PARTS_OF_SECRETS)


def test_name_and_password_are_read_as_they_were_written() -> None:
    for url in ("redis://a%2Fb:c%40d@h", "redis://h?username=a%2Fb&password=c%40d", "unix://a%2Fb:c%40d@/run/redis"):
        address = read_address(url)
        assert (address.username, address.password) == ("a/b", "c@d")


def test_an_option_that_is_not_known_is_named() -> None:
    with pytest.raises(ValueError, match=r"its option `foo` is not known: a redis:// address can have db, username"):
        Shared("redis://localhost/0?foo=bar")


def test_an_entry_that_is_too_long_to_be_read_is_not_saved(
    monkeypatch: pytest.MonkeyPatch, stores: tuple[Store, Store], told: list[warnings.WarningMessage]
) -> None:
    monkeypatch.setattr(shared, "LONGEST", 2**20)
    entry = save(stores[0])
    stores[0].add_part(entry, "backward", b"x" * 2**21)
    assert stores[1].part(entry, "backward") is None
    assert stores[1].part(entry, "guards") == b"s0 > 1"
    of("it has 2 MB, and 1 MB is the most", told)
