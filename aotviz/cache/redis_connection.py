"""A connection to a Redis server that can neither hold up a compilation nor fill this machine's memory.

The cache needs seven commands, and of each it knows what the server may answer: a status, a number, a value or nothing,
or a list of values. Anything else is not a Redis server, and nothing is read that could nest. Every wait (for the name
of the host, the connection, TLS, each send and each read) is for what is left of one `Deadline`, so that a server which
sends a byte now and then gains no time. A length is compared with `LONGEST` before anything of it is read.

The client library `redis` has limits for one read at a time, none for what is read, and needs four more round trips
before the first command, so it is not used.
"""

from __future__ import annotations

import contextlib
import queue
import re
import socket
import ssl
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

from aotviz.cache.address import Address, Tls

CONNECT_SECONDS = 0.25  # for one address of a host, which may have several
LONGEST = 2**28  # bytes of all replies to one operation
MOST_FIELDS = 2**13  # values in one list
LONGEST_LINE = 2**16
AT_ONCE = 2**16  # bytes of one read
SHORT_ENOUGH = 2**16  # bytes that are copied rather than sent by themselves

Reply = bytes | int | list[bytes] | None


class Answer(Enum):
    """What a server may answer to a command."""

    STATUS = "+"
    NUMBER = ":"
    VALUE = "$"
    VALUES = "*"


ANSWERS = {
    "AUTH": Answer.STATUS,
    "SELECT": Answer.STATUS,
    "HGETALL": Answer.VALUES,
    "HGET": Answer.VALUE,
    "HSET": Answer.NUMBER,
    "HSETNX": Answer.NUMBER,
    "HDEL": Answer.NUMBER,
    "DEL": Answer.NUMBER,
    "EXPIRE": Answer.NUMBER,
}


@dataclass(frozen=True)
class Command:
    """A command with its arguments; the first is the server's key. `needed` is False if it may fail."""

    name: str
    words: tuple[bytes, ...]
    needed: bool = True


class Step(Enum):
    """What a server was too slow at."""

    RESOLVE = "the name of its host was not found"
    CONNECT = "it did not accept the connection"
    TLS = "it did not finish the TLS handshake"
    ANSWER = "it did not answer"


class TooSlow(Exception):
    def __init__(self, step: Step, seconds: float) -> None:
        super().__init__(step, seconds)
        self.step, self.seconds = step, seconds


class Closed(Exception):
    """The server closed the connection before it answered."""


class NotRedis(Exception):
    """The server sent what a Redis server does not answer to this command. `start` is how it begins."""

    def __init__(self, start: bytes) -> None:
        super().__init__(start)
        self.start = start


class TooLong(Exception):
    """The answer to `command` is longer than an answer may be."""

    def __init__(self, command: Command) -> None:
        super().__init__(command.name)
        self.command = command


class Refused(Exception):
    """The server answered `command` with an error. `text` is the server's, and may quote any argument."""

    def __init__(self, command: Command, text: str) -> None:
        super().__init__(command.name)
        self.command, self.text = command, text
        code = text.split(" ")[0]
        self.code = code if re.fullmatch("[A-Z]{1,20}", code) else "ERR"


class Deadline:
    """The time that one operation has, however many commands and connections it needs."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._end = time.monotonic() + seconds

    def left(self, step: Step, at_most: float = float("inf")) -> float:
        """Seconds, for one wait. Raises TooSlow if there are none."""
        left = min(self._end - time.monotonic(), at_most)
        if left <= 0:
            raise TooSlow(step, self.seconds)
        return left


class Connection:
    """A connection to the server at `address`. It opens at the first `ask`, and is of no use after one that raised."""

    def __init__(self, address: Address, deadline: Deadline) -> None:
        self._unsent = _greeting(address)
        self._received = bytearray()
        self._room = 0  # bytes that may still be read for this operation
        self._socket = _open(address, deadline)
        self.is_open = True

    def __del__(self) -> None:
        if hasattr(self, "_socket"):
            self.close()

    def close(self) -> None:
        self.is_open = False
        with contextlib.suppress(OSError):
            self._socket.close()

    def ask(self, commands: Sequence[Command], deadline: Deadline) -> list[Reply]:
        """The replies, one a command; None for one that failed and was not needed.

        Raises TooSlow, Closed, NotRedis, TooLong, Refused (by the first needed command that is) or OSError.
        """
        greeting, self._unsent = self._unsent, []
        commands = [*greeting, *commands]
        self._room = LONGEST
        with contextlib.suppress(OSError):  # then reading says why, in the server's words if it has any
            self._send(commands, deadline)
        replies: list[Reply] = []
        refused: Refused | None = None
        for number, command in enumerate(commands):
            try:
                replies.append(self._reply(command, deadline))
            except Refused as fault:
                refused = refused or (fault if command.needed else None)
                replies.append(None)
            except Exception:
                if refused is not None:  # a server may close the connection after it refused
                    break
                if any(later.needed for later in commands[number:]):
                    raise
                self.close()
                replies.extend([None] * (len(commands) - number))
                break
        if refused is not None:
            raise refused
        if self._received:  # more than was asked for: the next reply could not be told from it
            self.close()
        return replies[len(greeting) :]

    def _send(self, commands: Sequence[Command], deadline: Deadline) -> None:
        short = bytearray()
        for command in commands:
            words = (command.name.encode(), *command.words)
            short += b"*%d\r\n" % len(words)
            for word in words:
                short += b"$%d\r\n" % len(word)
                if len(word) <= SHORT_ENOUGH:
                    short += word
                else:
                    self._send_all(short, deadline)
                    self._send_all(word, deadline)
                    short.clear()
                short += b"\r\n"
        self._send_all(short, deadline)

    def _send_all(self, data: bytes | bytearray, deadline: Deadline) -> None:
        with memoryview(data) as view:
            sent = 0
            while sent < len(view):
                sent += self._within(deadline, self._socket.send, view[sent:])

    def _reply(self, command: Command, deadline: Deadline) -> Reply:
        line = self._line(deadline)
        kind, rest = line[:1].decode("latin-1"), line[1:]
        if kind == "-":
            raise Refused(command, rest.decode("utf-8", "replace"))
        if kind != ANSWERS[command.name].value:
            raise NotRedis(line)
        match ANSWERS[command.name]:
            case Answer.STATUS:
                return rest
            case Answer.NUMBER:
                return _number(line)
            case Answer.VALUE:
                return self._value(line, command, deadline)
            case Answer.VALUES:
                return self._values(line, command, deadline)

    def _values(self, line: bytes, command: Command, deadline: Deadline) -> list[bytes]:
        count = _number(line)
        if count > MOST_FIELDS:
            raise TooLong(command)
        found = []
        for _ in range(count):
            value = self._value(self._line(deadline), command, deadline)
            if value is None:
                raise NotRedis(line)
            found.append(value)
        return found

    def _value(self, line: bytes, command: Command, deadline: Deadline) -> bytes | None:
        length = _number(line)
        if line[:1] != b"$" or length < -1:
            raise NotRedis(line)
        if length == -1:
            return None
        if length + 2 > self._room + len(self._received):
            raise TooLong(command)
        while len(self._received) < length + 2:
            self._receive(deadline)
        value = bytes(memoryview(self._received)[:length])
        del self._received[: length + 2]
        return value

    def _line(self, deadline: Deadline) -> bytes:
        while (end := self._received.find(b"\r\n")) < 0:
            if len(self._received) > LONGEST_LINE or (self._received and self._received[:1] not in b"+-:$*"):
                raise NotRedis(bytes(self._received[:16]))
            self._receive(deadline)
        line = bytes(self._received[:end])
        del self._received[: end + 2]
        return line

    def _receive(self, deadline: Deadline) -> None:
        try:
            data = self._within(deadline, self._socket.recv, AT_ONCE)
        except ConnectionError:
            raise Closed from None
        if not data:
            raise Closed
        self._room -= len(data)
        self._received += data

    def _within(self, deadline: Deadline, wait: Callable[[Any], Any], argument: Any) -> Any:
        self._socket.settimeout(deadline.left(Step.ANSWER))
        try:
            return wait(argument)
        except TimeoutError:
            raise TooSlow(Step.ANSWER, deadline.seconds) from None


def _number(line: bytes) -> int:
    if not re.fullmatch(rb"-?[0-9]{1,19}", line[1:]):
        raise NotRedis(line)
    return int(line[1:])


def _greeting(address: Address) -> list[Command]:
    """What is sent before the first command, and with it."""
    commands = []
    if address.password or address.username:
        words = [address.username, address.password] if address.username else [address.password]
        commands.append(Command("AUTH", tuple(word.encode("utf-8", "surrogateescape") for word in words)))
    if address.database:
        commands.append(Command("SELECT", (b"%d" % address.database,)))
    return commands


def _open(address: Address, deadline: Deadline) -> socket.socket:
    context = None if address.tls is None else _tls_context(address.tls)
    failed: Exception = OSError()
    for family, where in _places(address, deadline):
        opened = socket.socket(family, socket.SOCK_STREAM)
        try:
            opened.settimeout(deadline.left(Step.CONNECT, CONNECT_SECONDS))
            try:
                opened.connect(where)
            except TimeoutError:
                raise TooSlow(Step.CONNECT, CONNECT_SECONDS) from None
            if not address.path:
                opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return opened if context is None else _with_tls(opened, context, address.host, deadline)
        except (OSError, TooSlow) as fault:
            opened.close()
            failed = fault
        except BaseException:
            opened.close()
            raise
    raise failed


def _tls_context(tls: Tls) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=tls.authorities or None)
    context.check_hostname = tls.checks_host
    context.verify_mode = ssl.CERT_REQUIRED if tls.checks_certificate else ssl.CERT_NONE
    if tls.certificate:
        # With a password at hand, OpenSSL does not stop to ask for one on the terminal.
        context.load_cert_chain(tls.certificate, tls.private_key or None, password="")
    return context


def _with_tls(opened: socket.socket, context: ssl.SSLContext, host: str, deadline: Deadline) -> ssl.SSLSocket:
    opened.settimeout(deadline.left(Step.TLS))
    try:
        return context.wrap_socket(opened, server_hostname=host)  # its timeout is for all of the handshake
    except TimeoutError:
        raise TooSlow(Step.TLS, deadline.seconds) from None


def _places(address: Address, deadline: Deadline) -> list[tuple[Any, Any]]:
    """What to connect to, in turn: a family of sockets and an address in it."""
    if address.path:
        return [(socket.AF_UNIX, address.path)]
    try:
        found = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)
    except UnicodeError:
        raise socket.gaierror(socket.EAI_NONAME, "no name of a host") from None
    except socket.gaierror:
        found = _resolved(address.host, address.port, deadline)
    return [(family, where) for family, _, _, _, where in found]


def _resolved(host: str, port: int, deadline: Deadline) -> list[Any]:
    """The addresses of a host. The system's resolver has no time limit, so a thread waits for it, and may be left."""
    answers: queue.SimpleQueue[Any] = queue.SimpleQueue()

    def resolve() -> None:
        try:
            answers.put(socket.getaddrinfo(host, port, type=socket.SOCK_STREAM))
        except Exception as fault:
            answers.put(fault)

    threading.Thread(target=resolve, name="aotviz resolves a name", daemon=True).start()
    try:
        found = answers.get(timeout=deadline.left(Step.RESOLVE))
    except queue.Empty:
        raise TooSlow(Step.RESOLVE, deadline.seconds) from None
    if isinstance(found, Exception):
        raise found
    return list(found)
