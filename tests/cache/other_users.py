"""Work as another user, in a child process: root ignores permissions, and tests often run as root."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable

import pytest

READER = 65534  # the user `nobody`
STRANGER, MEMBER = 12345, 12346  # users that no system has

takes_root = pytest.mark.skipif(not hasattr(os, "getuid") or os.getuid() != 0, reason="root alone can be another user")


def as_user(user: int, work: Callable[[], object], group: int | None = None) -> str:
    """What `work` returned or raised, and its warnings, as text. As this user, if this is not root."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            if os.getuid() == 0:
                os.setgroups([])
                os.setgid(user if group is None else group)
                os.setuid(user)
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                said = repr(work()) + "".join(f" {warning.message}" for warning in caught)
        except BaseException as fault:
            said = f"{type(fault).__name__}: {fault}"
        os.write(write, said.encode()[:60_000])
        os._exit(0)
    os.close(write)
    with open(read, "rb") as pipe:
        said = pipe.read().decode()
    os.waitpid(child, 0)
    return said
