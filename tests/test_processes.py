"""Programs that a test starts in processes of their own end with the test, and so does what they start."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import pytest

from tests import processes

STARTS = "import subprocess, sys; child = subprocess.Popen(['sleep', '600']); print(child.pid, flush=True); "


def is_alive(pid: int) -> bool:
    """Whether a process runs. One that was killed and not waited for is a zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def ends(pid: int) -> bool:
    until = time.monotonic() + 20
    while is_alive(pid) and time.monotonic() < until:
        time.sleep(0.01)
    return not is_alive(pid)


def test_what_a_program_started_and_left_is_killed_when_it_has_ended() -> None:
    done = processes.run(["-c", STARTS])
    assert done.returncode == 0
    assert ends(int(done.stdout))


def test_what_a_program_started_is_killed_where_the_test_may_wait_no_longer(tmp_path: Path) -> None:
    class TooLong(Exception):
        pass

    written = tmp_path / "pid"

    def stop(*_: object) -> None:
        if written.exists() and written.read_text().endswith("."):
            raise TooLong

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, 0.1, 0.1)
    try:
        with pytest.raises(TooLong):
            processes.run(["-c", f"{STARTS}open({str(written)!r}, 'w').write(f'{{child.pid}}.'); child.wait()"])
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert ends(int(written.read_text().rstrip(".")))
