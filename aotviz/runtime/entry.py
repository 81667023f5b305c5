"""The lines between the caller and the graph: how arguments come in and results go out.

A program with plain positional arguments gets a plain signature and builds its result in place. Only nested arguments
and custom containers go through pytree at run time.
"""

from __future__ import annotations

from typing import Any

import torch

from aotviz.ir.forms import GraphCall
from aotviz.ir.spelling import literal
from aotviz.runtime.codegen import Source
from aotviz.torch_private import pytree

_CALLED = "called with the user's own arguments"


class Entry:
    """Writes the signature of the program and its return statement."""

    def __init__(self, source: Source, call: GraphCall, label: str) -> None:
        self.source, self.call, self.label = source, call, label
        self.boxed = call.convention.kind == "boxed"
        spec = call.convention.in_spec
        self.lifted = len(call.descriptors) - (spec.num_leaves if spec is not None else len(call.descriptors))
        self.plain = not self.boxed and _all_leaves(spec)

    def signature(self, function: str) -> list[str] | None:
        """Write the `def` line. Returns one variable per flat input, or None if they are in the list `args`."""
        source = self.source
        if self.boxed:
            source.line(f"def {function}(args):", "called with one flat list, which it may empty", comment=False)
            source.indent()
            return None
        if not self.plain:
            source.line(f"def {function}(*args, **kwargs):", _CALLED, comment=False)
            source.indent()
            leaves = source.bind("leaves_of", pytree.arg_tree_leaves)
            source.line(f"args = {leaves}(*args, **kwargs)", "the arguments are nested")
            self._check_count()
            self._lift("args")
            return None
        names = [source.fresh(d.name) for d in self.call.descriptors[self.lifted :]]
        source.line(f"def {function}({', '.join(names)}):", _CALLED, comment=False)
        source.indent()
        if not self.lifted:
            return names
        self._lift(", ".join(names))
        return None

    def _check_count(self) -> None:
        count = len(self.call.descriptors) - self.lifted
        message = literal(f"{self.call.name} was compiled for {count} inputs; this call has ")
        fact = "a call with another number of inputs needs another program"
        self.source.line(f"if len(args) != {count}: raise TypeError({message} + str(len(args)))", fact)

    def _lift(self, rest: str) -> None:
        if not self.lifted:
            return
        parameters = self.source.bind("parameters", self.call.convention.parameters)
        rest = "*args" if rest == "args" else rest
        self.source.line(f"args = [*{parameters}(), {rest}]", "parameters and buffers are inputs of the graph")

    def result(self, expressions: list[str]) -> str:
        """The expression that the program returns, without the tensors that are returned only for their hooks."""
        if self.call.out_spec is not None:
            expressions = expressions[: self.call.out_spec.num_leaves]
        if self.boxed:
            return f"[{', '.join(expressions)}]"
        remaining = list(expressions)
        text = self._container(self.call.out_spec, remaining)
        if text is not None and not remaining:
            return text
        unflatten = self.source.bind("unflatten", pytree.tree_unflatten)
        spec = self.source.bind("out_spec", self.call.out_spec)
        return f"{unflatten}([{', '.join(expressions)}], {spec})"

    def _container(self, spec: Any, remaining: list[str]) -> str | None:
        """A literal for nested tuples, lists and dicts with plain keys; None for anything else."""
        if spec.is_leaf():
            return remaining.pop(0)
        kind = spec.type
        if kind not in (tuple, list, dict, torch.Size):
            return None
        parts = [self._container(child, remaining) for child in spec.children()]
        texts = [part for part in parts if part is not None]
        if len(texts) != len(parts):
            return None
        if kind is tuple:
            return f"({', '.join(texts)}{',' if len(texts) == 1 else ''})"
        if kind is torch.Size:  # pytree would return a plain tuple
            return f"{self.source.bind('Size', torch.Size)}([{', '.join(texts)}])"
        if kind is list:
            return f"[{', '.join(texts)}]"
        keys = spec.context
        if not all(type(key) in (str, int, bool, type(None)) for key in keys):
            return None  # the `repr` of another key need not be Python
        return "{" + ", ".join(f"{literal(key)}: {text}" for key, text in zip(keys, texts, strict=True)) + "}"


def _all_leaves(spec: Any) -> bool:
    """Whether the call had positional arguments only, none of them a container."""
    positional, keywords = spec.children()
    return keywords.num_leaves == 0 and all(child.is_leaf() for child in positional.children())
