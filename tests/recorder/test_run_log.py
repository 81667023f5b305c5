"""The events of a recording are what the function did, in eager's order, and the facts are those of the tables."""

from __future__ import annotations

import re

import msgspec
import pytest
import torch

import aotviz
from aotviz.ir.refusals import Refused
from aotviz.reading.recording import Compilation
from aotviz.recorder.run_log import _Log
from aotviz.recording.schema import RecordingData
from tests.doors import alone
from tests.oracle import strategy
from tests.oracle.compare import Trial
from tests.oracle.programs import PROGRAMS
from tests.recorder.run_order import disagreements

QUICK = [name for k, name in enumerate(PROGRAMS) if k % 8 == 0]
# A view that in_storage replaces by as_strided of the owner is regenerated as that, and so is not recognised.
KNOWN = {13}


def found(program: Trial) -> list[str]:
    """Nothing for a program that is refused."""
    try:
        return disagreements(program.builds[0], lambda fn: alone(fn, dynamic=program.dynamic), lambda f: f.recording[0])
    except Refused:
        return []


@pytest.mark.parametrize("name", QUICK)
def test_views_and_writes_of_some_programs_come_in_eagers_order(name: str) -> None:
    assert found(PROGRAMS[name]) == []


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in PROGRAMS if name not in QUICK])
def test_views_and_writes_of_all_other_programs_come_in_eagers_order(name: str) -> None:
    assert found(PROGRAMS[name]) == []


@pytest.mark.slow
def test_views_and_writes_of_random_programs_come_in_eagers_order() -> None:
    assert {k for k in range(120) if found(strategy.from_seed(34, k).program)} == KNOWN


def test_the_tests_above_can_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_Log, "_taken_again", lambda self: set())
    assert found(PROGRAMS["input_is_mutated_through_a_view"])


def recorded(program: Trial) -> Compilation | None:
    setup = program.builds[0]()
    compiled = alone(setup.fn, dynamic=program.dynamic)
    try:
        with torch.enable_grad(), setup.context():
            compiled(*setup.args, **setup.kwargs)
    except Refused:
        return None
    return compiled.recording[0]


@pytest.mark.parametrize("name", QUICK)
def test_each_fact_is_in_the_tables_of_inputs_and_outputs(name: str) -> None:
    compilation = recorded(PROGRAMS[name])
    if compilation is None:
        return
    data, strings = compilation.data, compilation.strings
    assert data.run is not None
    facts = {
        (strings[one.subject], strings[one.fact]) for event in data.run.events for one in event.made if one.fact >= 0
    }
    told = {
        "data": {one.name for one in data.inputs if one.mutates_data},
        "metadata": {one.name for one in data.inputs if one.mutates_metadata},
        "set_": {one.name for one in data.inputs if one.storage_replaced},
        "storage resized": {one.name for one in data.inputs if one.storage_resized},
    }
    for fact, names in told.items():
        if fact != "metadata":  # of which set_ and what lies elsewhere after resize_ are kinds
            assert {subject for subject, one in facts if one == fact} == names, fact
    tensors = [one for one in data.outputs if one.dtype.startswith("torch.")]
    assert {(one.name, one.output_type) for one in tensors} == {(s, f) for s, f in facts if f not in told}


def test_a_write_says_who_repeats_it_and_that_is_so() -> None:
    def step(a, b):
        a.add_(1)
        with torch.no_grad():
            b.mul_(2)
        return a.sum() + b.sum()

    compiled = alone(step)
    compiled(torch.ones(3, requires_grad=True) * 1, torch.ones(3))
    compilation = compiled.recording[0]
    writes = compilation.events[compilation.events.what == "write"]
    assert writes["mode"].tolist() == ["", "no_grad"]
    by_wrapper = [re.match(r"\w+", text)[0] for text in writes.made if "the wrapper writes it" in text]
    assert "a" in by_wrapper
    notes = compilation.wrapper.notes
    assert all(any(name == note.subject for note in notes) for name in by_wrapper)


def test_what_is_not_an_operator_is_an_event_too() -> None:
    def g(x, w):
        w.register_hook(lambda g: g * 2)
        h = torch.nn.functional.dropout(x @ w, 0.5)
        h.register_hook(lambda g: g * 3)
        y = x.data
        return h.sum() + y.sum()

    compiled = alone(g)
    compiled(torch.ones(3, 3), torch.ones(3, 3, requires_grad=True))
    events = compiled.recording[0].events
    assert events.what.tolist() == ["argument", "argument", "hook", "random", "hook", "detach", "result"]
    assert events.operator[3] == "aten.native_dropout.default"
    assert events.made.tolist()[2] == "w: the wrapper registers it in each call"
    assert events.made.tolist()[4] == "it is part of the backward graph"


def test_a_resized_storage_and_a_mark_are_events() -> None:
    def f(x, y):
        x.untyped_storage().resize_(0)
        y.requires_grad_()
        return y * 2

    compiled = alone(f)
    compiled(torch.ones(3), torch.ones(3))
    events = compiled.recording[0].events
    assert events.operator.tolist()[2:4] == ["resize_(0)", "requires_grad_()"]
    assert events.made[2] == "x: storage resized: the wrapper repeats it on the caller's tensor"


def test_one_tensor_has_one_number_also_if_it_is_passed_twice() -> None:
    compiled = alone(lambda a, b: (a.view(-1), b.view(-1)))
    x = torch.ones(2, 2)
    compiled(x, x)
    events = compiled.recording[0].events
    assert events.tensor_number.tolist()[:2] == [0, 0]
    assert events[events.what == "view"].of_number.tolist() == [0, 0]


def test_a_recording_without_events_still_opens() -> None:
    f = alone(lambda x: x + 1)
    f(torch.ones(2))
    data = msgspec.to_builtins(f.recording.data)
    del data["compilations"][0]["run"]
    opened = Compilation(msgspec.convert(data, RecordingData).compilations[0], f.recording.data.strings)
    assert opened.data.run is None
    assert "made" in opened.events.columns


def test_events_of_several_compilations_keep_their_texts(tmp_path) -> None:
    with aotviz.record() as recording:
        for fn in (lambda x: x.sin().view(-1), lambda x: x.add_(1)[0]):
            alone(fn)(torch.ones(2))
    recording.save(tmp_path / "two.aotviz")
    for before, after in zip(recording, aotviz.load(tmp_path / "two.aotviz"), strict=True):
        assert after.events.equals(before.events)
        assert before.events.what[0] == "argument"


def test_events_survive_a_file(tmp_path) -> None:
    f = aotviz.compile(lambda x: x.add_(1)[0], backend="eager")
    f(torch.ones(2))
    f.recording.save(tmp_path / "a.aotviz")
    again = aotviz.load(tmp_path / "a.aotviz")[0].events
    assert again.equals(f.recording[0].events)
