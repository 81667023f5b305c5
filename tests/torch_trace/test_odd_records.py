"""Records that no torch writes, of JSON that is well-formed and makes no sense: kept, and what is wrong is said."""

# ruff: noqa: UP031  # JSON is full of braces, which str.format would want doubled
from __future__ import annotations

import hashlib

import pytest

from aotviz import Recording
from aotviz.logs.lines import Bad, Record, Splitter
from aotviz.logs.read_trace import read_bytes
from aotviz.recording import files, guard_texts, log_tables

PREFIX = "V0701 12:00:00.000000 7 a.py:1] "
IDS = '"frame_id": 0, "frame_compile_id": 0'
NINES = "9" * 30

KEPT = {
    "artifact that is a list": '{"artifact": []}',
    "artifact named by a number": '{"artifact": {"name": 3}}',
    "artifact with half a surrogate pair": '{"artifact": {"name": "\\ud800x", "encoding": "\\ud800"}, %s}' % IDS,
    "artifact of a list": '{"artifact": ["a"]}',
    "describer of a list": '{"describe_tensor": [3], "stack": [{"filename": [], "name": 3}, 4]}',
    "export of words": '{"exported_program": "x", "stack": "y"}',
    "decision of a list": '{"guard_on_data_dependent_error": [1]}',
    "huge metric": '{"compilation_metrics": {"a": %s}}' % ("9" * 400),
    "times that are words": '{"compilation_metrics": {"start_time": "x", "start_time_us": "y"}, %s}' % IDS,
    "odd failure": '{"compilation_metrics": {"fail_type": {}, "co_name": [], "fail_user_frame_filename": 3}, %s}' % IDS,
    "start at the end of time": '{"compilation_metrics": {"start_time": 1e300}, %s}' % IDS,
    "huge tensor number": '{"describe_tensor": {"id": %s, "describer_id": 0}}' % ("9" * 4000),
    "symbolic storage": '{"describe_storage": {"id": 0, "describer_id": 0, "size": "s0*8"}}',
    "source of a list": '{"describe_source": {"id": [], "describer_id": {}, "source": 3}}',
    "deep nesting": '{"x": %s}' % ("[" * 900 + "]" * 900),
    "string table of a number": '{"str": 3}',
    "string table of words": '{"str": ["a", "b"]}',
    "string table of huge numbers": '{"str": [null, %s]}' % NINES,
    "frame of a mapping": '{"dynamo_start": {"stack": [{"filename": {}}]}, %s}' % IDS,
    "no start": '{"dynamo_start": null, "frame_id": -5, "frame_compile_id": %s, "attempt": 1e9, "rank": "x"}' % NINES,
    "huge rank": '{"rank": %s, "x": 0}' % NINES,
    "half a surrogate pair": '{"a": "\\ud800"}',
    "half a surrogate pair within": '{"create_symbol": {"symbol": {"a": [1, {"\\ud800": 1}]}}}',
    "only a stack": '{"stack": []}',
    "event without a text": '{"chromium_event": {}}',
    "NaN": '{"chromium_event": NaN}',
    "infinite time": '{"chromium_event": {}}\n\t{"name": "a", "ts": 1e999, "ph": "B", "args": null}',
    "time beyond time": '{"chromium_event": {}}\n\t{"name": "a", "ts": 1e200, "ph": "B"}',
    "huge thread": '{"chromium_event": {}}\n\t{"name": "a", "ts": 1.0, "ph": "B", "tid": %s}' % NINES,
    "guards of numbers": '{"dynamo_guards": {}}\n\t[{"code": 3}]',
    "components of numbers": '{"artifact": {"name": "fx_graph_cache_miss"}}\n\t{"components": [3, null]}',
    "key of a mapping": '{"artifact": {"name": "fx_graph_cache_miss"}}\n\t{"components": ["[a] b"], "key": {}}',
    "reasons of numbers": '{"artifact": {"name": "recompile_reasons"}}\n\t[1, null, "0/0: x"]',
    "version of a list": '{"artifact": {"name": "torch_version"}}\n\t[]',
}  # fmt: skip

BAD = {
    "no JSON": ("{", "its JSON cannot be read"),
    "no UTF-8": (b'{"\xff": 1}', "its JSON cannot be read"),
    "bottomless nesting": ('{"x": %s}' % ("[" * 100_000), "its JSON cannot be read"),
    "a number of 5,000 digits": ('{"x": %s}' % ("9" * 5000), "its JSON cannot be read"),
    "no type": ("{%s}" % IDS, "a record without a type"),
    "an empty record": ("{}", "a record without a type"),
}


@pytest.mark.parametrize("name", KEPT)
def test_an_odd_record_is_kept_and_everything_about_it_can_be_looked_at(name: str) -> None:
    found = read_bytes([(PREFIX + KEPT[name] + "\n").encode()], "odd")
    (log,) = found.outline.logs
    assert sum(log.records.values()) == 1
    data = found.data
    files.check(data)
    assert files.unpack(files.pack(data)) == data
    recording = Recording(found)
    assert str(recording)
    for field in log_tables.LISTS:
        log_tables.rows(data, data.strings, field)
    assert len(recording.events) + len(recording.logs) >= 1


@pytest.mark.parametrize("name", BAD)
def test_a_line_that_is_no_record_is_reported_with_its_number_and_the_next_is_read(name: str) -> None:
    text, reason = BAD[name]
    line = PREFIX.encode() + (text if isinstance(text, bytes) else text.encode())
    good = f'{PREFIX}{{"dynamo_start": {{}}, {IDS}}}\n'.encode()
    (log,) = read_bytes([good, line + b"\n\ttext of it\n\tand more\n", good], "odd").outline.logs
    assert [bad.line for bad in log.bad] == [2]
    assert reason in log.bad[0].reason
    assert "2 lines of text after it left out" in log.bad[0].reason
    assert log.records == {"dynamo_start": 2}
    assert log.lines == 5


def split(content: bytes, size: int) -> list[Record | Bad]:
    splitter = Splitter()
    found = [item for at in range(0, len(content), size) for item in splitter.feed(content[at : at + size])]
    return [*found, *splitter.finish()]


@pytest.mark.parametrize("size", [1, 2, 7, 1000])
def test_the_pieces_in_which_a_log_comes_do_not_matter(size: int) -> None:
    content = (
        f'{PREFIX}{{"a": 1}}\n\tone\n\n\t\n{PREFIX}{{"b": 2}}\n\t\n\ttwo\nnonsense\n\ttext\n{PREFIX}{{"c": 3}}'.encode()
    )
    assert split(content, size) == split(content, len(content))
    kinds = [item.kind if isinstance(item, Record) else item.line for item in split(content, size)]
    assert kinds == ["a", "b", 8, "c"]


def test_a_long_text_that_comes_in_many_pieces_is_put_together_once() -> None:
    """40,000 pieces: if each were joined to all before it, this would copy 50 GB."""
    content = f'{PREFIX}{{"a": 1}}\n'.encode() + b"\tsome of a long text\n" * 120_000
    (record,) = split(content, 64)
    assert isinstance(record, Record)
    assert len(record.text) == len(content) - content.index(b"\t") - 120_000 - 1


@pytest.mark.parametrize(
    "text",
    [
        "x  # " * 50_000,
        "x" + " " * 500_000 + "y",
        "x  # " + ":1 in " * 50_000 + "(",
        "\n" * 500_000,
        "(HINT: " * 50_000,
    ],
)
def test_a_guard_of_any_text_is_read_in_a_time_that_grows_with_its_length(text: str) -> None:
    """Each of these took minutes where a pattern tried every beginning with every end."""
    assert guard_texts.made(text).guard is not None
    assert len(list(guard_texts.tree("+- A: " + text.replace("\n", " ")))) <= 1


def test_the_users_line_may_have_a_comment_of_its_own() -> None:
    made = guard_texts.made(
        "L['n'] == 2        # y = x * n  # twice  # m.py:4 in f (HINT: mark it)\nUser stack trace:\n  File"
    )
    assert made == guard_texts.Made("L['n'] == 2", "y = x * n  # twice", "m.py:4 in f", "  File", "HINT: mark it")


def test_a_text_that_does_not_match_its_checksum_is_read_and_reported() -> None:
    line = f'{PREFIX}{{"aot_joint_graph": {{}}, {IDS}, "has_payload": "{"0" * 32}"}}\n\tclass G:\n'
    found = read_bytes([line.encode()], "odd")
    (bad,) = found.outline.logs[0].bad
    assert "does not match its checksum" in bad.reason
    assert Recording(found).artifacts.text.tolist() == ["class G:"]


def test_a_text_that_is_missing_is_reported() -> None:
    line = f'{PREFIX}{{"aot_joint_graph": {{}}, {IDS}, "has_payload": "{"0" * 32}"}}\n'
    assert read_bytes([line.encode()], "odd").outline.logs[0].bad[0].reason == "its text is missing"


def test_lines_that_end_as_windows_ends_them_are_read() -> None:
    text = "def f():\n    pass"
    digest = hashlib.md5(text.encode(), usedforsecurity=False).hexdigest()
    body = text.replace("\n", "\r\n\t")
    line = f'{PREFIX}{{"aot_joint_graph": {{}}, {IDS}, "has_payload": "{digest}"}}\r\n\t{body}\r\n'
    assert read_bytes([line.encode()], "odd").outline.logs[0].bad == []


def test_bad_lines_without_end_are_counted_and_the_first_are_shown() -> None:
    (log,) = read_bytes([b"nonsense\n" * 5000], "odd").outline.logs
    assert (log.bad_lines, len(log.bad)) == (5000, 100)
