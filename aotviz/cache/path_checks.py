"""What lies at a path before it is opened, and who else could have written it.

SQLite has one sentence for a folder, a FIFO and a file that may not be read. Opening a FIFO waits for a writer. And
what another user wrote into a cache is run by this one. So a path is looked at first, and what is wrong with it is said
by name: `check_kinds` tells what is there instead of a file, `check_writers` who could put entries there.

`check_writers` asks what sshd asks of `authorized_keys` (its StrictModes): the file, the files that SQLite keeps beside
it and all folders above it belong to this user or to root, and no other user can write them. It stops at the user's
home, as sshd does: who could exchange a home has the user's shell already. It differs in two points:

- A folder above may be open to all if it is sticky, such as /tmp: there, no user can rename what is another's. The
  cache's own folder may not. SQLite would open a log that somebody puts there between the check and the opening.
- A group may write where this user is its only member. Debian's and Ubuntu's sshd accept that too: with the umask 002,
  which many systems give to users with a group of their own, `~/.cache` has the mode 0775. sshd elsewhere refuses.

An ACL shows in the bits of the group (its mask). So a group of one's own is no excuse where there is an ACL. What a
network disk allows beyond the mode, and Windows, where a mode says nothing, are not seen here. In a user namespace a
folder of the host's root belongs to `nobody`, and is refused unless it is above the home.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import os
import shlex
import stat
from pathlib import Path

from aotviz.cache.seals import VARIABLE, Unavailable

try:
    import grp
    import pwd
except ImportError:  # Windows
    grp = pwd = None  # type: ignore[assignment]

BESIDE = ("", "-wal", "-shm", "-journal")  # the database, and what SQLite keeps beside it
ELSEWHERE = "remove it, or choose another folder"
SIGNED = f"or set {VARIABLE}, with which entries are signed"
KINDS = (
    (stat.S_ISREG, "a file"),
    (stat.S_ISDIR, "a folder"),
    (stat.S_ISFIFO, "a named pipe (FIFO)"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)


def check_kinds(path: Path, cure: str = ELSEWHERE) -> None:
    """Raise Unavailable unless files are at `path` and beside it, or could be created there. `cure` says what to do.

    The message says which part of the path is wrong, and what is there.
    """
    path = Path(path).absolute()
    folders = path.parents
    for part in (*reversed(folders), *(Path(f"{path}{suffix}") for suffix in BESIDE)):
        try:
            mode = os.stat(part).st_mode
        except FileNotFoundError:
            if os.path.islink(part):
                said = f"{part} is a symlink to {os.readlink(part)}, which does not exist"
                raise Unavailable(f"{said}: {cure}") from None
            continue
        except OSError as fault:
            raise Unavailable(f"{_unseen(part, fault)}: {cure}") from fault
        wanted = KINDS[1] if part in folders else KINDS[0]
        if not wanted[0](mode):
            found = next((name for is_one, name in KINDS if is_one(mode)), "something else")
            raise Unavailable(f"{part} is {found}, and {wanted[1]} is needed there: {cure}")


def _unseen(part: Path, fault: OSError) -> str:
    """Why the system does not say what is at a part of a path."""
    if fault.errno == errno.ELOOP:
        return f"{part} is a symlink that leads in a circle"
    if fault.errno == errno.EACCES:
        return f"{part.parent} may not be entered by {_user(os.geteuid())}" if pwd else f"{part} may not be read"
    return f"{part} cannot be used ({fault.strerror or fault})"


def check_writers(path: Path) -> None:
    """Raise Unavailable if another user than root could have written the database at `path`, or could exchange it.

    What does not exist yet is passed over. Raises OSError.
    """
    if pwd is None:
        return
    me, home, real = os.geteuid(), Path(os.path.realpath(os.path.expanduser("~"))), Path(os.path.realpath(path))
    writable: list[tuple[Path, str, bool]] = []  # path, who can write it, and whether it is sticky
    for part in (*(Path(f"{real}{suffix}") for suffix in BESIDE), *real.parents):
        try:
            found = os.stat(part)
        except FileNotFoundError:
            continue
        if found.st_uid not in (me, 0):
            said = f"{part} belongs to {_user(found.st_uid)}, and this process runs as {_user(me)}"
            raise Unavailable(f"{said}: choose another folder, {SIGNED}")
        is_sticky = stat.S_ISDIR(found.st_mode) and bool(found.st_mode & stat.S_ISVTX)
        who = _other_writers(part, found)
        if who and not (is_sticky and part != real.parent):
            writable.append((part, who, is_sticky))
        if part == home:
            break
    if writable:
        part, who, is_sticky = writable[0]
        chmod = "chmod go-w " + " ".join(shlex.quote(str(part)) for part, _, _ in writable)
        cure = "choose a folder in it" if is_sticky else f"{chmod}, choose another folder"
        raise Unavailable(f"{part} can be written by {who}: {cure}, {SIGNED}")


def _other_writers(part: Path, found: os.stat_result) -> str:
    """Who can write here but the owner; "" if no other user can."""
    if found.st_mode & stat.S_IWOTH:
        return "every user"
    if not found.st_mode & stat.S_IWGRP:
        return ""
    with contextlib.suppress(OSError, AttributeError):  # no ACL, or a system without them
        os.getxattr(part, "system.posix_acl_access")
        return "users that its ACL names"
    return "" if _is_alone_in(found.st_gid, os.geteuid()) else f"its group {_group(found.st_gid)}"


@functools.cache
def _is_alone_in(gid: int, uid: int) -> bool:
    """Whether this user is the only member of a group.

    A directory service may not list its users. Where this user is not listed, others may be missing too.
    """
    try:
        members = set(grp.getgrgid(gid).gr_mem)
        name = pwd.getpwuid(uid).pw_name
    except KeyError:
        return False
    users = pwd.getpwall()
    members.update(user.pw_name for user in users if user.pw_gid == gid)
    return members == {name} and any(user.pw_name == name for user in users)


def _user(uid: int) -> str:
    try:
        return f"user {pwd.getpwuid(uid).pw_name}"
    except KeyError:
        return f"user {uid}"


def _group(gid: int) -> str:
    try:
        return grp.getgrgid(gid).gr_name
    except KeyError:
        return str(gid)


def make_folder(folder: Path) -> None:
    """Create a folder for this user alone, and what is missing above it. Raises OSError."""
    missing = []
    while not folder.exists():
        missing.append(folder)
        folder = folder.parent
    for each in reversed(missing):
        with contextlib.suppress(FileExistsError):  # by another process, meanwhile
            each.mkdir(mode=0o700)
