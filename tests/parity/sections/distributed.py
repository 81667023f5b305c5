"""Training on several ranks, through torch.compile: losses, gradients and parameters beside eager's."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import torch

import aotviz
from tests.distributed.programs import ON_INDUCTOR, PROGRAMS
from tests.distributed.ranks import EAGER, OURS, Found, Ranks
from tests.oracle.progress import Row
from tests.oracle.sweep_ops import stable

from ..cases import Case

TITLE = "Distributed training"
ABOUT = """Three steps of AdamW on a transformer with two small layers, on 2 and 4 ranks. The ranks are processes on one
machine that communicate through gloo. The programs are data parallel (DDP), sharded (FSDP2), tensor parallel, sequence
parallel and pipeline parallel. Each is compiled by `aotviz.compile` with backend "eager" and by `torch.compile` with
"aot_eager"; *on Inductor*, both use "inductor". After each step and on each rank, the loss, every gradient and every
parameter are compared with the uncompiled program. They must be equal to the last bit; the tolerance is 1e-4 on
Inductor and 1e-6 for DDP on 4 ranks. (After the first step, DDP arranges the gradients in buckets in the order in which
they were ready, and a compiled backward returns them all at once. With more than two ranks, a gradient's position in
its bucket decides in which order gloo adds up the ranks' values.) The programs are those of
`tests/distributed/programs.py`; `make sweep-distributed` writes this section."""

SECONDS = 240.0  # for one program with one backend
ONLY_ON_4 = ("FSDP2 and tensor parallel",)
BACKENDS = {"ours": tuple(OURS), "torch": ("aot_eager", "inductor")}


def groups() -> list[str]:
    return ["2 ranks", "4 ranks", "2 ranks on Inductor"]


def cases(group: str) -> Iterator[Case]:
    """The ranks are started once a group, and again after a failure."""
    world, inductor = int(group.split()[0]), group.endswith("Inductor")
    names = ON_INDUCTOR if inductor else [name for name in PROGRAMS if world == 4 or name not in ONLY_ON_4]
    with Ranks(world) as ranks:
        for name in names:
            yield Case(f"{group}#{name}", partial(row_of, ranks, name, inductor))


def row_of(ranks: Ranks, name: str, inductor: bool) -> Row:
    """One program, judged."""
    expected = ranks.train(name, EAGER, SECONDS)
    raised = next((one.raised for one in expected if one.raised), "")
    if raised:
        return {"skipped": f"eager raises {raised.partition(':')[0]}"}
    row: Row = {}
    for whose, backends in BACKENDS.items():
        found = ranks.train(name, backends[inductor], SECONDS)
        status, cause = judged(found, expected, tolerance(name, ranks.world, inductor))
        row[whose] = {"status": status, "cause": stable(cause), "text": cause}
        if whose == "ours":
            row["recorded"] = [recorded(one) for one in found]
    right = {whose: row[whose]["status"] == "equal" for whose in BACKENDS}
    row["worse"], row["better"] = right["torch"] and not right["ours"], right["ours"] and not right["torch"]
    return row


def tolerance(name: str, world: int, inductor: bool) -> float:
    """How far the compiled program may be from the eager one, relative to the numbers compared; see `ABOUT`."""
    if inductor:
        return 1e-4
    return 1e-6 if name.startswith("DDP") and world > 2 else 0.0


def judged(found: Sequence[Found], expected: Sequence[Found], tolerance: float) -> tuple[str, str]:
    """(status, cause) of what the ranks found."""
    raised = [one.raised for one in found if one.raised]
    if raised:  # the first cause, not that others waited for it
        return "raised", min(raised, key=lambda text: "waited for a rank" in text)
    for rank, (mine, eager) in enumerate(zip(found, expected, strict=True)):
        for step, (tensors, others) in enumerate(zip(mine.steps, eager.steps, strict=False)):
            if len(tensors) != len(others) or not all(map(partial(same, tolerance), tensors, others)):
                return "wrong", f"values from step {step + 1} on, rank {rank}"
        if len(mine.steps) != len(eager.steps):
            return "wrong", "number of steps"
    return "equal", ""


def same(tolerance: float, first: Any, second: Any) -> bool:
    return first.dtype == second.dtype and torch.allclose(first, second, tolerance, tolerance / 10, equal_nan=True)


def recorded(found: Found) -> list[str]:
    """What one rank compiled: of each compilation its name, and the operators of its largest graph."""
    if found.recording is None:
        return []
    return [f"{one.name}: {one.nodes} nodes" for one in aotviz.load(found.recording)]


def also(rows: list[Row]) -> list[str]:
    """How the recordings of the ranks compare."""
    having = [row for row in rows if row.get("recorded") and any(row["recorded"])]
    if not having:
        return []
    lines = [
        "### The recordings of the ranks",
        "",
        "How many compilations aotviz recorded on each rank, and whether all ranks compiled the same programs.",
        "",
        "| program | ranks | compilations a rank | the same on all |",
        "| --- | ---: | --- | --- |",
    ]
    for row in having:
        group, _, name = row["key"].partition("#")
        counts = [len(one) for one in row["recorded"]]
        many = str(counts[0]) if len(set(counts)) == 1 else ", ".join(map(str, counts))
        alike = all(one == row["recorded"][0] for one in row["recorded"])
        lines.append(f"| {name} | {group.removesuffix(' ranks')} | {many} | {'yes' if alike else 'no'} |")
    return lines
