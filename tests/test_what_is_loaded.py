"""What a file, a URL, a log, a page or a paper of a stranger may do: it is read, and nothing else.

`DOORS` has an entry for each way in which foreign data comes: what is resolved or joined there, why that is safe, and
the tests that attack it. `REASONS` (dangerous_calls.py) has an entry for each call of aotviz that could run code, open
a file, resolve a name or join a path (what_is_called.py finds them). A call without an entry fails, and so does an
entry without a call.

The attacks are watched by Python's audit events: a file that is opened, a process, a socket, an import or an unpickled
name that has nothing to do with reading is seen, whichever library does it.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import functools
import gzip
import importlib
import json
import os
import socket
import sys
import sysconfig
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pytest

import aotviz
from aotviz import RecordingError, __main__
from aotviz.logs.log_files import AnyLog
from aotviz.logs.printed.printed_types import annotation
from aotviz.reading.recording import Recording
from aotviz.recording import files, replaying
from aotviz.recording.schema import VERSION
from aotviz.teaching import papers
from aotviz.teaching.answers import agrees
from aotviz.widgets import notebooks, parts
from aotviz.widgets.workbench import KEPT, Workbench
from tests import corpus, hostile, test_printed_safely, what_is_called
from tests.dangerous_calls import REASONS
from tests.recorder.strategies import small
from tests.tiers import slow

HERE = "tests/test_what_is_loaded.py"
GOOD = 'V0701 12:00:00.000000 7 a.py:1] {"dynamo_start": {}, "frame_id": 0, "frame_compile_id": 0}\n'


# --- the doors ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Door:
    """A way in for foreign data."""

    enters: str
    resolved: str  # names and paths in the data, and what is done with them
    safe: str  # why
    attacks: tuple[str, ...]  # tests: a name in this file, or "file::name"


DOORS = {
    "load(FILE.aotviz), `aotviz show`, `explain`, `report`, `trace`, `open`": Door(
        "gzip over msgpack",
        "texts and numbers; a path or a name in it is text",
        "a schema decides what is made; sizes, parts, depth and numbers are checked; no text is opened or looked up",
        (
            "test_no_text_of_a_recording_is_opened_or_run",
            "test_a_recording_of_very_many_parts_is_refused_before_they_are_made",
            "tests/recorder/test_files.py::test_a_bomb_is_not_unzipped",
            "tests/recorder/test_files.py::test_deep_nesting_is_refused",
            "tests/test_printed_safely.py::test_each_text_of_a_recording_is_shown_and_not_sent",
        ),
    ),
    "the recording in an entry of the cache": Door(
        "zlib over msgpack, in parts",
        "numbers of texts and graphs",
        "the same check as a file's; all parts together have one limit",
        ("test_the_parts_of_a_stored_recording_have_one_limit",),
    ),
    "read_trace(FILE), a folder or a pattern": Door(
        "lines of JSON, Python's text, gzip",
        "names of files in records (`dump_file`, stacks, links), which are text; links in the folder",
        "no path of a record is opened; a link out of the folder is not followed; graphs are parsed, never compiled",
        (
            "test_no_text_of_a_log_is_opened_or_run",
            "test_a_link_that_leads_out_of_a_folder_is_not_followed",
            "test_a_file_of_any_name_is_read",
            "test_subclasses_in_subclasses_are_not_followed_without_end",
            "tests/test_patterns.py::test_no_pattern_takes_longer_than_its_text_is_long",
            "tests/torch_trace/test_harmless.py::"
            "test_a_gzip_bomb_is_refused_within_a_gigabyte_of_memory_and_a_bounded_temporary_file",
        ),
    ),
    "read_trace(URL)": Door(
        "a listing of a server, and files",
        "names in the listing, which the same file system opens",
        "file systems in which a file names other files are refused; nothing is written under a name of a listing",
        (
            "test_a_file_of_references_is_refused",
            "test_a_page_of_a_url_is_written_into_this_folder",
            "test_a_file_of_any_name_is_read",
        ),
    ),
    "messages of a page to the kernel (the workbench, the live panel)": Door(
        "JSON: a bundle's name, or a part's with an id and numbers",
        "the bundle's name, among three; a partitioner's name, among two; ids, compared with those that exist",
        "no name is joined to a path or looked up in a module; whoever sends messages to a kernel can also run cells",
        ("test_a_page_cannot_ask_for_a_file_or_a_function",),
    ),
    "a notebook that is exported to a page": Door(
        "outputs with a recording, its bookmark and paintings",
        "nothing",
        "what is stored stays base64 or an escaped attribute",
        ("test_what_a_notebook_stores_cannot_become_markup",),
    ),
    "a page of a recording, in a browser or in JupyterLab": Door(
        "the recording, and the address's fragment",
        "links, of which only those to the web are links",
        "texts become text nodes; the policy of the page allows its own script and no connection",
        (
            "tests/ui/test_hostile_recordings.py::test_markup_in_every_text_of_a_recording_stays_text",
            "tests/ui/test_html_page.py::test_markup_in_names_stays_text",
        ),
    ),
    "requests to `aotviz open`": Door(
        "HTTP, from any process of this machine and any page in its browser",
        "the path, which is compared whole with three addresses",
        "the address has a random part; another Host is refused, so a page of another name cannot read it",
        (
            "tests/test_viewer_server.py::test_nothing_else_is_served",
            "tests/test_viewer_server.py::test_a_foreign_name_for_this_machine_is_refused",
            "tests/test_viewer_server.py::test_a_longer_or_shorter_path_is_not_the_address",
        ),
    ),
    "papers of students": Door(
        "JSON",
        "titles and questions, compared with those of the course",
        "the questions that are evaluated are the teacher's; an answer is compared, never evaluated",
        ("test_a_paper_runs_nothing_and_any_answer_is_marked",),
    ),
    "names of the user's program, in scripts that bisect writes": Door(
        "names, options, messages",
        "imports of the program's own modules",
        "each is a literal, a comment or a checked identifier",
        ("tests/test_safe_names.py::test_a_script_that_bisect_writes",),
    ),
    "what Dynamo kept (`caching_precompile`)": Door(
        "a pickle of torch's, in torch's cache folder",
        "torch unpickles it before aotviz sees it",
        "it is not: who can write torch's cache folder runs code in its user's processes, with aotviz or without",
        (),
    ),
    "`aotviz verify MODULE:FUNCTION`, and the .py and .pt that bisect wrote": Door(
        "programs",
        "the module that the user names",
        "they are programs: running one trusts it, as the documentation says",
        (),
    ),
}


@pytest.mark.parametrize("door", DOORS)
def test_each_attack_on_a_door_exists(door: str) -> None:
    for attack in DOORS[door].attacks:
        path, _, name = attack.rpartition("::")
        tree = ast.parse((what_is_called.PACKAGE.parent / (path or HERE)).read_text(encoding="utf-8"))
        assert name in {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}, attack


# --- the calls ----------------------------------------------------------------------------------------------------


def test_each_dangerous_call_has_a_reason() -> None:
    made: dict[str, set[str]] = {}
    for file, function, call in what_is_called.of_package():
        made.setdefault(file, set()).add(f"{function}: {call}")
    known: dict[str, set[str]] = {}
    for (file, calls), reason in REASONS.items():
        assert reason
        known.setdefault(file, set()).update(calls.split("; "))
    new = {file: sorted(calls - known.get(file, set())) for file, calls in made.items()}
    gone = {file: sorted(calls - made.get(file, set())) for file, calls in known.items()}
    new, gone = {f: c for f, c in new.items() if c}, {f: c for f, c in gone.items() if c}
    assert not new, f"say in REASONS why these calls are safe with a stranger's data: {new}"
    assert not gone, f"these calls are gone: {gone}"


@pytest.mark.parametrize(
    "source",
    [
        "eval(text)",
        "__import__(name)",
        "importlib.import_module(name)",
        "getattr(torch, name)",
        "operator.attrgetter(name)(torch)",
        "open(folder + name)",
        "Path(folder, name).read_bytes()",
        "x = folder / name",
        "x = Path(one) / two",
        "os.path.join(folder, name)",
        "import pickle",
        "from subprocess import run",
        "torch.load(name)",
        "zlib.decompress(content)",
        "yaml.load(text)",
        "os.system(text)",
    ],
)
def test_a_dangerous_call_is_found(source: str) -> None:
    assert list(what_is_called.calls(ast.parse(source), True))


# --- the watch ----------------------------------------------------------------------------------------------------

EVENTS = frozenset(
    """
    subprocess.Popen os.system os.exec os.posix_spawn pickle.find_class socket.connect os.rename os.remove os.mkdir
    os.symlink webbrowser.open urllib.Request
    """.split()
)
_SEEN: list[str] | None = None
_CALM = tuple(
    os.path.realpath(path)
    for path in {*sysconfig.get_paths().values(), sys.prefix, sys.base_prefix, str(what_is_called.PACKAGE)}
)  # where imports and the package's own files are


def _hear(event: str, args: tuple[Any, ...]) -> None:
    if _SEEN is None:
        return
    if event == "open" and isinstance(args[0], (str, bytes)):
        path = os.path.realpath(os.fsdecode(args[0]))
        if not path.startswith(_CALM):
            _SEEN.append(f"open {path}")
    elif event in EVENTS:
        _SEEN.append(f"{event} {args}")


@functools.cache
def _listen() -> None:
    """Not on import: with a hook, which nothing removes, every `id()` of the process is a call of a Python function."""
    sys.addaudithook(_hear)


@contextlib.contextmanager
def watched(*allowed: Path) -> Iterator[None]:
    """Nothing but these files is opened in the block, and nothing is run, written or connected to."""
    global _SEEN
    _listen()
    seen = _SEEN = []
    try:
        yield
    finally:
        _SEEN = None
    fine = {f"open {os.path.realpath(path)}" for path in allowed}
    assert not [event for event in seen if event not in fine], seen


class Instead(str):
    """Replaces the text to which hostile.py adds it."""

    def __radd__(self, other: str) -> str:
        return str(self)


def payloads(folder: Path) -> list[str]:
    """Texts that do harm where they are opened, looked up, formatted or run."""
    secret = folder / "secret.py"
    secret.write_text("secret = 'do not read'\n")
    marker = folder / "marker"
    return [
        str(secret),
        f"__import__('pathlib').Path({str(marker)!r}).touch()",
        f"{{0.__class__.__mro__}}{{x!r}} %(x)s $(touch {marker}) `touch {marker}`",
        f'  File "{secret}", line 1, in forward\n    secret',
        "torch.os.system",
    ]


def test_the_watch_sees_what_is_opened_and_run(tmp_path: Path) -> None:
    (secret, code, *_) = payloads(tmp_path)
    with pytest.raises(AssertionError, match="secret"), watched():
        Path(secret).read_text()
    with pytest.raises(AssertionError, match=r"os\.system"), watched():
        os.system("true")
    assert not (tmp_path / "marker").exists()
    eval(code)
    assert (tmp_path / "marker").exists()


# --- the attacks --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [0, *map(slow, range(1, 5))])
def test_no_text_of_a_recording_is_opened_or_run(number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hostile, "EVIL", Instead(payloads(tmp_path)[number]))
    test_printed_safely.said(Recording(small()))  # imports what looking needs
    path, read = tmp_path / "evil.aotviz", 0
    for _, plain in hostile.recordings(small()):
        path.write_bytes(files.MAGIC + VERSION.to_bytes(2, "big") + gzip.compress(plain, 1))
        with watched(path), contextlib.suppress(RecordingError):
            test_printed_safely.said(aotviz.load(path))
            read += 1
    assert read > 20
    assert not (tmp_path / "marker").exists()


@pytest.mark.parametrize("number", [0, *map(slow, range(1, 5))])
def test_no_text_of_a_log_is_opened_or_run(number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    content = hostile.shortened(sorted(corpus.folder("graph_breaks").iterdir())[0].read_text(), 1)
    monkeypatch.setattr(hostile, "EVIL", Instead(payloads(tmp_path)[number]))
    path = tmp_path / "evil.log"
    path.write_text(content)
    test_printed_safely.said(aotviz.read_trace(path, index=False))
    for _, text in list(hostile.logs(content))[number::20]:
        path.write_text(text)
        with watched(path), contextlib.suppress(RecordingError):
            test_printed_safely.said(aotviz.read_trace(path, index=False))
    assert not (tmp_path / "marker").exists()


def test_a_link_that_leads_out_of_a_folder_is_not_followed(tmp_path: Path) -> None:
    outside, folder = tmp_path / "outside", tmp_path / "folder"
    for made in (outside, folder / "inner"):
        made.mkdir(parents=True)
    (outside / "other.log").write_text(GOOD)
    (folder / "own.log").write_text(GOOD)
    (folder / "out.log").symlink_to(outside / "other.log")
    (folder / "up.log").symlink_to("../outside/other.log")
    (folder / "all").symlink_to(outside)
    (folder / "loop.log").symlink_to("loop.log")
    (folder / "inner" / "in.log").symlink_to("../own.log")
    os.mkfifo(folder / "fifo.log")  # opening it would wait for ever
    with watched(folder / "own.log"):
        recording = aotviz.read_trace(folder, index=False)
    assert [Path(name).name for name in recording.logs.name] == ["own.log"]  # in.log is the same file
    assert recording.notes == [
        "2 links lead out of the folder and were not followed: out.log, up.log. Pass the path of a target to read it."
    ]
    assert len(aotviz.read_trace(str(folder / "out*.log"), index=False)) == 1  # the user named it


@pytest.mark.parametrize("name", ["a1\u00b23.log", "\u00b2", "\u0663.log", "9" * 200, "rank_\u0661.log"])
def test_a_file_of_any_name_is_read(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path(name).write_text(GOOD)
    Path("b.log").write_text(GOOD)
    assert len(aotviz.read_trace([name, "b.log"], index=False)) == 2
    sorted(
        [AnyLog(f"memory://{'9' * 5000}/{name}", 0, 0, None), AnyLog("memory://a", 0, 0, None)], key=lambda x: x.order
    )


@pytest.mark.parametrize("url", ["reference::file://{}", "Reference::file://{}", "simplecache::reference::file://{}"])
def test_a_file_of_references_is_refused(url: str, tmp_path: Path) -> None:
    pytest.importorskip("fsspec")
    secret, refs = tmp_path / "secret.log", tmp_path / "refs.json"
    secret.write_text(GOOD)
    refs.write_text(json.dumps({"version": 1, "templates": {"x": "{{ 1 }}"}, "refs": {"a.log": [str(secret)]}}))
    with watched(), pytest.raises(RecordingError, match="a file decides which files and URLs are read"):
        aotviz.read_trace(url.format(refs))


@pytest.mark.parametrize("url", ["s3://b/..", "s3://b/../", "http://h/a\\..\\..\\b", "s3://b/.", "s3://b/job/"])
def test_a_page_of_a_url_is_written_into_this_folder(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    target = __main__._target(argparse.Namespace(path=url, out=None, force=False), "page", ".html")
    assert target.parent == tmp_path.resolve()


@pytest.mark.parametrize("content", [b"\x90", b"\x80", b"\x91\x90"])
def test_a_recording_of_very_many_parts_is_refused_before_they_are_made(content: bytes) -> None:
    """Each would take 60 bytes of memory or more, and a few kB of file would take all that there is."""
    data = msgspec.msgpack.decode(msgspec.msgpack.encode(small()))
    count = (files.USUAL_BYTES - 100_000) // len(content)
    data["strings"] = msgspec.Raw(b"\xdd" + count.to_bytes(4, "big") + content * count)
    packed = gzip.compress(msgspec.msgpack.encode(data), 1)
    with pytest.raises(files.Damage, match="million texts, lists and records"):
        files.unpack(packed)


def test_a_small_file_that_is_large_unpacked_is_refused() -> None:
    with pytest.raises(files.Damage, match="its decompressed size is more than 32 MiB"):
        files.unpack(gzip.compress(bytes(files.USUAL_BYTES + 1)))


def test_the_parts_of_a_stored_recording_have_one_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replaying, "LIMIT_BYTES", 1 << 20)
    decoded: list[int] = []
    monkeypatch.setattr(msgspec.msgpack, "decode", lambda plain, type: decoded.append(len(plain)))
    head = replaying.Head(VERSION, "", 0, 0)
    with pytest.raises(replaying.Unreadable):
        replaying.parts_of(replaying.Packed(head, [zlib.compress(bytes(600_000))] * 3))
    assert decoded == [600_000]


def test_subclasses_in_subclasses_are_not_followed_without_end() -> None:
    assert annotation(f"{'A(' * 5000}f32[2]{')' * 5000}") is None
    found = annotation("A(B(f32[2][1]cpu, S(0)))")
    assert found is not None
    assert found.shape == (2,)


PAGE = [
    ["index", "/etc/passwd"], ["graph", "f-0", "../../secret"], ["graph", "f-0", True], ["code", "f-0", 1e308],
    ["rows", "strings"], ["rows", "__class__"], ["rows", "compilations"], ["compilation", "../x"],
    ["what if", "f-0", "os.system", 0.5], ["what if", "f-0", "torch.os.system", 0.5], "../server.py", "/etc/passwd",
    "core.js/../../server.py", "core.js.gz", None, {}, [], ["unpaint", "x", "y"], {"ask": ["index"]},
]  # fmt: skip


@pytest.mark.parametrize("asked", PAGE, ids=str)
def test_a_page_cannot_ask_for_a_file_or_a_function(asked: Any) -> None:
    recording = Recording(small())
    Workbench(recording)  # imports what it needs
    with watched(), pytest.raises((ValueError, LookupError, TypeError)):
        parts.packed(recording, asked)
    workbench = Workbench(recording)
    sent: list[Any] = []
    workbench.send = lambda data, buffers=None: sent.append((data, buffers))  # type: ignore[method-assign]
    workbench._answers._send = workbench.send
    with watched():
        workbench._answer(None, {"ask": asked, "question": "q"}, None)
    ((data, buffers),) = sent
    assert data["error"]
    assert not buffers


def test_what_a_notebook_stores_cannot_become_markup() -> None:
    evil = "\"'></script><script>alert(1)</script><img src=x onerror=alert(1)>"
    data = {KEPT: evil, "text/html": "", "application/javascript": "alert(1)"}
    stored = {"bookmark": {evil: evil, "n": 1}, "painted": evil}
    assert notebooks.place(data, stored)
    assert set(data) == {"text/html"}
    assert "<script>" not in data["text/html"]
    assert "<img" not in data["text/html"]
    assert data["text/html"].count("</script>") == 1


ANSWERS = [
    10**400,
    -(10**400),
    float("nan"),
    float("inf"),
    "x" * 10_000,
    {},
    {"a": 1},
    [[]],
    [None],
    "__import__('os')",
]


@pytest.mark.parametrize("answer", ANSWERS, ids=lambda answer: repr(answer)[:12])
def test_a_paper_runs_nothing_and_any_answer_is_marked(answer: Any, tmp_path: Path) -> None:
    teaching = importlib.import_module("aotviz.teaching")
    course = teaching.Course("exam")

    def scene(double: Any) -> Any:
        x, half, names = double(2), 0.5, {"x"}
        return locals()

    puzzle = course.puzzle("a", lambda x: x * 2, minutes=1)(scene)
    puzzle.predict({"x": ..., "half": ..., "names": ...})
    marker = tmp_path / "marker"
    question = f"open({str(marker)!r}, 'w')"
    path = tmp_path / "paper.json"
    given = {"x": answer, "half": answer, "names": answer, question: answer}
    content = {"course": "exam", "student": "Eve\x1b[2J", "answers": {"a": given}}
    path.write_text(json.dumps(content))
    row = course.mark(path)
    assert row.right.tolist() == [0]
    assert not hostile.obeyed("".join(row.index))
    assert not marker.exists()
    assert not agrees(10**400, 0.5)


@pytest.mark.parametrize("depth", [30, 900, 100_000])
def test_an_answer_that_is_nested_deep_is_refused(depth: int, tmp_path: Path) -> None:
    path = tmp_path / "paper.json"
    nested = f"{'[' * depth}1{']' * depth}"
    path.write_text(f'{{"course": "exam", "student": "x", "answers": {{"a": {{"x": {nested}}}}}}}')
    with pytest.raises(ValueError, match="is no paper that"):
        papers.read(path, "exam")


def test_the_watch_sees_a_connection() -> None:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        with pytest.raises(AssertionError, match="connect"), watched(), socket.socket() as one:
            one.connect(server.getsockname())
