"""Find every guard that fails for a call, in each program that Dynamo has for the function.

Dynamo stops at the first guard that fails, and reports only that one. This module evaluates each guard of a program's
tree by itself, against the frame that is about to be compiled. A guard is called with the value of its source
expression. A guard that cannot be called is a list of conditions, which are evaluated. Dynamo's state does not change.
A guard that cannot be evaluated is left out; Dynamo's own reason is still recorded.

Dynamo has one guard for all properties of a tensor. If several properties have changed, each is reported.
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
from aotviz.recording import guard_texts

LONGEST = 120  # characters that are shown of a value
SILENT = frozenset({"TORCH_FUNCTION_MODE_STACK"})  # Dynamo removes the modes while it compiles
LENGTHS = frozenset({"LENGTH_CHECK", "DICT_LENGTH"})
PLAIN = (bool, int, float, complex, str, bytes, type(None), enum.Enum, torch.dtype, torch.device, torch.Size)
TENSOR_FACTS = (  # how the text of a TENSOR_MATCH guard states these properties
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
    """A guard that fails for a call."""

    guard: str  # with its comment, as torch logs it
    source: str  # the expression that it checks, e.g. "L['self'].step"
    now: str  # the current value; "" if it has no short text
    stack: str  # the user's frames, as a traceback prints them


@dataclass(frozen=True)
class Program:
    """An earlier program of the function, and the guards that fail for the call."""

    compile_id: str
    failed: tuple[FailedGuard, ...]


def of(entries: Sequence[Any], frame_locals: Mapping[str, Any]) -> list[Program]:
    """For each of Dynamo's cache entries, the guards that fail for a frame with these local variables."""
    values: dict[tuple[int, str], Any] = {}  # (namespace, expression) -> value; programs share many expressions
    found = []
    for entry in entries:
        try:
            failed = tuple(dict.fromkeys(_Trial(entry.guard_manager, frame_locals, values).failed()))
        except Exception:  # this release of torch stores guards in another way
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
        """The guards that fail, in Dynamo's order: first the tree, then the guards on several values together."""
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
            except Exception:  # this guard cannot be evaluated by itself
                continue
        for child in children(node):
            yield from self._of_tree(child, Value.MISSING)

    def _of_guard(self, node: Any, guard: Any, source: str, value: Any) -> Iterator[FailedGuard]:
        kind, parts = type(guard).__name__, list(guard.verbose_code_parts())
        if kind in SILENT:
            return
        if len(parts) > 1 or not callable(guard):
            yield from self._of_conditions(guard, source)
        elif value is Value.MISSING:  # another guard, on the object that should contain the value, fails
            return
        elif hasattr(guard, "check_verbose"):  # the guard on global state, which says what has changed
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
                holds = eval(part, self.globals, self.locals)  # this text comes from torch, which evaluates it too
            except Exception:
                continue
            if holds is False:
                yield FailedGuard(self._as_tensors(part), source, "", _stack(guard))

    def _as_tensors(self, part: str) -> str:
        """The condition; if it says that two inputs are the same tensor, a text on how their memory relates now."""
        both = SAME.match(part)
        if both is None:
            return part
        one, other = (self._value(both[name]) for name in ("one", "other"))
        if not (isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor)):
            return part
        return f"{both['one']} and {both['other']} were one tensor and are {_relation(one, other)}{_comment(part)}"

    def _aliases(self) -> Iterator[FailedGuard]:
        """Failed guards for inputs that were different tensors and are now the same tensor."""
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
    """(what changed, the current value) for each changed property of a tensor, by the guard's text."""
    comment = _comment(text)
    if not isinstance(value, torch.Tensor):
        yield _changed(source, "a tensor", guard_texts.with_article(type(value).__name__), comment)
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
    """The comment with the user's line that torch puts after a guard, or ""."""
    return text[text.find("  # ") :] if "  # " in text else ""


def _changed(name: str, was: str, now: str, comment: str) -> tuple[str, str]:
    was, now = was.removeprefix("torch."), now.removeprefix("torch.")
    return f"{name} changed from {was} to {now}{comment}", now


def _relation(one: torch.Tensor, other: torch.Tensor) -> str:
    """How the memory of two tensors relates, in the words that explain/guard_failures.py parses."""
    try:
        if one.untyped_storage().data_ptr() != other.untyped_storage().data_ptr():
            return "in separate storages"
        (first, end), (second, last) = storages.span(one), storages.span(other)
    except (RuntimeError, NotImplementedError):  # a tensor has no storage of its own: it is sparse, or a subclass
        return "different tensors"
    return "apart in one storage" if end <= second or last <= first else "overlapping views of one storage"


def _now(kind: str, value: Any) -> str:
    """A short text for a value, or "". The `repr` of the user's own objects is not called."""
    if kind in LENGTHS:
        return str(len(value))
    if kind == "TYPE_MATCH":
        return f"{type(value).__module__}.{type(value).__qualname__}".removeprefix("builtins.")
    if isinstance(value, PLAIN) or (
        isinstance(value, (tuple, list, frozenset)) and all(isinstance(one, PLAIN) for one in value)
    ):
        text = repr(value)
        return text if len(text) <= LONGEST else ""
    return ""


def _stack(guard: Any) -> str:
    get: Callable[[], traceback.StackSummary | None] | None = getattr(guard, "user_stack", None)
    try:
        frames = get() if callable(get) else get
        return "".join(traceback.format_list(frames)).rstrip() if frames else ""
    except Exception:
        return ""
