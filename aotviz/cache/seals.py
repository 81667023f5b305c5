"""What the cache's stores share: checksums, the two ways to report a fault, and the rule that each is told once.

A store is a file, or a server, that other processes and other machines write to. What comes back may be torn, flipped,
or another program's. So every stored value has a checksum over its place (key, variant, name) as well as its bytes:
a value that an index with a flipped bit finds for the wrong key does not pass. A checksum finds accidents. It does not
stop someone who may write to the store.

`Unavailable` is raised where a store can't do what was asked. The caller goes on without a cache. A `CacheWarning`
reports what was repaired by itself, in one line, once for each place and kind of fault in a process.
"""

from __future__ import annotations

import warnings
from hashlib import blake2b

MAIN = "main"  # the name of an entry's first part, which is stored beside those that `add_part` adds
CHECKSUM_BYTES = 16


class Unavailable(Exception):
    """The store can't do what was asked. The message says why and what to do, in one line."""


class CacheWarning(UserWarning):
    """Something in the cache was damaged, or a shared cache could not be reached. The program is compiled instead."""


def encoded(text: str) -> bytes:
    """Any `str` as bytes; a name of a user's may hold half of a surrogate pair."""
    return text.encode("utf-8", "surrogatepass")


def decoded(data: bytes) -> str:
    return data.decode("utf-8", "surrogatepass")


def checksum(key: str, variant: str, name: str, data: bytes) -> bytes:
    """Of the part `name` of the entry (`key`, `variant`).

    >>> checksum("k", "v", "main", b"data") == checksum("k", "vm", "ain", b"data")
    False
    """
    found = blake2b(digest_size=CHECKSUM_BYTES, person=b"aotviz cache")
    for field in (key, variant, name):
        place = encoded(field)
        found.update(len(place).to_bytes(8, "little") + place)
    found.update(data)
    return found.digest()


def is_sound(key: object, variant: object, name: object, data: object, seal: object) -> bool:
    """Whether these, as they were read, are what `seal` was computed over. A damaged file may hold any type."""
    if not (isinstance(key, str) and isinstance(variant, str) and isinstance(name, str) and isinstance(data, bytes)):
        return False
    return seal == checksum(key, variant, name, data)


def sealed(key: str, variant: str, name: str, data: bytes) -> bytes:
    """`data` behind its checksum, for a store that keeps one value for a part."""
    return checksum(key, variant, name, data) + data


def unsealed(key: str, variant: str, name: str, value: object) -> bytes | None:
    """What `sealed` was given for the same part, or None if anything differs."""
    if not isinstance(value, bytes):
        return None
    data = value[CHECKSUM_BYTES:]
    return data if is_sound(key, variant, name, data, value[:CHECKSUM_BYTES]) else None


def entry_id(key: str, variant: str) -> str:
    return checksum(key, variant, "", b"").hex()


def text_digest(text: bytes) -> bytes:
    return blake2b(text, digest_size=CHECKSUM_BYTES, person=b"aotviz text").digest()


_told: set[tuple[str, str]] = set()


def warn_once(place: str, kind: str, message: str) -> None:
    """Warn with `message`, unless this process has warned of the same kind of fault in the same place."""
    if (place, kind) not in _told:
        _told.add((place, kind))
        warnings.warn(message, CacheWarning, stacklevel=2)
