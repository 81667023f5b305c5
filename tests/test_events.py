"""What a run did is data: frozen events about numbered tensors, from which the statements of the wrapper follow."""

from __future__ import annotations

import contextlib
import dataclasses
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from aotviz.ir.refusals import Refused
from aotviz.ir.view_and_mutation import Layout, Ref, View, Write
from aotviz.tracing import replay
from aotviz.tracing.events import Hooked, Log, MetadataOp, Mode, TensorNumber, Viewed, Wrote
from tests.doors import alone
from tests.oracle.programs import PROGRAMS

QUICK = [name for k, name in enumerate(PROGRAMS) if k % 6 == 1]
aten = torch.ops.aten
T0, T1, T2 = map(TensorNumber, range(3))
ROW, SQUARE = Layout((6,), (1,), 0), Layout((2, 3), (3, 1), 0)
GRAD = Mode(grad=True, inference=False)


def viewed(result: TensorNumber, source: TensorNumber, **changes: Any) -> Viewed:
    event = Viewed((result,), (ROW,), source, SQUARE, aten.view.default, ((6,),), {}, False, False, GRAD)
    return dataclasses.replace(event, **changes)


class Table(replay.States):
    """The states of tensors by hand: all are plain views or owners, and nothing requires grad."""

    def __init__(self, views: set[TensorNumber]) -> None:
        self.views = views

    def requires_grad(self, tensor: TensorNumber) -> bool:
        return False

    def is_view(self, tensor: TensorNumber) -> bool:
        return tensor in self.views

    def stale(self, tensor: TensorNumber) -> bool:
        return False

    data_mutated = stale

    def version(self, tensor: TensorNumber) -> int:
        return 0

    def shares_counter(self, alias: TensorNumber, tensor: TensorNumber) -> bool:
        return True

    def layout(self, tensor: TensorNumber) -> Layout:
        return SQUARE

    def kind(self, tensor: TensorNumber) -> tuple[Any, ...]:
        return ()


def test_events_are_read_without_torch() -> None:
    code = "import sys, aotviz.tracing.events as e; print(e.TensorNumber(3), 'torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "3 False\n" or done.stdout == "t3 False\n"


def test_a_log_is_asked_for_owners_paths_and_writes() -> None:
    first, second = viewed(T1, T0), viewed(T2, T1, operator=aten.detach.default, detaches=True)
    log = Log([first, second, Wrote(T2, GRAD, aten.add_.Tensor), MetadataOp(T0, aten.t_.default, (), {}, GRAD)])
    assert log.root(T2) == T0
    assert log.path(T2) == (T0, [(first, 0), (second, 0)])
    assert log.path(T2, T1.__eq__) == (T1, [(second, 0)])
    assert [k for k, _ in log.writes_to(T0)] == [2]
    assert log.views_in(T1) == []
    assert log.is_viewed(T1)
    log.remove(second)
    assert log.root(T2) == T2
    assert list(log.writes_to(T0)) == []


def test_the_statements_of_the_wrapper_follow_from_a_log() -> None:
    """`v = x.view(6); v.add_(1); return v`: the view is taken before the write, and the write goes to `x`."""
    log = Log([viewed(T1, T0), Wrote(T1, GRAD, aten.add_.Tensor)])
    wanted = replay.Wanted({T0: Ref("input", 0)}, {}, [T1], {}, [], [], {T0: Ref("mutation", 0)})
    steps, refs = replay.Builder(log, Table({T1}), wanted).build()
    assert [type(step) for step in steps] == [View, Write]
    assert steps[0].made == (refs[T1],)
    assert steps[1].source == Ref("input", 0)
    moved = Log([viewed(T1, T0), Wrote(T1, GRAD, aten.add_.Tensor), viewed(T2, T0)])
    wanted = dataclasses.replace(wanted, views=[T2])
    assert [type(step) for step in replay.Builder(moved, Table({T1, T2}), wanted).build()[0]] == [Write, View]


class Answers:
    """Passes on what is asked of the states of a run, and keeps the answers."""

    def __init__(self, states: Any) -> None:
        self.states, self.known = states, dict[Any, Any]()

    def __getattr__(self, name: str) -> Any:
        def ask(*tensors: TensorNumber) -> Any:
            key = (name, *map(int, tensors))
            if self.states is not None:
                self.known[key] = getattr(self.states, name)(*tensors)
            return self.known[key]

        return ask


def inside(value: Any) -> Iterator[Any]:
    if dataclasses.is_dataclass(value):
        value = [getattr(value, one.name) for one in dataclasses.fields(value)]
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, (list, tuple)):
        for one in value:
            yield from inside(one)
    else:
        yield value


@pytest.mark.parametrize("name", QUICK)
def test_what_the_wrapper_repeats_is_a_function_of_the_events(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The events hold no tensor. From their copies, and a table of answers, the same statements follow later, when
    the run is over."""
    built: list[tuple[Log, Answers, replay.Wanted, Any]] = []

    class Builder(replay.Builder):
        def __init__(self, log: Log, states: Any, wanted: replay.Wanted) -> None:
            super().__init__(log, Answers(states), wanted)

        def build(self) -> Any:
            steps = super().build()
            built.append((self.log, self.states, self.wanted, steps))
            return steps

    setup = PROGRAMS[name].builds[0]()
    with monkeypatch.context() as patch, torch.enable_grad(), setup.context():
        patch.setattr(replay, "Builder", Builder)
        with contextlib.suppress(Refused):
            alone(setup.fn, dynamic=PROGRAMS[name].dynamic)(*setup.args, **setup.kwargs)
    for log, answers, wanted, steps in built:
        kept = [dataclasses.replace(event) for event in log.events]
        for value in (one for event in kept if not isinstance(event, Hooked) for one in inside(event)):
            assert not isinstance(value, torch.Tensor)
        again = Log(kept)
        again.below, again.read_data = set(log.below), set(log.read_data)
        again.events_below = {kept[k] for k, event in enumerate(log.events) if event in log.events_below}
        answers.states = None
        assert replay.Builder(again, answers, wanted).build() == steps  # type: ignore[arg-type]


def test_programs_were_compared() -> None:
    assert len(QUICK) > 10
