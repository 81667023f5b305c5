"""The lines of a generated `autograd.Function` that convert between subclasses and their parts.

Autograd sees whole tensors, the compiled graphs their parts (`stages/subclasses.py`). The backward keeps parts, and a
write to the whole does not bump the version counter of a part. So if a kept part belongs to an input or a result, the
whole is kept too, so that a write to it is noticed as in eager.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice
from typing import Any

import torch

from aotviz.ir import absent, graphs
from aotviz.ir.descriptors import GradientOutput, InputDescriptor
from aotviz.ir.forms import Gradient, Split
from aotviz.ir.subclass_meta import Plan, SubclassCreationMeta, Wrapping, leads_to_tensor
from aotviz.runtime.codegen import Source
from aotviz.tracing import functional


class Insides:
    """Writes these lines for one program. `call` describes parts, `outer` the whole tensors."""

    def __init__(self, source: Source, call: Split, wrapping: Wrapping, label: str) -> None:
        self.source, self.call, self.wrapping, self.label = source, call, wrapping, label
        self.outer = call.outer
        self.variables: list[str] = []  # in `forward`: the inputs
        self.parts: list[str] = []  # in `forward`: the graph's inputs
        self.values: list[str] = []  # in `forward`: the results

    def arguments(self) -> str:
        """The arguments of the compiled forward."""
        self.variables = [self.source.fresh(f"primal_{descriptor}") for descriptor in self.outer.graph_inputs]
        self.source.line(f"{', '.join(self.variables)}, = inputs")
        self.parts = self.wrapping.unwrap(self.source, self.variables)
        return ", ".join(self.parts)

    def results(self) -> list[str]:
        """The results for autograd, made from what the compiled forward returned."""
        self.values = self.wrapping.wrap(self.source, "out", self.variables, recorded=True)
        return self.values

    def kept_with_parts(self) -> list[str]:
        """The whole tensors of which a part is kept for the backward, but for those that the call itself writes."""
        kept = {functional.storage(s.value) for s in self.call.saved if isinstance(s.value, torch.Tensor)}
        forward = self.call.forward_module.graph
        entering, leaving = graphs.placeholders(forward), graphs.outputs(forward)
        meta = self.wrapping.meta
        pairs = [*_spans(self.variables, meta.inputs, entering), *_spans(self.values, meta.slots, leaving)]
        written = {one for one, info in zip(self.variables, self.outer.meta.input_info, strict=True) if info.mutated}
        for value, slot in zip(self.values, self.outer.slots, strict=True):
            written |= {value} if slot.hidden or slot.kind == "mutation" else set()
        return [
            name
            for name, plan, values in pairs
            if isinstance(plan, SubclassCreationMeta)
            and name not in written
            and any(isinstance(v, torch.Tensor) and functional.storage(v) in kept for v in values)
        ]

    def tangents(self, names: list[str]) -> list[str]:
        """The parts of the incoming gradients. Combinations that cannot be handled are refused."""
        self._refuse_mixed(names)
        return self.wrapping.unwrap_tangents(self.source, names)

    def gradients(self) -> str:
        """What the backward returns, made from the parts in `result`."""
        return ", ".join(self.wrapping.wrap_gradients(self.source, "result"))

    def _refuse_mixed(self, names: list[str]) -> None:
        """A gradient was traced as a subclass because of all tangents that reach it; with only some, it could be a
        plain tensor. A subclass input gets a gradient of its own class from any of them."""
        graph = self.call.backward_module.graph
        nodes = [node for node in graphs.placeholders(graph) if node.name.startswith("tangents_")]
        depends = graphs.dependencies(graph, nodes)
        meta = self.wrapping.meta
        of_part = [k for k, plan in enumerate(meta.tangents) for path in plan.paths() if leads_to_tensor(path)]
        tangent = [of_part[absent.tangent_number(node)] for node in nodes]
        results = graphs.outputs(graph)
        given = dict(zip(self.outer.graph_inputs, meta.inputs, strict=True))
        grouped = zip(self.outer.gradients, meta.gradients, self.call.gradient_parts, strict=True)
        for gradient, plan, places in grouped:
            on = sorted({tangent[i] for place in places for i in depends(results[place])})
            wholes = [names[k] for k in on if isinstance(meta.tangents[k], SubclassCreationMeta)]
            plain = [names[k] for k in on if not isinstance(meta.tangents[k], SubclassCreationMeta)]
            if isinstance(plan, SubclassCreationMeta) and wholes and plain and not _same_class(plan, gradient, given):
                none = " and ".join(f"{name} is None" for name in wholes)
                some = " or ".join(f"{name} is not None" for name in plain)
                message = (
                    f"{self.label}: the {gradient.descriptor} was compiled as a {plan.type.__name__}, and would be a "
                    "plain tensor if only plain outputs are differentiated. Go back from all outputs at once, or "
                    "compile a function that returns only those."
                )
                fact = f"the {gradient.descriptor} is a {plan.type.__name__} only because of other outputs"
                self.source.line(f"if {none} and ({some}): raise RuntimeError({message!r})", fact)


def _same_class(plan: SubclassCreationMeta, gradient: Gradient, inputs: Mapping[InputDescriptor, Plan]) -> bool:
    """Whether a gradient is of the same subclass as the input that it is the gradient of."""
    of_input = gradient.descriptor
    taken = inputs.get(of_input.input) if isinstance(of_input, GradientOutput) else None
    return isinstance(taken, SubclassCreationMeta) and taken.type is plan.type


def _spans(names: list[str], plans: tuple[Plan, ...], nodes: list[Any]) -> list[tuple[str, Plan, Any]]:
    """(name, plan, fake values of its parts) of each whole tensor."""
    left = iter(nodes)
    return [(name, plan, graphs.values([*islice(left, plan.count)])) for name, plan in zip(names, plans, strict=True)]
