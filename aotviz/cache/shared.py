"""A store for many machines: a Redis server, asked after a miss on this machine and given what is saved on it.

A process must never wait for a server that is away, and a fault of the server must never be a fault of the user's call.
Each operation has `OPERATION_SECONDS`, however many steps it takes. What fails is told in one warning and is a miss;
`server_faults` says what it means. What it concerns is then left alone for `PAUSE_SECONDS`, and tried again after that
without another word. Values carry the seals of `seals`, and one that does not match is a miss, and is removed.

Under `aotviz:1:KEY` is a hash of the key's mains by variant, and its ingredients. Under `aotviz:1:KEY:VARIANT:MAIN` is
a hash of the parts that belong to one main, by its checksum: see Note [One main] in store.py. A key expires
`EXPIRY_SECONDS` after it was last saved or found; a server that lets us only read decides by itself. Apart from damage
and `discard`, nothing is deleted: the server's own settings (`maxmemory`, `maxmemory-policy`) bound it.
"""

from __future__ import annotations

import os
import time
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import Enum
from typing import Protocol

import msgspec

from aotviz.cache.address import read_address
from aotviz.cache.redis_connection import LONGEST, Closed, Command, Connection, Deadline, Reply
from aotviz.cache.seals import CHECKSUMS, MAIN, Seals, encoded, warn_once
from aotviz.cache.server_faults import Fault, Scope, explained

OPERATION_SECONDS = 1.0
PAUSE_SECONDS = 30.0
EXPIRY_SECONDS = 30 * 24 * 3600
INGREDIENTS = b"ingredients"  # a field beside variants, which are hex digests
MOST_REPAIRS = 2  # a save writes two keys


class Kind(Enum):
    """What an operation asks a server for, and what is said when the server refuses that."""

    LOOK_UPS = "the shared cache at {place} is not asked for programs: {sentence}"
    CHANGES = "nothing is saved in the shared cache at {place}: {sentence}"


class Program(Protocol):
    """What this file needs to know of a store's Entry."""

    @property
    def key(self) -> str: ...
    @property
    def variant(self) -> str: ...
    @property
    def main(self) -> bytes: ...


class Shared:
    """The store on the Redis server at `url`: `redis://host:port/db`, `rediss://…` or `unix://…`. For any thread.

    Raises ValueError for an address of another form. Nothing else is raised: what the server can't do is a miss.
    """

    def __init__(self, url: str, clock: Callable[[], float] = time.monotonic, seals: Seals = CHECKSUMS) -> None:
        self._address = read_address(url)
        self.place = self._address.place
        self._seals = seals
        self._prefix = f"aotviz:1:{seals.name}:" if seals.name else "aotviz:1:"
        self._clock = clock
        self._paused_until = dict.fromkeys(Kind, float("-inf"))
        # Connections that no thread uses, and the process that opened each: after a fork, a child must not use them.
        self._idle: list[tuple[int, Connection]] = []

    def look_up(self, key: str) -> tuple[dict[str, str], dict[str, bytes]]:
        """The key's ingredients, and its mains by variant. Both are empty if the server does not have it."""
        deadline = Deadline(OPERATION_SECONDS)
        found = self._find("HGETALL", self._key(key), (), deadline)
        values = found if isinstance(found, list) else []
        by_field = dict(zip(values[::2], values[1::2], strict=False))
        ingredients = _ingredients(self._seals.unsealed(key, "", "ingredients", by_field.get(INGREDIENTS)))
        mains: dict[str, bytes] = {}
        damaged = []
        for field, value in by_field.items():
            variant = field.decode("utf-8", "replace")
            main = self._seals.unsealed(key, variant, MAIN, value)
            if ingredients is None or (main is None and field != INGREDIENTS):
                damaged.append(field)
            elif main is not None:
                mains[variant] = main
        if damaged:
            self._remove("HDEL", self._key(key), damaged, deadline)
        return ingredients or {}, mains

    def part(self, program: Program, name: str) -> bytes | None:
        deadline = Deadline(OPERATION_SECONDS)
        place = self._parts(program)
        value = self._find("HGET", place, [encoded(name)], deadline)
        data = self._seals.unsealed(program.key, program.variant, name, value)
        if value is not None and data is None:
            self._remove("HDEL", place, [encoded(name)], deadline)
        return data

    def save(self, program: Program, ingredients: Mapping[str, str], parts: Mapping[str, bytes]) -> None:
        key, variant = program.key, program.variant
        packed = zlib.compress(msgspec.json.encode({name: _printable(text) for name, text in ingredients.items()}), 1)
        place, place_of_parts = self._key(key), self._parts(program)
        commands = [
            Command("HSETNX", (place, INGREDIENTS, self._seals.sealed(key, "", "ingredients", packed))),
            Command("HSETNX", (place, encoded(variant), self._seals.sealed(key, variant, MAIN, program.main))),
            _expiry(place),
        ]
        for name, data in parts.items():
            commands.append(self._put("HSETNX", program, name, data))
        self._change([*commands, _expiry(place_of_parts)] if parts else commands)

    def add_part(self, program: Program, name: str, data: bytes) -> None:
        self._change([self._put("HSETNX", program, name, data), _expiry(self._parts(program))])

    def replace_part(self, program: Program, name: str, data: bytes) -> None:
        self._change([self._put("HSET", program, name, data), _expiry(self._parts(program))])

    def discard(self, program: Program) -> None:
        main = Command("HDEL", (self._key(program.key), encoded(program.variant)))
        self._change([main, Command("DEL", (self._parts(program),))])

    # Names on the server, and commands

    def _key(self, key: str) -> bytes:
        return encoded(f"{self._prefix}{key}")

    def _parts(self, program: Program) -> bytes:
        main = self._seals.of(program.key, program.variant, MAIN, program.main).hex()
        return encoded(f"{self._prefix}{program.key}:{program.variant}:{main}")

    def _put(self, how: str, program: Program, name: str, data: bytes) -> Command:
        value = self._seals.sealed(program.key, program.variant, name, data)
        return Command(how, (self._parts(program), encoded(name), value))

    # Asking, and what becomes of faults

    def _find(self, name: str, place: bytes, words: Sequence[bytes], deadline: Deadline) -> Reply:
        """The reply to a command that looks up, or None."""
        if self._is_paused(Kind.LOOK_UPS):
            return None
        try:
            return self._ask([Command(name, (place, *words)), _expiry(place)], deadline)[0]
        except Exception as failed:
            fault = explained(failed, self._address)
        if fault.scope is Scope.KEY:
            self._remove("DEL", place, (), deadline)
        else:
            self._pause(Kind.LOOK_UPS, fault)
        return None

    def _change(self, commands: Sequence[Command]) -> None:
        """Send commands that write. A key of another type is removed, and then they are sent again."""
        if self._is_paused(Kind.CHANGES):
            return
        size = sum(len(word) for command in commands for word in command.words)
        if size > LONGEST:
            limit = f"{size >> 20} MB, and {LONGEST >> 20} MB is the most that is read back"
            warn_once(self.place, "size", f"a program is not saved in the shared cache at {self.place}: it has {limit}")
            return
        deadline = Deadline(OPERATION_SECONDS)
        for _ in range(1 + MOST_REPAIRS):
            try:
                self._ask(commands, deadline)
                return
            except Exception as failed:
                fault = explained(failed, self._address)
            if fault.scope is not Scope.KEY:
                self._pause(Kind.CHANGES, fault)
                return
            if not self._remove("DEL", fault.key, (), deadline):
                return

    def _remove(self, name: str, place: bytes, fields: Iterable[bytes], deadline: Deadline) -> bool:
        """Remove what is damaged, in the time that is left, say so, and say whether it is gone."""
        refused = ""
        try:
            self._ask([Command(name, (place, *fields))], deadline)
        except Exception as failed:
            fault = explained(failed, self._address)
            if fault.scope is Scope.SERVER:
                self._pause(Kind.CHANGES, fault)
                return False
            self._leave_alone(Kind.CHANGES)
            refused = fault.sentence
        outcome = f"could not be removed: {refused}" if refused else "was removed"
        warn_once(self.place, "entry", f"the shared cache at {self.place} had a damaged entry; it {outcome}")
        return not refused

    def _ask(self, commands: Sequence[Command], deadline: Deadline) -> list[Reply]:
        """The replies. A connection is used again only if all went well."""
        while True:
            idle = self._idle_connection()
            connection = idle or Connection(self._address, deadline)
            try:
                replies = connection.ask(commands, deadline)
            except BaseException as fault:
                connection.close()
                if idle is not None and isinstance(fault, Closed):  # servers close what is idle for long
                    continue
                raise
            if connection.is_open:
                self._idle.append((os.getpid(), connection))
            return replies

    def _idle_connection(self) -> Connection | None:
        while self._idle:
            try:
                process, connection = self._idle.pop()
            except IndexError:  # another thread took it
                return None
            if process == os.getpid():
                return connection
            connection.close()
        return None

    def _is_paused(self, kind: Kind) -> bool:
        return self._clock() < self._paused_until[kind]

    def _pause(self, kind: Kind, fault: Fault) -> None:
        if fault.scope is Scope.SERVER:
            self._leave_alone(*Kind)
            warn_once(self.place, "server", f"the shared cache at {self.place} is not used: {fault.sentence}")
        else:
            self._leave_alone(kind)
            warn_once(self.place, kind.name, kind.value.format(place=self.place, sentence=fault.sentence))

    def _leave_alone(self, *kinds: Kind) -> None:
        for kind in kinds:
            self._paused_until[kind] = self._clock() + PAUSE_SECONDS


def _expiry(place: bytes) -> Command:
    """Nothing depends on it: a replica refuses it, and so may a server whose user has no permission for it."""
    return Command("EXPIRE", (place, b"%d" % EXPIRY_SECONDS), needed=False)


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
