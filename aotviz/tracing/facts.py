"""What a functionalised run shows about its inputs and outputs (SYSTEM.md A1-A3).

Everything here reads functional tensors after the run and is called inside the open trace, because to read a
tensor's final value applies the writes that are still pending on its base.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import Any

import torch

from aotviz.ir.metadata import InputAliasInfo, OutputAliasInfo, OutputType
from aotviz.torch_private import functional, operators
from aotviz.torch_private.fakes import is_concrete
from aotviz.tracing import views

_SYMBOLIC = (torch.SymInt, torch.SymFloat, torch.SymBool)


@dataclass(frozen=True)
class Before:
    """An input as it was when the call began."""

    version: int
    edge: Any  # its gradient edge, or None


def before(argument: Any) -> Before:
    return Before(operators.version(argument) if isinstance(argument, torch.Tensor) else 0, edge(argument))


def edge(argument: Any) -> Any:
    if not isinstance(argument, torch.Tensor) or not argument.requires_grad:
        return None
    return torch.autograd.graph.get_gradient_edge(argument)


def of_input(argument: Any, fake: Any, was: Before, keep_input_mutations: bool) -> InputAliasInfo:
    """The facts about one input. `fake` is the tensor before the call, `argument` the functional one after it."""
    if not isinstance(argument, torch.Tensor):
        return InputAliasInfo(
            False, True, False, False, False, False, False, False, False, False, keep_input_mutations, 0, None
        )
    after = functional.inner(argument)
    replaced = functional.storage_replaced(argument) and functional.storage(fake) != functional.storage(after)
    # The wrapper knows where the input lies; the value inside is laid out anew by every write to it.
    lies = views.layout(after) if replaced else views.layout(argument)
    moved = functional.metadata_mutated(argument) and views.layout(fake) != lies
    changed = functional.data_mutated(argument)
    hidden = functional.hidden_from_autograd(argument)
    quiet = changed and functional.under_no_grad(argument)
    if was.edge is not None and (changed or moved):  # what autograd sees gives the input a new history
        hidden = tuple(edge(argument))[:2] == tuple(was.edge)[:2]
        quiet = quiet and hidden
    return InputAliasInfo(
        is_tensor=True,
        is_leaf=fake.is_leaf,
        requires_grad=fake.requires_grad,
        requires_grad_after=argument.requires_grad,
        mutates_data=changed and not replaced,
        mutates_metadata=replaced or moved,
        mutations_hidden_from_autograd=hidden,
        mutations_under_no_grad_or_inference_mode=quiet,
        mutates_storage_metadata=replaced,
        resizes_storage=functional.storage_resized(argument),
        keep_input_mutations=keep_input_mutations,
        version_bumps=operators.version(argument) - was.version,
        layout_after=lies if replaced or moved else None,
    )


def of_outputs(
    trace: Any, args: list[Any], outputs: list[Any], input_info: tuple[InputAliasInfo, ...]
) -> tuple[tuple[OutputAliasInfo, ...], list[Any]]:
    """The facts about all outputs, and the intermediate bases that the graph must return for their sake."""
    return _Outputs(trace, args, outputs, input_info).classify()


def _refuse_hidden_tensors(output: Any) -> None:
    """Raise for an object that holds tensors where pytree does not see them."""
    for name, value in getattr(output, "__dict__", {}).items():
        if isinstance(value, torch.Tensor):
            raise TypeError(
                f"the function returns a {type(output).__name__} whose field {name!r} is a tensor, and pytree does not "
                f"know that class. Return a tuple or dict, or register {type(output).__name__} with pytree."
            )


class _Outputs:
    """Sorts outputs into the eight kinds; what one output is depends on which others alias it."""

    def __init__(self, trace: Any, args: list[Any], outputs: list[Any], input_info: tuple[InputAliasInfo, ...]) -> None:
        self.trace, self.args, self.outputs, self.input_info = trace, args, outputs, input_info
        self.bases: list[Any] = []
        self.input_of = {id(a): i for i, a in enumerate(args) if isinstance(a, torch.Tensor)}
        self.input_of_storage = {functional.storage(a): i for i, a in enumerate(args) if isinstance(a, torch.Tensor)}
        self.first_output: dict[int, int] = {}
        self.sharing: Counter[Any] = Counter()
        self.sharing_multi_output: Counter[Any] = Counter()
        for index, output in enumerate(outputs):
            if not isinstance(output, torch.Tensor):
                continue
            if id(output) in self.first_output:
                continue
            self.first_output[id(output)] = index
            key = self._storage(output)
            self.sharing[key] += 1
            if functional.is_functional(output) and functional.multi_output_view(output):
                self.sharing_multi_output[key] += 1

    def classify(self) -> tuple[tuple[OutputAliasInfo, ...], list[Any]]:
        infos = [self._classify(index, output) for index, output in enumerate(self.outputs)]
        return tuple(infos), self.bases

    @staticmethod
    def _storage(output: Any) -> Any:
        return functional.storage(output)

    def _classify(self, index: int, output: Any) -> OutputAliasInfo:
        plain = OutputAliasInfo(
            OutputType.non_alias, type(output), None, frozenset(), False, False, None, None, same_object_as=None
        )
        if isinstance(output, _SYMBOLIC):
            return plain
        if not isinstance(output, torch.Tensor):
            _refuse_hidden_tensors(output)
            return replace(plain, constant=output, is_constant=True)
        if not functional.is_functional(output):
            return self._foreign(plain, output)
        where = views.layout(functional.inner(output))
        history = functional.grad_fn(output)
        info = replace(
            plain,
            dynamic_dims=frozenset(i for i, s in enumerate(output.shape) if not is_concrete(s)),
            requires_grad=output.requires_grad,
            layout=where,
            viewed_under_no_grad=output.requires_grad and history is None and output._base is not None,
        )
        if id(output) in self.input_of:
            return replace(info, output_type=OutputType.is_input, base_index=self.input_of[id(output)])
        if self.first_output[id(output)] != index:
            return replace(info, same_object_as=self.first_output[id(output)])
        base = self._view_of_output(info, output)
        if base is not None:
            return base
        source = self.input_of_storage.get(self._storage(output))
        if source is not None and functional.from_custom_function(history):
            return replace(info, output_type=OutputType.custom_function_view, has_tangent=output.requires_grad)
        if source is not None and not functional.storage_replaced(output):
            return self._view_of_input(info, output, source)
        return self._own(info, index, output, history)

    def _foreign(self, plain: OutputAliasInfo, output: Any) -> OutputAliasInfo:
        """A tensor that the function closed over, never an input: the graph holds it as a constant."""
        return replace(plain, requires_grad=output.requires_grad, layout=views.layout(output))

    def _view_of_input(self, info: OutputAliasInfo, output: Any, source: int) -> OutputAliasInfo:
        steps = self._chain(output, self.args[source])
        return replace(info, output_type=OutputType.alias_of_input, base_index=source, view_chain=steps)

    def _own(self, info: OutputAliasInfo, index: int, output: Any, history: Any) -> OutputAliasInfo:
        """An output whose memory the function made."""
        base = output._base
        key = self._storage(output)
        if base is not None and output.requires_grad and base.requires_grad and functional.is_functional(base):
            alone = self.sharing[key] == 1
            only_pieces = self.sharing[key] - self.sharing_multi_output[key] <= (0 if self._is_output(base) else 1)
            if (alone or only_pieces) and not info.viewed_under_no_grad:
                return replace(info, output_type=OutputType.unsafe_view_alias, has_tangent=True)
            return self._view_of_intermediate(info, output, base)
        twin = self._differentiable_twin(index, output)
        if twin is not None:
            kind = OutputType.alias_of_intermediate_base_is_user_output
            steps = self._chain(output, self.outputs[twin])
            return replace(info, output_type=kind, base_index=twin, view_chain=steps)
        return replace(info, has_tangent=output.requires_grad and not info.viewed_under_no_grad)

    def _view_of_output(self, info: OutputAliasInfo, output: Any) -> OutputAliasInfo | None:
        """A view of another output that autograd does not track: made again from that one."""
        base = output._base
        if output.requires_grad or base is None or not self._is_output(base) or id(base) in self.input_of:
            return None
        steps = self._chain(output, base)
        if steps is None:
            return None
        kind = OutputType.alias_of_intermediate_base_is_user_output
        return replace(info, output_type=kind, base_index=self.first_output[id(base)], view_chain=steps)

    def _is_output(self, tensor: Any) -> bool:
        return id(tensor) in self.first_output

    def _view_of_intermediate(self, info: OutputAliasInfo, output: Any, base: Any) -> OutputAliasInfo:
        steps = self._chain(output, base)
        if self._is_output(base):
            kind = OutputType.alias_of_intermediate_base_is_user_output
            return replace(info, output_type=kind, base_index=self.first_output[id(base)], view_chain=steps)
        for position, known in enumerate(self.bases):
            if known is base:
                kind = OutputType.alias_of_intermediate
                return replace(info, output_type=kind, base_index=position, view_chain=steps)
        self.bases.append(base)
        kind = OutputType.alias_of_intermediate_save_as_output
        return replace(info, output_type=kind, base_index=len(self.bases) - 1, view_chain=steps)

    def _differentiable_twin(self, index: int, output: Any) -> int | None:
        """For a detached alias, the differentiable output over the same memory that it can be made from."""
        if output.requires_grad:
            return None
        key = self._storage(output)
        for other, candidate in enumerate(self.outputs):
            if other == index or not functional.is_functional(candidate) or not candidate.requires_grad:
                continue
            if self.first_output[id(candidate)] == other and self._storage(candidate) == key:
                return other
        return None

    def _chain(self, output: Any, base: Any) -> Any:
        base_node = self.trace.node_of(functional.inner(base))
        return views.chain(self.trace.node_of(functional.inner(output)), base_node)
