"""Programs that resize the storage of an input: drawn at random, and only such whose values eager defines.

A program is a list of statements about an input `p` of four elements; `x` is what it is filled with, `w` a factor. The
memory is simulated, element by element, so that nothing is read that was freed, or never written. `outcome` runs a
program with a compiled or eager function and returns all that can be compared: results, gradients, the size of the
storage, versions, and what can be read later.

    python -m tests.storage_programs DOOR SEED ...    # a process of its own: a wrong program may crash it
"""

from __future__ import annotations

import linecache
import random
import re
import sys
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed.fsdp  # defines torch.ops.fsdp.copy_

import aotviz
from aotviz.ir.refusals import RanInEager, Refused
from aotviz.lowerings import run_graph

COUNT, BYTES = 4, 4  # elements of `p`, and the bytes of one
ALL = frozenset(range(COUNT))


@dataclass(frozen=True)
class Statement:
    text: str
    reads: frozenset[int] = frozenset()  # elements that must be defined
    writes: frozenset[int] = frozenset()
    saves: bool = False  # autograd saves p itself for the backward
    counted: bool = True  # a write bumps the version, so that autograd refuses what was saved before


WRITES = (
    Statement("p.copy_(x)", writes=ALL),
    Statement("p.mul_(2)", reads=ALL, writes=ALL),
    Statement("p.zero_()", writes=ALL),
    Statement("p[1] = x[1]", writes=frozenset({1})),
    Statement("p[:2] = x[:2]", writes=frozenset({0, 1})),
    Statement("p.view(2, 2)[1].copy_(x[2:])", writes=frozenset({2, 3})),
    Statement("p.view(2, 2).mul_(3)", reads=ALL, writes=ALL),
    Statement("p.data.copy_(x)", writes=ALL, counted=False),
    Statement("p.detach().add_(1)", reads=ALL, writes=ALL),
)
# Under no_grad, as FSDP does: autograd has no formula for it.
FILLS = (Statement("torch.ops.fsdp.copy_(p, x)", writes=ALL, counted=False),)
READS = (
    Statement("out.append(p * 2)", reads=ALL),
    Statement("out.append(p.exp())", reads=ALL),
    Statement("out.append((p.view(2, 2)[1] + 1).sigmoid())", reads=frozenset({2, 3})),
    Statement("out.append(p[:2].clone())", reads=frozenset({0, 1})),
    Statement("out.append(p * w)", reads=ALL, saves=True),
    Statement("y = p.exp(); z = y.sin(); y.untyped_storage().resize_(0); out.append(z.detach())", reads=ALL),
)
OF_ANOTHER = (Statement("out.append(q * 3)", reads=ALL), Statement("q.mul_(2)", reads=ALL, writes=ALL))
RETURNS = ("", "out.append(p)", "out.append(p.view(2, 2))", "out.append(p[1:3])")
KINDS = ("plain", "leaf", "history", "parameter")


@dataclass(frozen=True)
class Program:
    source: str
    kind: str
    first: int  # elements that the storage has room for when the call begins
    shared: bool  # `q` is a view of `p`, passed beside it
    defined: frozenset[int]  # elements of `p` that can be read after the call


def drawn(seed: int) -> Program:
    chance = random.Random(seed)
    while True:
        program = _drawn(chance)
        if re.search(r"[pq]\S*.untyped_storage", program.source):
            return program


def _drawn(chance: random.Random) -> Program:
    kind, first = chance.choice(KINDS), chance.choice((0, 0, 4, 4, 4, 6, 2))
    shared = kind == "plain" and chance.random() < 0.2
    filled = chance.random() < 0.25  # torch.ops.fsdp.copy_ and another write of one input are refused
    writes = FILLS if filled else WRITES + (OF_ANOTHER[1:] if shared else ())
    reads = READS + (OF_ANOTHER[:1] if shared else ())
    room, defined, lines, saved = first, frozenset(range(min(first, COUNT))), [], False
    resize = "{}.untyped_storage().resize_({})"
    for _ in range(chance.randint(3, 9)):
        choice = chance.random()
        if choice < 0.35:
            sizes = [size for size in (0, 0, 2, 4, 4, 6) if not (saved and size < room)]
            room = chance.choice(sizes) if sizes else room
            defined = frozenset(e for e in defined if e < room)
            whose = chance.choice(("p", "p", "p", "p.detach()", "p.view(-1)", "q" if shared else "p"))
            lines.append(resize.format(whose, room * BYTES))
            continue
        options = writes if choice < 0.65 else reads
        fits = [one for one in options if one.reads <= defined and all(e < room for e in one.writes)]
        if saved:
            fits = [one for one in fits if not one.writes]
        if not fits:
            continue
        one = chance.choice(fits)
        defined |= one.writes
        saved |= one.saves
        quiet = one.writes and (filled or kind in ("leaf", "parameter") or chance.random() < 0.4)
        lines.append(f"with torch.no_grad(): {one.text}" if quiet else one.text)
    lines.append(chance.choice(RETURNS if room >= COUNT else RETURNS[:2]))
    if chance.random() < 0.4 and not saved:
        room, defined = 0, frozenset()
        lines.append(resize.format("p", 0))
    body = "".join(f"    {line}\n" for line in lines if line)
    return Program(f"def f(p, q, x, w):\n    out = []\n{body}    return tuple(out)\n", kind, first, shared, defined)


def function(program: Program, seed: int) -> Callable[..., Any]:
    name = f"<storage program {seed}>"
    linecache.cache[name] = (len(program.source), None, program.source.splitlines(keepends=True), name)
    space: dict[str, Any] = {"torch": torch}
    exec(compile(program.source, name, "exec"), space)
    return space["f"]


def outcome(program: Program, fn: Callable[..., Any]) -> list[Any]:
    base = torch.tensor([0.5, 1.5, -1.0, 2.0])
    w = torch.tensor([3.0, 1.0, 2.0, -1.0])
    p, asks = base.clone(), program.kind != "plain"
    leaf = p
    if asks:
        w.requires_grad_()
    if program.kind == "leaf":
        p.requires_grad_()
    elif program.kind == "parameter":
        leaf = p = torch.nn.Parameter(p)
    elif program.kind == "history":
        leaf = p.requires_grad_()
        p = leaf * 1
    p.untyped_storage().resize_(program.first * BYTES)
    q = p.view(-1) if program.shared else torch.zeros(4)
    before, x = p._version, torch.tensor([1.0, 2.0, 3.0, 4.0])
    out = fn(p, q, x, w)
    storage = p.untyped_storage()
    found: list[Any] = [storage.size(), p._version - before, p.requires_grad, p.is_leaf, tuple(p.shape)]
    for one in out:
        value = None if one is p or one._base is not None else one.detach().clone()
        whose = (
            "p"
            if one is p
            else "a view of p"
            if one._base is not None and (one._base is p or one._base is p._base)
            else ""
        )
        found += [whose, one.requires_grad, tuple(one.shape), value]
    values = [one for one in out if one.grad_fn is not None and one is not p and one._base is None]
    if asks and values:
        loss = sum((one * (k + 1)).sum() for k, one in enumerate(values))
        gradients = torch.autograd.grad(loss, [leaf, w], allow_unused=True)
        found += [None if g is None else g.clone() for g in gradients]
    storage.resize_(6 * BYTES)  # what was left is still there
    found += [p.detach()[e].item() for e in sorted(program.defined)]
    return found


def same(one: Any, other: Any) -> bool:
    if isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor):
        return torch.allclose(one, other)
    return type(one) is type(other) and one == other


def compiled(door: str, fn: Callable[..., Any]) -> Callable[..., Any]:
    """`door`: one of torch.compile's backends, "aot_function", "min-cut", or "cached FOLDER"."""
    name, _, folder = door.partition(" ")
    if name in ("aot_function", "min-cut", "cached"):
        partition = "default_partition" if name == "aot_function" else "min_cut_rematerialization_partition"
        return aotviz.aot_function(fn, run_graph, partition_fn=partition, cache=folder or False)
    torch._dynamo.reset()
    return torch.compile(fn, backend=door)


def judged(door: str, seed: int) -> str:
    program = drawn(seed)
    fn = function(program, seed)
    try:
        expected = outcome(program, fn)
    except RuntimeError as error:
        return f"eager raises: {str(error)[:60]}"
    with warnings.catch_warnings(record=True) as told, aotviz.record() as recording:
        warnings.simplefilter("always")
        try:
            found = outcome(program, compiled(door, fn))
        except Refused as error:
            return f"refused: {str(error)[:100]}"
    if len(expected) != len(found) or not all(map(same, expected, found)):
        return f"WRONG\n{program}\n{program.source}\n{expected}\n{found}"
    ran = [str(one.message) for one in told if issubclass(one.category, RanInEager)]
    hit = "hit and " if len(recording.cache_lookups) and recording.cache_lookups["outcome"].iloc[0] == "hit" else ""
    return f"ran in eager: {ran[0][:100]}" if ran else f"{hit}right"


if __name__ == "__main__":
    for seed in map(int, sys.argv[2:]):
        print(seed, end=" ", flush=True)
        try:
            print(judged(sys.argv[1], seed), flush=True)
        except Exception as error:
            print(f"FAILED {type(error).__name__}: {str(error)[:1500]}\n{drawn(seed).source}", flush=True)
