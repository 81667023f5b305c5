"""Which arguments lie otherwise in memory than before, how they lay, and how they lie now."""

from __future__ import annotations

import pytest
import torch

import aotviz


def program(x, y):
    x.add_(1)
    return x * y


def overlapping():
    base = torch.arange(6.0)
    return base[:4], base[2:]


def apart():
    base = torch.arange(8.0)
    return base[:4], base[4:]


def separate():
    return torch.arange(4.0), torch.arange(4.0)


def same():
    x = torch.arange(4.0)
    return x, x


STATES = {
    overlapping: ("overlapping views of one storage", "overlapped in one storage", "overlap in one storage now"),
    apart: ("apart in one storage", "were parts of one storage", "are parts of one storage now that do not overlap"),
    separate: ("in separate storages", "were in separate storages", "are in separate storages now"),
    same: ("one tensor", "were the same tensor", "are the same tensor now"),
}
PAIRS = [
    (overlapping, separate), (separate, overlapping), (same, separate), (separate, same), (same, overlapping),
    (overlapping, same), (apart, overlapping), (overlapping, apart),
]  # fmt: skip


@pytest.mark.parametrize(("first", "second"), PAIRS, ids=lambda make: make.__name__)
@pytest.mark.usefixtures("clean_dynamo")
def test_our_own_guards_name_both_arguments_and_how_they_lay_and_lie(first, second) -> None:
    compiled = aotviz.compile(program, backend="eager")
    for make in (first, second):
        (x, y), (x_eager, y_eager) = make(), make()
        assert torch.equal(compiled(x, y), program(x_eager, y_eager))
        assert torch.equal(x, x_eager)
    (row,) = compiled.recording.recompiles().itertuples()
    by_dynamo = second is same  # whose guard says only that they were two
    before = ("different tensors", "were different tensors") if by_dynamo else STATES[first]
    assert (row.subject, row.before, row.after) == ("x, y", before[0], STATES[second][0])
    assert f"`x` and `y` {before[1]}" in row.why
    assert f"{STATES[second][2]}." in row.why
    assert "`x` and `y`" in row.fix


@pytest.mark.parametrize("listen", ["watch", "record"])
@pytest.mark.parametrize(("first", "second"), [(same, separate), (same, overlapping), (same, apart), (separate, same)])
def test_dynamos_guards_are_told_alike(first, second, listen: str) -> None:
    torch._dynamo.reset()
    compiled = torch.compile(program, backend="eager" if listen == "watch" else "aotviz_eager")
    with getattr(aotviz, listen)() as recording:
        compiled(*first())
        compiled(*second())
    (row,) = recording.recompiles().itertuples()
    assert row.subject == "x, y"
    before = STATES[first][0] if first is same or listen == "watch" else "different tensors"
    assert (row.before, row.after) == (before, STATES[second][0])


def test_of_three_arguments_the_pair_that_changed_is_named() -> None:
    @aotviz.compile(backend="eager")
    def three(x, y, z):
        y.add_(1)
        return x + y + z

    base = torch.arange(6.0)
    three(torch.ones(4), base[:4], base[2:])
    three(torch.ones(4), base[:4], torch.ones(4))
    (row,) = three.recording.recompiles().itertuples()
    assert (row.subject, row.after) == ("y, z", "in separate storages")
    assert "x" not in row.subject


@pytest.mark.usefixtures("clean_dynamo")
def test_a_view_that_lies_elsewhere_in_the_same_overlap_says_so() -> None:
    compiled = aotviz.compile(program, backend="eager")
    base = torch.arange(8.0)
    compiled(base[:4], base[2:6])
    compiled(base[:4], base[3:7])
    why = compiled.recording.recompiles().why[0]
    assert "x and y share memory in a different way than before" in why
