"""A program's facts in the words of torch's AOTAutograd, so that what reads torch's logs reads ours.

torch prints its metadata as the text of a dataclass, and an input or output as one like "PlainAOTInput(idx=2)". Our own
descriptors have the user's names instead, which the log's reader finds by Dynamo's graph.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch.fx as fx

from aotviz.ir import graphs
from aotviz.ir.descriptors import (
    BufferInput,
    Descriptor,
    GradientOutput,
    InputDescriptor,
    IntermediateBaseOutput,
    MutatedInputOutput,
    ParameterInput,
    PlainInput,
    PlainOutput,
    RootInput,
    SavedOutput,
    SubclassPartInput,
    SubclassPartOutput,
    SyntheticBaseInput,
    TangentInput,
)
from aotviz.ir.forms import GraphCall, Split
from aotviz.ir.view_and_mutation import InputAliasInfo, OutputAliasInfo, OutputType
from aotviz.whole_backward.captured import WholeBackward

_NUMBERS = {kind: number for number, kind in enumerate(OutputType, 1)}


def readable(module: fx.GraphModule) -> fx.GraphModule:
    """A copy of a graph whose inputs and outputs are described in torch's words."""
    made = graphs.copy(module, lazy=False)
    for node in graphs.placeholders(made.graph):
        if (described := node.meta.pop("desc", None)) is not None:
            node.meta["desc"] = descriptor(described)
    output = graphs.output_node(made.graph)
    if (several := output.meta.get("desc")) is not None:
        saved = [one for one in several if isinstance(one, SavedOutput)]
        output.meta["desc"] = [
            f"SavedForBackwardsAOTOutput(idx={saved.index(one)})" if one in saved else descriptor(one)
            for one in several
        ]
    return made


def captured(call: WholeBackward) -> fx.GraphModule:
    """A copy of a captured backward, with torch's comments on which of autograd's nodes a line is of."""
    made = graphs.copied(call.graph)
    constants = {node.target: node.meta["constant"] for node in made.find_nodes(op="get_attr")}
    for node in made.nodes:
        number = node.meta.get("visit")
        code = f"{call.visits[number].name} (NodeCall {number})" if isinstance(number, int) else ""
        node.meta = {"stack_trace": f'  File "backward", line 1, in autograd\n    {code}'} if code else {}
    return fx.GraphModule(constants, made)


def descriptor(one: Descriptor | None) -> str:
    """torch's words for what an input or output is; ours, if torch has nothing like it.

    >>> descriptor(TangentInput(PlainOutput(0, "loss"))), descriptor(GradientOutput(PlainInput(2, "x")))
    ('TangentAOTInput(output=PlainAOTOutput(idx=0))', 'GradAOTOutput(grad_of=PlainAOTInput(idx=2))')
    """
    match one:
        case ParameterInput(_, name) | BufferInput(_, name):
            return f"{'Param' if isinstance(one, ParameterInput) else 'Buffer'}AOTInput(target={name!r})"
        case PlainInput(index):
            return f"PlainAOTInput(idx={index})"
        case PlainOutput(index):
            return f"PlainAOTOutput(idx={index})"
        case SyntheticBaseInput((first, *_)) | RootInput((first, *_)):
            return f"SyntheticBaseAOTInput(base_of={descriptor(first)})"
        case SubclassPartInput(of, path) | SubclassPartOutput(of, path):
            side = "Input" if isinstance(one, InputDescriptor) else "Output"
            return f"SubclassGetAttrAOT{side}(base={descriptor(of)}, attr={path.removeprefix('.')!r})"
        case MutatedInputOutput(mutated):
            return f"InputMutationAOTOutput(mutated_input={descriptor(mutated)})"
        case IntermediateBaseOutput(of):
            return f"IntermediateBaseAOTOutput(base_of={descriptor(of)})"
        case GradientOutput(of):
            return f"GradAOTOutput(grad_of={descriptor(of)})"
        case TangentInput(of):
            return f"TangentAOTInput(output={descriptor(of)})"
    return str(one)


def metadata(call: GraphCall) -> str:
    """The facts about the user's inputs and outputs, as torch prints its `ViewAndMutationMeta`."""
    known = call.user_input_info
    donated = f",\nbw_donated_idxs={[*call.donated]}" if isinstance(call, Split) else ""
    return (
        f"ViewAndMutationMeta(input_info={_listed(map(_input, known.input_info))},\n"
        f"output_info={_listed(map(_output, known.output_info))},\n"
        f"num_intermediate_bases={len(known.intermediate_bases)},\n"
        f"keep_input_mutations={call.options.keep_inference_input_mutations or isinstance(call, Split)},\n"
        f"traced_tangents_descs={_listed(_tangents(call))},\n"
        f"static_input_indices={[*known.static_input_indices]}{donated})"
    )


def _tangents(call: GraphCall) -> Sequence[str]:
    if not isinstance(call, Split):
        return []
    inputs = graphs.placeholders(call.backward_module.graph)
    return [descriptor(node.meta["desc"]) for node in inputs if isinstance(node.meta.get("desc"), TangentInput)]


def _input(info: InputAliasInfo) -> str:
    return (
        f"InputAliasInfo(is_leaf={info.is_leaf}, mutates_data={info.mutates_data}, "
        f"mutates_metadata={info.mutates_metadata}, "
        f"mutations_hidden_from_autograd={info.mutations_hidden_from_autograd}, "
        f"mutations_under_no_grad_or_inference_mode={info.mutations_under_no_grad_or_inference_mode}, "
        f"mutation_inductor_storage_resize={info.resizes_storage}, "
        f"mutates_storage_metadata={info.mutates_storage_metadata}, requires_grad={info.requires_grad}, "
        f"keep_input_mutations={info.keep_input_mutations})"
    )


def _output(info: OutputAliasInfo) -> str:
    kind = info.output_type
    return (
        f"OutputAliasInfo(output_type=<OutputType.{kind.name}: {_NUMBERS[kind]}>, "
        f"raw_type=<class '{'NoneType' if info.is_constant else 'torch.Tensor'}'>, base_idx={info.base_index}, "
        f"dynamic_dims={set(info.dynamic_dims)}, requires_grad={info.requires_grad}, "
        f"requires_grad_for_backward={info.has_tangent})"
    )


def _listed(several: Iterable[str]) -> str:
    return f"[{(',' + chr(10)).join(several)}]"
