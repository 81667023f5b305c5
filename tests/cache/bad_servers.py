"""Every way that we know in which the server of a shared cache can be bad, and what a machine that uses it sees.

A case starts a server, real or fake, and says what is expected: whether what another machine saved is found, whether
what this machine saves gets there, and the one warning. `tried` uses the server as a compilation does. To print the
table for the docs: `python -m tests.cache.bad_servers`.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import tempfile
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import redis

from aotviz.cache import redis_connection, seals, switch
from aotviz.cache.seals import CHECKSUMS, MAIN
from aotviz.cache.shared import Shared
from aotviz.cache.store import CacheWarning, Entry, Store
from tests.cache.redis_server import Server

SECRET = "hunter2hunter2"  # in passwords: is never told
FOUND, SAVED = "0" * 64, "1" * 64  # keys: what another machine saved, and what this one saves
INGREDIENTS = {"program": "graph", "torch": "2.13.0"}
ENTRY = Entry(seals.entry_id(FOUND, "aa"), FOUND, "aa", b"program")
PARTS = b"aotviz:1:%s:aa:%s" % (FOUND.encode(), CHECKSUMS.of(FOUND, "aa", MAIN, b"program").hex().encode())
Opened = tuple[str, redis.Redis | None]  # an address, and a client that may look into the server


@dataclass(frozen=True)
class Case:
    name: str
    start: Callable[[Path], contextlib.AbstractContextManager[Opened]]
    told: str  # a piece of the warning; "" if none is expected
    finds: bool = False
    saves: bool = False


@dataclass(frozen=True)
class Tried:
    """What happened. The seconds are for two look-ups (of a program and of a part), and for a save."""

    found: bool
    saved: bool
    look_up_seconds: float
    save_seconds: float
    told: list[str]


def tried(case: Case, folder: Path) -> Tried:
    """Look up FOUND and one of its parts, then save SAVED, with an empty store of this machine in `folder`."""
    with case.start(folder) as (url, client), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", CacheWarning)
        with mock.patch.object(seals, "_told", set()), mock.patch.dict(os.environ, {"AOTVIZ_CACHE_URL": url}):
            began = time.monotonic()
            store = switch.store_for(folder / "this machine")
            assert store is not None
            found = store.entries(FOUND)
            store.part(ENTRY, "guards")
            looked_up = time.monotonic()
            save(store, SAVED)
            saved = time.monotonic()
            assert store.entries(SAVED) != [], "this machine's own cache works"
        is_saved = client is not None and bool(client.hexists(f"aotviz:1:{SAVED}", "aa"))
        said = [str(one.message) for one in caught if issubclass(one.category, CacheWarning)]
        return Tried(found == [ENTRY], is_saved, looked_up - began, saved - looked_up, said)


def save(store: Store, key: str) -> Entry:
    return store.save(key, INGREDIENTS, "aa", b"program", {"guards": b"s0 > 1"})


KEY = f"aotviz:1:{FOUND}".encode()
LOCAL = "redis://127.0.0.1:{port}/0"
READER = f"redis://reader:{SECRET}@127.0.0.1:{{port}}/0"
TRUSTED = "rediss://localhost:{port}/0?ssl_ca_certs={folder}/certificate"


# Real servers


@contextlib.contextmanager
def real(folder: Path, *options: str) -> Iterator[tuple[Server, redis.Redis]]:
    """A server that has FOUND, and a client that may do anything there."""
    server = Server(folder, *options)
    try:
        with redis.Redis(port=server.port) as client:
            Shared(server.url).save(ENTRY, INGREDIENTS, {"guards": b"s0 > 1"})
            yield server, client
    finally:
        server.kill()


def changed(change: Callable[[redis.Redis], Any], url: str = "redis://127.0.0.1:{port}/0", *options: str) -> Any:
    """How to start a server that has FOUND, and is then changed. `url` is how this machine reaches it."""

    @contextlib.contextmanager
    def start(folder: Path) -> Iterator[Opened]:
        with real(folder, *options) as (server, client):
            change(client)
            yield url.format(port=server.port, folder=folder), client

    return start


def nothing(_: redis.Redis) -> None:
    pass


def configured(**settings: object) -> Callable[[redis.Redis], None]:
    return lambda client: (
        [client.config_set(name.replace("_", "-"), value) for name, value in settings.items()] and None
    )


def user(*rules: str) -> Callable[[redis.Redis], None]:
    """A user `reader` with SECRET as its password, and these rights."""
    return lambda client: client.execute_command("ACL", "SETUSER", "reader", "on", f">{SECRET}", *rules)


def guarded(client: redis.Redis) -> None:
    """The default user needs SECRET. The client's own connection keeps its rights."""
    client.ping()
    client.config_set("requirepass", SECRET)


def of_another_type(name: bytes) -> Callable[[redis.Redis], None]:
    def change(client: redis.Redis) -> None:
        client.delete(name)
        client.set(name, b"a string")

    return change


def with_field(name: bytes, field: str, value: bytes) -> Callable[[redis.Redis], Any]:
    return lambda client: client.hset(name, field, value)


def many_fields(client: redis.Redis) -> None:
    client.hset(f"aotviz:1:{FOUND}", mapping={str(number): b"" for number in range(20_000)})


@contextlib.contextmanager
def large_value(folder: Path) -> Iterator[Opened]:
    """A value of 1 MB, where less is the most."""
    start = changed(with_field(KEY, "bb", b"x" * 2**20))
    with mock.patch.object(redis_connection, "LONGEST", 2**20 - 1), start(folder) as opened:
        yield opened


@contextlib.contextmanager
def replica(folder: Path, change: Callable[[redis.Redis], Any] = nothing) -> Iterator[Opened]:
    with real(folder, "--repl-diskless-sync-delay", "0") as (primary, client):
        change(client)
        copy = Server(folder, "--replicaof", f"127.0.0.1 {primary.port}")
        try:
            while not client.wait(1, 1000):  # until the replica has all
                client.set("something", "to copy")
            with redis.Redis(port=copy.port) as of_copy:
                yield copy.url, of_copy
        finally:
            copy.kill()


@contextlib.contextmanager
def damaged_replica(folder: Path) -> Iterator[Opened]:
    with replica(folder, with_field(f"aotviz:1:{FOUND}".encode(), "aa", b"damaged")) as opened:
        yield opened


@contextlib.contextmanager
def stopped(folder: Path) -> Iterator[Opened]:
    with real(folder) as (server, _):
        server.process.send_signal(signal.SIGSTOP)
        yield server.url, None


@contextlib.contextmanager
def too_many_clients(folder: Path) -> Iterator[Opened]:
    with real(folder) as (server, client):
        client.config_set("maxclients", 1)
        yield server.url, client


def with_tls(url: str, *options: str) -> Any:
    """How to start a server with TLS, whose certificate signs itself. It has FOUND."""

    @contextlib.contextmanager
    def start(folder: Path) -> Iterator[Opened]:
        certificate, private_key = folder / "certificate", folder / "key"
        command = (
            "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=localhost"
        )
        files = ["-addext", "subjectAltName=DNS:localhost", "-keyout", str(private_key), "-out", str(certificate)]
        subprocess.run([*command.split(), *files], check=True, capture_output=True)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        tls = [f"--tls-port {port}", f"--tls-cert-file {certificate}", f"--tls-key-file {private_key}"]
        tls.append(f"--tls-ca-cert-file {certificate}")
        words = [word for option in (*tls, *(options or ("--tls-auth-clients no",))) for word in option.split()]
        with real(folder, *words) as (_, client):
            yield url.format(port=port, folder=folder), client

    return start


# Servers that are not there, and addresses of none


def at(url: str) -> Any:
    return lambda _: contextlib.nullcontext((url, None))


@contextlib.contextmanager
def refused(_: Path) -> Iterator[Opened]:
    with socket.socket() as taken:  # bound, and nobody listens
        taken.bind(("127.0.0.1", 0))
        yield f"redis://:{SECRET}@127.0.0.1:{taken.getsockname()[1]}/0", None


@contextlib.contextmanager
def name_server(answer: Callable[[threading.Event], Any]) -> Iterator[Opened]:
    """A name server with an answer of ours to all names, which may wait for the end of the case."""
    ended, known = threading.Event(), socket.getaddrinfo

    def resolve(host: str, *arguments: Any, flags: int = 0, **named: Any) -> Any:
        if host == "cache.example" and not flags:
            return answer(ended)
        return known(host, *arguments, flags=flags, **named)

    with mock.patch.object(socket, "getaddrinfo", resolve):
        yield f"redis://:{SECRET}@cache.example/0", None
        ended.set()


def unknown(_: threading.Event) -> Any:
    raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")


@contextlib.contextmanager
def full_backlog(_: Path) -> Iterator[Opened]:
    """A server that accepts no connection: those that wait to be accepted are as many as may wait."""
    with socket.socket() as listening, contextlib.ExitStack() as waiting:
        listening.bind(("127.0.0.1", 0))
        listening.listen(0)
        for _number in range(8):
            one = waiting.enter_context(socket.socket())
            one.setblocking(False)
            one.connect_ex(listening.getsockname())
        yield f"redis://127.0.0.1:{listening.getsockname()[1]}/0", None


# Fake servers


def fake(*sent: bytes, pause: float = 0.0, waits: bool = True, scheme: str = "redis://") -> Any:
    """How to start a server that sends these pieces to whoever connects, with a pause before each, whatever it gets.

    Then it waits for the end of the case, or closes the connection.
    """

    @contextlib.contextmanager
    def start(_: Path) -> Iterator[Opened]:
        ended = threading.Event()

        def serve(client: socket.socket) -> None:
            with client, contextlib.suppress(OSError):
                client.recv(2**16)
                for piece in sent:
                    if ended.wait(pause):
                        return
                    client.sendall(piece)
                if waits:
                    ended.wait()

        def accept() -> None:
            with contextlib.suppress(OSError):
                while True:
                    client, _ = listening.accept()
                    client.settimeout(10)
                    threading.Thread(target=serve, args=(client,), daemon=True).start()

        with socket.create_server(("127.0.0.1", 0)) as listening:
            threading.Thread(target=accept, daemon=True).start()
            try:
                yield f"{scheme}127.0.0.1:{listening.getsockname()[1]}/0", None
            finally:
                ended.set()
                with contextlib.suppress(OSError):
                    listening.shutdown(socket.SHUT_RDWR)

    return start


def bytewise(data: bytes) -> list[bytes]:
    return [data[place : place + 1] for place in range(len(data))]


def hash_reply() -> bytes:
    """A good server's answer to the look-up of FOUND."""
    with (
        tempfile.TemporaryDirectory() as folder,
        real(Path(folder)) as (server, _),
        socket.create_connection(("127.0.0.1", server.port)) as raw,
    ):
        raw.sendall(b"HGETALL aotviz:1:%s\r\n" % FOUND.encode())
        return raw.recv(2**16)


def cut_off(after: int | None, *more: bytes) -> Any:
    """A server that closes the connection in the middle of the answer, or behind it."""

    @contextlib.contextmanager
    def start(folder: Path) -> Iterator[Opened]:
        with fake(hash_reply()[:after], *more, waits=False)(folder) as opened:
            yield opened

    return start


CASES = (
    # In order
    Case("good", changed(nothing), "", finds=True, saves=True),
    Case("good, password", changed(guarded, f"redis://:{SECRET}@127.0.0.1:{{port}}/0"), "", finds=True, saves=True),
    Case("good, name and password", changed(user("+@all", "~*"), READER), "", finds=True, saves=True),
    Case("good, TLS", with_tls(TRUSTED), "", finds=True, saves=True),
    Case(
        "good, Unix socket with a password in the query",
        changed(guarded, f"unix://{{folder}}/s?password={SECRET}", "--unixsocket", "s"),
        "",
        finds=True,
        saves=True,
    ),
    # Not there
    Case("refused", refused, "no server listens there; start it"),
    Case("host cannot be one", at(f"redis://:{SECRET}@{'a' * 70}/0"), "its host is not known"),
    Case("host unknown", lambda _: name_server(unknown), "its host is not known"),
    Case(
        "name server silent", lambda _: name_server(threading.Event.wait), "the name of its host was not found within"
    ),
    Case("does not accept", full_backlog, "did not accept the connection within 0.25 s"),
    Case("no such socket", at(f"unix:///nowhere/redis?password={SECRET}"), "there is no such socket"),
    # Slow
    Case("silent", fake(), "did not answer within 1 s"),
    Case("stopped (SIGSTOP)", stopped, "did not answer within 1 s"),
    Case("a byte every 0.3 s", fake(*bytewise(b"*2\r\n$2\r\naa\r\n$20\r\n" + b"x" * 200), pause=0.3), "within 1 s"),
    Case("handshake slow", fake(*bytewise(b"+OK\r\n" * 9), pause=0.3, scheme=f"redis://:{SECRET}@"), "within 1 s"),
    Case("TLS handshake silent", fake(scheme="rediss://"), "did not finish the TLS handshake within 1 s"),
    Case(
        "TLS handshake slow",
        fake(*bytewise(b"\x16\x03\x03\x40\x00" * 9), pause=0.3, scheme="rediss://"),
        "TLS handshake within",
    ),
    # Not a Redis server
    Case("garbage", fake(bytes(range(128, 256)) * 99), "its answer is not a Redis server's"),
    Case("garbage numbers", fake(b"*1_0\r\n"), "its answer is not a Redis server's"),
    Case("HTTP", fake(b"HTTP/1.1 400 Bad Request\r\nServer: x\r\n\r\n", waits=False), "a web server answers there"),
    Case("nests 3,000 deep", fake(b"*1\r\n" * 3000), "its answer is not a Redis server's"),
    Case("no end of a line", fake(*[b"+" + b"x" * 2**16] * 99), "its answer is not a Redis server's"),
    Case("announces 10 GB", fake(b"*2\r\n$2\r\naa\r\n$10000000000\r\n"), "its answer is not a Redis server's"),
    Case("announces 2,000,000,000 fields", fake(b"*2000000000\r\n"), "its answer is not a Redis server's"),
    Case("sends without end", fake(b"*8000\r\n", *[b"$1000000\r\n" + b"x" * 1000000 + b"\r\n"] * 999), "is not used"),
    Case("closes at once", fake(waits=False), "it closed the connection before it answered"),
    Case("closes in the middle", cut_off(100), "it closed the connection before it answered"),
    Case("answers one look-up", cut_off(None), "its answer is not a Redis server's", finds=True),
    # TLS
    Case("TLS expected, address without", with_tls("redis://localhost:{port}/0"), "write rediss:// in its address"),
    Case("no TLS, address with", changed(nothing, "rediss://127.0.0.1:{port}/0"), "write redis:// in its address"),
    Case("certificate unknown", with_tls("rediss://localhost:{port}/0"), "its certificate cannot be trusted"),
    Case("certificate of another host", with_tls(TRUSTED.replace("localhost", "127.0.0.1")), "for another host"),
    Case("certificate of the client wanted", with_tls(TRUSTED, "--tls-auth-clients yes"), "ssl_certfile"),
    Case(
        "file of the address missing", with_tls("rediss://localhost:{port}/0?ssl_ca_certs=/nowhere"), "cannot be read"
    ),
    # Refuses everything
    Case("password missing", changed(guarded), "it wants a password; write it in its address"),
    Case(
        "password wrong",
        changed(guarded, f"redis://:{SECRET}x@127.0.0.1:{{port}}/0"),
        "the password in its address is wrong",
    ),
    Case("name wrong", changed(nothing, f"redis://me:{SECRET}@127.0.0.1:{{port}}/0"), "the name or the password"),
    Case("password, and none set", changed(nothing, f"redis://:{SECRET}@127.0.0.1:{{port}}/0"), "the server has none"),
    Case("no such database", changed(nothing, "redis://127.0.0.1:{port}/99"), "the number after the last '/'"),
    Case("too many clients", too_many_clients, "raise its maxclients"),
    Case("protected mode", fake(b"-DENIED Redis is running in protected mode\r\n", waits=False), "in protected mode"),
    Case("loading", fake(b"-LOADING Redis is loading the dataset in memory\r\n" * 9), "still loading"),
    Case("cluster", fake(b"-MOVED 3999 127.0.0.1:6381\r\n" * 9), "a Redis Cluster"),
    Case(
        "names unknown (Redis 5)",
        fake(b"-ERR wrong number of arguments for 'auth' command\r\n" * 9, scheme=f"redis://me:{SECRET}@"),
        "too old for user names",
    ),
    Case(
        "error that quotes the password",
        fake(f"-ODD {SECRET} {SECRET}\r\n".encode() * 9, scheme=f"redis://:{SECRET}@"),
        "does not accept",
    ),
    # Refuses to save
    Case("full", changed(configured(maxmemory=1)), "nothing is saved in the shared cache", finds=True),
    Case("replica", replica, "it is a read-only replica", finds=True),
    Case("too few replicas", changed(configured(min_replicas_to_write=3)), "too few replicas", finds=True),
    Case(
        "user may only read", changed(user("+@read", "+select", "~*"), READER), "no permission for HSETNX", finds=True
    ),
    # Refuses to look up
    Case("user may only write", changed(user("+@write", "~*"), READER), "is not asked for programs", saves=True),
    Case(
        "HGETALL switched off",
        changed(nothing, LOCAL, "--rename-command", "HGETALL", ""),
        "does not know HGETALL",
        saves=True,
    ),
    # Damaged
    Case("key of another type", changed(of_another_type(KEY)), "had a damaged entry; it was removed", saves=True),
    Case("parts of another type", changed(of_another_type(PARTS)), "had a damaged entry; it was removed", True, True),
    Case(
        "entry damaged", changed(with_field(KEY, "aa", b"damaged")), "had a damaged entry; it was removed", saves=True
    ),
    Case(
        "ingredients damaged",
        changed(with_field(KEY, "ingredients", b"")),
        "a damaged entry; it was removed",
        saves=True,
    ),
    Case(
        "part damaged", changed(with_field(PARTS, "guards", b"damaged")), "a damaged entry; it was removed", True, True
    ),
    Case("20,000 fields", changed(many_fields), "had a damaged entry; it was removed", saves=True),
    Case("value that is too long", large_value, "had a damaged entry; it was removed", saves=True),
    Case("entry damaged, on a replica", damaged_replica, "could not be removed: it is a read-only replica"),
    # No address
    Case("unknown option", at(f"redis://127.0.0.1:1/0?foo={SECRET}"), "its option `foo` is not known"),
    Case("wrong scheme", at(f"http://:{SECRET}@localhost"), "expected the address of a Redis server, such as redis://"),
    Case("port is no number", at(f"redis://:{SECRET}@localhost:port/0"), "its host and port cannot be read"),
    Case("password not escaped", at(f"redis://:12/{SECRET}@localhost/0"), "are written %2F"),
    Case(
        "database is no number", at(f"redis://localhost/{SECRET}"), "its database, after the last '/', is not a number"
    ),
)


def main() -> None:
    """Print the table in Markdown."""
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        base = [tried(Case("none", at(""), ""), Path(folder) / str(number)) for number in range(5)]
        look_up = sorted(one.look_up_seconds for one in base)[2]
        to_save = sorted(one.save_seconds for one in base)[2]
        print("| server | look-up | saved there | look-ups: added s | save: added s | told |")
        print("| --- | --- | --- | --- | --- | --- |")
        for number, case in enumerate(CASES):
            place = Path(folder) / f"case-{number}"
            place.mkdir()
            seen = tried(case, place)
            added = [f"{max(0.0, seen.look_up_seconds - look_up):.2f}", f"{max(0.0, seen.save_seconds - to_save):.2f}"]
            answer = ["hit" if seen.found else "miss", "yes" if seen.saved else "no", *added]
            print(f"| {case.name} | {' | '.join(answer)} | {'; '.join(seen.told) or '(nothing)'} |", flush=True)


if __name__ == "__main__":
    main()
