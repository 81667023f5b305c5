"""Which calls one program of `aot_function` serves: what its graph has as a constant, and what it was traced without.

A graph has the numbers, texts and flags of the first call as constants, and takes its arguments in the structure that
they had. It has gradients for what required one then. The wrapper checks how arguments share memory; sizes and dtypes
are the graph's business, which may serve several.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import torch

from aotviz.frontends.compiling import ran_in_eager
from aotviz.frontends.memory_patterns import TooManyPrograms
from aotviz.ir.forms import Reason, Request
from aotviz.ir.refusals import RanInEager
from aotviz.ir.user_warnings import users_place, warn
from aotviz.recorder.sessions import Session
from aotviz.runtime.lowered import Program
from aotviz.torch_private import dynamo, pytree, runtime

CONSTANTS = {type(None), bool, int, float, str, complex, torch.Generator}


class Signature(NamedTuple):
    """What a call has that a program depends on. `fixed` also has the structure, if arguments are nested or named."""

    grad: bool
    fixed: list[Any]  # for each leaf its kind, and the value of a constant
    marks: list[bool]  # of each parameter and buffer, and then of each leaf, whether it requires grad

    def serves(self, call: Signature) -> bool:
        """Whether a program that was compiled for this one serves a call.

        >>> of_call = Signature(True, [torch.Tensor], [True])
        >>> of_call.serves(of_call._replace(marks=[False])), of_call._replace(marks=[False]).serves(of_call)
        (True, False)
        """
        if self == call:
            return True
        if self.fixed != call.fixed:
            return False
        if not call.grad:
            return True
        return self.grad and all(known or not now for known, now in zip(self.marks, call.marks, strict=False))

    def differs(self, call: Signature, names: Sequence[str]) -> str:
        """Why it does not serve a call, as Dynamo spells a guard. `names`: those of the leaves, parameters first."""
        if self.fixed != call.fixed:
            pairs = zip(reversed(self.fixed), reversed(call.fixed), reversed(names), strict=False)
            for known, now, name in pairs if len(self.fixed) == len(call.fixed) else ():
                if known != now and isinstance(known, tuple):
                    return f"L[{name!r}] == {known[1]!r}" if known[1] is not None else f"L[{name!r}] is None"
            return "the structure of the arguments"
        if not self.grad:
            return "GLOBAL_STATE changed: grad_mode "
        marks = zip(self.marks, call.marks, names, strict=False)
        name = next((name for known, now, name in marks if now and not known), "")
        return f"tensor {name!r} requires_grad mismatch. expected requires_grad=0"


def of(args: Sequence[Any], kwargs: Mapping[str, Any], parameters: Sequence[Any]) -> Signature:
    """The signature of a call. It is made at every call, so it is one loop."""
    marks = [isinstance(one, torch.Tensor) and one.requires_grad for one in parameters]
    fixed: list[Any] = []
    leaves, nested = args, bool(kwargs)
    if not nested:
        for one in args:
            kind = type(one)
            if kind is torch.Tensor or kind is torch.nn.Parameter:
                fixed.append(torch.Tensor)
                marks.append(one.requires_grad)
            elif kind in CONSTANTS:
                fixed.append((kind, one))
                marks.append(False)
            else:
                nested = True
                break
    if nested:
        leaves, structure = pytree.tree_flatten((args, dict(kwargs)))
        fixed = [structure, *map(_fixed, leaves)]
        del marks[len(parameters) :]
        marks += [isinstance(one, torch.Tensor) and one.requires_grad for one in leaves]
    return Signature(torch.is_grad_enabled(), fixed, marks)


def _fixed(leaf: Any) -> Any:
    kind = type(leaf)
    return torch.Tensor if kind is torch.nn.Parameter else (kind, leaf) if kind in CONSTANTS else kind


@dataclass
class Programs:
    """The programs of one function, the newest first, each with the signature of the call that it was compiled for."""

    fn: Callable[..., Any]
    request: Callable[[tuple[Any, ...], Mapping[str, Any]], Request]
    compiled: Callable[[Request], Program]
    session: Session
    known: list[tuple[Signature, Callable[..., Any]]] = field(default_factory=list)
    names: list[str] = field(default_factory=list)  # of the parameters, buffers and leaves of the first call
    parameters: Callable[[], Sequence[Any]] = tuple

    def function(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Callable[..., Any]:
        """What a call runs: a program, or `fn` inside a transform and after the limit of programs."""
        signature = of(args, kwargs, self.parameters())
        for known, function in self.known:
            if known.serves(signature):
                return function
        return self.fn if runtime.transformed() else self._another(signature, args, kwargs)

    def _another(self, signature: Signature, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Callable[..., Any]:
        request = self.request(args, kwargs)
        reasons = [known.differs(signature, self.names) for known, _ in self.known]
        request = replace(request, evidence=tuple(Reason(request.name, text) for text in reasons))
        if len(reasons) >= dynamo.config.recompile_limit:
            full = TooManyPrograms(dynamo.config.recompile_limit)
            ran_in_eager(request, self.session, full, users_place())
            warn(f"a call of {request.name} runs in eager: {reasons[0]} differs, and {full}", RanInEager)
            return self.fn
        program = self.compiled(request)
        if not self.known:
            self.names = [descriptor.name for descriptor in program.call.outer.descriptors]
            self.parameters = request.convention.parameters or tuple
            signature = of(args, kwargs, self.parameters())
        self.known.insert(0, (signature, program.function))
        return program.function
