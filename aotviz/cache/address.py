"""The address of a shared cache, read once: `redis://`, `rediss://` (with TLS) or `unix://`.

An address may hold a password, and people forget to escape it, so that any piece of the text may be a part of one.
Therefore nothing of the text is ever shown but host, port and database, or the path of the socket, and these only after
the whole text was understood. An address that was not understood is described without quoting it. The one thing that
is named is an option that the query has and we do not know.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

EXAMPLE = "such as redis://host:6379/0, rediss://host:6379/0 (with TLS) or unix:///path/of/the/socket"
TLS_OPTIONS = ("ssl_ca_certs", "ssl_certfile", "ssl_keyfile", "ssl_cert_reqs", "ssl_check_hostname")
OPTIONS = {  # what a query may have, by scheme
    "redis": ("db", "username", "password"),
    "rediss": ("db", "username", "password", *TLS_OPTIONS),
    "unix": ("db", "username", "password"),
}
MOST_OPTIONS = 20
ANSWERS = {"true": True, "yes": True, "1": True, "required": True, "optional": True} | dict.fromkeys(
    ("false", "no", "0", "none"), False
)


@dataclass(frozen=True)
class Tls:
    """How a server's certificate is checked. The files are paths, or "" for the system's own and for none."""

    checks_certificate: bool
    checks_host: bool
    authorities: str = field(repr=False)
    certificate: str = field(repr=False)
    private_key: str = field(repr=False)


@dataclass(frozen=True)
class Address:
    """Where a server is, and how to get in. `path` is "" unless it listens on a Unix socket."""

    host: str
    port: int
    path: str
    database: int
    username: str = field(repr=False)
    password: str = field(repr=False)
    tls: Tls | None

    @property
    def place(self) -> str:
        """What may be shown of it."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return self.path or f"{host}:{self.port}/{self.database}"


def read_address(url: str) -> Address:
    """The parts of `url`. Raises ValueError, with a sentence that quotes nothing of it."""
    try:
        return _read(url)
    except _Misread as fault:
        why = str(fault)
    except ValueError:  # of urlsplit, which quotes the password
        why = "its host and port cannot be read"
    raise ValueError(f"expected the address of a Redis server, {EXAMPLE}; {why}")


class _Misread(ValueError):
    """Says what is wrong with an address, and quotes nothing of it."""


def _read(url: str) -> Address:
    parts = urlsplit(url)
    if parts.scheme not in OPTIONS or not url.startswith(f"{parts.scheme}://"):
        raise _Misread("it does not begin with one of these")
    if parts.fragment or "@" in parts.path or "@" in parts.query:
        raise _Misread("'/', '?', '#' and '@' in a name, a password or a path are written %2F, %3F, %23 and %40")
    if parts.port == 0:
        raise _Misread("its port is not a number from 1 to 65535")
    options = _options(parts)
    is_unix = parts.scheme == "unix"
    database = options.get("db") or ("" if is_unix else parts.path.strip("/"))
    if not re.fullmatch("[0-9]{0,9}", database):
        raise _Misread("its database, after the last '/', is not a number")
    host, path = ("", unquote(parts.path)) if is_unix else (unquote(parts.hostname or "localhost"), "")
    if is_unix and (parts.hostname or path in {"", "/"}):
        raise _Misread("it does not have the path of a socket behind three '/'")
    if not (host.isprintable() and path.isprintable()):
        raise _Misread("it has characters that cannot be printed")
    return Address(
        host,
        parts.port or 6379,
        path,
        int(database or 0),
        unquote(parts.username or "") or options.get("username", ""),
        unquote(parts.password or "") or options.get("password", ""),
        _tls(options) if parts.scheme == "rediss" else None,
    )


def _options(parts: SplitResult) -> dict[str, str]:
    known = OPTIONS[parts.scheme]
    found = dict(parse_qsl(parts.query, keep_blank_values=True, max_num_fields=MOST_OPTIONS))
    for name in found:
        if name not in known:
            is_a_name = f"{name}=" in parts.query and re.fullmatch("[A-Za-z_][A-Za-z0-9_]{0,40}", name)
            shown = f"its option `{name}`" if is_a_name else "an option"
            raise _Misread(f"{shown} is not known: a {parts.scheme}:// address can have {', '.join(known)}")
    return found


def _tls(options: Mapping[str, str]) -> Tls:
    checks_certificate = _is_on(options, "ssl_cert_reqs")
    checks_host = checks_certificate and _is_on(options, "ssl_check_hostname")
    return Tls(checks_certificate, checks_host, *(options.get(name, "") for name in TLS_OPTIONS[:3]))


def _is_on(options: Mapping[str, str], name: str) -> bool:
    """Whether a check is on, as it is unless an option says no."""
    answer = ANSWERS.get(options.get(name, "yes").lower())
    if answer is None:
        raise _Misread(f"its option `{name}` can be required, optional or none, or true or false")
    return answer
