"""`python -m aotviz cache`: a user sees what is kept, why two keys differ and whether all is sound, and moves it."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import aotviz
from aotviz.__main__ import main
from aotviz.cache.store import Store
from aotviz.lowerings import run_graph

FIRST, SECOND, THIRD = "ab12" + "0" * 60, "ab34" + "0" * 60, "cd" + "0" * 62
GRAPH = "def forward(self, x):\n" + "".join(f"    y{i} = torch.sin(x)\n" for i in range(30))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache of three keys and four entries, where the command looks for it."""
    where = tmp_path / "cache"
    monkeypatch.setenv("AOTVIZ_CACHE_DIR", str(where))
    store = Store(where)
    shared = {"program": GRAPH, "backend": "eager", "torch": "2.13.0"}
    store.save(FIRST, shared, "aa", b"m" * 1200, {"guards": b"x.size()[0] > 1", "name": b"step"})
    entry = store.save(FIRST, shared, "bb", b"m" * 1200)
    store.add_part(entry, "backward", b"b" * 500)
    changed = GRAPH.replace("y7 = torch.sin", "y7 = torch.cos")
    store.save(SECOND, {**shared, "program": changed, "torch": "2.14.0", "hook": "h"}, "aa", b"m")
    store.save(THIRD, {"program": "\n  a graph without a name\x1b[2J"}, "aa", b"m")
    store.close()
    return where


def said(capsys: pytest.CaptureFixture[str], *arguments: str, status: int = 0) -> str:
    assert main(["cache", *arguments]) == status
    printed = capsys.readouterr()
    if status == 2:
        assert printed.out == ""
        assert printed.err.startswith("aotviz cache: ")
        assert printed.err.count("\n") == 1
        return printed.err
    return printed.out


def test_ls_lists_keys_last_used_first(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = said(capsys, "ls").splitlines()
    assert lines[0].split() == ["KEY", "PROGRAM", "ENTRIES", "BACKWARD", "SIZE", "LAST", "USED"]
    assert [line.split("  ")[0] for line in lines[1:4]] == [THIRD[:12], SECOND[:12], FIRST[:12]]
    assert lines[3].split()[1:6] == ["step", "2", "yes", "2.9", "kB"]
    assert "a graph without a name\\x1b[2J" in lines[1]
    assert lines[5] == f"3 keys, 4 entries, 2.9 kB in {folder}"


def test_ls_names_the_compiled_function(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def training_step(x: torch.Tensor) -> torch.Tensor:
        return x.sin()

    torch._dynamo.reset()
    aotviz.compile(training_step, backend="eager", cache=tmp_path / "own")(torch.ones(3))
    aotviz.aot_function(training_step, run_graph, cache=tmp_path / "own")(torch.ones(3))
    rows = said(capsys, "ls", "--folder", str(tmp_path / "own")).splitlines()[1:3]
    assert [row.split()[1] for row in rows] == ["training_step", "training_step"]


def test_ls_of_no_cache_creates_none(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "is empty" in said(capsys, "ls", "--folder", str(tmp_path / "none"))
    assert not (tmp_path / "none").exists()


def test_show_prints_ingredients_guards_and_parts(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    printed = said(capsys, "show", "AB12")
    assert f"key  {FIRST}" in printed
    assert "  torch: 2.13.0\n" in printed
    assert "    (23 more lines: --all)\n" in printed
    assert "guards: x.size()[0] > 1" in printed
    assert "parts: backward 500 bytes, main 1.2 kB" in printed
    assert "y29 = torch.sin(x)" not in printed
    assert "y29 = torch.sin(x)" in said(capsys, "show", FIRST, "--all")


def test_explain_says_what_differs_short_texts_first(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    printed = said(capsys, "explain", "ab12", "ab34")
    assert printed.startswith("ab1200000000 and ab3400000000 differ in 3 of 4 ingredients.\n")
    assert "\nhook\n  ab1200000000  (no such ingredient)\n  ab3400000000  h\n" in printed
    assert "\ntorch\n  ab1200000000  2.13.0\n  ab3400000000  2.14.0\n" in printed
    assert "    -    y7 = torch.sin(x)\n    +    y7 = torch.cos(x)\n" in printed
    assert printed.index("\ntorch\n") < printed.index("\nprogram\n")
    assert "have the same ingredients" in said(capsys, "explain", "ab12", "ab12")


@pytest.mark.parametrize(
    ("key", "message"), [("ff", "no key begins with 'ff'"), ("ab", "2 keys begin with 'ab'"), ("", "no key")]
)
def test_a_key_that_is_none_or_several_is_one_line_and_status_2(
    key: str, message: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert message in said(capsys, "show", key, status=2)


def test_verify_has_status_1_where_something_is_damaged(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "4 entries" in said(capsys, "verify")
    with sqlite3.connect(folder / "aot.sqlite") as file:
        file.execute("UPDATE parts SET data = x'00' WHERE name = 'backward'")
    file.close()
    printed = said(capsys, "verify", status=1)
    assert "key ab1200000000, variant bb: the part 'backward' is damaged\n" in printed
    assert said(capsys, "verify").endswith("nothing is damaged\n")


def test_verify_of_a_foreign_file_has_status_1(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "aot.sqlite").write_bytes(b"not a database")
    assert main(["cache", "verify"]) == 1
    printed = capsys.readouterr()
    assert "was set aside" in printed.out
    assert printed.err.startswith("aotviz cache: ")
    assert printed.err.count("\n") == 1


def test_what_is_exported_is_imported(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file, other = str(tmp_path / "exported"), ["--folder", str(tmp_path / "other")]
    assert f"wrote 4 entries to {file}, not signed" in said(capsys, "export", file)
    assert "--force" in said(capsys, "export", file, status=2)
    said(capsys, "export", file, "--force")
    for count in (4, 0):
        trusts, added = said(capsys, "import", file, *other).splitlines()
        assert "importing it trusts its maker" in trusts
        assert added == f"added {count} new entries to {tmp_path / 'other'}"
    listed = [said(capsys, "ls", *where).splitlines()[:4] for where in ([], other)]
    assert listed[0] == listed[1]
    assert "removed 4 entries" in said(capsys, "clear")
    assert "is empty" in said(capsys, "ls")
    assert "it is empty" in said(capsys, "export", file, "--force", status=2)


@pytest.mark.parametrize("content", [None, b"", b"not ours"])
def test_an_import_of_another_file_is_one_line_and_status_2(
    content: bytes | None, tmp_path: Path, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "bad"
    if content is not None:
        path.write_bytes(content)
    assert str(path) in said(capsys, "import", str(path), status=2)


def test_a_cache_that_cannot_be_used_is_one_line_and_status_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("no folder")
    for action in ("ls", "verify", "clear"):
        assert "choose another folder" in said(capsys, action, "--folder", str(tmp_path / "file"), status=2)


def test_the_command_needs_no_torch(folder: Path) -> None:
    script = (
        "import sys; sys.modules['torch'] = None; from aotviz.__main__ import main; sys.exit(main(['cache', 'ls']))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False, env=os.environ)
    assert done.returncode == 0, done.stderr
    assert " step " in done.stdout
