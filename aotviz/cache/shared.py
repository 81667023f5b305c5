"""A store for many machines: a Redis server, asked after a miss on this machine and given what is saved on it.

A process must never wait for a server that is away. Each operation has a time limit. The first that fails is told in
one warning; the server is then left alone for `PAUSE_SECONDS`, during which everything is a miss, and is tried again
after that without another word. Values carry the checksums of `seals`, and one that does not match is a miss. That
finds accidents, and no attacker: programs are code, so use only a server whose writers you trust to run code here.

Under `aotviz:1:KEY` is a hash of the key's mains by variant, and its ingredients. Under `aotviz:1:KEY:VARIANT:MAIN` is
a hash of the parts that belong to one main, by its checksum: see Note [One main] in store.py. A key expires
`EXPIRY_SECONDS` after it was last saved or found. Apart from `discard`, nothing is deleted: the server's own settings
(`maxmemory`, `maxmemory-policy`) bound it.
"""

from __future__ import annotations

import time
import zlib
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol, TypeVar
from urllib.parse import urlsplit

import msgspec

from aotviz.cache.seals import CHECKSUMS, MAIN, Seals, warn_once

if TYPE_CHECKING:
    import redis

CONNECT_SECONDS = 0.25
OPERATION_SECONDS = 1.0
PAUSE_SECONDS = 30.0
EXPIRY_SECONDS = 30 * 24 * 3600
LONGEST = 2**28  # bytes of a key's ingredients, decompressed
INGREDIENTS = b"ingredients"  # a field beside variants, which are hex digests

Found = TypeVar("Found")


class Program(Protocol):
    """What this file needs to know of a store's Entry."""

    @property
    def key(self) -> str: ...
    @property
    def variant(self) -> str: ...
    @property
    def main(self) -> bytes: ...


class Shared:
    """The store on the Redis server at `url`: `redis://host:port/db`, `rediss://…` or `unix://…`.

    Raises ValueError for an address of another form. Nothing else is raised: what the server can't do is a miss.
    """

    def __init__(self, url: str, clock: Callable[[], float] = time.monotonic, seals: Seals = CHECKSUMS) -> None:
        self.place = url.rpartition("@")[2].rpartition("://")[2]  # without a password
        if not _is_address(url):
            expected = "expected the address of a Redis server, such as redis://host:6379/0"
            raise ValueError(f"{expected}, and got {self.place!r}")
        self._url = url
        self._seals = seals
        self._prefix = f"aotviz:1:{seals.name}:" if seals.name else "aotviz:1:"
        self._clock = clock
        self._client: redis.Redis | None = None
        self._paused_until = float("-inf")

    def look_up(self, key: str) -> tuple[dict[str, str], dict[str, bytes]]:
        """The key's ingredients, and its mains by variant. Both are empty if the server does not have it."""

        def ask(client: Any) -> dict[bytes, bytes]:
            pipeline = client.pipeline(transaction=False)
            pipeline.hgetall(self._key(key))
            pipeline.expire(self._key(key), EXPIRY_SECONDS)
            return dict(pipeline.execute()[0])

        found = self._try(ask) or {}
        ingredients = _ingredients(self._seals.unsealed(key, "", "ingredients", found.get(INGREDIENTS)))
        mains: dict[str, bytes] = {}
        for field, value in found.items():
            variant = field.decode("utf-8", "replace")
            main = self._seals.unsealed(key, variant, MAIN, value)
            if ingredients is None or (main is None and field != INGREDIENTS):
                self._remove_damaged(self._key(key), field)
            elif main is not None:
                mains[variant] = main
        return ingredients or {}, mains

    def part(self, program: Program, name: str) -> bytes | None:
        place = self._parts(program)

        def ask(client: Any) -> Any:
            pipeline = client.pipeline(transaction=False)
            pipeline.hget(place, name)
            pipeline.expire(place, EXPIRY_SECONDS)
            return pipeline.execute()[0]

        value = self._try(ask)
        data = self._seals.unsealed(program.key, program.variant, name, value)
        if value is not None and data is None:
            self._remove_damaged(place, name)
        return data

    def save(self, program: Program, ingredients: Mapping[str, str], parts: Mapping[str, bytes]) -> None:
        key, variant = program.key, program.variant
        packed = zlib.compress(msgspec.json.encode({name: _printable(text) for name, text in ingredients.items()}), 1)

        def store(client: Any) -> None:
            pipeline = client.pipeline(transaction=False)
            pipeline.hsetnx(self._key(key), INGREDIENTS, self._seals.sealed(key, "", "ingredients", packed))
            pipeline.hsetnx(self._key(key), variant, self._seals.sealed(key, variant, MAIN, program.main))
            pipeline.expire(self._key(key), EXPIRY_SECONDS)
            for name, data in parts.items():
                pipeline.hsetnx(self._parts(program), name, self._seals.sealed(key, variant, name, data))
                pipeline.expire(self._parts(program), EXPIRY_SECONDS)
            pipeline.execute()

        self._try(store)

    def add_part(self, program: Program, name: str, data: bytes) -> None:
        self._put(program, name, data, "hsetnx")

    def replace_part(self, program: Program, name: str, data: bytes) -> None:
        self._put(program, name, data, "hset")

    def discard(self, program: Program) -> None:
        def remove(client: Any) -> None:
            pipeline = client.pipeline(transaction=False)
            pipeline.hdel(self._key(program.key), program.variant)
            pipeline.delete(self._parts(program))
            pipeline.execute()

        self._try(remove)

    def _put(self, program: Program, name: str, data: bytes, how: str) -> None:
        value = self._seals.sealed(program.key, program.variant, name, data)

        def store(client: Any) -> None:
            pipeline = client.pipeline(transaction=False)
            getattr(pipeline, how)(self._parts(program), name, value)
            pipeline.expire(self._parts(program), EXPIRY_SECONDS)
            pipeline.execute()

        self._try(store)

    def _key(self, key: str) -> str:
        return f"{self._prefix}{key}"

    def _parts(self, program: Program) -> str:
        main = self._seals.of(program.key, program.variant, MAIN, program.main).hex()
        return f"{self._prefix}{program.key}:{program.variant}:{main}"

    def _remove_damaged(self, place: str, field: bytes | str) -> None:
        warn_once(self.place, "entry", f"the shared cache at {self.place} had a damaged entry; it was removed")
        self._try(lambda client: client.hdel(place, field))

    def _try(self, operation: Callable[[Any], Found]) -> Found | None:
        """The operation's result, or None if the server can't be reached, could not be a moment ago, or refuses."""
        if self._clock() < self._paused_until:
            return None
        try:
            import redis  # an optional dependency, and slow to import: only who has a server needs it
        except ImportError:
            self._pause("the package redis is not installed: pip install 'aotviz[cache]'")
            return None
        try:
            if self._client is None:
                self._client = _connect(self._url)
            return operation(self._client)
        except (redis.RedisError, OSError, ValueError) as fault:
            self._pause(str(fault))
            return None

    def _pause(self, reason: str) -> None:
        self._paused_until = self._clock() + PAUSE_SECONDS
        said = f"the shared cache at {self.place} is not used: {' '.join(reason.split())}"
        warn_once(self.place, "server", said)


def _connect(url: str) -> redis.Redis:
    import redis
    from redis.backoff import NoBackoff
    from redis.retry import Retry

    return redis.Redis.from_url(
        url,
        socket_connect_timeout=CONNECT_SECONDS,
        socket_timeout=OPERATION_SECONDS,
        retry=Retry(NoBackoff(), 0),
    )


def _is_address(url: str) -> bool:
    try:
        parts = urlsplit(url)
        return parts.scheme in {"redis", "rediss", "unix"} and parts.port != 0
    except ValueError:  # a port that is no number
        return False


def _ingredients(packed: bytes | None) -> dict[str, str] | None:
    """A key's ingredients as `save` packed them, or None if they are not."""
    if packed is None:
        return None
    try:
        return msgspec.json.decode(zlib.decompressobj().decompress(packed, LONGEST), type=dict[str, str])
    except (zlib.error, msgspec.MsgspecError, UnicodeDecodeError):
        return None


def _printable(text: str) -> str:
    """JSON is UTF-8, which has no half of a surrogate pair."""
    return text.encode("utf-8", "backslashreplace").decode()
