"""The inputs, outputs and saved tensors of torch's own compilations, in the same tables as for our compilations.

Torch logs each tensor that Dynamo found among a function's inputs: its storage, its base, and its sources. AOTAutograd
then logs what the call does to each input and what each output is, as the text of a dataclass. The tensors are matched
with the placeholders of Dynamo's graph by name, and AOTAutograd's facts by position.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from typing import Any

from msgspec.structs import replace

from aotviz.ir.view_and_mutation import InputAliasInfo
from aotviz.logs.texts import Texts
from aotviz.recording import sizes
from aotviz.recording.graph import Graph
from aotviz.recording.listing import SHORT, Node
from aotviz.recording.saved import readers
from aotviz.recording.schema import (
    NONE,
    CompilationData,
    InputRecord,
    OutputRecord,
    RecomputedRecord,
    SavedTensorRecord,
    TensorDescription,
)
from aotviz.recording.sources import user_name

INPUT = re.compile(r"InputAliasInfo\(([^()]*)\)")
OUTPUT = re.compile(
    r"OutputAliasInfo\(output_type=<OutputType\.(?P<type>\w+): \d+>,\s*raw_type="
    r"(?>.{0,2000}?,\s*base_idx=)(?P<base>None|\d{1,9}),.{0,2000}?requires_grad=(?P<grad>True|False)",
    re.DOTALL,
)
FACT = re.compile(r"\b(\w+)=(True|False)")
FACTS = (  # that InputAliasInfo calls as torch does
    "is_leaf requires_grad mutates_data mutates_metadata mutations_hidden_from_autograd "
    "mutations_under_no_grad_or_inference_mode mutates_storage_metadata keep_input_mutations"
).split()
USER_OUTPUT = re.compile(r"PlainAOTOutput\(idx=(\d{1,9})\)")
OTHER = re.compile(r"[^a-zA-Z0-9]+")
DONATED = re.compile(r"bw_donated_idxs=\[([\d, ]*)\]")
SAVED = "SavedForBackwards"
OF_INPUTS = ("alias_of_input", "is_input", "custom_function_view")

METADATA = "aot_forward_graph_fw_metadata"  # the artifact with AOTAutograd's metadata

Text = Callable[[int], str]


def with_tables(
    data: CompilationData, tensors: Sequence[TensorDescription], metadata: str, strings: Texts
) -> CompilationData:
    """The compilation with its tables of inputs, outputs and saved tensors. Unchanged if Dynamo logged no graph."""
    dynamo = _found(data, "dynamo", strings)
    if dynamo is None:
        return data
    found = inputs(dynamo, tensors, metadata, strings.__getitem__)
    forward = _found(data, "forward", strings, meaning=True)
    backward = _found(data, "backward", strings, meaning=True) if forward is not None else None
    graph = forward or _found(data, "inference", strings, meaning=True)
    return replace(
        data,
        inputs=found,
        outputs=outputs(graph, found, metadata) if graph is not None else [],
        saved_tensors=saved_tensors(forward, backward, metadata) if forward is not None else [],
        recomputed=recomputed(forward, backward) if forward is not None and backward is not None else [],
    )


def _found(data: CompilationData, role: str, strings: Sequence[str], meaning: bool = False) -> Graph | None:
    """The last graph of a role; with `meaning`, the last one that describes its outputs (Inductor's do not)."""
    for stage in reversed(data.stages):
        number = stage.graphs.get(role)
        if number is not None and (not meaning or max(data.graphs[number].output_descriptors, default=NONE) > NONE):
            return Graph(data.graphs[number], data.values, strings, role, stage.name)
    return None


def inputs(dynamo: Graph, tensors: Sequence[TensorDescription], metadata: str, text: Text) -> list[InputRecord]:
    """One record per placeholder of Dynamo's graph, and one for each further name of the same tensor.

    `tensors` are those of the compilation. `metadata` is the text of AOTAutograd's ViewAndMutationMeta, or "" if it was
    not logged; then it is unknown which inputs are mutated, and the records say none.
    """
    placeholders = [node for node in dynamo.rows if node.op == "placeholder"]
    facts = [dict(FACT.findall(found)) for found in INPUT.findall(metadata)]
    known = facts if len(facts) == len(placeholders) else [{} for _ in placeholders]
    by_name = {OTHER.sub("_", text(source)): tensor for tensor in tensors for source in tensor.sources}
    names = {(tensor.describer, tensor.tensor): [user_name(text(s)) for s in tensor.sources] for tensor in tensors}
    storages: dict[tuple[int, int], int] = {}
    first_of: dict[int, str] = {}  # storage group -> the first input in it
    records = []
    for node, fact in zip(placeholders, known, strict=True):
        tensor = by_name.get(OTHER.sub("_", node.target))
        if tensor is None:
            records.append(_without_tensor(dynamo, node, fact))
            continue
        key = (tensor.describer, tensor.storage)
        group = storages.setdefault(key, len(storages)) if tensor.storage >= 0 else -1
        own, *others = names[tensor.describer, tensor.tensor]
        record = _with_tensor(dynamo, node, tensor, fact, own, group, text)
        sharing = first_of.setdefault(group, own) if group >= 0 else own
        base = names.get((tensor.describer, tensor.base), [])
        reason = _reason(own, sharing, base[0] if base else "", tensor.base >= 0)
        records.append(replace(record, reason=reason))
        records.extend(
            replace(record, name=other, duplicate_of=own, reason=f"the same tensor as {own}") for other in others
        )
    return records


def outputs(graph: Graph, inputs: Sequence[InputRecord], metadata: str) -> list[OutputRecord]:
    """One record per user output; [] without metadata. `graph` is AOTAutograd's forward or inference graph."""
    nodes = {node.name: node for node in graph.rows}
    returned: dict[int, Node] = {}
    for name, meaning in zip(graph.outputs, graph.output_descriptors, strict=False):
        position = USER_OUTPUT.fullmatch(meaning)
        if position is not None and name in nodes:
            returned[int(position[1])] = nodes[name]
    distinct = [record for record in inputs if not record.duplicate_of]
    records = []
    for index, found in enumerate(OUTPUT.finditer(metadata)):
        base = None if found["base"] == "None" else int(found["base"])
        records.append(
            OutputRecord(
                name=f"output[{index}]",
                output_type=found["type"],
                **_described(graph, returned.get(index)),
                requires_grad=found["grad"] == "True",
                base=_base(found["type"], base, distinct),
                view_chain=[],
                has_tangent=found["grad"] == "True" and found["type"] not in ("is_input", "alias_of_input"),
                reason="",
            )
        )
    return records


def saved_tensors(forward: Graph, backward: Graph | None, metadata: str) -> list[SavedTensorRecord]:
    """One record per value that the forward saves, in the forward's order: tensors, then sizes.

    Torch logs which values are donated, by position in the backward's order (sizes first). It never logs why a value is
    saved. The consumers are read from the backward, whose inputs have the same names as the forward's outputs;
    `backward` is None if it was not logged.
    """
    nodes = {node.name: node for node in forward.rows}
    pairs = zip(forward.outputs, forward.output_descriptors, strict=False)
    kept = [nodes[name] for name, meaning in pairs if meaning.startswith(SAVED) and name in nodes]
    tensors = [node for node in kept if node.value is None or node.value.kind == "tensor"]
    donated = DONATED.search(metadata)
    others = len(kept) - len(tensors)
    places = {int(place) - others for place in re.findall(r"\d{1,9}", donated[1])} if donated else set()
    chosen = {tensor.name for place, tensor in enumerate(tensors) if place in places}
    read = _read(backward, lambda node: node.op == "placeholder") if backward is not None else {}
    return [_saved(forward, node, node.name in chosen, *read.get(node.name, ([], NONE))) for node in kept]


def recomputed(forward: Graph, backward: Graph) -> list[RecomputedRecord]:
    """One record per forward node that is also in the backward. Both graphs use the name from the joint graph."""
    called = {node.name: node.target for node in forward.rows if node.op == "call_function"}
    read = _read(backward, lambda node: called.get(node.name) == node.target)
    records = []
    for node in backward.rows:
        if node.name in read:
            consumers, dies_at = read[node.name]
            facts = _value(backward, node) | ({"nbytes": 0} if sizes.VIEW.fullmatch(node.target) else {})
            records.append(RecomputedRecord(**facts, consumers=consumers, made_at=node.index, dies_at=dies_at))
    return records


def _read(graph: Graph, wanted: Callable[[Node], bool]) -> dict[str, tuple[list[str], int]]:
    """For each node that `wanted` selects, by name: the nodes that read it, and the position of the last reader."""
    found = readers(graph.snapshot)
    return {
        node.name: ([graph.rows[i].name for i in found[node.index]], max(found[node.index], default=NONE))
        for node in graph.rows
        if wanted(node)
    }


def _saved(graph: Graph, node: Node, donated: bool, consumers: list[str], dies_at: int) -> SavedTensorRecord:
    return SavedTensorRecord(
        **_value(graph, node),
        kind="tensor" if node.value is None or node.is_tensor else "symint",
        why="torch's log does not say",
        version_checked=False,
        donated=donated,
        why_donated="nothing else shares its memory" if donated else "",
        consumers=consumers,
        dies_at=dies_at,
    )


def _value(graph: Graph, node: Node) -> dict[str, Any]:
    """What the records of a saved and of a recomputed value have in common.

    nbytes is 0 for a value that is not a tensor, and None if a size is symbolic or the type is unknown.
    """
    described = _described(graph, node)
    nbytes = None if node.value is None else 0
    return {
        "name": node.name,
        "dtype": described["dtype"],
        "shape": described["shape"],
        "nbytes": _nbytes(described["dtype"], described["shape"]) if node.is_tensor else nbytes,
        "producer": node.target,
        "source": node.source.with_code,
        "module": node.module_path,
    }


def _described(graph: Graph, node: Node | None) -> dict[str, Any]:
    """The fields dtype, shape and device of a record. Only tensors have dtypes and devices."""
    value = node.value if node is not None else None
    if value is None or value.kind != "tensor":
        return {"dtype": "", "shape": value.shape if value is not None else [], "device": ""}
    return {"dtype": graph.text(value.dtype), "shape": value.shape, "device": graph.text(value.device)}


def _nbytes(dtype: str, shape: Sequence[int | str]) -> int | None:
    """Bytes of a tensor's elements; None if a size is symbolic or the dtype's size is unknown."""
    bits = re.fullmatch(r"(?:[a-z]+|f(?=8e))(\d+?)(?:e\w+)?", SHORT.get(dtype, ""))
    if bits is None or not all(type(size) is int for size in shape):
        return None
    return math.prod(int(size) for size in shape) * int(bits[1]) // 8


def _with_tensor(
    graph: Graph, node: Node, tensor: TensorDescription, fact: dict[str, str], name: str, group: int, text: Text
) -> InputRecord:
    source = text(tensor.sources[0])
    kind = "parameter" if "._parameters[" in source else "buffer" if "._buffers[" in source else "input"
    record = _without_tensor(graph, node, fact)
    return replace(
        record,
        name=name,
        kind=kind,
        dtype=tensor.dtype,
        shape=record.shape if node.is_tensor else tensor.shape,  # the traced one may have symbolic sizes
        device=tensor.device,
        requires_grad=tensor.requires_grad,
        is_leaf=tensor.is_leaf,
        storage=group,
    )


def _without_tensor(graph: Graph, node: Node, fact: dict[str, str]) -> InputRecord:
    """The record of a placeholder without a logged tensor description, such as a symbolic size."""
    said: dict[str, Any] = {name: fact.get(name) == "True" for name in FACTS}
    info = InputAliasInfo(
        is_tensor=True,
        requires_grad_after=said["requires_grad"],
        storage_bytes=(0, 0) if fact.get("mutation_inductor_storage_resize") == "True" else None,  # of unknown size
        **said,
    )
    described = _described(graph, node)
    if node.value is not None and not node.is_tensor:
        described["dtype"] = node.value.kind
    return InputRecord(
        name=node.name,
        kind="input",
        **described,
        requires_grad=info.requires_grad,
        is_leaf=info.is_leaf,
        mutates_data=info.mutates_data,
        mutates_metadata=info.mutates_metadata,
        mutation=info.mutation_type.name,
        hidden_from_autograd=info.mutates_data and info.mutations_hidden_from_autograd,
        under_no_grad=info.mutates_data and info.mutations_under_no_grad_or_inference_mode,
        storage_resized=info.resizes_storage,
        storage_replaced=info.mutates_storage_metadata,
        static=False,
        storage=-1,
        duplicate_of="",
        synthetic_base="",
        reason="",
    )


def _reason(own: str, first: str, base: str, is_view: bool) -> str:
    """A sentence on what the input shares memory with; "" if it has its own memory."""
    if is_view and base:
        return f"a view of {base}"
    if first != own:
        return f"shares its memory with {first}"
    return "a view of a tensor that is not an input" if is_view else ""


def _base(kind: str, base: int | None, inputs: Sequence[InputRecord]) -> str:
    """The name of the tensor that an output is rebuilt from, or ""."""
    if base is None:
        return ""
    if kind in OF_INPUTS:
        return inputs[base].name if base < len(inputs) else f"input {base}"
    if kind == "alias_of_intermediate_base_is_user_output":
        return f"output[{base}]"
    return f"intermediate {base}"
