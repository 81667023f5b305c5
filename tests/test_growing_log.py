"""A log that grows is read piece by piece: at each moment it is told as if it had been read as a whole."""

from __future__ import annotations

import re

import msgspec
import pytest
import torch

import aotviz
from aotviz.logs.assembler import Assembler
from aotviz.logs.growing import GrowingLog
from aotviz.logs.read_trace import read_bytes
from tests import corpus

RECORD = re.compile(rb"^(?=V\d)", re.M)


@pytest.mark.parametrize("name", ["graph_breaks", "recompile_limit", "training", "exports_draft"])
def test_each_state_of_a_log_is_told_as_if_it_was_read_as_a_whole(name: str) -> None:
    content = b"".join(path.read_bytes() for path in sorted(corpus.folder(name).iterdir()))
    records = RECORD.split(content)
    step = max(1, len(records) // 7)
    log, told, whole = GrowingLog("a log"), [], b""
    for start in range(0, len(records), step):
        piece = b"".join(records[start : start + step])
        whole += piece
        log.add(piece)
        now = log.contents()
        told.append((now.outline, msgspec.msgpack.encode(now.outline)))
        assert now.data == read_bytes([whole], "a log").data
    assert len(told) > 5
    assert all(msgspec.msgpack.encode(earlier) == then for earlier, then in told), "reading on changed what was told"


def test_a_watch_that_dropped_what_it_had_read_begins_again() -> None:
    def compiled(rows: int) -> None:
        torch._dynamo.reset()
        torch.compile(lambda x: x * rows, backend="eager")(torch.ones(rows))

    with aotviz.watch(max_bytes=60_000) as recording:
        counts = []
        for rows in range(2, 12):
            compiled(rows)
            counts.append((len(recording), recording.dropped))
            assert str(recording.compilations[-1].graph("dynamo").nodes.target.tolist())
    assert counts[-1][1] > 0
    assert sum(counts[-1]) == 10


def test_after_one_more_compilation_only_its_records_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    handled: list[object] = []
    add = Assembler.add

    def counted(self: Assembler, item: object) -> None:
        handled.append(item)
        add(self, item)

    monkeypatch.setattr(Assembler, "add", counted)
    torch._dynamo.reset()
    step = torch.compile(lambda x, n: x * n, backend="eager", dynamic=False)
    with aotviz.watch() as recording:
        for n in range(6):
            step(torch.ones(2), n)
        assert len(recording.recompiles()) == 5
        first = len(handled)
        step(torch.ones(2), 7)
        assert len(recording.recompiles()) == 6
    assert 0 < len(handled) - first < first / 3
