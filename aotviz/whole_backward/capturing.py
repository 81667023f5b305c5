"""Captures a backward: the object that C++ tells, node by node, what autograd's engine would do.

`torch._C._dynamo.compiled_autograd` walks autograd's graph instead of running it, and calls one method of this object
for each thing that the engine would do: run a node, add up two gradients, call a hook. Each method writes a node into a
graph and returns a stand-in, a tensor without memory, by which C++ refers to the result later.

A stand-in is not a fake tensor: nothing is computed while capturing, so that a capture costs little. An operator that
C++ runs all the same (zeros for a gradient that does not come in) is written down like the others.
"""

from __future__ import annotations

import contextlib
import functools
import operator
import re
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
import torch.fx as fx

from aotviz.ir import graphs
from aotviz.torch_private import backward_capture as torchs
from aotviz.torch_private.backward_engine import AutogradNode
from aotviz.torch_private.dispatch import TorchDispatchMode, without_modes
from aotviz.torch_private.graph_nodes import rename
from aotviz.whole_backward import steps
from aotviz.whole_backward.captured import Lifted
from aotviz.whole_backward.inlining import Inliner

Method = Callable[..., Any]
Edge = tuple[Any, int]  # a node of autograd's, and which of its gradients
_WORD = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")  # where one begins inside "TanhBackward0"
_CARRIED = ("stack_trace", "nn_module_stack", "seq_nr", "val")  # of a node whose copy is written down


def _later(results: Callable[..., int | None]) -> Callable[[Method], Method]:
    """A method that C++ calls while stand-ins replace the saved tensors of an autograd node: an error there would leave
    them replaced. It is raised when the capture ends; until then, stand-ins are returned.

    `results` gives the number of results for the method's arguments, or None if it returns a single one.
    """

    def decorated(method: Method) -> Method:
        @functools.wraps(method)
        def run(self: Capture, *given: Any) -> Any:
            if self.error is None:
                try:
                    return method(self, *given)
                except BaseException as error:
                    self.error = error
            count = results(*given)
            made = [self._stand_in(self._hooks) for _ in range(1 if count is None else count)]
            if method.__name__ == "proxy_call_backward":  # C++ takes no list here, and no gradient of what is no tensor
                return tuple(one if about is not None else None for one, about in zip(made, given[1], strict=True))
            return made[0] if count is None else made

        return run

    return decorated


class Capture:
    """One capture. `finish` gets this object when C++ has told all, and returns what runs it.

    `expected` are autograd's nodes in the order in which C++ visits them, `asked` the edges whose gradients are asked
    for, `names` the user's names of tensors, by id.
    """

    def __init__(
        self,
        expected: Sequence[AutogradNode],
        asked: Sequence[Edge],
        names: Mapping[int, str],
        finish: Callable[[Capture], Any],
    ) -> None:
        self._finish, self._asked = finish, asked
        self.began_ns = time.perf_counter_ns()
        self._expected, self.names = expected, names
        self.graph = fx.Graph()
        self.visited: list[AutogradNode] = []
        self._is_passed_by = False  # the node that is visited
        self._before_hooks: dict[Edge, Any] = {}  # of nodes that the engine runs: the gradient that came in
        self.error: BaseException | None = None
        self.inliner = Inliner(self)
        self.lifted: list[Lifted] = []
        self._nodes: dict[int, fx.Node] = {}  # id of a stand-in -> what it stands for
        self._alive: list[Any] = []  # the stand-ins, whose ids must stay theirs
        self._constants = 0
        self._symbols = torchs.SizeSymbols()
        self._modes = contextlib.ExitStack()  # on until C++ has told all

    # What C++ calls, in the order of torch's protocol.

    def begin_capture(
        self,
        inputs: list[torch.Tensor],
        sizes: list[int],
        scalars: list[Any],
        origins: Sequence[Sequence[tuple[int, str]]],
        accumulate_grad: bool,
        check_nans: bool,
    ) -> tuple[str, list[torch.Tensor], list[Any], list[Any]]:
        tensors = [self._stand_in(self._input("tensor", i, value), value) for i, value in enumerate(inputs)]
        symbols: list[Any] = []
        for kind, values in (("size", sizes), ("scalar", scalars)):
            for i, value in enumerate(values):
                symbols.append(self._symbols.of(value, self._input(kind, i, value)))
        self._hooks = self.graph.placeholder("hooks")
        self._packed = self.graph.placeholder("packed")
        self._modes.enter_context(_Strays(self))
        return "", tensors, symbols[: len(sizes)], symbols[len(sizes) :]

    def set_node_origin(self, name: str, index: int, node: Any) -> None:
        expected = self._expected[index] if index < len(self._expected) else None
        if self.error is None and (expected is None or expected.name != name):
            text = f"autograd's graph was walked in another order than expected: {name} came as number {index}"
            self.error = RuntimeError(text)
        self._is_passed_by = False
        self.visited.append(expected or AutogradNode(node, name, 0))

    def bind_function(self, name: str, fn: Callable[..., Any], is_custom: bool, is_traceable: bool) -> str:
        return torchs.bound_functions.add(name, fn, is_custom, is_traceable)

    @_later(lambda name, gradients, args, metadata: len(metadata))
    def apply_functional(self, name: str, gradients: Any, args: Any, metadata: Sequence[Any]) -> list[Any]:
        if self._passes_by(gradients):
            return [None] * len(metadata)
        return self._several(torchs.bound_functions.get(name), (gradients, *args), len(metadata))

    @_later(lambda _, outputs, args, metadata: len(outputs))
    def validate_outputs(self, _: Any, outputs: Any, args: Any, metadata: Sequence[Any]) -> list[Any]:
        return self._each(torchs.bound_functions.get("validate_outputs"), outputs, args)

    @_later(lambda old, new: None)
    def accumulate(self, old: torch.Tensor, new: torch.Tensor) -> torch.Tensor:
        return self.step(steps.add, (old, new))

    @torchs.accumulating
    @_later(lambda *_: None)
    def accumulate_grad(
        self, variable: torch.Tensor, variable_grad: Any, gradient: Any, has_post_hooks: bool
    ) -> torch.Tensor | None:
        if self._passes_by([gradient]):
            return None
        node = self._emit(steps.accumulate_grad, self._reference((variable, gradient)))
        node.meta["adds"] = variable_grad is not None
        if has_post_hooks:
            node.kwargs = {"has_post_hooks": True}
        return self._stand_in(node)

    @_later(lambda inputs, metadata, *_: len(metadata))
    def proxy_call_backward(
        self,
        inputs: Sequence[Any],
        metadata: Sequence[Any],
        saved: Sequence[Any],
        position: int,
        node: Any,
        state: int | None,
        opaque: Sequence[int],
    ) -> tuple[Any, ...]:
        if self._passes_by(inputs):
            return (None,) * len(metadata)
        special = state is not None or bool(opaque)
        inlined = self.inliner.inlined(node, position, saved, inputs, special)
        if inlined is not None:
            return tuple(inlined)
        is_tensor = tuple(about is not None for about in metadata)
        given = (self._hook(position), list(saved), is_tensor, *inputs)
        results = self._several(steps.call_backward, given, len(metadata))
        return tuple(None if about is None else result for about, result in zip(metadata, results, strict=True))

    @_later(lambda *_: 3)
    def call_copy_slices_prologue(self, inputs: Any, *layout: Any) -> list[torch.Tensor]:
        return self._several(steps.copy_slices_prologue, (inputs, *layout), 3)

    @_later(lambda needs_gradient, *_: len(needs_gradient))
    def call_copy_slices_epilogue(
        self, needs_gradient: Sequence[bool], whole: torch.Tensor, found: Sequence[Any], part: torch.Tensor
    ) -> list[torch.Tensor]:
        _, *layout = graphs.argument(self._nodes[id(whole)]).args  # of the prologue
        return self._several(steps.copy_slices_epilogue, (needs_gradient, found, whole, layout), len(needs_gradient))

    @_later(lambda *_: None)
    def unpack_hook(self, hook: int, data: int) -> torch.Tensor:
        packed = self._emit(operator.getitem, (self._packed, data))
        return self.step(steps.unpack, (self._hook(hook), packed))

    @_later(lambda inputs, *_: len(inputs))
    def tensor_pre_hook(self, inputs: list[Any], hook: int, position: int) -> list[Any]:
        if self._passes_by(inputs) or self.inliner.only_looks(self.visited[-1].node, position):
            return inputs
        self._is_hooked(inputs, position)
        (inputs[position],) = self._each(steps.tensor_pre_hook, [inputs[position]], (self._hook(hook),))
        return inputs

    @_later(lambda inputs, *_: len(inputs))
    def cpp_tensor_pre_hook(self, inputs: list[Any], hook: int, position: int) -> list[Any]:
        if self._passes_by(inputs):
            return inputs
        self._is_hooked(inputs, position)
        inputs[position] = self.step(torchs.call_cpp_hooks, (hook, inputs[position]))
        return inputs

    @_later(lambda inputs, _: len(inputs))
    def pre_hook(self, inputs: Sequence[Any], hook: int) -> Sequence[Any]:
        if self._passes_by(inputs):
            return inputs
        return self._each(steps.pre_hook, inputs, (self._hook(hook),))

    @_later(lambda outputs, *_: len(outputs))
    def post_hook(self, outputs: Sequence[Any], inputs: Sequence[Any], hook: int) -> Sequence[Any]:
        if self._is_passed_by:
            return outputs
        return self._each(steps.post_hook, outputs, (list(inputs), self._hook(hook)))

    @_later(lambda *_: 1)
    def post_acc_grad_hook(self, variable: torch.Tensor, hook: int) -> list[torch.Tensor]:
        if self._is_passed_by:
            return [variable]
        return [self.step(steps.post_accumulate_grad_hook, (self._hook(hook), variable))]

    def log_compile_reasons(self, reasons: Sequence[str]) -> None:
        """Called only while a verbose logger is set."""

    def end_capture(self, outputs: Sequence[Any]) -> Any:
        self._modes.close()
        if self.error is not None:
            raise self.error
        found = [self._before_hooks.get(edge, output) for edge, output in zip(self._asked, outputs, strict=False)]
        self.graph.output([self._reference(output) for output in found])
        self.lifted = self._named_by_use()
        return self._finish(self)

    def close(self) -> None:
        """C++ calls this last, after an error too."""
        self._modes.close()

    # How the backward of a compiled forward is written down.

    def step(self, target: Callable[..., Any], args: tuple[Any, ...], name: str | None = None) -> torch.Tensor:
        return self._stand_in(self._emit(target, self._reference(args), name))

    def copied(self, node: fx.Node, root: torch.nn.Module, known: dict[fx.Node, Any], name: str) -> Any:
        args, kwargs = fx.map_arg((node.args, node.kwargs), lambda one: self._reference(known[one]))
        copy = self.graph.create_node(node.op, node.target, args, kwargs, name)
        if node.op == "get_attr":
            copy.target, copy.meta["constant"] = name, operator.attrgetter(str(node.target))(root)
        elif node.target is torch.ops.aten.view.default:  # strides at run time may differ from those of the trace
            copy.target = torch.ops.aten.reshape.default
        copy.meta |= {key: value for key, value in node.meta.items() if key in _CARRIED}
        copy.meta |= {"visit": self._visit(), "is_copied": True}
        return self._stand_in(copy)

    def are_there(self, values: Sequence[Any]) -> bool:
        references = (self._reference(value) for value in values)
        return not any(isinstance(one, fx.Node) and one.op == "call_function" for one in references)

    def before_all(self, target: Callable[..., Any], position: int, args: tuple[Any, ...]) -> None:
        node = self.graph.call_function(operator.getitem, (self._hooks, position))
        call = self.graph.call_function(target, (node, *self._reference(args)))
        node.meta["visit"] = call.meta["visit"] = -1

    @_later(lambda *_: None)
    def stray(self, function: Any, args: Any, kwargs: Any) -> torch.Tensor:
        """An operator that C++ runs itself."""
        node = self._emit(function, self._reference(tuple(args)))
        node.kwargs = {name: self._reference(value) for name, value in kwargs.items()}
        return self._stand_in(node)

    # How they write it down.

    def _input(self, kind: str, position: int, value: Any) -> fx.Node:
        """An input. The ones without a name of the user's get theirs when the capture ends."""
        is_tensor = isinstance(value, torch.Tensor)
        shape, dtype = (tuple(value.shape), str(value.dtype)) if is_tensor else ((), "")
        name = self.names.get(id(value), "")
        self.lifted.append(Lifted(kind, position, -1, name, bool(name), shape, dtype))
        return self.graph.placeholder(f"{kind}_{position}")

    def _named_by_use(self) -> list[Lifted]:
        """The inputs, each with its visit and a name; the placeholders get these names too. An input without a name of
        the user's is called after the autograd node that reads it: `tanh_backward0_saved_0`.

        C++ says too of which node an input is, but not reliably: it counts the nodes in another order than it visits
        them. The complete graph tells better: what `TanhBackward0` kept is what its visit reads first.
        """
        count: Counter[str] = Counter()
        found: list[Lifted] = []
        for node, one in zip(self.graph.find_nodes(op="placeholder"), self.lifted, strict=False):
            visit = next((user.meta["visit"] for user in node.users if user.meta.get("visit", -1) >= 0), -1)
            name = one.name
            if not name:
                reader = self.visited[visit].name.rpartition("::")[2] if visit >= 0 else "unread"
                kind = f"{_WORD.sub('_', reader).lower()}_{'saved' if one.kind == 'tensor' else one.kind}"
                name = f"{kind}_{count[kind]}"
                count[kind] += 1
            rename(node, re.sub(r"\W", "_", name))
            found.append(replace(one, visit=visit, name=name))
        return found

    def _stand_in(self, node: fx.Node, like: torch.Tensor | None = None) -> torch.Tensor:
        with without_modes():
            made = torchs.stand_in(like)
        self._alive.append(made)
        self._nodes[id(made)] = node
        return made

    def _hook(self, position: int) -> fx.Node:
        return self._emit(operator.getitem, (self._hooks, position))

    def _emit(self, target: Callable[..., Any], args: tuple[Any, ...], name: str | None = None) -> fx.Node:
        node = self.graph.create_node("call_function", target, args, name=name)
        node.meta["visit"] = self._visit()
        return node

    def _size(self, function: Callable[..., Any], args: tuple[Any, ...]) -> fx.Node:
        """A node for an expression of sizes."""
        return self._emit(steps.Computed(function, "size"), args)

    def _visit(self) -> int:
        return len(self.visited) - 1

    def _passes_by(self, gradients: Sequence[Any]) -> bool:
        """Whether eager would not run this node: a compiled forward computes no gradient for it."""
        node, unreached = self.visited[-1].node, self.inliner.unreached
        self._is_passed_by = node in unreached and all(gradient is None for gradient in gradients)
        if self._is_passed_by:
            unreached |= {one for one, _ in node.next_functions}
        return self._is_passed_by

    def _is_hooked(self, inputs: Sequence[Any], position: int) -> None:
        """The engine takes the gradient that is asked for before the hooks on a tensor, if it goes on to run the
        tensor's node, and after them otherwise. C++ tells of the gradient after them."""
        visited = self.visited[-1]
        if visited.goes_on:
            self._before_hooks.setdefault((visited.node, position), inputs[position])

    def _each(self, target: Callable[..., Any], gradients: Sequence[Any], args: Sequence[Any]) -> list[Any]:
        """A step with one result for each gradient: None for one that is missing, which nothing can replace."""
        results = self._several(target, (list(gradients), *args), len(gradients))
        return [None if one is None else result for one, result in zip(gradients, results, strict=True)]

    def _several(self, target: Callable[..., Any], args: tuple[Any, ...], count: int) -> list[Any]:
        """A step with `count` results."""
        node = self._emit(target, self._reference(args))
        return [self._stand_in(self._emit(operator.getitem, (node, i))) for i in range(count)]

    def _reference(self, value: Any) -> Any:
        """`value` as an argument of a node: stand-ins and symbols are the nodes that they stand for."""
        if isinstance(value, torch.Tensor):
            return self._nodes.get(id(value)) or self._constant(value)
        if type(value) in (list, tuple):
            return type(value)(self._reference(part) for part in value)
        if isinstance(value, (torch.SymInt, torch.SymFloat)):
            return self._symbols.node(value, self._size)
        return value

    def _constant(self, tensor: torch.Tensor) -> fx.Node:
        """A tensor that C++ found by itself, such as a 0-dim one of a number."""
        node = self.graph.get_attr(f"constant_{self._constants}")
        self._constants += 1
        node.meta["constant"] = tensor
        self._nodes[id(tensor)] = node
        self._alive.append(tensor)
        return node


class _Strays(TorchDispatchMode):
    """Writes down the operators that C++ runs while it tells of the rest."""

    def __init__(self, capture: Capture) -> None:
        super().__init__()
        self._capture = capture

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return self._capture.stray(function, args, kwargs or {})
