"""Compare a compiled function with the original, by everything that a caller can see.

The facts of its runs are compared with eager's facts of the same name (`observed.py`). Each function object is compiled
once, and later runs reuse the compiled function, as they would in a user's program.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
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
from aotviz.ir.refusals import RanInEager


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
                continue  # already reported as a stride
            if fact.kind == "hidden base" and fact.value is not None and theirs.value is not None:
                visible = name.replace("hidden base", "base")
                if eager.facts[visible].value != other.facts[visible].value:
                    continue  # already reported as a base
            kind = fact.kind
            if kind.endswith("version bump") and theirs.value:
                kind = "extra version bump"
            if kind == "structure" and loose_tuple and _listed(fact.value) == _listed(theirs.value):
                continue
            found.append(Difference(f"{eager.name}: {name}", kind, show(fact.value), show(theirs.value)))
    return found


def _alike(eager: Run, found: Sequence[Difference]) -> list[str]:
    """Which tensors have other values than in eager for one reason: they lie in one storage."""
    storages = eager.facts["storages"].value if "storages" in eager.facts else {}
    groups: dict[int, list[str]] = {}
    for difference in found:
        label = difference.name.removeprefix(f"{eager.name}: ").removesuffix(" values")
        if difference.kind == "values" and label in storages:
            groups.setdefault(storages[label], []).append(label)
    return [
        f"{', '.join(labels[:-1])} and {labels[-1]} share memory in eager: their values differ as one"
        for labels in groups.values()
        if len(labels) > 1
    ]


def _listed(structure: str) -> str:
    """The structure, with a tuple at the top level treated as a list."""
    top = "TreeSpec(tuple"
    return "TreeSpec(list" + structure.removeprefix(top) if structure.startswith(top) else structure


def _identity(fn: Function) -> Any:
    """A key that is equal for two functions with the same code and globals, if they have no closure or defaults."""
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

    brief: only the call and one backward. deep: also hooks, gradients of gradients, and backwards one by one.
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
    alike: list[str] = []
    compiled: dict[Any, tuple[Function, Function]] = {}  # identity -> (fn, compiled fn); keeps fn alive
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("ignore")
        warnings.simplefilter("always", RanInEager)
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
            with candidate.around():
                theirs = run(setup, compiled[key][1], action)
            if eager.failure:  # eager raises for this action; the candidate may raise or not
                if theirs.failure is None and eager.failure.step == "in-place write":
                    found.append(Difference(eager.name, "permissive", str(eager.failure), "no error"))
                continue
            found += (differing := differences(eager, theirs, candidate.loose_tuple))
            alike += _alike(eager, differing)
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
    in_eager: dict[str, str] = {}  # one sentence for each reason
    for text in (str(one.message) for one in said if one.category is RanInEager):
        in_eager.setdefault(text.partition(" because ")[2], text)
    return Verdict(status, tuple(found), tuple(failures), tuple(dict.fromkeys(alike)), tuple(in_eager.values()))
