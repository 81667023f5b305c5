"""What the inputs and outputs of an exported graph are, by node name (docs/design/system.md A7).

An exported graph has no wrapper. Its caller passes parameters and buffers, writes mutated inputs back, and picks the
gradients from the results. The signature says which is which:

    inputs   (*tokens, *parameters, *buffers, *user inputs)
    outputs  (*tokens, *mutated inputs, *user outputs, *gradients)

Tokens keep calls with side effects in order. A graph without such calls has no tokens.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from aotviz.ir.descriptors import (
    BufferInput,
    GradientOutput,
    MutatedInputOutput,
    ParameterInput,
    PlainInput,
    PlainOutput,
)


class ExportRefused(RuntimeError):
    """This program can't be exported. The message names the input or output, and says what to do."""


@dataclass(frozen=True)
class BackwardSignature:
    """The backward half of an exported joint graph. All names are names of nodes, except those of parameters."""

    gradients_to_parameters: Mapping[str, str]  # graph output -> dotted name of the parameter
    gradients_to_user_inputs: Mapping[str, str]  # graph output -> graph input
    loss_output: str


@dataclass(frozen=True)
class GraphSignature:
    """Inputs and outputs of an exported graph. Parameters and buffers have their dotted names."""

    parameters: tuple[str, ...]
    buffers: tuple[str, ...]
    user_inputs: tuple[str, ...]  # graph inputs
    user_outputs: tuple[str | None, ...]  # graph outputs; None for a constant
    inputs_to_parameters: Mapping[str, str]
    inputs_to_buffers: Mapping[str, str]
    buffers_to_mutate: Mapping[str, str]  # graph output -> buffer
    parameters_to_mutate: Mapping[str, str]  # graph output -> parameter
    user_inputs_to_mutate: Mapping[str, str]  # graph output -> graph input
    in_spec: Any  # of ((*parameters, *buffers, *args), kwargs)
    out_spec: Any  # of the user outputs
    backward_signature: BackwardSignature | None
    input_tokens: tuple[str, ...] = ()  # graph inputs; pass any empty tensors
    output_tokens: tuple[str, ...] = ()  # graph outputs

    @classmethod
    def of(
        cls, inputs: Sequence[tuple[str, PlainInput]], outputs: Sequence[tuple[Any, Any]], loss: int | None, **rest: Any
    ) -> GraphSignature:
        """The signature, from (node name, descriptor) pairs. `loss` is the position of the loss in the user outputs.
        `rest` has the specs and tokens."""
        lifted = (ParameterInput, BufferInput)
        node_of: dict[Any, str] = {descriptor: name for name, descriptor in inputs}
        mutated = [(name, d.input) for name, d in outputs if isinstance(d, MutatedInputOutput)]
        gradients = [(name, d.input) for name, d in outputs if isinstance(d, GradientOutput)]
        user_outputs = tuple(name for name, d in outputs if isinstance(d, PlainOutput))

        def named(pairs: Iterable[tuple[str, Any]], kind: Any) -> dict[str, str]:
            return {name: d.name for name, d in pairs if isinstance(d, kind)}

        def given(pairs: Iterable[tuple[str, Any]]) -> dict[str, str]:
            return {name: node_of[d] for name, d in pairs if not isinstance(d, lifted)}

        backward = None
        if loss is not None:
            backward = BackwardSignature(named(gradients, ParameterInput), given(gradients), str(user_outputs[loss]))
        parameters, buffers = named(inputs, ParameterInput), named(inputs, BufferInput)
        return cls(
            parameters=tuple(parameters.values()),
            buffers=tuple(buffers.values()),
            user_inputs=tuple(name for name, d in inputs if not isinstance(d, lifted)),
            user_outputs=user_outputs,
            inputs_to_parameters=parameters,
            inputs_to_buffers=buffers,
            buffers_to_mutate=named(mutated, BufferInput),
            parameters_to_mutate=named(mutated, ParameterInput),
            user_inputs_to_mutate=given(mutated),
            backward_signature=backward,
            **rest,
        )
