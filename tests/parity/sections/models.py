"""A training step of whole models, through torch.compile: what it gives beside eager's, its graphs beside torch's."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch._dynamo.backends.common import aot_autograd

from aotviz.backend import aotviz_eager
from aotviz.comparing.graphs import difference
from aotviz.ir import graphs
from aotviz.torch_private.partitioners import min_cut_rematerialization_partition
from tests.oracle.compare import same
from tests.oracle.models import FAMILIES

from ..cases import Case, Row, stable

TITLE = "Models"
ABOUT = """One training step of each model family, at a tiny size with random weights and with dropout on, through
`torch.compile`: backend "aotviz_eager", and torch's own AOTAutograd with the same partitioner. Compared with eager are
every output, every gradient (None included) and every buffer; then the joint, forward and backward graphs of the
two, after renaming. A family *on Inductor* compares backend "aotviz" with backend "inductor", and allows a relative
difference of 1e-3, since sums are taken in another order. The models are those of `tests/oracle/models.py`."""

# lowered to Inductor too: minutes each
INDUCTOR = (
    "gpt2 bert t5 llama resnet convolutions transformer embeddings".split()
)  # lowered to Inductor too: minutes each
Graphs = list[dict[str, Any]]
ROLES = ("joint", "forward", "backward")
SEED = 42


def groups() -> list[str]:
    return [*FAMILIES, *(f"{name} on Inductor" for name in INDUCTOR)]


def cases(group: str) -> Iterator[Case]:
    name, _, inductor = group.partition(" on ")
    yield Case(group, lambda: row_of(name, bool(inductor)))


def row_of(name: str, inductor: bool = False) -> Row:
    """One family, judged."""
    first, expected = step(name, lambda module: module), step(name, lambda module: module)
    if problem(first, expected):
        return {"skipped": f"eager differs from eager: {problem(first, expected)}"}
    found: dict[str, tuple[str, str, Graphs]] = {}
    for whose, backend in (("ours", ours), ("torch", torchs)):
        kept: Graphs = []
        if inductor:
            options = {"fallback_random": True}  # the numbers that eager draws
            chosen = {"backend": "aotviz" if whose == "ours" else "inductor", "options": options}
        else:
            chosen = {"backend": backend(kept)}
        torch._dynamo.reset()
        try:
            with torch._dynamo.config.patch(allow_rnn=True):
                what = problem(expected, step(name, lambda m, c=chosen: torch.compile(m, **c)), loose=inductor)
        except Exception as error:
            found[whose] = "raised", f"{type(error).__name__}: {str(error).strip().splitlines()[0][:150]}", kept
        else:
            found[whose] = ("wrong" if what else "equal"), what, kept
    torch._dynamo.reset()
    row: Row = {w: {"status": s, "cause": stable(c), "text": c} for w, (s, c, _) in found.items()}
    right = {whose: row[whose]["status"] == "equal" for whose in row}
    row["worse"], row["better"] = right["torch"] and not right["ours"], right["ours"] and not right["torch"]
    if not inductor:
        row["graphs"] = _beside(found["ours"][2], found["torch"][2])
    return row


def step(name: str, compiled: Callable[[Any], Any]) -> dict[str, Any]:
    """One forward and backward of a fresh model: everything that training would use, by name."""
    module, inputs = FAMILIES[name]()
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


def _beside(mine: Graphs, theirs: Graphs) -> dict[str, Any]:
    """How many graphs of each kind are torch's, and the first difference."""
    if len(mine) != len(theirs):
        return {"text": f"{len(mine)} compilations against torch's {len(theirs)}", "same": {}, "count": len(mine)}
    count = dict.fromkeys(ROLES, 0)
    text = ""
    for number, (one, other) in enumerate(zip(mine, theirs, strict=True)):
        for role in ROLES:
            found = difference(one[role], other[role])
            count[role] += found is None
            if found is not None and not text:
                text = f"{role} graph {number}: {found.kind}: {found}"
    nodes = sum(len(one["joint"].graph.nodes) for one in mine)
    return {"same": count, "count": len(mine), "nodes": nodes, "text": stable(text)}


def also(rows: list[Row]) -> list[str]:
    """The graphs, a line a family."""
    judged = [row for row in rows if "graphs" in row]
    lines = [
        "### Graphs, after renaming",
        "",
        "| family | graphs | joint nodes | joint | forward | backward | difference |",
    ]
    lines += ["| --- | ---: | ---: | ---: | ---: | ---: | --- |"]
    for row in judged:
        found = row["graphs"]
        counts = [f"{found['same'].get(role, 0)} of {found['count']} same" for role in ROLES]
        text = found["text"].replace("|", "\\|")
        lines.append(f"| {row['key']} | {found['count']} | {found.get('nodes', '')} | {' | '.join(counts)} | {text} |")
    lines += ["", NOTE]
    return [*lines, ""]


NOTE = """*results* in the last column: the graphs return different things. That is so where an output is a view
of another tensor that the graph returns: torch's graph returns the view as well, ours leaves it to the wrapper, which
makes it again from its base. CLIP's `logits_per_text` is the transpose of its `logits_per_image`; the pieces into which
Dynamo cuts Longformer hand views to one another, and six of them read a number off a tensor, where torch's backend
raises, Dynamo runs them uncompiled, and ours compiles them. An LSTM's operator gives no workspace to a backward whose
input needs no gradient, and takes none; neither pipeline gets past that."""
