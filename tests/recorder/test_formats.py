"""The wire format's promise: a file that any earlier aotviz wrote opens, and one of a later aotviz says so.

`formats/` has a file of each version. The code of that version wrote it, and it is never written again. Each holds the
recording of tests/ui/fixture.py as it was then. A new version adds the file that its own `python -m
tests.recorder.test_formats` writes.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import aotviz
from aotviz.reading.recording import Recording
from aotviz.recording import files
from aotviz.recording.schema import VERSION
from tests.ui.fixture import ROOT, recording

FORMATS = Path(__file__).parent / "formats"
VERSIONS = range(1, VERSION + 1)
TABLES = {"stages": ["stage"], "inputs": ["name"], "outputs": ["name", "output_type"], "saved_tensors": ["name", "why"]}


def of_version(version: int) -> Path:
    return FORMATS / f"format_{version}.aotviz"


def test_each_version_has_its_file() -> None:
    assert sorted(FORMATS.iterdir()) == [of_version(version) for version in VERSIONS]
    heads = [of_version(version).read_bytes()[: files.HEADER_BYTES] for version in VERSIONS]
    assert heads == [files.MAGIC + version.to_bytes(2, "big") for version in VERSIONS]


@pytest.mark.parametrize("version", VERSIONS)
def test_a_file_of_an_earlier_version_opens_with_what_it_has(version: int, tmp_path: Path) -> None:
    old, new = aotviz.load(of_version(version)), Recording(recording().data)
    assert [(one.name, one.kind) for one in old] == [(one.name, one.kind) for one in new]
    for before, now in zip(old, new, strict=True):
        for table, columns in TABLES.items():
            then = getattr(before, table)[columns].to_dict("list")
            assert then == getattr(now, table)[columns].to_dict("list"), table
    assert old[0].graph("joint").code == new[0].graph("joint").code
    assert old[0].memory().peak is not None
    old.save(tmp_path / "again.aotviz")  # as a file of this version
    again = aotviz.load(tmp_path / "again.aotviz")
    assert again[0].stages.equals(old[0].stages)
    old.to_html(tmp_path / "page.html")


def test_a_file_of_a_later_version_is_one_sentence_in_python_and_in_a_shell(tmp_path: Path) -> None:
    later = tmp_path / "later.aotviz"
    later.write_bytes(files.MAGIC + (VERSION + 1).to_bytes(2, "big") + b"something else")
    said = (
        f"{later}: written in format {VERSION + 1} by a newer aotviz; this one reads up to {VERSION}. Upgrade aotviz."
    )
    with pytest.raises(aotviz.RecordingError) as raised:
        aotviz.load(later)
    assert str(raised.value) == said
    command = [sys.executable, "-m", "aotviz", "show", str(later)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.strip().endswith(said)
    assert "Traceback" not in done.stderr


if __name__ == "__main__":
    files.write(recording().data, of_version(VERSION))
