"""Is a compiled function the same as the function? Everything that a caller can see is looked at.

A candidate is judged by comparing the facts of its runs with eager's, name by name (`facts.py`). It is compiled once
per function object and reused by later runs, as a user would do.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from aotviz.comparing.observed import (
    Candidate,
    Difference,
    EagerRaised,
    Failure,
    Function,
    Run,
    Setup,
    Trial,
    Verdict,
    run,
    same,
)


def show(value: Any) -> str:
    if isinstance(value, torch.Tensor):
        return f"{str(value.dtype).removeprefix('torch.')}{value.tolist()}"[:160]
    return repr(value)[:400]


def differences(eager: Run, other: Run, loose_tuple: bool = False) -> list[Difference]:
    found = []
    for name, fact in eager.facts.items():
        theirs = other.facts.get(name)
        if theirs is None:
            if other.failure is None:
                found.append(Difference(f"{eager.name}: {name}", fact.kind, show(fact.value), "absent"))
        elif not same(fact.value, theirs.value):
            if fact.kind == "idle stride" and other.facts[name.replace("idle stride", "stride")].value != (
                eager.facts[name.replace("idle stride", "stride")].value
            ):
                continue  # already told as a stride
            if fact.kind == "hidden base" and fact.value is not None and theirs.value is not None:
                visible = name.replace("hidden base", "base")
                if eager.facts[visible].value != other.facts[visible].value:
                    continue  # already told as a base
            kind = fact.kind
            if kind.endswith("version bump") and theirs.value:
                kind = "extra version bump"
            if kind == "structure" and loose_tuple and _listed(fact.value) == _listed(theirs.value):
                continue
            found.append(Difference(f"{eager.name}: {name}", kind, show(fact.value), show(theirs.value)))
    return found


def _listed(structure: str) -> str:
    """The structure with a tuple at the top read as a list."""
    top = "TreeSpec(tuple"
    return "TreeSpec(list" + structure.removeprefix(top) if structure.startswith(top) else structure


def _identity(fn: Function) -> Any:
    """Two functions of one code object and one set of globals that close over nothing are the same function."""
    code = getattr(fn, "__code__", None)
    if code is None or fn.__closure__ or fn.__defaults__:
        return id(fn)
    return code, id(fn.__globals__)


@dataclass(frozen=True)
class Expectation:
    """Eager's runs of every build of a program: (build index, action) -> Run."""

    runs: tuple[tuple[int, tuple[Any, ...], Run], ...]


def expect(program: Trial, brief: bool = False, deep: bool = False) -> Expectation:
    """Run the program in eager, with every action that its outputs allow.

    brief: the call and one backward. deep: hooks, gradients of gradients and one output after the other as well.
    """
    runs: list[tuple[int, tuple[Any, ...], Run]] = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for b, build in enumerate(program.builds):

            def go(action: tuple[Any, ...], b: int = b, build: Callable[[], Setup] = build) -> Run:
                setup = build()
                done = run(setup, setup.fn, action)
                runs.append((b, action, done))
                return done

            first = go(("call",))
            if first.failure:
                raise EagerRaised(first.failure)
            if not brief:
                go(("write",))
            outputs, mutated = first.differentiable, first.mutated
            if outputs or mutated:
                go(("backward", "all", outputs, mutated))
            if brief:
                continue
            if len(outputs) + len(mutated) > 1:
                for k in outputs[:4]:
                    go(("backward", "one", (k,), ()))
            if outputs:
                go(("backward", "twice", outputs, mutated))
            if len(outputs) > 1:
                go(("backward", "in turn", outputs[:4], ()))
            if deep and outputs:
                for k in outputs[:3]:
                    go(("hooked", "one", (k,), (), first.untouched))
                go(("double", "all", outputs, mutated))
                go(("backward", "one by one", outputs[:4], ()))
            for k in outputs[:3]:
                go(("inplace", k, outputs, mutated))
    return Expectation(tuple(runs))


def judge(program: Trial, candidate: Candidate, expected: Expectation | None = None) -> Verdict:
    """Compare the candidate with eager on every build and action of the program."""
    try:
        expected = expected or expect(program)
    except EagerRaised as error:
        return Verdict("eager raised", failures=(("eager", error.failure),))
    found: list[Difference] = []
    failures: list[tuple[str, Failure]] = []
    compiled: dict[Any, tuple[Function, Function]] = {}  # by function; also keeps the function alive
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        candidate.reset()
        for b, action, eager in expected.runs:
            setup = program.builds[b]()
            key = _identity(setup.fn)
            if key not in compiled:
                try:
                    compiled[key] = (setup.fn, candidate.compile(setup.fn, program.dynamic))
                except Exception as error:
                    failures.append((eager.name, Failure.of(error, "compile")))
                    break
            theirs = run(setup, compiled[key][1], action)
            if eager.failure:  # eager refuses the action; a candidate may refuse it or not
                if theirs.failure is None and eager.failure.step == "in-place write":
                    found.append(Difference(eager.name, "permissive", str(eager.failure), "no error"))
                continue
            found += differences(eager, theirs, candidate.loose_tuple)
            if theirs.failure:
                failures.append((eager.name, theirs.failure))
                if theirs.failure.step == "call":
                    break
    if any(not d.soft for d in found):
        status = "wrong"
    elif failures:
        status = "raised"
    else:
        status = "details" if found else "equal"
    return Verdict(status, tuple(found), tuple(failures))
