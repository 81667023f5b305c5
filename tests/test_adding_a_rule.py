"""A new fact and a new rule are the changes that docs/adding-a-rule.md prints: they are made to a copy of aotviz."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "adding-a-rule.md"


def changed(text: str, hunk: str) -> str:
    """The text with the new lines of a hunk, which begin with "+", among those that are there already."""
    lines = hunk.splitlines()
    old = "\n".join(line[1:] for line in lines if not line.startswith("+"))
    count = text.count(old)
    assert count == 1, f"the page changes lines that are there {count} times; mend the block in {PAGE.name}:\n{old}"
    return text.replace(old, "\n".join(line[1:] for line in lines))


def test_the_changes_of_the_page_make_a_fact_and_a_rule(tmp_path: Path) -> None:
    page = PAGE.read_text(encoding="utf-8")
    ignored = shutil.ignore_patterns("__pycache__", "static")
    shutil.copytree(ROOT / "aotviz", tmp_path / "aotviz", ignore=ignored)
    (tmp_path / "docs").mkdir()
    shutil.copy(ROOT / "docs" / "refusals.md", tmp_path / "docs")
    blocks = re.findall(r"^```(\w*)\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
    for block in (text for language, text in blocks if language == "diff"):
        for name, hunks in re.findall(r"^--- (\S+)\n(.*?)(?=^--- |\Z)", block, re.DOTALL | re.MULTILINE):
            path = tmp_path / name
            for hunk in hunks.rstrip("\n").split("\n@@\n"):
                path.write_text(changed(path.read_text(encoding="utf-8"), hunk), encoding="utf-8")
    program, printed = (text for language, text in blocks if language in ("python", ""))
    script = tmp_path / "example.py"
    script.write_text(program, encoding="utf-8")
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = subprocess.run([sys.executable, script], env=environment, capture_output=True, text=True, check=False)
    assert done.stdout == printed, done.stderr
