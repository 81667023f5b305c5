"""Random programs made of views, in-place writes, metadata changes, shared inputs and returned aliases.

A program is grown statement by statement, and each statement is tried on live tensors as it is added: what raises in
eager is dropped on the spot, so nearly every draft becomes a program.  The result is plain Python text with
`inputs()` and `f(...)`: a failure is a script that can be pasted.  Choices come from a `Chooser`, which is either a
seeded `random.Random` (`from_seed`) or Hypothesis (`programs`), so the same grammar serves both.

Left out on purpose: writes whose source and target overlap in part, and writes through tensors that overlap
themselves.  Eager's result for these depends on loop order, so there is nothing to be equal to.
"""

from __future__ import annotations

import contextlib
import linecache
import random
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, TypeVar

import torch
from hypothesis import strategies as st

from . import dtensor_statements
from .compare import EagerRaised, Expectation, Setup, Trial, expect

T = TypeVar("T")
SHAPES = ((4,), (6,), (2, 3), (3, 2), (2, 2), (3, 3), (1, 4), (2, 2, 2), (), (4, 1))
PACKED = ((3, 4), (4, 2), (2, 3, 2), (6,), (8,))  # of tensors of which disjoint parts are passed
INDENT = "    "
WRITES = """class Writes(torch.autograd.Function):  # its backward writes to an input or to what it saved
    @staticmethod
    def forward(ctx, x, other, kept):
        made = x.sin()
        ctx.save_for_backward(x, made if kept else other)
        ctx.other = other if kept else None
        return made * 2.0

    @staticmethod
    def backward(ctx, gradient):
        x, saved = ctx.saved_tensors
        (saved if ctx.other is None else ctx.other).add_(gradient.sum())
        return gradient * x.cos() * 2.0 + saved.sum() * 0.1, None, None
"""


def fits(t: torch.Tensor, elements: int) -> bool:
    """Whether the storage has so many elements from where `t` begins. What resize_ adds to a storage is undefined."""
    return (t.storage_offset() + elements) * t.itemsize <= t.untyped_storage().nbytes()


class Chooser(Protocol):
    def below(self, n: int) -> int: ...


class RandomChooser:
    def __init__(self, seed: object):
        self._random = random.Random(repr(seed))

    def below(self, n: int) -> int:
        return self._random.randrange(n)


class DrawnChooser:
    def __init__(self, draw: Callable[[Any], Any]):
        self._draw = draw

    def below(self, n: int) -> int:
        return self._draw(st.integers(0, n - 1))


@dataclass(frozen=True)
class Draft:
    """The text of a program, in parts that a shrinker can leave out."""

    name: str
    setup: tuple[str, ...]  # lines of inputs()
    passed: tuple[str, ...]  # expressions over names made in setup, one per parameter p0, p1, ...
    body: tuple[str, ...]  # statements of f; one entry may span lines
    returned: tuple[str, ...]  # expressions over parameters and locals
    wrapping: str = "tuple"  # how several outputs are returned: tuple | list | dict
    context: str = ""  # what the call is made under, e.g. torch.no_grad
    deep: bool = False  # with gradient hooks and second differentiations

    def source(self) -> str:
        lines = ["import torch"]
        if "mesh" in "".join((*self.setup, *self.body)):
            lines += dtensor_statements.HEADER.splitlines()
        if any("Writes.apply" in statement for statement in self.body):
            lines += ["", "", *WRITES.splitlines()]
        lines += [*([f"context = {self.context}"] if self.context else []), "", "", "def inputs():"]
        lines += [INDENT + line for line in self.setup]
        lines += [f"{INDENT}return ({', '.join(self.passed)},)", "", ""]
        lines += [f"def f({', '.join(f'p{k}' for k in range(len(self.passed)))}):"]
        for statement in self.body:
            lines += [INDENT + line for line in statement.split("\n")]
        lines += [f"{INDENT}return {self._result()}"]
        return "\n".join(lines) + "\n"

    def _result(self) -> str:
        if self.wrapping == "dict":
            return "{" + ", ".join(f'"r{k}": {r}' for k, r in enumerate(self.returned)) + "}"
        if self.wrapping == "list":
            return "[" + ", ".join(self.returned) + "]"
        return self.returned[0] if len(self.returned) == 1 else ", ".join(self.returned)


def from_source(name: str, source: str, dynamic: bool = False) -> Trial:
    """The program that a text with `inputs()`, `f(...)` and perhaps `context` describes."""
    filename = f"<program {name}>"
    linecache.cache[filename] = (len(source), None, source.splitlines(True), filename)
    space: dict[str, Any] = {}
    exec(compile(source, filename, "exec"), space)
    context = space.get("context", contextlib.nullcontext)
    return Trial(name, (lambda: Setup(space["f"], tuple(space["inputs"]()), context=context),), source, dynamic)


# --- expressions ----------------------------------------------------------------------------------------------------


class Grower:
    """Grows one draft; `space` holds the live value of every name written so far."""

    def __init__(self, chooser: Chooser, name: str, deep: bool = False, modes: bool = False):
        self.chooser, self.deep, self.modes = chooser, deep, modes
        self.name = name
        self.space: dict[str, Any] = {"torch": torch}
        exec(WRITES, self.space)
        if modes:
            exec(dtensor_statements.HEADER, self.space)
        self.setup: list[str] = []
        self.passed: list[str] = []
        self.body: list[str] = []
        self.names: list[str] = []  # plain tensors the body can use, oldest first
        self.placed: list[str] = []  # and DTensors
        self.count = 0

    # choices

    def pick(self, options: Sequence[T]) -> T:
        return options[self.chooser.below(len(options))]

    def chance(self, percent: int) -> bool:
        return self.chooser.below(100) >= 100 - percent

    def name_recent(self) -> str:
        """A tensor name, recent ones twice as likely."""
        recent = self.names[-3:]
        return self.pick([*self.names, *recent])

    # text

    def value(self, shape: tuple[int, ...]) -> str:
        """Mostly a tensor of its own; sometimes itself a view of a tensor that nobody holds."""
        k = len(self.setup) % 7
        n = torch.Size(shape).numel()
        own = "" if self.chance(12) else ".clone()"
        return f"torch.linspace({-1.1 + 0.13 * k:.2f}, {1.3 - 0.07 * k:.2f}, {n}).reshape({shape}){own}"

    def view(self, v: str, t: torch.Tensor) -> str:
        """An expression for a view of `t`, which is called `v`."""
        shape, dim = tuple(t.shape), t.dim()
        d = self.chooser.below(dim) if dim else 0
        n = shape[d] if dim else 1
        i = self.chooser.below(max(n, 1))
        options = [f"{v}.view(-1)", f"{v}.unsqueeze({self.chooser.below(dim + 1)})", f"{v}.view_as({v})", f"{v}[...]"]
        if dim:
            options += [f"{v}.select({d}, {i})", f"{v}[{min(i, shape[0] - 1)}]", f"{v}[{i % max(shape[0], 1)}:]"]
            options += [f"{v}.narrow({d}, {i}, {n - i})", f"{v}[:{max(n - 1, 1)}]", f"{v}[::2]", f"{v}.squeeze()"]
            options += [f"{v}.unbind({d})[{i}]", f"{v}.split(1, {d})[{i}]", f"{v}.chunk(2, {d})[0]"]
            options += [f"{v}.expand(2, {', '.join('-1' for _ in shape)})", f"{v}.flatten()"]
        if dim == 2:
            options += [f"{v}.t()", f"{v}.t()", f"{v}.diagonal()", f"{v}[:, {self.chooser.below(max(shape[1], 1))}]"]
        if dim >= 2:
            options += [f"{v}.transpose(0, 1)", f"{v}.transpose({d}, {dim - 1})", f"{v}.reshape(-1)"]
            options += [f"{v}.view({shape[1]}, {shape[0]}{''.join(f', {s}' for s in shape[2:])})"]
        if t.numel() >= 4 and t.is_contiguous():
            start = t.storage_offset()
            options += [f"{v}.as_strided((2, 2), (2, 1), {start})", f"{v}.as_strided((2,), (2,), {start + 1})"]
        if t.dtype is torch.float32:
            options += [f"{v}.view(torch.int32).view(torch.float32)"]
            if dim and shape[-1] == 2 and t.is_contiguous() and t.storage_offset() % 2 == 0:
                options += [f"torch.view_as_real(torch.view_as_complex({v}))"]
        if self.chance(10):
            return f"{v}.data" if self.chance(20) else f"{v}.detach()"
        return self.pick(options)

    def rare(self, v: str) -> str:
        """A statement that changes what a tensor is: its history, its storage, its size, its hooks."""
        options = [f"{v}.requires_grad_()", f"{v} = {v}.requires_grad_()", f"{v}.detach_()", f"{v}.data = {v} * 2.0"]
        options += [f"with torch.no_grad():\n{INDENT}{v}.set_({v} * 2.0)", f"{v}.data.mul_(0.5)"]
        hook = f"{v}.register_hook(lambda gradient: gradient * 0.5)"
        options += [f"{v}.grad_fn is None or {hook}"] * (
            3 * self.deep
        )  # without a history, some views can't have a hook
        options += [f"{v}.resize_(2)"] * fits(self.space[v], 2)
        options += [f"with torch.inference_mode():\n{INDENT}v{self.count} = {v} * 2.0"]
        return self.pick(options)

    def mode(self, v: str) -> str:
        """A block of a mode, perhaps with a graph break; random numbers; parts of what is written; or a resize to
        as many elements."""
        t, new = self.space[v], f"v{self.count}"
        statements = [f"{new} = {self.compute(v)}", f"{new} = {self.view(v, t)}", self.write(v) or f"{new} = {v} + 1.0"]
        mode = self.pick(["inference_mode", "inference_mode", "no_grad", "enable_grad"])
        inside = self.pick(statements).replace("\n", f"\n{INDENT}")
        breaks = f"{INDENT}torch._dynamo.graph_break()\n" if self.chance(60) else ""
        options = [f"with torch.{mode}():\n{breaks}{INDENT}{inside}"] * 4
        draws = [f"torch.nn.functional.dropout({v}, 0.5)", f"{v} * torch.rand_like({v})", f"{v} * torch.rand(())"]
        options += [f"{new} = {self.pick(draws)}"] * 3
        if t.dim():
            parts = f"{new} = {v}.{self.pick(['split(1)', 'chunk(2)', 'unbind()', 'tensor_split(2)'])}"
            options += [f"{parts}[0]\n{v}.{self.pick(['mul_(0.5)', 'add_(1.0)'])}"] * 2
            options += [f"{parts}\n{new}[-1].detach().mul_(0.5)\n{new} = {new}[0]"]
        sizes = [f"{t.numel()}, 1", f"1, {t.numel()}", f"{t.numel()}"]
        options += [f"{v}.resize_({size})" for size in sizes] * fits(t, t.numel())
        if t.requires_grad:  # with respect to an intermediate, or an input
            wanted = self.pick(["", ", create_graph=True"])
            options += [f"{new} = torch.autograd.grad(({v} * 2.0).sin().sum(), {v}{wanted})[0]"] * 2
        if t.dim() and t.shape[0] > 1:
            offsets = f"torch.tensor([0, 1, {t.shape[0]}])"
            options += [f"{new} = torch.nested.nested_tensor_from_jagged({v} * 2.0, {offsets}).sin().values()"] * 2
        options += dtensor_statements.statements(v, t, new, self.placed, self.space, self.pick)
        return self.pick(options)

    def operand(self, target: torch.Tensor | None, like: torch.Tensor) -> str | None:
        """A name whose tensor broadcasts to `like`; cloned when it overlaps `target` in part."""
        fits = []
        for name in self.names:
            t = self.space[name]
            with contextlib.suppress(RuntimeError):
                if torch.broadcast_shapes(t.shape, like.shape) == like.shape:
                    fits.append(name)
        if not fits:
            return None
        name = self.pick(fits)
        t = self.space[name]
        if target is not None and t.untyped_storage()._cdata == target.untyped_storage()._cdata:
            twin = t.storage_offset() == target.storage_offset() and t.stride() == target.stride()
            if not (twin and t.shape == target.shape):
                return f"{name}.clone()"
        return name

    def write(self, v: str) -> str | None:
        """An in-place statement on a tensor, a view of it or a detached alias of it."""
        t = self.space[v]
        target = v
        if self.chance(30):
            target = self.view(v, t)
            try:
                t = eval(target, self.space)
            except (RuntimeError, IndexError):
                return None
        if self.chance(8):
            target = f"{target}.detach()"
        if not t.is_floating_point() or 0 in t.stride():
            return None
        other = self.operand(t, t)
        options = ["add_(1.5)", "mul_(2.0)", "mul_(0.5)", "sin_()", "neg_()", "zero_()", "fill_(0.5)",
                   "clamp_(min=-0.5)", "sigmoid_()"]  # fmt: skip
        if other is not None:
            options += [f"mul_({other})", f"add_({other})", f"copy_({other})", f"sub_({other}, alpha=0.5)"] * 2
        statement = f"{target}.{self.pick(options)}"
        if t.dim() and self.chance(10):
            statement = f"{target}[0] = {self.pick(['0.25', f'{other}[0]' if other and '.' not in other else '0.5'])}"
        return self.maybe_no_grad(statement, 30)

    def maybe_no_grad(self, statement: str, percent: int) -> str:
        return f"with torch.no_grad():\n{INDENT}{statement}" if self.chance(percent) else statement

    def reshape_in_place(self, v: str) -> str:
        t = self.space[v]
        options = ["unsqueeze_(0)", "squeeze_()"]
        if t.dim() == 2:
            options += ["t_()", "transpose_(0, 1)"] * 2
        elif t.dim() > 2:
            options += ["transpose_(0, 1)", f"transpose_(0, {t.dim() - 1})"]
        return self.maybe_no_grad(f"{v}.{self.pick(options)}", 25)

    def compute(self, v: str) -> str:
        t = self.space[v]
        options = [f"{v} * 2.0", f"{v}.sin()", f"{v} + 1.0", f"{v}.clone()", f"{v}.sum()", f"{v}.contiguous()",
                   f"torch.relu({v})", f"{v}.exp()", f"{v}.detach() * 3.0"]  # fmt: skip
        other = self.operand(None, t)
        if other is not None:
            options += [f"{v} * {other}", f"{v} + {other}", f"torch.where({v} > 0, {v}, {other})"] * 2
        if t.dim():
            options += [f"{v}.sum(0)", f"torch.cat([{v}, {v}])"]
        if t.dim() == 2:
            options += [f"{v} @ {v}.t()", f"{v}.t() * 0.5"]
        return self.pick(options)

    # statements, tried as they are written

    def try_line(self, line: str) -> bool:
        try:
            exec(line, self.space)
        except (RuntimeError, IndexError, ValueError, TypeError):
            return False
        return True

    def add_local(self, expression: str, under: Callable[[str], str] = lambda s: s) -> bool:
        name = f"v{self.count}"
        statement = under(f"{name} = {expression}")
        if not self.try_line(statement) or not isinstance(self.space[name], torch.Tensor):
            return False
        if self.space[name].numel() > 64:
            return False
        self.count += 1
        self.body.append(statement)
        self.names.append(name)
        return True

    # parts of a program

    def make_source(self) -> None:
        """One tensor with a storage of its own, and the arguments made from it."""
        name = "abcdefgh"[len([s for s in self.setup if "linspace" in s])]
        packed = self.chance(18)
        shape = self.pick(PACKED if packed else SHAPES)
        kind = self.pick(["plain", "leaf", "leaf", "grown", "grown", "plain"])
        lines = [f"{name} = {self.value(shape)}"]
        if kind != "plain":
            lines.append(f"{name}.requires_grad_()")
        if kind == "grown":
            lines.append(f"{name} = {name} * 1.5")
        if self.deep and kind != "plain" and self.chance(5):
            lines.append(f"{name}.register_hook(lambda gradient: gradient * 2.0)")
        for line in lines:
            assert self.try_line(line), line
            self.setup.append(line)
        form = self.chooser.below(100)
        if packed:
            self.pass_parts(name)
        elif form < 60:
            self.passed.append(name)
        elif form < 68:
            self.passed += [name, name]
        elif form < 94:
            members = [self.valid_view(name) for _ in range(1 + self.chooser.below(3))]
            if self.chance(35):
                members.insert(self.chooser.below(len(members) + 1), name)
            for k, expression in enumerate(members):
                if expression == name:
                    self.passed.append(name)
                else:
                    line = f"{name}{k} = {expression}"
                    assert self.try_line(line), line
                    self.setup.append(line)
                    self.passed += [f"{name}{k}"] * (2 if self.chance(6) else 1)
        else:
            self.setup.append(f"{name}_ = {name}.detach()")
            assert self.try_line(self.setup[-1])
            self.passed += [name, f"{name}_"]

    def pass_parts(self, name: str) -> None:
        """Arguments that are parts of one tensor, disjoint or overlapping, as q, k and kv of a packed qkv."""
        t = self.space[name]
        d = self.chooser.below(t.dim())
        n = t.shape[d]
        for k in range(2 + self.chooser.below(4)):
            i = self.chooser.below(n)
            parts = [f"{name}.select({d}, {i})", f"{name}.narrow({d}, {i}, 1)"]
            parts += [f"{name}.narrow({d}, {i}, {min(2, n - i)})", f"{name}.narrow({d}, {i}, {n - i})"]
            part = self.pick(parts)
            if self.chance(6):
                part = self.pick([f"{part}.detach()", f"{part}.view(-1)[1:]", f"{part}.unsqueeze(0)"])
            line = f"{name}{k} = {part}"
            if self.try_line(line):
                self.setup.append(line)
                self.passed.append(f"{name}{k}")

    def valid_view(self, name: str) -> str:
        for _ in range(8):
            expression = self.view(name, self.space[name])
            try:
                eval(expression, self.space)
            except (RuntimeError, IndexError, ValueError):
                continue
            return expression
        return name

    def step(self) -> None:
        kind = self.chooser.below(100)
        v = self.name_recent()
        if self.modes and self.chance(35):
            statement = self.mode(v)
            if self.try_line(statement):
                self.body.append(statement)
                if isinstance(self.space.get(f"d{self.count}"), torch.Tensor):
                    self.placed.append(f"d{self.count}")
                if isinstance(self.space.get(f"v{self.count}"), torch.Tensor):
                    self.names.append(f"v{self.count}")
                    self.count += 1
            return
        unusual = self.chooser.below(100)
        if unusual == 98:
            other = self.name_recent()
            self.add_local(f"Writes.apply({v}, {other}.detach(), {self.chance(50)})")
            return
        if unusual == 99:
            statement = self.rare(v)
            if self.try_line(statement):
                self.body.append(statement)
            return
        if kind < 30:
            self.add_local(self.view(v, self.space[v]), lambda s: self.maybe_no_grad(s, 6))
        elif kind < 62:
            statement = self.write(v)
            if statement is not None and self.try_line(statement):
                self.body.append(statement)
        elif kind < 70:
            statement = self.reshape_in_place(v)
            if self.try_line(statement):
                self.body.append(statement)
        else:
            self.add_local(self.compute(v), lambda s: self.maybe_no_grad(s, 8))

    def results(self) -> tuple[str, ...]:
        returned: list[str] = []
        for _ in range(1 + self.chooser.below(4)):
            v = self.name_recent()
            if returned and self.chance(8):
                v = self.pick(returned)
            elif self.chance(15):
                v = self.valid_view(v)
            returned.append(v)
        return tuple(returned)

    def grow(self) -> Draft:
        for _ in range(1 + self.chooser.below(3)):
            if len(self.passed) < 5:
                self.make_source()
        if self.modes and self.chance(15):
            expression = dtensor_statements.argument(self.pick)
            assert self.try_line(f"placed = {expression}"), expression
            self.setup.append(f"placed = {expression}")
            self.passed.append("placed")
        arguments = eval(f"({', '.join(self.passed)},)", self.space)
        for k, t in enumerate(arguments):
            self.space[f"p{k}"] = t
            (self.names if type(t) is torch.Tensor else self.placed).append(f"p{k}")
        context = ""
        if self.chance(8):
            context = self.pick(["torch.no_grad", "torch.no_grad", "torch.inference_mode"])
        if self.modes and not context and self.chance(40):
            budget = self.pick(["0.0", "0.1", "0.5"])
            context = f"lambda: torch._functorch.config.patch(activation_memory_budget={budget})"
        with eval(context or "contextlib.nullcontext", {"torch": torch, "contextlib": contextlib})():
            for _ in range(1 + self.chooser.below(8)):
                self.step()
            results = self.results()
        wrapping = self.pick(["tuple", "tuple", "tuple", "list", "dict"])
        return Draft(
            self.name, tuple(self.setup), tuple(self.passed), tuple(self.body), results, wrapping, context, self.deep
        )


@dataclass(frozen=True)
class Drawn:
    """A program that runs in eager, with what eager did."""

    draft: Draft
    program: Trial
    expected: Expectation


def realize(draft: Draft) -> Drawn | None:
    """None when eager refuses the program as a whole, or its first backward."""
    program = from_source(draft.name, draft.source())
    try:
        expected = expect(program, deep=draft.deep)
    except EagerRaised:
        return None
    if any(run.failure for _, action, run in expected.runs if action[0] == "backward"):
        return None
    return Drawn(draft, program, expected)


def from_chooser(chooser: Chooser, name: str, deep: bool = False, modes: bool = False) -> Drawn | None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.manual_seed(0)
        return realize(Grower(chooser, name, deep, modes).grow())


def from_seed(seed: int, index: int, deep: bool = False, modes: bool = False) -> Drawn:
    """Trial number `index` of a seed; drafts that eager refuses are replaced, so there always is one."""
    for attempt in range(50):
        drawn = from_chooser(RandomChooser((seed, index, attempt)), f"{seed}:{index}", deep, modes)
        if drawn is not None:
            return drawn
    raise RuntimeError(f"no program for seed {seed}, index {index}")


@st.composite
def programs(draw: Callable[[Any], Any]) -> Drawn:
    """Hypothesis: programs that run in eager."""
    from hypothesis import assume

    drawn = from_chooser(DrawnChooser(draw), "drawn")
    assume(drawn is not None)
    assert drawn is not None
    return drawn


def shrink(drawn: Drawn, still_fails: Callable[[Drawn], bool]) -> Drawn:
    """Leave out statements, outputs and set-up lines, and simplify, while the failure stays."""
    best = drawn
    progress = True
    while progress:
        progress = False
        for smaller in _smaller(best.draft):
            try:
                candidate = realize(smaller)
            except Exception:  # without what was left out, the text is no program, or its inputs() raises
                continue
            if candidate is not None and still_fails(candidate):
                best, progress = candidate, True
                break
    return best


def _smaller(draft: Draft) -> list[Draft]:
    def without(items: tuple[str, ...], k: int) -> tuple[str, ...]:
        return items[:k] + items[k + 1 :]

    found = [replace(draft, body=without(draft.body, k)) for k in range(len(draft.body))]
    if len(draft.returned) > 1:
        found += [replace(draft, returned=without(draft.returned, k)) for k in range(len(draft.returned))]
    found += [replace(draft, setup=without(draft.setup, k)) for k in range(len(draft.setup))]
    last = len(draft.passed) - 1
    if last:
        found.append(replace(draft, passed=draft.passed[:last]))  # fails by NameError if the last one is used
        text = "\x00".join((*draft.body, *draft.returned))
        for k in range(last):  # drop an earlier one if unused, renaming those after it
            if f"p{k}" in text.replace(f"p{k}0", ""):
                continue
            renamed = text
            for j in range(k + 1, last + 1):
                renamed = renamed.replace(f"p{j}", f"p{j - 1}")
            parts = tuple(renamed.split("\x00"))
            cut = len(draft.body)
            found.append(replace(draft, passed=without(draft.passed, k), body=parts[:cut], returned=parts[cut:]))
    if draft.context:
        found.append(replace(draft, context=""))
    if draft.wrapping != "tuple":
        found.append(replace(draft, wrapping="tuple"))
    for k, statement in enumerate(draft.body):
        if statement.startswith("with torch.no_grad"):
            plain = statement.split("\n")[1].strip()
            found.append(replace(draft, body=(*draft.body[:k], plain, *draft.body[k + 1 :])))
    return found
