"""What is wrong with a shared cache's server: what to leave alone for a while, and a sentence that says what to do.

What failed decides what is paused. A server that cannot be reached, is slow, or is no Redis server is asked nothing. A
server that refuses a command is not sent commands of that kind: one that is full refuses to save, and still finds. What
is wrong with one key concerns that key, which is removed.

A sentence has no word of the server's, and none of an exception's: both may quote a password, and neither says what to
do. FAULTS and REFUSALS are read from the top, and the first that fits answers.
"""

from __future__ import annotations

import os
import socket
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any

from aotviz.cache.address import Address
from aotviz.cache.redis_connection import LONGEST, MOST_FIELDS, Closed, NotRedis, Refused, Step, TooLong, TooSlow


class Scope(Enum):
    """What a fault concerns."""

    SERVER = "everything"
    KIND = "commands of the kind that was refused: those that look up, or those that save"
    KEY = "the key that was read or written"


@dataclass(frozen=True)
class Fault:
    scope: Scope
    sentence: str  # a clause that begins with a small letter, and has no full stop
    key: bytes = b""  # the server's, if the scope is KEY


_OTHER_HOST = {62, 64}  # OpenSSL's X509_V_ERR_HOSTNAME_MISMATCH and X509_V_ERR_IP_ADDRESS_MISMATCH
_NO_TLS = "if it speaks TLS, write rediss:// in its address"
_STEPS = {  # what to do if the server is too slow
    Step.RESOLVE: "check its name and this machine's name server",
    Step.CONNECT: "check its host and port, and whether a firewall is in between",
    Step.TLS: "if it does not speak TLS, write redis:// in its address",
    Step.ANSWER: "check that it is a Redis server, how busy it is, and the network",
}
_PASSWORD = "write it in its address: redis://:PASSWORD@HOST:6379/0, or redis://NAME:PASSWORD@HOST:6379/0"
_GRANT = "give this user the permission, with ACL SETUSER"
_CLUSTER = "it is part of a Redis Cluster, which this cache cannot use: give the address of a single server"

# The code of the server's error, a word of its text, what is concerned, and the sentence. "" fits any.
REFUSALS: tuple[tuple[str, str, Scope, str], ...] = (
    ("NOAUTH", "", Scope.SERVER, f"it wants a password; {_PASSWORD}"),
    ("WRONGPASS", "", Scope.SERVER, "the name or the password in its address is wrong; correct it"),
    ("ERR", "invalid password", Scope.SERVER, "the password in its address is wrong; correct it"),
    ("ERR", "max number of clients", Scope.SERVER, "it has as many clients as it takes; raise its maxclients"),
    ("DENIED", "", Scope.SERVER, "it is in protected mode, and takes clients of its own machine only; set a password"),
    ("NOPERM", "", Scope.KIND, "this user has no permission for {command} on this cache's keys; " + _GRANT),
    ("OOM", "", Scope.KIND, "its memory is full; raise its maxmemory, or set its maxmemory-policy to allkeys-lru"),
    ("READONLY", "", Scope.KIND, "it is a read-only replica; to save there, give the address of its primary"),
    ("MISCONF", "", Scope.KIND, "it takes no writes because it cannot write to its disk; see its log"),
    ("NOREPLICAS", "", Scope.KIND, "it takes no writes because it has too few replicas; see its min-replicas-to-write"),
    ("LOADING", "", Scope.SERVER, "it is still loading its data; it will be asked again"),
    ("BUSY", "", Scope.SERVER, "it is busy with a script; it will be asked again"),
    ("MASTERDOWN", "", Scope.SERVER, "it is a replica that has lost its primary; give the address of the primary"),
    ("MOVED", "", Scope.SERVER, _CLUSTER),
    ("ASK", "", Scope.SERVER, _CLUSTER),
    ("CLUSTERDOWN", "", Scope.SERVER, _CLUSTER),
    ("WRONGTYPE", "", Scope.KEY, "it is of another type"),
    ("", "unknown command", Scope.KIND, "it does not know {command}; it may be too old, or have it switched off"),
)
HANDSHAKE = {  # other errors, in answer to the first commands of a connection
    "AUTH": (
        (
            "wrong number of arguments",
            "it is too old for user names (Redis 6 has them); take the name out of its address",
        ),
        ("no password", "its address has a password, and the server has none; take the password out of the address"),
        ("without any password", "its address has a password, and the server has none; take it out of the address"),
        ("", "it does not accept the name and password in its address; correct them"),
    ),
    "SELECT": (("", "it does not have the database in its address; correct the number after the last '/'"),),
}


def explained(fault: Exception, address: Address) -> Fault:
    """What `fault`, which was raised while the server at `address` was asked, means for the cache."""
    for kind, answer in FAULTS:
        if isinstance(fault, kind):
            found = answer(fault, address)
            return found if isinstance(found, Fault) else Fault(Scope.SERVER, found)
    return Fault(Scope.SERVER, f"asking it failed with {type(fault).__name__}; please report this fault of aotviz")


def _refused(fault: Refused, _: Address) -> Fault:
    command = fault.command.name
    for code, word, scope, sentence in REFUSALS:
        if code in {"", fault.code} and word in fault.text:
            return Fault(scope, sentence.format(command=command), fault.command.words[0])
    for word, sentence in HANDSHAKE.get(command, ()):
        if word in fault.text:
            return Fault(Scope.SERVER, sentence)
    return Fault(Scope.KIND, f"it answered {command} with the error {fault.code}; see its log")


def _too_long(fault: TooLong, _: Address) -> Fault:
    said = f"it is larger than {LONGEST >> 20} MB, or has more than {MOST_FIELDS} fields"
    return Fault(Scope.KEY, said, fault.command.words[0])


def _not_redis(fault: NotRedis, address: Address) -> str:
    if fault.start.startswith(b"HTTP"):
        return "a web server answers there; correct the port in its address"
    if fault.start[:1] in {b"\x15", b"\x16"} and address.tls is None:
        return "it speaks TLS; write rediss:// in its address"
    return "its answer is not a Redis server's; correct the host and port in its address"


def _tls(fault: ssl.SSLError, _: Address) -> str:
    reason = str(fault.reason or "").lower().replace("_", " ")
    if any(word in reason for word in ("wrong version number", "record layer", "unknown protocol", "http request")):
        return "it does not speak TLS; write redis:// in its address"
    if "certificate required" in reason or "handshake failure" in reason:
        return "it wants a certificate of this client; name the files with ssl_certfile and ssl_keyfile in its address"
    return f"TLS failed ({reason or 'closed by the server'}); check its TLS port and the certificates"


def _certificate(fault: ssl.SSLCertVerificationError, _: Address) -> str:
    if fault.verify_code in _OTHER_HOST:
        return "its certificate is for another host; write the host that the certificate has in its address"
    return "its certificate cannot be trusted; name the file of its authority with ssl_ca_certs in its address"


def _system(fault: OSError, _: Address) -> str:
    said = os.strerror(fault.errno) if fault.errno else type(fault).__name__
    return f"it cannot be reached ({said.lower()}); check its address and the network"


def _file(fault: FileNotFoundError | PermissionError, address: Address) -> str:
    if address.path and isinstance(fault, FileNotFoundError):
        return "there is no such socket; start the server, or correct the path"
    if address.path:
        return "this user may not open its socket; see the permissions of the file"
    if address.tls is not None:
        return "a file that its address names with ssl_ca_certs, ssl_certfile or ssl_keyfile cannot be read; correct it"
    return _system(fault, address)  # a firewall of this machine


# An exception, and its meaning. The first that fits answers.
FAULTS: tuple[tuple[Any, Callable[[Any, Address], Fault | str]], ...] = (
    (Refused, _refused),
    (NotRedis, _not_redis),
    (TooLong, _too_long),
    (TooSlow, lambda fault, _: f"{fault.step.value} within {fault.seconds:g} s; {_STEPS[fault.step]}"),
    (
        Closed,
        lambda _, address: (
            "it closed the connection before it answered; check its port and its log"
            + (f"; {_NO_TLS}" if address.tls is None else "")
        ),
    ),
    (ssl.SSLCertVerificationError, _certificate),
    (
        (ssl.SSLEOFError, ssl.SSLZeroReturnError),
        lambda _, __: "it ended the TLS connection; if it does not speak TLS, write redis:// in its address",
    ),
    (ssl.SSLError, _tls),
    (socket.gaierror, lambda _, __: "its host is not known; correct the name in its address"),
    (ConnectionRefusedError, lambda _, __: "no server listens there; start it, or correct its address"),
    ((FileNotFoundError, PermissionError), _file),
    (MemoryError, lambda _, __: "this machine does not have enough memory for its answer; free some"),
    (OSError, _system),
)
