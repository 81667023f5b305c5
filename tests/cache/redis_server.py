"""A Redis server for a test: on the loopback interface, and never left running."""

from __future__ import annotations

import ctypes
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

PR_SET_PDEATHSIG = 1


def installed() -> None:
    """Skip the test if there is no server."""
    if shutil.which("redis-server") is None:
        pytest.skip("redis-server is not installed (apt-get install redis-server)")


class Server:
    """A Redis server on the loopback interface that keeps nothing, and ends with this process.

    `options` are more of `redis-server`'s, each with its value.
    """

    def __init__(self, folder: Path, *options: str) -> None:
        self.options = options
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.folder = folder
        self.url = f"redis://127.0.0.1:{self.port}/0"
        self.start()

    def start(self) -> None:
        options = f"--bind 127.0.0.1 --port {self.port} --appendonly no --daemonize no --dir {self.folder} --logfile"
        command = ["redis-server", "--save", "", *options.split(), "", *self.options]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, preexec_fn=_end_with_parent)
        assert self.process.stdout is not None
        log = []
        for line in self.process.stdout:
            log.append(line)
            if "Ready to accept connections" in line:
                return
        raise AssertionError("".join(log))

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()


def _end_with_parent() -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
