"""A few hundred of the fuzzer's logs; `python -m tests.torch_trace.fuzz --n 10000` reads more."""

from __future__ import annotations

import pytest

from aotviz.logs.read_trace import read_bytes
from tests import corpus
from tests.torch_trace import fuzz


@pytest.mark.parametrize("start", range(0, 300, 50))
def test_nothing_whole_is_lost_of_a_broken_log(start: int) -> None:
    for seed in range(start, start + 50):
        fuzz.one(seed)


def test_the_fuzzer_counts_as_the_reader_does() -> None:
    """On a log that is whole, so that "nothing is lost" above is a claim about everything."""
    content = (corpus.folder("graph_breaks") / "dedicated_log_torch_trace_0.log").read_bytes()
    (log,) = read_bytes([content], "whole").outline.logs
    assert dict(fuzz.whole_records(content)) == log.records


@pytest.mark.parametrize("damage", fuzz.DAMAGES)
def test_every_damage_damages(damage) -> None:
    rng = fuzz.random.Random(1)
    content = fuzz.excerpt(rng)
    assert any(damage(content, rng) != content for _ in range(20))


def test_a_damaged_recording_is_read_or_refused_in_a_sentence() -> None:
    read = [fuzz.one_recording(seed) for seed in range(40)]
    assert any(read)
    assert not all(read)
