"""Every guard that a call fails, of each program that Dynamo has for its function.

Dynamo stops at the first guard that fails, and its account of a recompile names no other. Here each guard of a
program's tree is tried by itself, against the frame that is about to be compiled: what a guard is about is read by
its source, an expression, and the guard is called with that value; one that can't be called is a list of conditions,
which are evaluated. Nothing of Dynamo is changed, and a guard that can't be tried is left out: then what Dynamo said
is still there.

Several facts of one tensor may have changed at once, for which Dynamo has one guard: each is told.
"""

from __future__ import annotations

import enum
import re
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

import torch

from aotviz.ir import storages
from aotviz.ir.dynamo_capture import children

LONGEST = 120  # characters in which a value is told
SILENT = frozenset({"TORCH_FUNCTION_MODE_STACK"})  # Dynamo takes the modes off while it compiles
LENGTHS = frozenset({"LENGTH_CHECK", "DICT_LENGTH"})
PLAIN = (bool, int, float, complex, str, bytes, type(None), enum.Enum, torch.dtype, torch.device, torch.Size)
TENSOR_FACTS = (  # of a guard on a tensor
    ("dtype", re.compile(r"(torch\.(?:b?float|u?int|complex|bool)\w*)")),
    ("requires_grad", re.compile(r"requires_grad=(\w+)")),
)
DISPATCH = re.compile(r"DispatchKeySet\((\w+)")
DEVICES = frozenset({"cpu", "cuda", "meta", "mps", "xpu", "hpu"})
SIZES = {"shape[{}]": re.compile(r"\bsize=\[(.*?)\]"), "stride({})": re.compile(r"\bstride=\[(.*?)\]")}
SAME = re.compile(r"(?P<one>[^\s=<>]+) is (?P<other>[^\s=<>]+)(?:\s|$)")


class Value(Enum):
    MISSING = "the value that a guard looks at could not be read"


@dataclass(frozen=True)
class FailedGuard:
    """A guard that a call does not pass."""

    guard: str  # with its comment, as torch logs it
    source: str  # the expression that it is about, e.g. "L['self'].step"
    now: str  # what is there now; "" if that can't be told in a few words
    stack: str  # the user's frames, as a traceback prints them


@dataclass(frozen=True)
class Program:
    """An earlier program of the function, and what keeps the call from it."""

    compile_id: str
    failed: tuple[FailedGuard, ...]


def of(entries: Sequence[Any], frame_locals: Mapping[str, Any]) -> list[Program]:
    """The guards of each of Dynamo's cache entries that a frame with these local variables fails."""
    values: dict[tuple[int, str], Any] = {}  # of expressions, by namespace: programs ask for the same ones
    found = []
    for entry in entries:
        try:
            failed = tuple(dict.fromkeys(_Trial(entry.guard_manager, frame_locals, values).failed()))
        except Exception:  # of a release that keeps its guards otherwise
            failed = ()
        found.append(Program(str(entry.compile_id), failed))
    return found


class _Trial:
    """The guards of one program against one frame."""

    def __init__(self, manager: Any, frame_locals: Mapping[str, Any], values: dict[tuple[int, str], Any]) -> None:
        self.manager, self.values = manager, values
        self.globals = dict(manager.global_scope)
        self.locals = {"L": frame_locals, "G": self.globals["G"], **manager.closure_vars}

    def failed(self) -> Iterator[FailedGuard]:
        """In the order in which they are checked, the tree before what hangs on it as a whole."""
        yield from self._of_tree(self.manager.root, None)
        for guard in self.manager.root.get_epilogue_lambda_guards():
            yield from self._of_conditions(guard, "")
        yield from self._aliases()

    def _of_tree(self, node: Any, value: Any) -> Iterator[FailedGuard]:
        source = node.get_source()
        guards = node.get_leaf_guards()
        if node is not self.manager.root:
            value = self._value(source) if guards else Value.MISSING
        for guard in guards:
            try:
                yield from self._of_guard(node, guard, source, value)
            except Exception:  # it can't be tried by itself
                continue
        for child in children(node):
            yield from self._of_tree(child, Value.MISSING)

    def _of_guard(self, node: Any, guard: Any, source: str, value: Any) -> Iterator[FailedGuard]:
        kind, parts = type(guard).__name__, list(guard.verbose_code_parts())
        if kind in SILENT:
            return
        if len(parts) > 1 or not callable(guard):
            yield from self._of_conditions(guard, source)
        elif value is Value.MISSING:  # another guard fails, of what it would be in
            return
        elif hasattr(guard, "check_verbose"):  # the global state, which says what of it
            said = guard.check_verbose(value)
            if not said.result:
                yield FailedGuard("; ".join(said.verbose_code_parts) or parts[0], source, "", _stack(guard))
        elif not guard(value):
            told = [(parts[0], _now(kind, value))]
            if kind in LENGTHS and parts[0].startswith("not "):
                told = [(f"len({source}) == 0{_comment(parts[0])}", str(len(value)))]
            elif kind == "TENSOR_MATCH":
                facts = list(_tensor_facts(parts[0], source, value))
                told = facts or [(text, "") for text in node.check_verbose(value).verbose_code_parts[:1]]
            for text, now in told:
                yield FailedGuard(text, source, now, _stack(guard))

    def _of_conditions(self, guard: Any, source: str) -> Iterator[FailedGuard]:
        for part in guard.verbose_code_parts():
            try:
                holds = eval(part, self.globals, self.locals)  # torch's own text, which torch evaluates as well
            except Exception:
                continue
            if holds is False:
                yield FailedGuard(self._as_tensors(part), source, "", _stack(guard))

    def _as_tensors(self, part: str) -> str:
        """A condition; where it is that two inputs are one tensor, how they lie to each other now."""
        both = SAME.match(part)
        if both is None:
            return part
        one, other = (self._value(both[name]) for name in ("one", "other"))
        if not (isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor)):
            return part
        return f"{both['one']} and {both['other']} were one tensor and are {_relation(one, other)}{_comment(part)}"

    def _aliases(self) -> Iterator[FailedGuard]:
        """Inputs that were different tensors, and are one."""
        places: dict[int, list[str]] = {}
        for source in getattr(self.manager, "no_tensor_aliasing_sources", None) or ():
            value = self._value(source)
            if isinstance(value, torch.Tensor):
                places.setdefault(id(value), []).append(source)
        for sources in places.values():
            if len(sources) > 1:
                told = f"{sources[0]} and {sources[1]} were different tensors and are one tensor"
                yield FailedGuard(told, sources[0], "", "")

    def _value(self, source: str) -> Any:
        key = (id(self.globals["G"]), source)
        if key not in self.values:
            try:
                self.values[key] = eval(source, self.globals, self.locals)
            except Exception:
                self.values[key] = Value.MISSING
        return self.values[key]


def _tensor_facts(text: str, source: str, value: Any) -> Iterator[tuple[str, str]]:
    """(what changed, what it is now) of a tensor, from the guard's account of what it was."""
    comment = _comment(text)
    if not isinstance(value, torch.Tensor):
        yield _changed(source, "a tensor", "None" if value is None else f"a {type(value).__name__}", comment)
        return
    keys, device = DISPATCH.search(text), value.device.type
    if keys and keys[1].lower() in DEVICES and keys[1].lower() != device:
        yield _changed(f"{source}.device", keys[1].lower(), device, comment)
    for fact, pattern in TENSOR_FACTS:
        was, now = pattern.search(text), str(getattr(value, fact))
        if was and was[1] != now:
            yield _changed(f"{source}.{fact}", was[1], now, comment)
    for fact, pattern in SIZES.items():
        held = pattern.search(text)
        sizes = [size.strip() for size in held[1].split(",") if size.strip()] if held else []
        if held and len(sizes) != value.dim():
            yield _changed(f"{source}.ndim", str(len(sizes)), str(value.dim()), comment)
            return
        present = value.shape if fact.startswith("shape") else value.stride()
        for index, (was_size, size) in enumerate(zip(sizes, present, strict=True)):
            if was_size not in ("None", str(size)):
                yield _changed(f"{source}.{fact.format(index)}", was_size, str(size), comment)


def _comment(text: str) -> str:
    """The user's line, which torch puts behind a guard."""
    return text[text.find("  # ") :] if "  # " in text else ""


def _changed(name: str, was: str, now: str, comment: str) -> tuple[str, str]:
    was, now = was.removeprefix("torch."), now.removeprefix("torch.")
    return f"{name} changed from {was} to {now}{comment}", now


def _relation(one: torch.Tensor, other: torch.Tensor) -> str:
    """How two tensors lie to each other in memory, as explain/guard_failures.py reads it."""
    try:
        if one.untyped_storage().data_ptr() != other.untyped_storage().data_ptr():
            return "in separate storages"
        (first, end), (second, last) = storages.span(one), storages.span(other)
    except (RuntimeError, NotImplementedError):  # without memory of its own: sparse, or a subclass
        return "different tensors"
    return "apart in one storage" if end <= second or last <= first else "overlapping views of one storage"


def _now(kind: str, value: Any) -> str:
    """A value in a few words, "" where that can't be: a program's object is not asked for its text."""
    if kind in LENGTHS:
        return str(len(value))
    if kind == "TYPE_MATCH":
        return f"{type(value).__module__}.{type(value).__qualname__}".removeprefix("builtins.")
    if isinstance(value, PLAIN) or (isinstance(value, (tuple, list, frozenset)) and all(map(_is_plain, value))):
        text = repr(value)
        return text if len(text) <= LONGEST else ""
    return ""


def _is_plain(value: Any) -> bool:
    return isinstance(value, PLAIN)


def _stack(guard: Any) -> str:
    get: Callable[[], traceback.StackSummary | None] | None = getattr(guard, "user_stack", None)
    try:
        frames = get() if callable(get) else get
        return "".join(traceback.format_list(frames)).rstrip() if frames else ""
    except Exception:
        return ""
