"""What a caller can see of one call, as named, plain values.

A program runs on freshly built inputs, so that runs do not affect each other. A run returns *facts*: shapes, strides,
bases, shared storages, gradients, version counters. Reading some facts changes others, so a program runs several times,
each time with another *action*:

    call       the forward, then everything that can be seen without changing anything
    backward   the forward, then a loss over all differentiable outputs (and mutated inputs), or over one output only,
               or over all with two backward passes through a retained graph, or over one output after the other
    hooked     the forward, then hooks on one output and on the unwritten inputs, which change the gradients, then a
               backward from that output
    double     the forward, then gradients with `create_graph=True`, then a backward through these
    write      the forward, then a write to each output and input through `detach()`: which others change?
    inplace    the forward, then one output is multiplied in place with grad mode on, then a backward
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import torch

from aotviz.ir import autograd_graph
from aotviz.ir.autograd_graph import leaves_behind
from aotviz.ir.refusals import Refused
from aotviz.ir.wrapper_subclasses import anatomy, inside, ragged
from aotviz.runtime.debug_checks import tolerance
from aotviz.torch_private import tensors
from aotviz.torch_private.pytree import tree_flatten
from aotviz.torch_private.tensors import version

Function = Callable[..., Any]

SIZE = re.compile(r"torch\.Size\(\[([^\]]*)\]\)")
SEED = 42  # op_db's functions reseed with this; a traced function cannot reseed, so every run starts from it

# Kinds of facts whose difference cannot cause a wrong number in an ordinary program. All others are "wrong".
DETAILS = frozenset({
    "version count",  # eager may bump an input's version counter five times where the candidate does once
    "output version",  # the absolute version counter of an output
    "idle version bump",  # eager bumps for a write that changes nothing, such as squeeze_() without effect
    "extra version bump",  # the candidate bumps where eager does not (native batch norm hides its write)
    "version sharing",  # which version counters change when an output is written
    "idle stride",  # the stride of a dimension that has at most one element
    "permissive",  # eager raises for an in-place write to an output, and the candidate allows it
    "hidden base",  # one is a view of a tensor that the caller cannot reach, the other is not a view
})  # fmt: skip


@dataclass(frozen=True)
class Setup:
    """One fresh set of inputs, and the function to call on them."""

    fn: Function
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    watch: Mapping[str, torch.Tensor] = field(default_factory=dict)  # tensors the function closes over
    context: Callable[[], AbstractContextManager[Any]] = nullcontext  # entered around the call


@dataclass(frozen=True)
class Trial:
    """A named program. Each entry of `builds` makes the inputs of one call; the first call compiles."""

    name: str
    builds: tuple[Callable[[], Setup], ...]
    source: str
    dynamic: bool = False
    tags: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Candidate:
    """A compiler to judge: `compile(fn, dynamic)` returns a function with fn's signature."""

    name: str
    compile: Callable[[Function, bool], Function]
    reset: Callable[[], None] = lambda: None
    around: Callable[[], AbstractContextManager[Any]] = nullcontext  # a run, its backwards included
    loose_tuple: bool = False  # torch's aot_function returns a list where the function returns a flat tuple


@dataclass(frozen=True)
class Fact:
    kind: str
    value: Any


@dataclass(frozen=True)
class Failure:
    """An exception as data: what was raised, and in which step of a run.

    `refusal` is the reason's name in `aotviz/ir/refusals.py`; "" for any other error.
    """

    type: str
    message: str
    step: str
    refusal: str = ""

    @classmethod
    def of(cls, error: BaseException, step: str) -> Failure:
        """The failure for `error`. If Dynamo wrapped the error of a backend, the backend's error counts."""
        error = getattr(error, "inner_exception", None) or error
        return cls(type(error).__name__, str(error), step, error.reason if isinstance(error, Refused) else "")

    def __str__(self) -> str:
        first = self.message.strip().splitlines()[0] if self.message.strip() else ""
        return f"{self.step}: {self.type}: {first[:200]}"


Facts = dict[str, Fact]


@dataclass(frozen=True)
class Run:
    """The facts of one run. A failure ends a run early; the facts before it remain."""

    name: str
    facts: Facts
    failure: Failure | None
    differentiable: tuple[int, ...]  # positions of outputs that require grad
    mutated: tuple[str, ...] = ()  # labels of inputs that the call changed and that have a grad_fn
    untouched: tuple[str, ...] = ()  # labels of inputs that require grad and were not written


@dataclass(frozen=True)
class Difference:
    name: str
    kind: str
    eager: str
    candidate: str

    @property
    def soft(self) -> bool:
        return self.kind in DETAILS

    def __str__(self) -> str:
        return f"{self.name} [{self.kind}]: eager {self.eager}, candidate {self.candidate}"


@dataclass(frozen=True)
class Verdict:
    """status: 'equal' | 'details' | 'wrong' | 'raised' | 'eager raised'."""

    status: str
    differences: tuple[Difference, ...] = ()
    failures: tuple[tuple[str, Failure], ...] = ()  # (name of the run, what it raised)
    alike: tuple[str, ...] = ()  # sentences: which of the differences are one, because the tensors share memory
    in_eager: tuple[str, ...] = ()  # sentences: what ran in eager and why

    @property
    def failure(self) -> Failure | None:
        return self.failures[0][1] if self.failures else None

    @property
    def stopped(self) -> bool:
        """Whether the compilation or the call itself raised, so that there are no facts."""
        return any(f.step in ("compile", "call") for _, f in self.failures)

    @property
    def problems(self) -> set[str]:
        """The names of facts that are wrong, and of runs that raised."""
        return {d.name for d in self.differences if not d.soft} | {f"{run}: raised" for run, _ in self.failures}

    def __str__(self) -> str:
        lines = [self.status] + [f"  {d}" for d in self.differences] + [f"  {sentence}" for sentence in self.alike]
        lines += [f"  {run}: {failure}" for run, failure in self.failures]
        return "\n".join(lines)


class EagerRaised(Exception):
    """The program does not run in eager, so there is nothing to compare with."""

    def __init__(self, failure: Failure):
        super().__init__(str(failure))
        self.failure = failure


def tensor_leaves(tree: Any) -> Iterator[torch.Tensor]:
    return (x for x in tree_flatten(tree)[0] if isinstance(x, torch.Tensor))


def roots(tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """The leaf tensors whose .grad a backward through `tensors` would fill, in a fixed order."""
    leaves = [t for t in tensors if t.is_leaf and t.requires_grad]
    leaves += leaves_behind([t.grad_fn for t in tensors if not t.is_leaf])
    return list({id(leaf): leaf for leaf in leaves}.values())


def values(t: torch.Tensor) -> Any:
    """A contiguous copy; for a subclass, copies of its parts; a text if the storage cannot be read."""
    if inside(t):
        return (type(t).__name__, *((name, values(part)) for name, part in inside(t).items()))
    reach = 1 + sum((n - 1) * s for n, s in zip(t.shape, t.stride(), strict=True)) if t.numel() else 0
    if (t.storage_offset() + reach) * t.element_size() > t.untyped_storage().nbytes():
        return "storage too small"
    try:
        return t.detach().clone(memory_format=torch.contiguous_format).resolve_conj().resolve_neg()
    except RuntimeError as error:
        return f"unreadable ({type(error).__name__})"


def _look(t: torch.Tensor) -> tuple[Any, ...]:
    where = tuple(map(id, inside(t).values())) if inside(t) else tensors.storage_key(t)
    return values(t), _numbers(t.shape), _numbers(t.stride()), t.storage_offset(), where


def _seeds(losses: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    return [torch.ones_like(loss) for loss in losses]


class Watched:
    """Tensors with labels: inputs, bases of inputs, the leaves of their autograd graphs, and (later) outputs."""

    def __init__(self) -> None:
        self.tensors: dict[str, torch.Tensor] = {}
        self.names: dict[int, str] = {}  # by id(); `tensors` keeps every one alive
        self.hidden: dict[int, tuple[str, torch.Tensor]] = {}

    def add(self, label: str, t: torch.Tensor) -> None:
        self.tensors[label] = t
        self.names.setdefault(id(t), label)
        for name, part in inside(t).items():
            self.add(f"{label}.{name}", part)

    def name(self, t: torch.Tensor) -> str:
        """The first label of this object, or a "hidden" name for a tensor without a label."""
        if id(t) in self.names:
            return self.names[id(t)]
        return self.hidden.setdefault(id(t), (f"hidden {len(self.hidden)}", t))[0]

    def storages(self) -> dict[str, int]:
        """label -> number of its storage. Storages are numbered by first appearance."""
        numbers: dict[int, int] = {}
        memory = ((k, t) for k, t in self.tensors.items() if not inside(t))  # a wrapper subclass has no own storage
        return {k: numbers.setdefault(tensors.storage_key(t), len(numbers)) for k, t in memory}


def _numbers(sizes: Sequence[Any]) -> tuple[Any, ...]:
    """Sizes or strides. A jagged one is another number for each tensor of offsets, so it counts as a word."""
    return tuple("jagged" if ragged(one) else one for one in sizes)


def describe(facts: Facts, label: str, t: torch.Tensor, watched: Watched) -> None:
    """Record what can be seen of `t` without changing it."""

    def put(kind: str, value: Any) -> None:
        facts[f"{label} {kind}"] = Fact(kind, value)

    put("dtype", str(t.dtype))
    shape, stride = _numbers(t.shape), _numbers(t.stride())
    put("shape", shape)
    put("stride", tuple(s for s, n in zip(stride, t.shape, strict=True) if n > 1) if t.numel() else ())
    put("idle stride", stride)
    put("storage offset", t.storage_offset())
    put("device", str(t.device))
    put("type", type(t).__name__)
    put("requires_grad", t.requires_grad)
    put("is_leaf", t.is_leaf)
    put("grad_fn", t.grad_fn is not None)
    put("conj/neg", (t.is_conj(), t.is_neg()))
    put("inference", t.is_inference())
    base = tensors.base_of(t)
    base_name = None if base is None else watched.name(base)
    visible = base_name is not None and not base_name.startswith("hidden")
    put("base", base_name if visible else None)
    put("hidden base", base_name)
    put("values", values(t))
    if inside(t):
        put("context", _context(t))
        put("parts", {name: watched.name(part) for name, part in inside(t).items()})


def _context(t: torch.Tensor) -> str:
    """What a subclass holds beside its tensors, as text. A torch.Size is told as the tuple that it is equal to."""
    return SIZE.sub(lambda size: f"({size[1]},)" if size[1].isalnum() else f"({size[1]})", repr(anatomy(t)[1]))


# --- one run ----------------------------------------------------------------------------------------------------


def _weights(t: torch.Tensor) -> torch.Tensor:
    return torch.arange(1, t.numel() + 1, dtype=torch.float64).cos().reshape(t.shape).to(t.real.dtype)


def _losses(terms: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """The losses for a backward: one sum over all plain terms, and a separate loss for each tensor subclass.

    Adding a subclass to the sum would make the sum a subclass, and not each subclass can be multiplied by a plain
    tensor: a DTensor cannot.
    """
    total = torch.zeros((), dtype=torch.float64)
    found = []
    for k, t in enumerate(terms):
        for part in (t.real, t.imag) if t.is_complex() else (t,):
            weighted = part.sin() if inside(part) else part * _weights(part)
            term = (1.0 + 0.1 * k) * weighted.sum().to(torch.float64)
            if inside(term):
                found.append(term)
            else:
                total = total + term
    return [total, *found] if total.requires_grad or not found else found


def run(setup: Setup, fn: Function, action: tuple[Any, ...]) -> Run:
    """Call `fn` on the inputs of `setup`, then do `action`, and record the facts."""
    facts: Facts = {}
    watched = Watched()
    given = list(tensor_leaves((setup.args, dict(setup.kwargs))))
    for k, t in enumerate(given):
        watched.add(f"input {k}", t)
    for name, t in setup.watch.items():
        watched.add(name, t)
    for k, t in enumerate(given):
        base = tensors.base_of(t)
        if base is not None and id(base) not in watched.names:
            watched.add(f"base of input {k}", base)
    bases = [base for base in map(tensors.base_of, given) if base is not None]
    leaves = roots([*given, *setup.watch.values(), *bases])
    for k, t in enumerate(leaves):
        if id(t) not in watched.names:
            watched.add(f"root {k}", t)
    held = dict(watched.tensors)  # everything that existed before the call
    before = {label: version(t) for label, t in held.items()}
    looks = {label: _look(t) for label, t in held.items()} if action[0] == "call" else {}
    name = " ".join(str(a) for a in action[:4] if a != ())
    step = "call"
    differentiable: tuple[int, ...] = ()
    flat: list[Any] = []
    torch.manual_seed(SEED)
    try:
        with setup.context():
            result = fn(*setup.args, **setup.kwargs)
            facts["grad mode"] = Fact("mode", (torch.is_grad_enabled(), torch.is_inference_mode_enabled()))
            facts["autocast"] = Fact("mode", torch.is_autocast_enabled("cpu"))
        torch.set_grad_enabled(True)
        flat, spec = tree_flatten(result)
        differentiable = tuple(k for k, o in enumerate(flat) if isinstance(o, torch.Tensor) and o.requires_grad)
        outputs = {f"output {k}": o for k, o in enumerate(flat) if isinstance(o, torch.Tensor)}
        if action[0] == "call":
            facts["structure"] = Fact("structure", "".join(str(spec).split()))
            for label, o in outputs.items():
                facts[f"{label} object"] = Fact("object", watched.names.get(id(o)))
                watched.add(label, o)
            for label, t in watched.tensors.items():
                describe(facts, label, t, watched)
            for label, t in held.items():
                now, then = version(t), before[label]
                changed = any(not same(a, b) for a, b in zip(looks[label], _look(t), strict=True))
                facts[f"{label} bumped"] = Fact("version bump" if changed else "idle version bump", now != then)
                facts[f"{label} version"] = Fact("version count", None if now is None else now - (then or 0))
                facts[f"{label} storage size"] = Fact("storage size", t.untyped_storage().nbytes())
            for label, o in outputs.items():
                facts[f"{label} version"] = Fact("output version", version(o))
            facts["storages"] = Fact("storage sharing", watched.storages())
            for k, o in enumerate(flat):
                if not isinstance(o, torch.Tensor):
                    facts[f"output {k} type"] = Fact("type", type(o).__name__)
                    facts[f"output {k} value"] = Fact("value", o if isinstance(o, int | float | str) else repr(o))
            for label, t in held.items():
                facts[f"{label} grad"] = Fact("grad", None if not t.is_leaf or t.grad is None else values(t.grad))
            of_input = {k: t for k, t in held.items() if k.startswith("input") and t.requires_grad}
            mutated = tuple(k for k, t in of_input.items() if version(t) != before[k] and not t.is_leaf)
            untouched = tuple(k for k, t in of_input.items() if version(t) == before[k])
            return Run(name, facts, None, differentiable, mutated, untouched)
        for label, o in outputs.items():
            watched.add(label, o)
        if action[0] == "write":
            step = "write"
            for label, t in list(watched.tensors.items()):
                _write(facts, label, t, watched)
            return Run(name, facts, None, differentiable)
        if action[0] == "inplace":
            step = "in-place write"
            if not isinstance(flat[action[1]], torch.Tensor):
                raise TypeError(f"output {action[1]} is not a tensor")
            flat[action[1]].mul_(2)
        step = "backward"
        _differentiate(facts, action, flat, held, leaves, watched)
        for k, t in enumerate(leaves):
            facts[f"gradient of {watched.name(t)} (leaf {k}) given"] = Fact("gradient is None", t.grad is None)
            if t.grad is not None:
                facts[f"gradient of {watched.name(t)} (leaf {k})"] = Fact("gradient", values(t.grad))
    except Exception as error:
        return Run(name, facts, Failure.of(error, step), differentiable)
    finally:
        torch.set_grad_enabled(True)
    return Run(name, facts, None, differentiable)


def _differentiate(
    facts: Facts, action: tuple[Any, ...], flat: Sequence[Any], held: Mapping[str, torch.Tensor],
    leaves: Sequence[torch.Tensor], watched: Watched,
) -> None:  # fmt: skip
    """One or more backward passes over the outputs and mutated inputs that `action` names."""
    kept = {id(t): t for t in (flat[k] for k in action[2])} if action[0] == "hooked" else {}
    if action[0] == "hooked":
        inputs = [t for label, t in held.items() if label in action[4]]
        hooked = {**kept, **{id(t): t for t in inputs}}
        for number, t in enumerate(t for t in hooked.values() if _hookable(t)):
            factor = 1.25 + 0.25 * number
            t.register_hook(lambda gradient, by=factor: None if gradient is None else gradient * by)
        for t in filter(_hookable, kept.values()):
            t.retain_grad()
    terms = [*(flat[k] for k in action[2]), *(held[k] for k in action[3])]
    if action[1] == "one by one":
        for term in terms:
            losses = _losses([term])
            torch.autograd.backward(losses, _seeds(losses), retain_graph=True)
        return
    losses = _losses([t * t for t in terms] if action[0] == "double" else terms)
    if action[0] == "double":
        first = torch.autograd.grad(losses, leaves, _seeds(losses), create_graph=True, allow_unused=True)
        for t, gradient in zip(leaves, first, strict=True):
            facts[f"first gradient of {watched.name(t)} given"] = Fact("gradient is None", gradient is None)
            if gradient is not None:
                facts[f"first gradient of {watched.name(t)}"] = Fact("gradient", values(gradient))
        losses = _losses([gradient for gradient in first if gradient is not None and gradient.requires_grad])
        if not losses[0].requires_grad:
            return
    if action[1] == "in turn":
        for loss, seed in zip(losses, _seeds(losses), strict=True):
            torch.autograd.backward([loss], [seed], retain_graph=True)
        return
    if action[1] == "twice":
        torch.autograd.backward(losses, _seeds(losses), retain_graph=True)
    torch.autograd.backward(losses, _seeds(losses))
    for k, t in enumerate(kept.values()):
        if _hookable(t) and not t.is_leaf:
            facts[f"retained gradient {k}"] = Fact("gradient", None if t.grad is None else values(t.grad))


def _hookable(t: torch.Tensor) -> bool:
    """False for a view without a `grad_fn` whose base requires grad: registering a hook on it crashes the process."""
    return not autograd_graph.is_stale(t) and (t.grad_fn is not None or tensors.base_of(t) is None)


def _write(facts: Facts, label: str, t: torch.Tensor, watched: Watched) -> None:
    """Change `t` in place without autograd, and record which tensors' values and versions change."""
    if t.is_inference() or t.numel() == 0 or any(s == 0 and n > 1 for s, n in zip(t.stride(), t.shape, strict=True)):
        return
    if isinstance(values(t), str):
        return
    old = {k: (version(o), values(o)) for k, o in watched.tensors.items()}
    alias = t.detach()
    if alias.dtype is torch.bool:
        alias.logical_not_()
    else:
        alias.add_(1)
    seen = tuple(k for k, o in watched.tensors.items() if not same(old[k][1], values(o)))
    bumped = tuple(k for k, o in watched.tensors.items() if version(o) != old[k][0])
    facts[f"a write to {label} is seen by"] = Fact("write seen", seen)
    facts[f"a write to {label} bumps"] = Fact("version sharing", bumped)


def same(a: Any, b: Any) -> bool:
    if isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor):
        if inside(a) or inside(b):
            return same(values(a), values(b))
        if a.shape != b.shape or a.dtype != b.dtype:
            return False
        if not (a.is_floating_point() or a.is_complex()):
            return torch.equal(a, b)
        near = tolerance(a.dtype)
        return torch.allclose(a, b, rtol=near, atol=near, equal_nan=True)
    if isinstance(a, torch.Tensor) or isinstance(b, torch.Tensor):
        return False
    if isinstance(a, tuple) and isinstance(b, tuple) and len(a) == len(b):
        return all(map(same, a, b))
    if isinstance(a, float) and isinstance(b, float):
        return math.isclose(a, b, rel_tol=1e-5) or (math.isnan(a) and math.isnan(b))
    return bool(a == b)
