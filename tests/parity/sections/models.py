"""A training step of whole models, through torch.compile: what it gives beside eager's, its graphs beside torch's."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch._dynamo.backends.common import aot_autograd

from aotviz.frontends.backend import aotviz_eager
from aotviz.ir import graphs
from aotviz.torch_private.partitioners import min_cut_rematerialization_partition
from tests.oracle.compare import same
from tests.oracle.models import FAMILIES, MORE
from tests.oracle.progress import Row, stable

from ..cases import Case
from ..graphs import Graphs, beside, table

TITLE = "Models"
ABOUT = """One training step of each model family, at a tiny size with random weights and with dropout on, through
`torch.compile`: once with backend "aotviz_eager", and once with torch's own AOTAutograd and the same partitioner. Every
output, every gradient (None included) and every buffer is compared with eager. Then the joint, forward and backward
graphs of the two are compared with each other, after renaming. A family *on Inductor* compares backend "aotviz" with
backend "inductor", with one layer instead of two. It allows a relative difference of 1e-3, because Inductor adds up
numbers in another order. Vectorisation is off for funnel on Inductor: with it, Inductor takes over ten minutes to
analyse funnel's indices, under either backend. The models are those of `tests/oracle/models.py`."""

TWO_LAYERS = ("gpt_neo",)  # its layers differ
NOT_VECTORISED = ("funnel",)
SEED = 42


def groups() -> list[str]:
    return [*FAMILIES, *(f"{name} on Inductor" for name in FAMILIES)]


def cases(group: str) -> Iterator[Case]:
    name, _, inductor = group.partition(" on ")
    yield Case(group, lambda: row_of(name, bool(inductor)))


def row_of(name: str, inductor: bool = False) -> Row:
    """One family, judged."""
    first, expected = (step(name, lambda module: module, inductor) for _ in range(2))
    if problem(first, expected):
        return {"skipped": f"eager differs from eager: {problem(first, expected)}"}
    found: dict[str, tuple[str, str, Graphs]] = {}
    for whose, backend in (("ours", ours), ("torch", torchs)):
        kept: Graphs = []
        if inductor:
            options: dict[str, Any] = {"fallback_random": True}  # the numbers that eager draws
            if name in NOT_VECTORISED:
                options["cpp.simdlen"] = 1
            chosen = {"backend": "aotviz" if whose == "ours" else "inductor", "options": options}
        else:
            chosen = {"backend": backend(kept)}
        torch._dynamo.reset()
        try:
            with torch._dynamo.config.patch(allow_rnn=True):
                what = problem(
                    expected, step(name, lambda m, c=chosen: torch.compile(m, **c), inductor), loose=inductor
                )
        except Exception as error:
            found[whose] = "raised", f"{type(error).__name__}: {str(error).strip().splitlines()[0][:150]}", kept
        else:
            found[whose] = ("wrong" if what else "equal"), what, kept
    torch._dynamo.reset()
    row: Row = {w: {"status": s, "cause": stable(c), "text": c} for w, (s, c, _) in found.items()}
    right = {whose: row[whose]["status"] == "equal" for whose in row}
    row["worse"], row["better"] = right["torch"] and not right["ours"], right["ours"] and not right["torch"]
    if not inductor and "raised" not in (row["ours"]["status"], row["torch"]["status"]):
        row["graphs"] = beside(found["ours"][2], found["torch"][2])
    return row


def step(name: str, compiled: Callable[[Any], Any], shallow: bool = False) -> dict[str, Any]:
    """One forward and backward of a fresh model: everything that training would use, by name.

    `shallow` has one layer, where two would give Inductor the same kernels twice.
    """
    make = {**FAMILIES, **MORE}[name]
    module, inputs = make(layers=1) if shallow and name not in TWO_LAYERS else make()
    torch.manual_seed(SEED)
    run = compiled(module)
    inputs = copy.deepcopy(inputs)
    results = run(*inputs[""]) if "" in inputs else run(**inputs)
    results[0].backward()
    found = {f"output {i}": r.detach() for i, r in enumerate(results)}
    found |= {f"requires_grad of output {i}": r.requires_grad for i, r in enumerate(results)}
    found |= {f"gradient of {n}": p.grad for n, p in module.named_parameters()}
    return found | {f"buffer {n}": b for n, b in module.named_buffers()}


def problem(expected: dict[str, Any], found: dict[str, Any], loose: bool = False) -> str:
    """The first thing that differs, or "". `loose` allows for sums in another order."""
    for name, value in expected.items():
        other = found.get(name)
        if loose and isinstance(value, torch.Tensor) and isinstance(other, torch.Tensor) and value.shape == other.shape:
            equal = torch.allclose(value, other, rtol=1e-3, atol=1e-4)
        else:
            equal = name in found and same(value, other)
        if not equal:
            return name
    return ""


def _catching(kept: Graphs) -> Callable[..., Any]:
    def partition(joint: Any, inputs: Any, **others: Any) -> Any:
        if kept and kept[-1]["inputs"] is inputs:
            kept.pop()  # ours cuts again where the backward would read an input that was overwritten
        copied = graphs.copy(joint)
        forward, backward = min_cut_rematerialization_partition(joint, inputs, **others)
        kept.append(
            {"inputs": inputs, "joint": copied, "forward": graphs.copy(forward), "backward": graphs.copy(backward)}
        )
        return forward, backward

    return partition


def ours(kept: Graphs) -> Callable[..., Any]:
    options = {"partition_fn": _catching(kept), "record": False}
    return lambda gm, inputs: aotviz_eager(gm, inputs, options=options)


def torchs(kept: Graphs) -> Callable[..., Any]:
    from functorch.compile import make_boxed_func

    def compiler(gm: Any, inputs: Any) -> Any:
        return make_boxed_func(gm.forward)

    return aot_autograd(fw_compiler=compiler, bw_compiler=compiler, partition_fn=_catching(kept))


def also(rows: list[Row]) -> list[str]:
    """How many are equal to eager on each lowering, and the graphs, a line a family."""
    judged = [row for row in rows if "ours" in row]
    lines = ["### By lowering", "", "| lowering | families | aotviz is equal to eager | torch is |"]
    lines += ["| --- | ---: | ---: | ---: |"]
    for lowering, inductor in (("graphs run as they are", False), ("Inductor", True)):
        chosen = [row for row in judged if row["key"].endswith(" on Inductor") == inductor]
        equal = [sum(row[who]["status"] == "equal" for row in chosen) for who in ("ours", "torch")]
        lines.append(f"| {lowering} | {len(chosen)} | {equal[0]} | {equal[1]} |")
    return [*lines, "", *table(rows), NOTE, ""]


NOTE = """If a pipeline raises an error, no graphs are compared. An example is an LSTM whose input needs no gradient:
torch traces it as one oneDNN operator that passes no workspace to its backward; aotviz traces its individual steps."""
