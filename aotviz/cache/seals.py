"""What the cache's stores share: seals, the two ways to report a fault, and the rule that each is told once.

A store is a file, or a server, that other processes and other machines write to. What comes back may be torn, flipped,
or another program's. So every stored value has a seal over its place (key, variant, name) as well as its bytes: a value
that an index with a flipped bit finds for the wrong key does not pass.

Without a secret, a seal is a checksum. It finds accidents, and does not stop someone who may write to the store. With a
secret (`AOTVIZ_CACHE_KEY`), it is a message authentication code (MAC): who does not have the secret cannot make one.
Sealed and signed values never meet. They lie in different files, and under different names on a server, so that a
process without the secret neither reads nor spoils what others have signed.

`Unavailable` is raised where a store can't do what was asked. The caller goes on without a cache. A `CacheWarning`
reports what was repaired by itself, in one line, once for each place and kind of fault in a process.
"""

from __future__ import annotations

import hmac
import os
import warnings
from hashlib import blake2b

MAIN = "main"  # the name of an entry's first part, which is stored beside those that `add_part` adds
CODE = "code "  # begins the name of a part that holds code of a compiler: it is run, not read
REHEARSED = "rehearsed"  # the part that marks what this machine compiled, or tried with fakes; it stays here
SEAL_BYTES = 16
VARIABLE = "AOTVIZ_CACHE_KEY"
SHORTEST_SECRET = 16  # characters: a shorter one can be guessed from one signed value


class Unavailable(Exception):
    """The store can't do what was asked. The message says why and what to do, in one line."""


class CacheWarning(UserWarning):
    """Something in the cache was damaged, or a shared cache could not be reached. The program is compiled instead."""


def encoded(text: str) -> bytes:
    """Any `str` as bytes; a name of a user's may hold half of a surrogate pair."""
    return text.encode("utf-8", "surrogatepass")


def decoded(data: bytes) -> str:
    return data.decode("utf-8", "surrogatepass")


class Seals:
    """How one store seals its values: checksums, or with a `secret`, MACs.

    >>> plain, signed = Seals(), Seals(b"a secret of our team")
    >>> plain.of("k", "v", "main", b"data") == plain.of("k", "vm", "ain", b"data")
    False
    >>> signed.unsealed("k", "v", "main", plain.sealed("k", "v", "main", b"data")) is None
    True
    """

    def __init__(self, secret: bytes = b"") -> None:
        self._secret = blake2b(secret, digest_size=32, person=b"aotviz secret").digest() if secret else b""
        # Which secret it is, for names of files and of keys on a server; "" without one.
        self.name = blake2b(key=self._secret, digest_size=8, person=b"aotviz name").hexdigest() if secret else ""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Seals) and other._secret == self._secret

    def __hash__(self) -> int:
        return hash(self._secret)

    def of(self, key: str, variant: str, name: str, data: bytes) -> bytes:
        """The seal of the part `name` of the entry (`key`, `variant`)."""
        found = blake2b(key=self._secret, digest_size=SEAL_BYTES, person=b"aotviz cache")
        for field in (key, variant, name):
            place = encoded(field)
            found.update(len(place).to_bytes(8, "little") + place)
        found.update(data)
        return found.digest()

    def is_sound(self, key: object, variant: object, name: object, data: object, seal: object) -> bool:
        """Whether these, as they were read, are what `seal` was made of. A damaged file may hold any type."""
        if not (isinstance(key, str) and isinstance(variant, str) and isinstance(name, str)):
            return False
        if not (isinstance(data, bytes) and isinstance(seal, bytes)):
            return False
        return hmac.compare_digest(seal, self.of(key, variant, name, data))

    def sealed(self, key: str, variant: str, name: str, data: bytes) -> bytes:
        """`data` behind its seal, for a store that keeps one value for a part."""
        return self.of(key, variant, name, data) + data

    def unsealed(self, key: str, variant: str, name: str, value: object) -> bytes | None:
        """What `sealed` was given for the same part, or None if anything differs."""
        if not isinstance(value, bytes):
            return None
        data = value[SEAL_BYTES:]
        return data if self.is_sound(key, variant, name, data, value[:SEAL_BYTES]) else None


CHECKSUMS = Seals()


def seals_of_environment() -> Seals:
    """MACs with the secret in AOTVIZ_CACHE_KEY; checksums if it is not set. Raises Unavailable if it is too short."""
    secret = os.environ.get(VARIABLE, "").strip()
    if 0 < len(secret) < SHORTEST_SECRET:
        example = "python -c 'import secrets; print(secrets.token_hex(32))'"
        raise Unavailable(
            f"{VARIABLE} has {len(secret)} characters, and a secret needs {SHORTEST_SECRET} or more: {example}"
        )
    return Seals(secret.encode("utf-8", "surrogateescape"))


def entry_id(key: str, variant: str) -> str:
    return CHECKSUMS.of(key, variant, "", b"").hex()


def text_digest(text: bytes) -> bytes:
    return blake2b(text, digest_size=SEAL_BYTES, person=b"aotviz text").digest()


_told: set[tuple[str, str]] = set()


def warn_once(place: str, kind: str, message: str) -> None:
    """Warn with `message`, unless this process has warned of the same kind of fault in the same place."""
    if (place, kind) not in _told:
        _told.add((place, kind))
        warnings.warn(message, CacheWarning, stacklevel=2)
