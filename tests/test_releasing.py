"""What docs/releasing.md says of versions, the changelog and files, compared with what is here."""

from __future__ import annotations

import json
import re
from datetime import date
from pathlib import Path

import pytest

import aotviz
from aotviz.__main__ import main
from aotviz.recording import files
from aotviz.recording.schema import VERSION

ROOT = Path(__file__).resolve().parents[1]
PAGE = (ROOT / "docs" / "releasing.md").read_text(encoding="utf-8")
HEADINGS = re.findall(r"^## (.*)$", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)


def test_the_version_is_the_same_everywhere() -> None:
    packages = [json.loads(path.read_text()) for path in sorted((ROOT / "extensions").glob("*/package.json"))]
    assert len(packages) == 4
    assert {package["version"] for package in packages} == {aotviz.__version__}


def test_the_changelog_is_by_releases_and_begins_with_this_version() -> None:
    parts = [re.fullmatch(r"(\d+)\.(\d+)\.(\d+) \((unreleased|\d{4}-\d\d-\d\d)\)", heading) for heading in HEADINGS]
    assert all(parts), HEADINGS
    versions = [tuple(map(int, part.groups()[:3])) for part in parts if part]
    assert versions == sorted(set(versions), reverse=True)
    assert ".".join(map(str, versions[0])) == aotviz.__version__
    dates = [part[4] for part in parts if part]
    assert "unreleased" not in dates[1:]
    days = [date.fromisoformat(day) for day in dates if day != "unreleased"]
    assert days == sorted(days, reverse=True)


def test_the_page_shows_what_is_printed_of_a_later_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("later.aotviz").write_bytes(files.MAGIC + (VERSION + 1).to_bytes(2, "big") + b"something else")
    assert main(["show", "later.aotviz"]) == 2
    shown = PAGE.partition("$ aotviz show later.aotviz\n")[2].partition("\n```")[0]
    assert capsys.readouterr().err.strip().endswith(shown)
