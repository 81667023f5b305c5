"""The SQLite file of a store: when it is opened, and what is done when it can't be read.

`Database.read` and `Database.write` run a function in a transaction and make of every fault one of three things: a
repaired file and another try, an answer without the file, or `Unavailable`. What may have happened to the file:

- It does not exist, or is gone since the last access: its folder was deleted. A reader finds nothing; a writer
  creates it.
- It is damaged, or is another program's. It is set aside as `aot.sqlite.damaged` (the last one only), with a warning.
  See Note [Whose fault].
- A newer release wrote it. It is left alone, and the store is unavailable.
- Something else is in its place, or another user could have written it: path_checks.py says what. It is left alone,
  too. Signed entries may be of any user. What is there is looked at when it is opened, and whenever the file, its
  folder, or the mode or owner of either has changed.
- It can't be written: the file or the disk is read-only, or full. Reading goes on.

Note [Forking]: SQLite's locks belong to a process, and its record of them is copied by a fork. A child that opens a
file that was open when it was forked would count on locks that it does not hold. So all connections are closed before a
fork and opened again, by parent and child, when next used. There is one connection a process, shared by its threads.

Note [Whose fault]: what a damaged file makes Python raise is not always a sqlite3.Error: a flipped bit in the schema
is a UnicodeDecodeError, since SQLite's message has the name that is damaged. But the caller's `work` may raise
anything, too. So the file is examined after an exception that has no code of SQLite's. If it passes, the exception goes
to the caller. The examination is given nothing but the file: whatever it raises is the file's fault.

Note [Setting aside]: two processes may find the same damage. The second must not set aside what the first began. Both
take a lock on the folder, and the second sees that the file is another one than it had opened. A file is opened
under the same lock, shared, so that it is never paired with the write-ahead log of another.
"""

from __future__ import annotations

import contextlib
import errno
import os
import sqlite3
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote

from aotviz.cache.path_checks import check_kinds, check_writers, make_folder
from aotviz.cache.seals import CHECKSUMS, VARIABLE, Seals, Unavailable, warn_once

try:
    import fcntl
except ImportError:  # Windows, where a file in use can't be renamed by another process
    fcntl = None  # type: ignore[assignment]

Found = TypeVar("Found")

NAME = "aot.sqlite"
SIGNED_NAME = "aot.{}.sqlite"  # of entries that are signed with a secret, by the name of the secret
FORMAT = 1  # of the tables below; stored as the file's user_version
APPLICATION = 0x616F7476  # "aotv", as SQLite's application_id: how `file` and we tell our files from others
SIGNED = 0x616F7473  # "aots": the same for a file whose entries are signed
BUSY_SECONDS = 5.0
LOCK_POLL_SECONDS = 0.01
WAL_BYTES = 16 * 2**20  # to which the write-ahead log is cut after a large transaction

TABLES = """\
CREATE TABLE keys (
    number INTEGER PRIMARY KEY, key TEXT NOT NULL UNIQUE, checksum BLOB NOT NULL, marks BLOB NOT NULL,
    created REAL NOT NULL
);
CREATE TABLE texts (number INTEGER PRIMARY KEY, digest BLOB NOT NULL UNIQUE, text BLOB NOT NULL);
CREATE TABLE ingredients (
    key INTEGER NOT NULL, name TEXT NOT NULL, text INTEGER NOT NULL, PRIMARY KEY (key, name)
) WITHOUT ROWID;
CREATE INDEX ingredients_text ON ingredients (text);
CREATE TABLE entries (
    number INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, key TEXT NOT NULL, variant TEXT NOT NULL, use INTEGER NOT NULL,
    created REAL NOT NULL, used REAL NOT NULL
);
CREATE INDEX entries_key ON entries (key);
CREATE INDEX entries_use ON entries (use);
CREATE TABLE parts (
    entry INTEGER NOT NULL, name TEXT NOT NULL, checksum BLOB NOT NULL, data BLOB NOT NULL, PRIMARY KEY (entry, name)
);
"""
TYPES = {"INTEGER": "integer", "TEXT": "text", "BLOB": "blob", "REAL": "real"}  # as declared: as typeof() says
SCHEMA = {statement.strip() for statement in TABLES.split(";") if statement.strip()}

DAMAGED = {  # SQLite's primary result codes that mean: the file does not hold what we wrote
    sqlite3.SQLITE_ERROR,  # a table or column is missing
    sqlite3.SQLITE_CORRUPT,
    sqlite3.SQLITE_CONSTRAINT,
    sqlite3.SQLITE_MISMATCH,
    sqlite3.SQLITE_RANGE,
    sqlite3.SQLITE_FORMAT,
    sqlite3.SQLITE_NOTADB,
    sqlite3.SQLITE_SCHEMA,
}
SHORT_READ = 522  # SQLITE_IOERR_SHORT_READ: the file ends too early. One of SQLite's extended result codes.
REASONS = {  # other primary codes: why, and what to do
    sqlite3.SQLITE_FULL: "the disk is full: free some space, or choose another folder",
    sqlite3.SQLITE_READONLY: "it is read-only: choose another folder",
    sqlite3.SQLITE_CANTOPEN: "it can't be opened: check the permissions of the folder and the file",
    sqlite3.SQLITE_PERM: "it can't be opened: check the permissions of the folder and the file",
    sqlite3.SQLITE_AUTH: "it can't be opened: check the permissions of the folder and the file",
    sqlite3.SQLITE_BUSY: "other processes kept it locked for too long",
    sqlite3.SQLITE_LOCKED: "other processes kept it locked for too long",
    sqlite3.SQLITE_NOMEM: "memory is short",
    sqlite3.SQLITE_TOOBIG: "a value is larger than SQLite's limit of 1 GB",
    sqlite3.SQLITE_IOERR: "the disk could not be read or written: check its space, quota and health",
}

STOP = "stop what removes it, or choose another folder"
EXPORTED = "a file of `aotviz cache export`"


class NotOurs(Exception):
    """The file is not a cache that this release wrote. The message completes the sentence "the file ..."."""


class Connection(sqlite3.Connection):
    """A connection to a file, with the seals of its values."""

    seals: Seals = CHECKSUMS


class Database:
    """The file `aot.sqlite` in `folder`, which need not exist; with a secret in `seals`, the file of what it signed."""

    def __init__(self, folder: Path, seals: Seals = CHECKSUMS) -> None:
        self.folder = folder
        self.seals = seals
        self.path = folder / (SIGNED_NAME.format(seals.name) if seals.name else NAME)
        self.lock = threading.RLock()
        self._untold: list[str] = []  # warnings, until the lock is released
        self.set_aside: list[str] = []  # why this process set files aside
        self._connections: list[Connection] = []  # one, while the file is open
        self._opened: State | None = None
        self._immutable = False
        _databases.add(self)
        weakref.finalize(self, _close, self._connections)

    def read(self, work: Callable[[Connection], Found]) -> Found | None:
        """`work`'s result, or None if there is no file. Raises Unavailable."""
        try:
            return self._run(work, create=False)
        finally:
            self._tell()

    def write(self, work: Callable[[Connection], Found], *, patient: bool = True) -> Found:
        """`work`'s result, after its changes are stored. If it raises, nothing is changed. Raises Unavailable.

        A missing file is created. `work` runs again if the file went away meanwhile. Without patience, it does not wait
        for another process that writes.
        """

        def transaction(connection: Connection) -> tuple[Found]:
            connection.execute(f"PRAGMA busy_timeout={1000 * BUSY_SECONDS if patient else 0:.0f}")
            with immediate(connection):
                return (work(connection),)

        try:
            with self.lock:
                if self._immutable:
                    self.close()
                result = self._run(transaction, create=True)
                if self._has_moved():
                    result = self._run(transaction, create=True)
        finally:
            self._tell()
        assert result is not None, "a file is created"
        return result[0]

    def _tell(self) -> None:
        """Warn of what was repaired. A warning runs code of the user's, so the lock is released by now."""
        while self._untold:
            warn_once(str(self.path), "file", self._untold.pop(0))

    def close(self) -> None:
        """Close the file until it is next used."""
        with self.lock:
            _close(self._connections)
            self._immutable = False

    def _run(self, work: Callable[[Connection], Found], *, create: bool) -> Found | None:
        renewed = False  # whether a damaged file was set aside
        with self.lock:
            for attempt in range(4):
                again = attempt < 2  # what a folder that is deleted meanwhile causes is tried again
                try:
                    connection = self._current(create)
                    return None if connection is None else work(connection)
                except Unavailable:
                    raise
                except NotOurs as fault:
                    self._set_aside(str(fault), renewed)
                    renewed = True
                except OSError as fault:
                    if not (again and isinstance(fault, FileNotFoundError)):
                        raise self._unreachable(fault) from fault
                except Exception as fault:
                    moved, code = self._has_moved(), primary(fault)
                    if again and (moved or code == sqlite3.SQLITE_IOERR):
                        self.close()
                    elif moved:
                        raise self._unreachable(fault) from fault
                    elif self._is_damage(fault):
                        self._set_aside(f"is damaged ({said(fault)})", renewed)
                        renewed = True
                    elif code is None:
                        raise
                    else:
                        raise self._unavailable(fault) from fault
        raise AssertionError("a file was set aside twice")

    def _current(self, create: bool) -> Connection | None:
        """The connection to the file that is there now, or None if there is none and none may be created."""
        found = self._state()
        if self._connections and found == self._opened:
            return self._connections[0]
        self.close()
        self._check()
        if create:
            make_folder(self.folder)
        elif found is None:
            return None
        with folder_lock(self.folder, exclusive=is_empty(self.path)):
            if create:
                self._create()
            self._opened = self._state()
            self._check()
            try:
                connection = connect(self.path, self.seals, "mode=rw", create)
            except sqlite3.OperationalError as fault:
                if create or primary(fault) not in {sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY}:
                    raise
                connection = self._connect_immutable()
        if connection is not None:
            self._connections.append(connection)
            if self._has_moved():  # what was opened may not be what was checked
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(self.path))
        return connection

    def _check(self) -> None:
        """Raise Unavailable or OSError if something else than a file is there, or the file of who is not trusted."""
        check_kinds(self.path)
        if not self.seals.name:
            check_writers(self.path)

    def _create(self) -> None:
        """Create an empty file for this user; of signed entries, for all who may write to the folder."""
        try:
            descriptor = os.open(self.path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600)
        except FileExistsError:
            return
        try:
            if self.seals.name and hasattr(os, "fchmod"):  # the umask is not asked: SQLite's log gets the file's mode
                os.fchmod(descriptor, 0o600 | (os.stat(self.folder).st_mode & 0o066))
        finally:
            os.close(descriptor)

    def _connect_immutable(self) -> Connection | None:
        """Read without the files that SQLite keeps beside it, which a read-only folder can't hold.

        `_state` notices when the file changes.
        """
        self._immutable = True
        self._opened = self._state()
        if self._opened is None:
            return None
        if self._opened[-1]:
            raise Unavailable(f"the cache in {self.folder} is read-only, and another process is writing to it")
        return connect(self.path, self.seals, "mode=ro&immutable=1", create=False)

    def _state(self) -> State | None:
        """Which file is there. It is the same as before if `_state` is; None if there is no file. Raises OSError."""
        try:
            found, folder = os.stat(self.path), os.stat(self.folder)
        except (FileNotFoundError, NotADirectoryError):
            return None
        state = tuple(of for at in (found, folder) for of in (at.st_dev, at.st_ino, at.st_mode, at.st_uid))
        if not self._immutable:
            return state
        log = Path(f"{self.path}-wal")
        return *state, found.st_size, found.st_mtime_ns, log.exists() and log.stat().st_size

    def _has_moved(self) -> bool:
        """Whether another file, or none, is where the opened one was."""
        try:
            return self._state() != self._opened
        except OSError:
            return True

    def _set_aside(self, reason: str, renewed: bool) -> None:
        """Rename the file that was opened, so that a fresh one can be begun: Note [Setting aside]."""
        if renewed:
            raise Unavailable(f"the cache file {self.path} {reason}: remove it")
        immutable = self._immutable
        self.close()
        try:
            with folder_lock(self.folder, exclusive=True):
                if not immutable and self._state() == self._opened:
                    for suffix in ("-wal", "-shm", ""):
                        aside = f"{self.path}.damaged{suffix}"
                        with contextlib.suppress(FileNotFoundError):
                            os.unlink(aside)
                        with contextlib.suppress(FileNotFoundError):
                            os.rename(f"{self.path}{suffix}", aside)
        except OSError as fault:
            said = f"the cache file {self.path} {reason}, and cannot be renamed ({fault.strerror}): remove it"
            raise Unavailable(said) from fault
        if immutable:
            raise Unavailable(
                f"the cache file {self.path} {reason}, and its folder is read-only: choose another folder"
            )
        self.set_aside.append(reason)
        self._untold.append(f"the cache file {self.path} {reason}; it was renamed to {self.path.name}.damaged")

    def _is_damage(self, fault: Exception) -> bool:
        if primary(fault) is None:
            return self._fails_examination()
        code = getattr(fault, "sqlite_errorcode", None)
        if code == sqlite3.SQLITE_READONLY:  # said by a flipped header, too
            return not self._immutable and os.access(self.path, os.W_OK) and os.access(self.folder, os.W_OK)
        return code == SHORT_READ or primary(fault) in DAMAGED

    def _fails_examination(self) -> bool:
        """Whether the file is at fault for an exception that has no code of SQLite's: Note [Whose fault]."""
        self.close()
        try:
            connection = self._current(create=False)
            return connection is not None and not is_sound(connection)
        except (Unavailable, OSError, RecursionError):
            return False
        except Exception as fault:
            return primary(fault) is None or self._is_damage(fault)

    def _unavailable(self, fault: Exception) -> Unavailable:
        reason = REASONS.get(primary(fault) or 0, said(fault))
        return Unavailable(f"the cache file {self.path} cannot be used: {reason}")

    def _unreachable(self, fault: Exception) -> Unavailable:
        """What to say of a file that is gone, or that the system does not give."""
        try:
            self._check()
        except Unavailable as found:
            return found
        except OSError as found:
            fault = found
        if isinstance(fault, OSError) and not isinstance(fault, FileNotFoundError):
            where = fault.filename or self.folder
            return Unavailable(f"{where} cannot be used ({fault.strerror or fault}): choose another folder")
        return Unavailable(f"{self.folder} was deleted or replaced, again and again, while the cache used it: {STOP}")


State = tuple[int, ...]


def primary(fault: Exception) -> int | None:
    """SQLite's primary result code of a fault. None if it is not SQLite's own, but Python's or the caller's."""
    if isinstance(fault, MemoryError):  # Python's for SQLITE_NOMEM
        return sqlite3.SQLITE_NOMEM
    code: int | None = getattr(fault, "sqlite_errorcode", None)
    return None if code is None else code & 0xFF


def said(fault: Exception) -> str:
    """A fault in one line. SQLite's have names from the file, which may hold what a terminal would obey."""
    text = str(fault) if isinstance(fault, sqlite3.Error) else f"{type(fault).__name__}: {fault}"
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


def is_sound(connection: Connection) -> bool:
    """Whether the file passes SQLite's own check, and every value has the type of its column."""
    if connection.execute("PRAGMA quick_check(1)").fetchall() != [("ok",)]:
        return False
    tables = connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'").fetchall()
    for (table,) in tables:
        columns = connection.execute(f"PRAGMA table_info({table})").fetchall()
        wrong = " OR ".join(f"typeof({name}) != '{TYPES[declared]}'" for _, name, declared, *_ in columns)
        if connection.execute(f"SELECT EXISTS (SELECT 1 FROM {table} WHERE {wrong})").fetchone() != (0,):
            return False
    return True


def is_empty(path: Path) -> bool:
    """Whether a file is still to be created, or was by a process that ended before it wrote to it."""
    try:
        return os.stat(path).st_size == 0
    except FileNotFoundError:
        return True


def connect(path: Path, seals: Seals, how: str, create: bool) -> Connection | None:
    """A connection to a file whose tables are ours, or None if the file is empty and `create` is false.

    Raises NotOurs, Unavailable for a newer format, and sqlite3.Error.
    """
    address = f"file:{quote(os.fsencode(os.path.realpath(path)))}?{how}"
    options: dict[str, Any] = {"isolation_level": None, "check_same_thread": False, "uri": True}
    connection = sqlite3.connect(address, timeout=BUSY_SECONDS, factory=Connection, **options)
    connection.seals = seals
    ready = False
    try:
        connection.text_factory = _lossy
        connection.execute("PRAGMA trusted_schema=OFF")  # a stranger's file must not call functions
        if not _is_blank(connection, path):
            ready = True
        elif create:
            _create_tables(connection, path)
            ready = True
        if ready:
            connection.execute("PRAGMA synchronous=NORMAL")
            connection.execute(f"PRAGMA journal_size_limit={WAL_BYTES}")
            connection.execute("PRAGMA mmap_size=0")  # a file cut short under a mapping would end the process
    except BaseException:
        connection.close()
        raise
    if not ready:
        connection.close()
        return None
    return connection


def new_file(path: Path, seals: Seals) -> Connection:
    """A connection to an empty file, for an export: it leaves nothing beside the file."""
    connection = connect(path, seals, "mode=rw", create=True)
    assert connection is not None, "a file is created"
    connection.execute("PRAGMA journal_mode=DELETE")
    return connection


def exported(path: Path, seals: Seals, query: Callable[[Connection], Iterator[Found]]) -> Iterator[Found]:
    """What `query` finds in an exported file, which may be of any user, and is only read.

    Raises Unavailable whatever the file's fault is, as it is all that is read here, and OSError.
    """
    count = 0
    check_kinds(path, f"give {EXPORTED}")
    os.stat(path)
    try:
        connection = connect(path, seals, "mode=ro&immutable=1", create=False)
        if connection is None:
            raise NotOurs("is empty")
        with contextlib.closing(connection):
            for found in query(connection):
                count += 1
                yield found
    except NotOurs as fault:
        raise Unavailable(f"{path} {fault}: expected {EXPORTED}") from fault
    except (Unavailable, RecursionError):
        raise
    except Exception as fault:
        so_far = f", after {count} entries" if count else ""
        raise Unavailable(f"{path} cannot be read{so_far} ({said(fault)}): export it again") from fault


def _is_blank(connection: Connection, path: Path) -> bool:
    """Whether the file holds nothing yet. Raises NotOurs or Unavailable if it holds anything but our tables."""
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    schema = connection.execute("SELECT sql FROM sqlite_schema WHERE sql IS NOT NULL").fetchall()
    if not schema and not application and not version:
        return True
    expected, other = (SIGNED, APPLICATION) if connection.seals.name else (APPLICATION, SIGNED)
    if application == other:
        said = f"is not signed, and {VARIABLE} is set" if connection.seals.name else f"is signed: set {VARIABLE}"
        raise NotOurs(said)
    if application != expected:
        raise NotOurs("was not written by aotviz")
    if version > FORMAT:
        raise Unavailable(f"the cache file {path} was written by a newer aotviz: upgrade, or choose another folder")
    if version != FORMAT or {sql for (sql,) in schema} != SCHEMA:
        raise NotOurs("is damaged (its tables are not those of a cache)")
    return False


def _create_tables(connection: Connection, path: Path) -> None:
    connection.execute("PRAGMA journal_mode=WAL")
    with immediate(connection):
        if _is_blank(connection, path):
            for statement in sorted(SCHEMA, reverse=True):  # tables before their indexes
                connection.execute(statement)
            connection.execute(f"PRAGMA application_id={SIGNED if connection.seals.name else APPLICATION}")
            connection.execute(f"PRAGMA user_version={FORMAT}")


def _lossy(text: bytes) -> str:
    """A name from the file; one that is damaged must not stop a query."""
    return text.decode("utf-8", "replace")


@contextlib.contextmanager
def immediate(connection: Connection) -> Iterator[None]:
    """A transaction that may write, from its first statement on."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        with contextlib.suppress(sqlite3.Error):  # SQLite has rolled back already after some faults
            connection.execute("ROLLBACK")
        raise


@contextlib.contextmanager
def snapshot(connection: Connection) -> Iterator[None]:
    """Several queries of one state of the file."""
    connection.execute("BEGIN")
    try:
        yield
    finally:
        with contextlib.suppress(sqlite3.Error):
            connection.execute("ROLLBACK")


@contextlib.contextmanager
def folder_lock(folder: Path, *, exclusive: bool) -> Iterator[None]:
    """Held while a file is opened (shared), created or set aside (exclusive). Nothing where the system has no locks."""
    if fcntl is None:
        yield
        return
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        _lock(descriptor, fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH, folder)
        yield
    finally:
        os.close(descriptor)


def _lock(descriptor: int, kind: int, folder: Path) -> None:
    """Wait for a lock, but not longer than for SQLite's: a process that is stopped, or another user's, may hold it."""
    deadline = time.monotonic() + BUSY_SECONDS
    while True:
        try:
            return fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise Unavailable(f"{folder} cannot be used: {REASONS[sqlite3.SQLITE_BUSY]}") from None
            time.sleep(LOCK_POLL_SECONDS)
        except OSError:  # some network disks have no locks
            return None


def _close(connections: list[Connection]) -> None:
    while connections:
        with contextlib.suppress(sqlite3.Error):  # such as a full disk: the log is kept, and read the next time
            connections.pop().close()


_databases: weakref.WeakSet[Database] = weakref.WeakSet()
_forking = threading.RLock()
_held: list[Database] = []  # whose locks are held by the thread that forks: Note [Forking]


def _before_fork() -> None:
    _forking.acquire()
    for database in list(_databases):
        database.lock.acquire()
        database.close()
        _held.append(database)


def _after_in_parent() -> None:
    while _held:
        _held.pop().lock.release()
    _forking.release()


def _after_in_child() -> None:
    global _forking
    while _held:
        _held.pop().lock = threading.RLock()
    _forking = threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_parent=_after_in_parent, after_in_child=_after_in_child)
