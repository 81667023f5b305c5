"""A function that is compiled again a hundred times: the work grows with the count, and what is told stays the same."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

import aotviz
from aotviz.explain import misses
from aotviz.explain.rows import Facts
from aotviz.recording import guard_texts
from benchmarks.recompiling import restarts, sizes, values
from tests.explain.logs import logged

KEPT = guard_texts.NEWEST + guard_texts.OLDEST


@pytest.fixture(autouse=True)
def without_limit():
    torch._dynamo.reset()
    with torch._dynamo.config.patch(recompile_limit=1000, accumulated_recompile_limit=1000):
        yield
    torch._dynamo.reset()


def attributes(count: int) -> None:
    class Named:
        name = ""

    named = Named()

    def length(x):
        return x + len(named.name) if named.name != "stop" else x

    compiled = torch.compile(length, backend="eager")
    for number in range(count + 1):
        named.name = f"step {number}"
        compiled(torch.ones(3))


def two_at_once(count: int) -> None:
    """Of every three calls, two share the number and two the size."""

    def scale(x, factor):
        return x * factor

    compiled = torch.compile(scale, backend="eager", dynamic=False)
    for number in range(count + 1):
        compiled(torch.ones(2 + number // 3), 2 + (number + 1) // 3 * 7)


@pytest.mark.parametrize("again", [sizes, values, attributes, two_at_once, restarts])
def test_what_is_told_is_what_all_reasons_together_tell(
    again: Callable[[int], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = logged(lambda: again(40), tmp_path)
    monkeypatch.setattr(guard_texts, "NEWEST", 1000)
    whole = aotviz.read_trace(tmp_path, index=False)
    assert any(record.left_out for record in told.data.recompiles)
    assert not any(record.left_out for record in whole.data.recompiles)
    assert str(told.explain()) == str(whole.explain())
    assert told.recompiles().equals(whole.recompiles())


def test_a_rare_reason_among_many_is_kept(tmp_path: Path) -> None:
    def program() -> None:
        compiled = torch.compile(lambda x, factor: x * factor, backend="eager", dynamic=False)
        compiled(torch.ones(3, dtype=torch.float64), 2)
        for factor in range(2, 30):
            compiled(torch.ones(3), factor)

    recording = logged(program, tmp_path)
    last = recording.data.recompiles[-1]
    assert (len(last.reasons), last.left_out) == (KEPT + 1, 28 - KEPT - 1)
    assert last.reasons[-1].earlier == "0/0", "its dtype differs, while all the others differ in the number"
    assert recording[-1].data.because[-1] == f"guards of {last.left_out} more programs failed likewise"
    assert f"; and {last.left_out} programs likewise." in str(recording.explain(recording[-1].id))


def test_the_work_grows_with_the_recompiles_not_with_their_square(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compared = 0
    compare = misses._miss

    def counted(facts: Facts, *rest):
        nonlocal compared
        compared += 1
        return compare(facts, *rest)

    monkeypatch.setattr(misses, "_miss", counted)
    logged(lambda: sizes(60), tmp_path).explain()
    assert 0 < compared <= 60 * KEPT
