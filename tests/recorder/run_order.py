"""The events of a recording compared with what eager does.

`disagreements` runs a program in eager under a TorchDispatchMode, which sees each view and each write on the real
tensors, and compares them, in their order, with the rows of the recording. A tensor is compared by its number: it
must be the same real tensor in every row that has the number, and another one in rows with other numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.nn.functional import linear
from torch.overrides import TorchFunctionMode

from aotviz.reading.recording import Compilation
from aotviz.torch_private import operators
from aotviz.torch_private.dispatch import TorchDispatchMode
from aotviz.torch_private.pytree import tree_leaves
from tests.oracle.compare import Setup

SEEN = ("view", "detach", "write", "metadata", "set_", "resize")  # what a dispatcher sees
NAMES = {".data": "detach"}
PRODUCTS = (torch.matmul, torch.Tensor.matmul, torch.Tensor.__matmul__, torch.Tensor.__rmatmul__, linear)
DETACHING = (torch.detach, torch.Tensor.detach, torch.Tensor.data.__get__)
Step = tuple[str, str, int, int]  # what, operator, tensor, of


def disagreements(
    build: Callable[[], Setup], compile_: Callable[[Any], Callable[..., Any]], recorded: Callable[[Any], Compilation]
) -> list[str]:
    eager, setup = build(), build()
    with torch.enable_grad(), eager.context(), _Seeing() as seen, _Calls(seen):
        seen.read(eager.fn(*eager.args, **eager.kwargs))
    compiled = compile_(setup.fn)
    with torch.enable_grad(), setup.context():
        compiled(*setup.args, **setup.kwargs)
    rows = recorded(compiled).events
    rows = rows[rows.what.isin(SEEN) & (rows.operator != ".data =")]
    ours = _renumbered(
        (row.what, NAMES.get(row.operator, row.operator.partition("(")[0]), row.tensor_number, row.of_number)
        for row in rows.itertuples()
    )
    real = _renumbered(seen.users())
    return [] if ours == real else [f"ours:  {ours}", f"eager: {real}"]


class _Seeing(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.steps: list[Step] = []
        self.are_read: set[int] = set()  # ids
        self.saved: set[int] = set()  # ids of detached aliases that no statement of the user's asked for
        self.kept: list[Any] = []  # so that no other tensor gets the id of one
        self.call: Any = None  # the torch function that runs

    def __torch_dispatch__(self, operator: Any, kinds: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.read((args, kwargs))
        result = operator(*args, **kwargs or {})
        name = operator.overloadpacket.__name__
        if name == "native_batch_norm" and args[5]:  # its schema does not say that it writes these
            for one in args[3:5]:
                self._step("write", "_native_batch_norm_legit", one, None)
        if operators.is_composite(operator):
            return result
        if torch.Tag.inplace_view in operator.tags:
            what = {"set_": "set_", "resize_": "resize"}.get(name, "metadata")
            source = next((one for one in args[1:] if isinstance(one, torch.Tensor)), None)
            self._step(what, name, args[0], source)
        elif operators.writes(operator):
            for one in operators.written(operator, args, kwargs or {}):
                self._step("write", name, one, None)
        elif operators.is_view(operator) and not self._is_internal(name):
            for one in tree_leaves(result):
                self._step("detach" if name == "detach" else "view", name, one, args[0])
            if name == "detach" and self.call not in DETACHING:
                self.saved.add(id(result))
        return result

    def _is_internal(self, name: str) -> bool:
        """Whether no statement of the user's took this view: it is of a new constant, or in a product."""
        return name == "lift_fresh" or (self.call in PRODUCTS and name in ("view", "squeeze"))

    def read(self, values: Any) -> None:
        """Note that an operator, or the caller, reads these."""
        leaves = tree_leaves(values)
        self.kept += leaves
        self.are_read.update(map(id, leaves))

    def users(self) -> list[Step]:
        """The steps without the aliases with which autograd saves results: nothing reads them."""
        return [step for step in self.steps if step[2] not in self.saved or step[2] in self.are_read]

    def _step(self, what: str, name: str, tensor: Any, of: Any) -> None:
        self.kept += (tensor, of)
        self.steps.append((what, name, id(tensor), -1 if of is None else id(of)))


class _Calls(TorchFunctionMode):
    """Tells `seeing` which torch function runs."""

    def __init__(self, seeing: _Seeing) -> None:
        super().__init__()
        self.seeing = seeing

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        before, self.seeing.call = self.seeing.call, func
        if func is linear and (len(args) > 2 or (kwargs or {}).get("bias") is not None):
            self.seeing.call = None  # then a trace sees the same views
        try:
            return func(*args, **(kwargs or {}))
        finally:
            self.seeing.call = before


def _renumbered(steps: Any) -> list[Step]:
    numbers: dict[int, int] = {-1: -1}
    found = []
    for what, name, tensor, of in steps:
        of, tensor = (numbers.setdefault(one, len(numbers) - 1) for one in (of, tensor))
        found.append((what, name, tensor, of))
    return found
