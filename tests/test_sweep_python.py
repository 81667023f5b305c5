"""A sample of `make sweep-python`: what a program reads from Python is read again when it has changed."""

from __future__ import annotations

import pytest

from tests.sweeps.python import __main__ as sweep
from tests.sweeps.python.judging import compared, judged, outcome
from tests.sweeps.python.programs import PROGRAMS

SAMPLE = [
    "environment: os.environ[...]",
    "cache: attribute set at the first call",
    "state: counter on a module",
    "state: list of results",
    "patched: method of an instance",
    "container: order of a dict",
    "class: enum as a key",
    "argument: Python float that changes every call",
    "mode: grad mode",
    "random: Python's random",
    "closure: NumPy array",
    "default argument: int",
]


@pytest.mark.parametrize("key", SAMPLE)
def test_a_changed_value_is_read_again(key: str) -> None:
    assert judged(key, ("aotviz_eager",)) == {"aotviz_eager": {"status": "equal", "why": ""}}


def test_there_are_at_least_150_programs_and_each_makes_several_calls() -> None:
    assert len(PROGRAMS) >= 150
    calls = {key: len(outcome(key, lambda f: f)) - 1 for key in PROGRAMS}
    assert min(calls.values()) >= 2, [key for key, count in calls.items() if count < 2]


def test_every_program_notices_a_change_that_is_missed() -> None:
    """A way of compiling that goes on with the first call's result differs from eager in every program."""

    def frozen(function):
        known = []

        def call(*args, **kwargs):
            known.append(function(*args, **kwargs) if not known else known[0])
            return known[0]

        return call

    missed = [key for key in PROGRAMS if compared(key, frozen, outcome(key, lambda f: f))["status"] == "equal"]
    assert missed == []


def test_what_the_sweep_found_is_made_into_tables_that_tell_dynamos_faults_apart() -> None:
    equal, wrong = {"status": "equal", "why": ""}, {"status": "wrong", "why": "call 2"}
    rows = {key: {"key": key, **dict.fromkeys(sweep.WAYS, equal)} for key in PROGRAMS}
    first, second, third = list(PROGRAMS)[:3]
    rows[first] = {**rows[first], sweep.OURS: wrong}
    rows[second] = {**rows[second], **dict.fromkeys(sweep.WAYS, wrong)}
    rows[third] = {"key": third, "crashed": True}
    found = sweep.found(rows)
    counts, groups, ours, dynamos, crashed = found["tables"]
    every = len(PROGRAMS)
    assert {row[0]: row[1] for row in counts["rows"]} == dict.fromkeys(sweep.WAYS, every - 2) | {sweep.OURS: every - 3}
    assert ours["rows"] == [[first, sweep.OURS, "wrong", "call 2"]]
    assert {row[0] for row in dynamos["rows"]} == {second}
    assert crashed["rows"] == [[third]]
    assert [sweep.is_behind(rows[key]) for key in (first, second, third)] == [True, False, True]
    assert sum(row[1] for row in groups["rows"]) == len(PROGRAMS) - 1
