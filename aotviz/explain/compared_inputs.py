"""How one function is compiled for several sets of inputs: one sentence for each thing that differs.

Each compilation is reduced to *facts*: what the pipeline did about shared memory, each write, each output, saved
tensors, the graphs and the wrapper, in words that can stand after "With `name`,". Sets with the same words are named
together, and a fact that is the same for all sets gives no sentence.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, product

from aotviz.explain.explanation import counted, listed
from aotviz.recording import saved
from aotviz.recording.compilation import Compilation
from aotviz.recording.schema import (
    AliasTensor,
    CompilationData,
    ErrorRecord,
    InputRecord,
    OutputRecord,
    StorageRecord,
)

BACKWARD = "graph of the backward"
MOST_ELEMENTS = 4096  # of a tensor whose elements are listed to find out whether it overlaps with another
MOST_LISTED = 4  # names, operators or lines in a sentence
MERGED = "merged into one graph input"  # in the reason of the stage "dedupe"


@dataclass(frozen=True)
class Compiled:
    """One set of inputs and what came of it. `error` is in words, "" if it was compiled."""

    name: str
    compilation: Compilation | None
    error: str = ""


def sentences(function: str, sets: Sequence[Compiled]) -> list[str]:
    """One sentence for each fact that differs, what happens to memory first."""
    everywhere = _notes_of_all([one.compilation.data for one in sets if one.compilation and not one.error])
    told = [_facts(function, one, everywhere) for one in sets]
    # A set that was not compiled has only its outcome, so the other facts are about the others.
    keys = list(dict.fromkeys(key for facts in told for key in facts))
    found = []
    for key in keys:
        by_words: dict[str, list[str]] = {}
        for one, facts in zip(sets, told, strict=True):
            if key == "outcome" or (not one.error and (key in facts or key != BACKWARD)):
                by_words.setdefault(facts.get(key) or ABSENT[key.split(" ")[0]], []).append(one.name)
        if len(by_words) > 1:
            found.append(_sentence(by_words))
    return found


def outcome(error: ErrorRecord) -> str:
    """What happened instead of a compilation.

    >>> outcome(ErrorRecord("metadata", "ValueError", "x is empty.\\nMore."))
    'ValueError in the stage `metadata`: x is empty.'
    """
    first = error.message.strip().split("\n")[0]
    what = "refused" if error.type == "Refused" else error.type
    return f"{what} in the stage `{error.stage}`: {first}"


def _sentence(by_words: Mapping[str, Sequence[str]]) -> str:
    parts = [f"with {_named(names)}, {words}" for words, names in by_words.items()]
    text = "; ".join(parts)
    return text[0].upper() + text[1:] + ("" if text.endswith(".") else ".")


# What is said of a set that lacks a fact, by the first word of the fact's key.
ABSENT = {
    "input": "there is no such input",
    "memory": "no inputs share memory",
    "write": "there is no such input",
    "output": "there is no such output",
    "kind": "nothing was compiled",
    "saved": "the forward saves nothing",
    "graph": "there is no graph",
    "wrapper": "there is no wrapper",
}


def _facts(function: str, one: Compiled, everywhere: Collection[tuple[str, str]]) -> dict[str, str]:
    """Words by what they are about. `everywhere` has the notes that the wrappers of all sets have."""
    if one.error or one.compilation is None:
        return {"outcome": f"`{function}` is not compiled: {one.error}"}
    data = one.compilation.data
    facts = {"outcome": f"`{function}` is compiled", "memory": _memory(data)}
    facts |= {f"write {record.name}": _write(record) for record in data.inputs}
    facts |= {f"output {record.name}": _output(record) for record in data.outputs}
    facts |= {f"output {record.name} grad": _output_grad(record) for record in data.outputs}
    facts["kind"] = KINDS.get(data.kind, f"the program is for {data.kind}")
    facts["saved"] = _saved(data)
    facts |= _graphs(one.compilation)
    facts["wrapper"] = _wrapper(data, everywhere)
    places = {name: tensor for storage in data.storages for tensor in storage.tensors for name in tensor.names}
    facts |= {f"input {record.name}": _input(record, places.get(record.name)) for record in data.inputs}
    return facts


KINDS = {
    "training": "the program is for training: a forward and a backward, which were traced as one joint graph",
    "inference": "the program is for inference: one graph without a backward",
}


def _memory(data: CompilationData) -> str:
    """How inputs share memory, and what is done about it."""
    groups: dict[int, list[InputRecord]] = {}
    for record in data.inputs:
        if record.storage >= 0:
            groups.setdefault(record.storage, []).append(record)
    told = [_group(group, data.storages) for group in groups.values() if len(group) > 1]
    return ", and ".join(told) or ABSENT["memory"]


def _group(group: Sequence[InputRecord], storages: Sequence[StorageRecord]) -> str:
    """What is done about inputs that share a storage."""
    names = [record.name for record in group]
    storage = next((s for s in storages if any(set(names) & set(t.names) for t in s.tensors)), None)
    tensors = [t for t in storage.tensors if set(names) & set(t.names)] if storage else []
    size = f" of {_room(storage)}" if storage and storage.nbytes is not None else ""
    based = [record.name for record in group if record.synthetic_base]
    if based:
        base = next((t for t in storage.tensors if t.role == "base"), None) if storage else None
        size = f" of {_elements(base.shape)}" if base and _elements(base.shape) else ""
        return f"{_named(based)} share a base{size}: the wrapper passes one synthetic base to the graph for them"
    if all(record.duplicate_of for record in group[1:]):
        if any(MERGED in record.reason for record in group):
            return (
                f"{_named(names)} are one tensor: the graph takes it once, and the wrapper checks that they still are"
            )
        return f"{_named(names)} are one tensor, which is not written: the graph takes it as {len(names)} inputs"
    meets = [_overlap(a, b) for a, b in combinations(tensors, 2)]
    why = "overlap, but none is written" if any(meets) else "do not overlap"
    if None in meets:
        why = "either do not overlap or are not written"
    return f"{_named(names)} share a storage{size} and {why}: the graph takes each of them"


def _elements(shape: Sequence[int | str]) -> str:
    count = 1
    for size in shape:
        if not isinstance(size, int):
            return ""
        count *= size
    return counted(count, "element")


def _room(storage: StorageRecord) -> str:
    sizes = {tensor.itemsize for tensor in storage.tensors}
    if storage.nbytes is None or len(sizes) != 1 or not min(sizes):
        return "" if storage.nbytes is None else counted(storage.nbytes, "byte")
    return counted(storage.nbytes // min(sizes), "element")


def _overlap(a: AliasTensor, b: AliasTensor) -> bool | None:
    """Whether two tensors of one storage overlap; None if that is unknown."""
    one, other = _bytes(a), _bytes(b)
    return None if one is None or other is None else not one.isdisjoint(other)


def _bytes(tensor: AliasTensor) -> set[int] | None:
    """The bytes of the storage that the tensor covers; None if a number is symbolic, or if there are too many."""
    numbers = [*tensor.shape, *tensor.stride, tensor.offset]
    sizes = [size for size in tensor.shape if isinstance(size, int)]
    count = 1
    for size in sizes:
        count *= size
    if not all(isinstance(number, int) for number in numbers) or count > MOST_ELEMENTS:
        return None
    steps = [step for step in tensor.stride if isinstance(step, int)]
    offset = tensor.offset if isinstance(tensor.offset, int) else 0
    if len(steps) != len(sizes):
        return None
    elements = (
        offset + sum(i * step for i, step in zip(index, steps, strict=True)) for index in product(*map(range, sizes))
    )
    return {element * tensor.itemsize + byte for element in elements for byte in range(tensor.itemsize)}


def _write(record: InputRecord) -> str:
    name = f"`{record.name}`"
    if record.duplicate_of:
        return f"{name} is `{record.duplicate_of}`"
    said = []
    if record.mutates_data and record.mutation == "MUTATED_IN_GRAPH":
        said.append("the graph itself writes it")
    elif record.mutates_data and record.synthetic_base:
        said.append("the wrapper writes it through its base, after the graph ran")
    elif record.mutates_data:
        said.append("the wrapper writes it after the graph ran")
    if record.mutates_metadata:
        said.append("its metadata is changed")
    if record.hidden_from_autograd:
        said.append("the write is hidden from autograd")
    if record.under_no_grad:
        said.append("it is written under `no_grad`")
    return f"{name} is changed: {listed(said)}" if said else f"{name} is not written"


def _output(record: OutputRecord) -> str:
    name = f"`{record.name}`"
    if record.output_type == "non_alias":
        return f"{name} is a new tensor, which the graph computes"
    if not record.base:
        return f"{name} is of the type `{record.output_type}`"
    base = "the synthetic base" if record.base.startswith("base of ") else f"`{record.base}`"
    if record.output_type == "is_input":
        return f"{name} is the input {base} itself"
    how = "".join(f".{step}" for step in record.view_chain)
    return f"{name} is a view of {base}, which the wrapper makes{how and f' by `{how}`'}"


def _output_grad(record: OutputRecord) -> str:
    return f"`{record.name}` {'requires' if record.requires_grad else 'does not require'} grad"


def _saved(data: CompilationData) -> str:
    values = data.saved_tensors
    if not values:
        return ABSENT["saved"]
    held = saved.held(values)
    size = f", {counted(sum(held), 'byte')} beside the inputs" if len(held) == len(values) else ""
    return f"the forward saves {_first([f'`{record.name}`' for record in values])} for the backward{size}"


def last_graphs(data: CompilationData) -> tuple[dict[str, int], str]:
    """(role -> the last graph with this role, the role of the graph that a call runs)."""
    found: dict[str, int] = {}
    for stage in data.stages:
        found.update(stage.graphs)
    return found, "forward" if data.kind == "training" else "inference"


def _graphs(compilation: Compilation) -> dict[str, str]:
    """The operators of the last graph of each half. The graph of a call is the forward or the inference graph."""
    found = {}
    last, main = last_graphs(compilation.data)
    for role, called in ((main, "graph"), ("backward", BACKWARD)):
        number = last.get(role)
        if number is None:
            continue
        graph = compilation.data.graphs[number]
        names = (compilation.strings[target] for op, target in zip(graph.op, graph.target, strict=True) if op == "f")
        counts = Counter(_operator(name) for name in names)
        most = [f"{count} `{name}`" for name, count in counts.most_common(MOST_LISTED)]
        others = len(counts) - len(most)
        told = listed([*most, *([f"{others} other{'s' if others > 1 else ''}"] if others > 0 else [])])
        inputs = counted(graph.op.count("p"), "input")
        found[called] = (
            f"the {called} has {inputs} and {counted(counts.total(), 'operator')}{f' ({told})' if told else ''}"
        )
    return found


def _operator(target: str) -> str:
    """
    >>> _operator("aten.add.Tensor"), _operator("operator.getitem")
    ('add', 'operator.getitem')
    """
    parts = target.split(".")
    return parts[1] if len(parts) >= 3 else target


def _wrapper(data: CompilationData, everywhere: Collection[tuple[str, str]]) -> str:
    if data.wrapper is None:
        return ABSENT["wrapper"]
    lines = len(data.wrapper.source.rstrip("\n").split("\n"))
    own = sorted((n for n in data.wrapper.notes if (n.subject, n.fact) not in everywhere), key=lambda note: note.first)
    named = [note for note in own if note.subject] or own
    told = _first([f"line {note.first} ({note.fact})" for note in named])
    return f"the wrapper has {counted(lines, 'line')}{told and f', among them {told}'}"


def _notes_of_all(compilations: Sequence[CompilationData]) -> set[tuple[str, str]]:
    """(subject, fact) of the notes that every wrapper has."""
    notes = [{(n.subject, n.fact) for n in data.wrapper.notes} for data in compilations if data.wrapper]
    return set.intersection(*notes) if notes else set()


def _input(record: InputRecord, place: AliasTensor | None) -> str:
    text = f"`{record.name}` is {record.dtype.removeprefix('torch.')}{_sizes(record.shape)}"
    if place is not None and place.stride != _contiguous(place.shape):
        text += f" with stride {_sizes(place.stride)}"
    if place is not None and place.offset != 0:
        text += f" at offset {place.offset}"
    return text + (" and requires grad" if record.requires_grad else "")


def _contiguous(shape: Sequence[int | str]) -> list[int]:
    """The strides of a contiguous tensor of this shape; a symbolic size counts as 1."""
    steps: list[int] = []
    step = 1
    for size in reversed(shape):
        steps.insert(0, step)
        step *= size if isinstance(size, int) else 1
    return steps


def _sizes(sizes: Sequence[int | str]) -> str:
    return f"[{', '.join(map(str, sizes))}]"


def _first(parts: Sequence[str]) -> str:
    more = len(parts) - MOST_LISTED
    return listed([*parts[:MOST_LISTED], *([f"{more} more"] if more > 0 else [])])


def _named(names: Sequence[str]) -> str:
    return listed([f"`{name}`" for name in names])
