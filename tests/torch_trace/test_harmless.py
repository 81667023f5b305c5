"""A stranger's log cannot harm its reader."""

from __future__ import annotations

import gzip
import sys
from pathlib import Path

import pytest

import aotviz
from aotviz import RecordingError
from benchmarks.trace_reading import run_process

HEAD = b'V0701 12:00:00.000000 7 a.py:1] {"dynamo_start": {}, "frame_id": 0, "frame_compile_id": 0}\n'
MIB = 1 << 20
READ = """
import resource, sys
import aotviz
limit = 140 << 20
resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))  # no file may be longer, deleted ones included
try:
    aotviz.read_trace(sys.argv[1])
except aotviz.RecordingError as error:
    print(error)
"""


def bomb(path: Path, text: bytes, mib: int) -> Path:
    """`mib` MiB of a text behind a good line, in as many gzip files, one behind the other."""
    path.write_bytes(gzip.compress(HEAD) + gzip.compress(text * (MIB // len(text))) * mib)
    return path


@pytest.mark.parametrize(
    "text",
    [
        b"0",  # one line
        b"\tsome text of a record\n",  # one record
        pytest.param(b'V0701 12:00:00.000000 7 a.py:1] {"x": {}}\n', marks=pytest.mark.slow),  # the smallest records
    ],
    ids=["line", "text", "records"],
)
def test_a_gzip_bomb_is_refused_within_a_gigabyte_of_memory_and_a_bounded_temporary_file(
    text: bytes, tmp_path: Path
) -> None:
    """Up to 2.7 MB of gzip over 900 MiB."""
    path = bomb(tmp_path / "rank_0.log.gz", text, 900)
    done = run_process([sys.executable, "-c", READ, str(path)], {})
    (said,) = done.output.splitlines()
    assert said.startswith(f"{path}: it unpacks to more than ")
    assert "limit_mb" in said
    assert "--limit-mb" in said
    assert done.peak_bytes < 1000 * MIB


def test_the_limit_is_the_users_to_choose(tmp_path: Path) -> None:
    path = bomb(tmp_path / "a.log.gz", b"nonsense\n", 3)
    with pytest.raises(RecordingError, match="more than 2 MiB"):
        aotviz.read_trace(path, limit_mb=2)
    assert len(aotviz.read_trace(path, limit_mb=4)) == 1
    assert len(aotviz.read_trace(path)) == 1
