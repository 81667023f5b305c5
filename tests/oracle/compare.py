"""Is a compiled function the same as the function?  Everything a caller can see is looked at.

A program is run in eager and by a candidate compiler, each time on freshly built inputs, so nothing leaks
from one run to the next.  A run leaves *facts*: named, plain values (shapes, strides, who is whose base, which
tensors share a storage, gradients, version counters ...).  A candidate is judged by comparing its facts with
eager's, name by name.  A program is run several times because some facts can only be had by spoiling others:

* ``call``       the forward, then everything visible without touching anything;
* ``backward``   the forward, then a loss over all differentiable outputs (and mutated inputs), or one output only,
                 or over all with two backward passes through a retained graph;
* ``write``      the forward, then each output and input is written through ``detach()``: who else sees it?
* ``inplace``    the forward, then one output is multiplied in place with grad mode on, then a backward.

The candidate is compiled once per function object and reused by later runs, as a user would do.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import torch
from torch.utils._pytree import tree_flatten

Function = Callable[..., Any]

SEED = 42  # what op_db's own functions reseed with; a traced function cannot reseed, so both start from here

# Kinds of facts whose difference no ordinary program can turn into a wrong number.  Everything else is "wrong".
DETAILS = frozenset({
    "version count",  # eager may bump an input's version counter five times where the candidate does once
    "output version",  # the absolute version counter of an output
    "idle version bump",  # eager bumps for a write that changes nothing, such as squeeze_() without effect
    "extra version bump",  # the candidate bumps where eager does not (native batch norm hides its write)
    "version sharing",  # whose counter moves when an output is written
    "idle stride",  # the stride of a dimension that has at most one element
    "permissive",  # eager refuses an in-place write on an output, the candidate allows it
    "hidden base",  # a view of a tensor nobody can reach, or a plain tensor in its place
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
class Program:
    """A named program: each entry of `builds` makes the inputs of one call, the first call compiles."""

    name: str
    builds: tuple[Callable[[], Setup], ...]
    source: str
    dynamic: bool = False
    tags: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Candidate:
    """A compiler to be judged: `compile(fn, dynamic)` returns a function with fn's signature."""

    name: str
    compile: Callable[[Function, bool], Function]
    reset: Callable[[], None] = lambda: None
    loose_tuple: bool = False  # torch's aot_function returns a list where the function returns a flat tuple


@dataclass(frozen=True)
class Fact:
    kind: str
    value: Any


@dataclass(frozen=True)
class Failure:
    """An exception, kept as data: what was raised and in which step of a run."""

    type: str
    message: str
    step: str

    def __str__(self) -> str:
        first = self.message.strip().splitlines()[0] if self.message.strip() else ""
        return f"{self.step}: {self.type}: {first[:200]}"


Facts = dict[str, Fact]


@dataclass(frozen=True)
class Run:
    """What one run showed; a failure ends a run early, the facts up to it stay."""

    name: str
    facts: Facts
    failure: Failure | None
    differentiable: tuple[int, ...]  # positions of outputs that require grad
    mutated: tuple[str, ...] = ()  # labels of inputs that carry a gradient because of a mutation


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

    @property
    def failure(self) -> Failure | None:
        return self.failures[0][1] if self.failures else None

    @property
    def stopped(self) -> bool:
        """It raised in the call itself, so there are no facts."""
        return any(f.step in ("compile", "call") for _, f in self.failures)

    @property
    def problems(self) -> set[str]:
        """Names of facts that are wrong, and of runs that raised."""
        return {d.name for d in self.differences if not d.soft} | {f"{run}: raised" for run, _ in self.failures}

    def __str__(self) -> str:
        lines = [self.status] + [f"  {d}" for d in self.differences]
        lines += [f"  {run}: {failure}" for run, failure in self.failures]
        return "\n".join(lines)


class EagerRaised(Exception):
    """The program does not run in eager, so there is nothing to compare with."""

    def __init__(self, failure: Failure):
        super().__init__(str(failure))
        self.failure = failure


# --- looking at tensors -----------------------------------------------------------------------------------------


def tensor_leaves(tree: Any) -> Iterator[torch.Tensor]:
    return (x for x in tree_flatten(tree)[0] if isinstance(x, torch.Tensor))


def roots(tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """The leaf tensors whose .grad a backward through `tensors` would fill, in a fixed order."""
    found: list[torch.Tensor] = []
    seen: set[Any] = set()
    pending: list[Any] = []
    for t in tensors:
        if t.is_leaf:
            if t.requires_grad and not any(t is f for f in found):
                found.append(t)
        else:
            pending.append(t.grad_fn)
        while pending:
            node = pending.pop(0)
            if node is None or node in seen:
                continue
            seen.add(node)
            leaf = getattr(node, "variable", None)
            if isinstance(leaf, torch.Tensor) and not any(leaf is f for f in found):
                found.append(leaf)
            pending.extend(n for n, _ in node.next_functions)
    return found


def values(t: torch.Tensor) -> torch.Tensor | str:
    """A contiguous copy; words where there is nothing to read (a storage freed with resize_(0))."""
    reach = 1 + sum((n - 1) * s for n, s in zip(t.shape, t.stride(), strict=True)) if t.numel() else 0
    if (t.storage_offset() + reach) * t.element_size() > t.untyped_storage().nbytes():
        return "storage too small"
    try:
        return t.detach().clone(memory_format=torch.contiguous_format).resolve_conj().resolve_neg()
    except RuntimeError as error:
        return f"unreadable ({type(error).__name__})"


def version(t: torch.Tensor) -> int | None:
    return None if t.is_inference() else t._version


def _look(t: torch.Tensor) -> tuple[Any, ...]:
    return values(t), tuple(t.shape), t.stride(), t.storage_offset(), t.untyped_storage()._cdata


class Watched:
    """Tensors with labels: inputs, the bases of inputs, leaves behind them, and (later) outputs."""

    def __init__(self) -> None:
        self.tensors: dict[str, torch.Tensor] = {}
        self.names: dict[int, str] = {}  # by id(); `tensors` keeps every one alive
        self.hidden: dict[int, tuple[str, torch.Tensor]] = {}

    def add(self, label: str, t: torch.Tensor) -> None:
        self.tensors[label] = t
        self.names.setdefault(id(t), label)

    def name(self, t: torch.Tensor) -> str:
        """The first label of this very object, or a name for a tensor nobody else holds."""
        if id(t) in self.names:
            return self.names[id(t)]
        return self.hidden.setdefault(id(t), (f"hidden {len(self.hidden)}", t))[0]

    def storages(self) -> dict[str, int]:
        """label -> number of its storage, numbered by first appearance."""
        numbers: dict[int, int] = {}
        return {k: numbers.setdefault(t.untyped_storage()._cdata, len(numbers)) for k, t in self.tensors.items()}


def describe(facts: Facts, label: str, t: torch.Tensor, watched: Watched) -> None:
    """Record what can be seen of `t` without changing it."""

    def put(kind: str, value: Any) -> None:
        facts[f"{label} {kind}"] = Fact(kind, value)

    put("dtype", str(t.dtype))
    put("shape", tuple(t.shape))
    put("stride", tuple(s for s, n in zip(t.stride(), t.shape, strict=True) if n > 1) if t.numel() else ())
    put("idle stride", tuple(t.stride()))
    put("storage offset", t.storage_offset())
    put("device", str(t.device))
    put("type", type(t).__name__)
    put("requires_grad", t.requires_grad)
    put("is_leaf", t.is_leaf)
    put("grad_fn", t.grad_fn is not None)
    put("conj/neg", (t.is_conj(), t.is_neg()))
    put("inference", t.is_inference())
    base = t._base
    base_name = None if base is None else watched.name(base)
    visible = base_name is not None and not base_name.startswith("hidden")
    put("base", base_name if visible else None)
    put("hidden base", base_name)
    put("values", values(t))


# --- one run ----------------------------------------------------------------------------------------------------


def _weights(t: torch.Tensor) -> torch.Tensor:
    return torch.arange(1, t.numel() + 1, dtype=torch.float64).cos().reshape(t.shape).to(t.real.dtype)


def _loss(terms: Sequence[torch.Tensor]) -> torch.Tensor:
    total = torch.zeros((), dtype=torch.float64)
    for k, t in enumerate(terms):
        for part in (t.real, t.imag) if t.is_complex() else (t,):
            total = total + (1.0 + 0.1 * k) * (part * _weights(part)).sum().to(torch.float64)
    return total


def run(setup: Setup, fn: Function, action: tuple[Any, ...]) -> Run:
    """Call `fn` on the inputs of `setup`, then do `action`, and write down what is to be seen."""
    facts: Facts = {}
    watched = Watched()
    given = list(tensor_leaves((setup.args, dict(setup.kwargs))))
    for k, t in enumerate(given):
        watched.add(f"input {k}", t)
    for name, t in setup.watch.items():
        watched.add(name, t)
    for k, t in enumerate(given):
        if t._base is not None and id(t._base) not in watched.names:
            watched.add(f"base of input {k}", t._base)
    leaves = roots([*given, *setup.watch.values(), *(t._base for t in given if t._base is not None)])
    for k, t in enumerate(leaves):
        if id(t) not in watched.names:
            watched.add(f"root {k}", t)
    held = dict(watched.tensors)  # everything that existed before the call
    before = {label: version(t) for label, t in held.items()}
    looks = {label: _look(t) for label, t in held.items()} if action[0] == "call" else {}
    name = " ".join(str(a) for a in action if a != ())
    step, differentiable, flat = "call", (), []
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
            grown = [k for k, t in held.items() if k.startswith("input") and t.requires_grad and not t.is_leaf]
            return Run(name, facts, None, differentiable, tuple(k for k in grown if version(held[k]) != before[k]))
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
        loss = _loss([*(flat[k] for k in action[2]), *(held[k] for k in action[3])])
        if action[1] == "twice":
            loss.backward(retain_graph=True)
        loss.backward()
        for k, t in enumerate(leaves):
            facts[f"gradient of {watched.name(t)} (leaf {k}) given"] = Fact("gradient is None", t.grad is None)
            if t.grad is not None:
                facts[f"gradient of {watched.name(t)} (leaf {k})"] = Fact("gradient", values(t.grad))
    except Exception as error:
        return Run(name, facts, Failure(type(error).__name__, str(error), step), differentiable)
    finally:
        torch.set_grad_enabled(True)
    return Run(name, facts, None, differentiable)


def _write(facts: Facts, label: str, t: torch.Tensor, watched: Watched) -> None:
    """Add to `t` behind autograd's back and record who else changes, in value and in version."""
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
    seen, bumped = [], []
    for k, o in watched.tensors.items():
        then, was = old[k]
        now = values(o)
        if not same(was, now):
            seen.append(k)
        if version(o) != then:
            bumped.append(k)
    facts[f"a write to {label} is seen by"] = Fact("write seen", tuple(seen))
    facts[f"a write to {label} bumps"] = Fact("version sharing", tuple(bumped))


# --- comparison -------------------------------------------------------------------------------------------------

_TOLERANCE = {torch.float16: 2e-2, torch.bfloat16: 5e-2, torch.float64: 1e-9, torch.complex128: 1e-9}


def same(a: Any, b: Any) -> bool:
    if isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor):
        if a.shape != b.shape or a.dtype != b.dtype:
            return False
        if not (a.is_floating_point() or a.is_complex()):
            return torch.equal(a, b)
        tolerance = _TOLERANCE.get(a.dtype, 2e-5)
        return torch.allclose(a, b, rtol=tolerance, atol=tolerance, equal_nan=True)
    if isinstance(a, torch.Tensor) or isinstance(b, torch.Tensor):
        return False
    if isinstance(a, float) and isinstance(b, float):
        return math.isclose(a, b, rel_tol=1e-5) or (math.isnan(a) and math.isnan(b))
    return bool(a == b)


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
    """Two functions of one code object that close over nothing are the same function."""
    code = getattr(fn, "__code__", None)
    return code if code is not None and not fn.__closure__ and not fn.__defaults__ else id(fn)


@dataclass(frozen=True)
class Expectation:
    """Eager's runs of every build of a program: (build index, action) -> Run."""

    runs: tuple[tuple[int, tuple[Any, ...], Run], ...]


def expect(program: Program, brief: bool = False) -> Expectation:
    """Run the program in eager, with every action that its outputs allow; brief: the call and one backward."""
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
            for k in outputs[:3]:
                go(("inplace", k, outputs, mutated))
    return Expectation(tuple(runs))


def judge(program: Program, candidate: Candidate, expected: Expectation | None = None) -> Verdict:
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
                    failures.append((eager.name, Failure(type(error).__name__, str(error), "compile")))
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


# --- candidates -------------------------------------------------------------------------------------------------


def _boxed(graph: Any, _example_inputs: Any) -> Any:
    """A compiler that runs the graph as it is, freeing the argument list as it starts."""

    def call(args: list[Any]) -> Any:
        taken = list(args)
        args.clear()
        return graph(*taken)

    call._boxed_call = True  # type: ignore[attr-defined]
    return call


def _partition(name: str) -> Any:
    from torch._functorch import partitioners  # the oracle may; aotviz may not

    return partitioners.default_partition if name == "default" else partitioners.min_cut_rematerialization_partition


def torch_aot(partition: str = "min_cut", keep_mutations: bool = False) -> Candidate:
    def compile(fn: Function, dynamic: bool) -> Function:
        from torch._functorch.aot_autograd import aot_function

        return aot_function(
            fn,
            _boxed,
            _boxed,
            partition_fn=_partition(partition),
            keep_inference_input_mutations=keep_mutations,
            dynamic=dynamic,
        )

    return Candidate(f"torch/{partition}{'/keep' if keep_mutations else ''}", compile, loose_tuple=True)


def torch_compile(backend: str = "aot_eager") -> Candidate:
    def compile(fn: Function, dynamic: bool) -> Function:
        return torch.compile(fn, backend=backend, dynamic=True if dynamic else None)

    return Candidate(f"torch.compile/{backend}", compile, reset=torch._dynamo.reset)


def ours_aot(partition: str = "min_cut", keep_mutations: bool = False) -> Candidate:
    def compile(fn: Function, dynamic: bool) -> Function:
        import aotviz

        return aotviz.aot_function(
            fn,
            _boxed,
            _boxed,
            partition_fn=_partition(partition),
            keep_inference_input_mutations=keep_mutations,
            dynamic=dynamic,
        )

    return Candidate(f"ours/{partition}{'/keep' if keep_mutations else ''}", compile)


def ours_compile(backend: str = "eager") -> Candidate:
    def compile(fn: Function, dynamic: bool) -> Function:
        import aotviz

        return aotviz.compile(fn, backend=backend, dynamic=True if dynamic else None)

    return Candidate(f"aotviz.compile/{backend}", compile)


def aot_module(whose: str, simplified: bool = False) -> Candidate:
    """aot_module or aot_module_simplified, of 'ours' or 'torch'; the function to compile is a module."""

    def compile(module: Function, dynamic: bool) -> Function:
        if whose == "ours":
            import aotviz as source
        else:
            from torch._functorch import aot_autograd as source  # type: ignore[no-redef]
        if not simplified:
            return source.aot_module(module, _boxed, _boxed, partition_fn=_partition("min_cut"))
        made: list[Function] = []

        def call(*args: Any) -> Any:
            if not made:
                made.append(source.aot_module_simplified(module, args, _boxed, _boxed))
            return made[0](*args)

        return call

    return Candidate(f"{whose}/{'simplified' if simplified else 'module'}", compile, loose_tuple=True)


def eager_itself() -> Candidate:
    """The identity: must be equal everywhere, else the harness is at fault."""
    return Candidate("eager", lambda fn, dynamic: fn)


CANDIDATES: dict[str, Callable[[], Candidate]] = {
    "ours": ours_aot,
    "ours-default": lambda: ours_aot("default"),
    "ours-keep": lambda: ours_aot(keep_mutations=True),
    "ours-compile": ours_compile,
    "ours-inductor": lambda: ours_compile("inductor"),
    "torch": torch_aot,
    "torch-default": lambda: torch_aot("default"),
    "torch-keep": lambda: torch_aot(keep_mutations=True),
    "torch-compile": torch_compile,
    "ours-module": lambda: aot_module("ours"),
    "torch-module": lambda: aot_module("torch"),
    "ours-simplified": lambda: aot_module("ours", simplified=True),
    "torch-simplified": lambda: aot_module("torch", simplified=True),
    "eager": eager_itself,
}


@cache
def ours_exists() -> bool:
    """False until aotviz has an aot_function to judge."""
    try:
        import aotviz
    except ImportError:
        return False
    return hasattr(aotviz, "aot_function")
