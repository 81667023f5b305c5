"""What a section is made of: cases, each of which judges itself and leaves a row.

A row is plain JSON, either `{"skipped": why}` or

    {"ours": {"status": ..., "cause": ...}, "torch": {"status": ..., "cause": ...}, "worse": bool, "better": bool}

where a status is "equal", "details", "wrong" or "raised" against eager. `worse` says that torch is right and ours is
not. A cause is a label under which failures of one kind fall together; it must be the same in every run.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module
from types import ModuleType
from typing import Any

import torch
from torch.utils._pytree import tree_flatten

from tests.oracle.compare import CANDIDATES, Candidate, EagerRaised, Program, eager_itself, expect, judge
from tests.oracle.fuzz import cause, worse
from tests.oracle.sweep_ops import name_of, sample_program

from .sections import SECTIONS

Row = dict[str, Any]
BOTH = ("ours", "torch")


@dataclass(frozen=True)
class Case:
    """One comparison; `key` is unique in its section and the same in every run."""

    key: str
    judge: Callable[[], Row]


def section(name: str) -> ModuleType:
    """The module of a section, by its name in SECTIONS."""
    if name not in SECTIONS:
        raise SystemExit(f"there is no section {name!r}; there are {', '.join(SECTIONS)}")
    return import_module(f"tests.parity.sections.{name}")


def skipped(key: str, why: str) -> Case:
    """A case that is listed and not run."""
    return Case(key, lambda: {"skipped": why})


def program_case(key: str, program: Program, candidates: Mapping[str, Callable[[], Candidate]] = CANDIDATES) -> Case:
    """A program of `tests.oracle`, judged through `candidates["ours"]` and `candidates["torch"]`."""
    return Case(key, lambda: judge_program(program, candidates))


def judge_program(program: Program, candidates: Mapping[str, Callable[[], Candidate]]) -> Row:
    """The row of one program."""
    try:
        expected = expect(program, brief=True)
    except EagerRaised as error:
        return {"skipped": f"eager raises {error.failure.type}"}
    again = judge(program, eager_itself(), expected)
    if again.status != "equal":
        return {"skipped": f"eager differs from eager ({stable(cause(again))})"}
    verdicts = {name: judge(program, candidates[name](), expected) for name in BOTH}
    row: Row = {
        name: {"status": v.status, "cause": stable(cause(v)), "text": str(v)[:1500]} for name, v in verdicts.items()
    }
    row["worse"] = worse(verdicts["ours"], verdicts["torch"])
    row["better"] = worse(verdicts["torch"], verdicts["ours"])
    return row


def sample_case(key: str, op: Any, sample: Any) -> Case:
    """An OpInfo's sample input: its tensors are the arguments, and all else is closed over."""
    flat, spec = tree_flatten(((sample.input, *sample.args), sample.kwargs))
    tensors = [x for x in flat if isinstance(x, torch.Tensor)]
    if any(t.layout is not torch.strided or type(t) not in (torch.Tensor, torch.nn.Parameter) for t in tensors):
        return skipped(key, "not a plain strided tensor")
    return program_case(key, sample_program(key, op, flat, spec))


def op_cases(op: Any) -> Iterator[Case]:
    """Every float32 sample of an OpInfo."""
    for k, sample in enumerate(op.sample_inputs("cpu", torch.float32, requires_grad=op.supports_autograd)):
        yield sample_case(f"{name_of(op)}#{k}", op.op, sample)


def stable(text: str) -> str:
    """`text` without what differs between two machines: addresses and paths."""
    return re.sub(r"(?:/[\w.+-]+){2,}|0x[0-9a-f]+", "…", text)


def all_cases(module: ModuleType) -> Iterator[Case]:
    for group in module.groups():
        yield from module.cases(group)
