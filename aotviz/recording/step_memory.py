"""The planned memory of a training step that was compiled in pieces: forward, captured backward, optimizer step.

Each piece is a compilation of its own, whose plan (`live_bytes.py`) knows nothing of the others. Here the plans become
one line of moments. What two pieces share is found in the recording: the steps of a captured backward that were copied
from the backward of a forward have its nodes' names, so what they read is what that forward saved, or its parameters;
the graph of the backward says which result of a part becomes a gradient, and which a later part reads. An optimizer
step reads parameters and gradients, which differ in nothing but their sizes here, so each is one of that size. Graphs
that Dynamo captured have evidence of what they share (ir/handed_over.py), such as a result of the graph before a break.

A captured backward lets go of a saved tensor after its last use. The caller holds parameters, inputs, results,
gradients and the optimizer's state through the whole step; what a function hands from one of its graphs to the next,
it holds until it returns, or until it was seen to be gone.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from aotviz.recording.compilation import Compilation
from aotviz.recording.graph import Graph
from aotviz.recording.listing import Node
from aotviz.recording.live_bytes import OF_THE_CALLER, Held, Holder, Key, Memory, Moment, Timeline, alive_through
from aotviz.recording.memory_facts import replaced_inputs
from aotviz.recording.schedules import runs
from aotviz.recording.step_pieces import CAPTURED, OUTPUT, forwards_of, handed, last_step, runs_forward

STEP = "step"  # the phase of an optimizer step
_CALLER, _AUTOGRAD, _VARIABLE = "the caller", "autograd's graph", "a variable of the function"
_SUM = "the caller, as a sum of gradients"
_KEPT_BY_AUTOGRAD = re.compile(r"_saved_\d+$")
_GRADIENT = re.compile(r"gradient of (?P<name>.*)", re.S)
_ADD, _COPY = "aten.add.Tensor", "aten.copy_.default"
_PART = "aotviz.whole_backward.compiled_parts."
_ACCUMULATES, _READS_GRADIENT = "aotviz.whole_backward.steps.accumulate_grad", "aotviz.whole_backward.steps.gradient_of"


class StepMemory(Timeline):
    """The planned memory of a training step: a moment for each node of its forward, its backward and its optimizer.

    `pieces` are the ids of its compilations, in the order in which they run.
    """

    def __init__(self, pieces: Sequence[Compilation], among: Sequence[Compilation]) -> None:
        """`pieces` without the parts of captured backwards, which are found in `among`."""
        step = _Step(pieces, among)
        super().__init__("a training step", step.moments, step.holders, step.values)
        self.pieces = tuple(one.id for one in pieces)
        self.graphs = tuple(step.graphs)
        self.runs = tuple(graph for graph, *_ in step.steps)  # the number of the graph of each moment
        self.made_by = tuple(step.makers)  # for each holder, the number of a graph, and its node


def of(compilations: Sequence[Compilation], ids: Sequence[str]) -> StepMemory:
    """The step of the compilations with these ids; without ids, of the last backward that was captured, its forwards,
    and the last optimizer step.

    Raises LookupError if there is no such compilation or step, or if its memory cannot be planned.
    """
    known = {one.id: one for one in compilations}
    for unknown in (one for one in ids if one not in known):
        raise LookupError(f"there is no compilation {unknown!r}; there are {', '.join(known)}")
    return StepMemory([known[one] for one in ids] if ids else last_step(compilations), compilations)


class StepGraph(NamedTuple):
    """A graph that runs in the step."""

    phase: str
    piece: Compilation
    graph: Graph


@dataclass(eq=False)
class _Value:
    """A storage of the step. A half is between two moments."""

    maker: tuple[int, Node]  # the number of its graph, and the node
    name: str
    kind: str
    nbytes: int
    source: str
    module: str
    made_at: int
    until: float
    by: str
    device: str
    held_by_python: float = -1  # until then at least: a variable of the function


class _Result(NamedTuple):
    """A result of a part of a captured backward."""

    name: str
    becomes_gradient: bool
    is_returned: bool
    last_part: int  # that reads it, or before which Python reads it


@dataclass
class _Step:
    """The moments and holders of a step."""

    pieces: Sequence[Compilation]
    among: Sequence[Compilation]
    moments: list[Moment] = field(default_factory=list)
    holders: list[Holder] = field(default_factory=list)
    graphs: list[StepGraph] = field(default_factory=list)
    steps: list[tuple[int, Node, int]] = field(default_factory=list)  # number of the graph, node, bytes that it makes
    makers: list[tuple[int, Node]] = field(default_factory=list)  # of the holders

    def __post_init__(self) -> None:
        self.values: list[_Value] = []
        self._saved: dict[str, dict[int, _Value]] = {}  # forward's name -> values by the storage that it has there
        self._tensors: dict[str, _Value] = {}  # inputs and results of forwards: "output[0] of f [0/0]"
        self._variables: list[_Value] = []  # results that the function hands from one of its graphs to the next
        self._gradients: dict[_Value | None, _Value] = {}  # of values, what backwards returned for them
        backwards: list[tuple[Compilation, Memory]] = []  # of forwards whose own backward runs
        copied = {name for one in self.pieces if one.kind == CAPTURED for name in forwards_of(one).values()}
        self._later = {one.partition(" of ")[2] for piece in self.pieces for one in handed(piece).of_call}
        for piece, is_forward in zip(self.pieces, runs_forward(self.pieces), strict=True):
            if is_forward:
                memory = self._forward(piece)
                if piece.kind == "training" and piece.data.name not in copied:
                    backwards.append((piece, memory))
                continue
            self._return()
            while backwards and piece.kind == "inference":
                self._own_backward(*backwards.pop())
            if piece.kind == CAPTURED:
                self._captured(piece)
            else:
                self._optimizer(piece)
        self._return()
        while backwards:
            self._own_backward(*backwards.pop())
        self._end()

    def _end(self) -> None:
        count = len(self.steps)
        for one in self.values:
            if one.held_by_python > one.until or (one.held_by_python == one.until and one.by == _CALLER):
                one.until, one.by = one.held_by_python, _VARIABLE
            one.until = min(one.until, count)
        for at, alive in enumerate(alive_through(self.values, count)):
            graph, node, made = self.steps[at]
            phase = self.graphs[graph].phase
            self.moments.append(Moment(at, phase, node, made, alive.nbytes, alive.after, alive.by_kind))
        self.holders = [
            Holder(
                one.name, one.kind, one.nbytes, one.source, one.module, one.made_at, int(one.until), one.by, one.device
            )
            for one in self.values
        ]
        self.makers = [one.maker for one in self.values]

    # The pieces.

    def _forward(self, piece: Compilation) -> Memory:
        """A forward, or a graph without a backward that runs before one."""
        sharing, begins = handed(piece), len(self.steps)
        for name in sharing.gone:
            if (value := self._tensors.get(name)) in self._variables:
                value.held_by_python = begins - 1
                self._variables.remove(value)
        given = {name: self._tensors[of] for name, of in sharing.shared.items() if of in self._tensors}
        self._tensors |= {f"{name} of {piece.data.name}": value for name, value in given.items()}
        is_last = piece.data.name not in self._later  # of its call: what it returns, the caller gets
        for value in (given[name] for name in sharing.returned if is_last and name in given):
            if value in self._variables:
                value.kind, value.until, value.by = "output", _END, _CALLER
                self._variables.remove(value)
        memory = _memory(piece, _halves(piece))
        numbers = _outputs(memory)
        let_go = {one.holder.name for one in memory.held() if one.key in numbers and not is_last}
        let_go |= {name for name, value in given.items() if value in self._variables}
        memory = _memory(piece, _halves(piece), released=let_go) if let_go else memory
        count = sum(moment.phase != "backward" for moment in memory.rows)
        self._add_steps(memory.rows[:count], "forward", piece, memory.halves[0])
        known = self._saved[piece.data.name] = {}
        for held in memory.held():
            holder = held.holder
            if holder.made_at >= count:
                continue
            value = (
                given.get(holder.name)
                or self._of_the_caller(held, by_name=not given or holder.name in sharing.shared)
                or self._new(held, begins)
            )
            is_saved = held.until >= count and holder.held_by != _CALLER
            if value in self._variables and value.until != _END:
                value.until, value.by = begins + holder.held_until, holder.held_by
            for number in numbers.get(held.key, ()):
                self._tensors[f"output[{number}] of {piece.data.name}"] = value
                if not is_last and value.kind not in OF_THE_CALLER and value not in self._variables:
                    self._variables.append(value)
                    value.until, value.by = begins + holder.held_until, holder.held_by
            if value.kind not in OF_THE_CALLER and held.until >= count:
                value.until, value.by = (_END, _AUTOGRAD) if is_saved and value.by != _CALLER else (_END, _CALLER)
            if value in self._variables:
                value.kind = "saved" if value.by == _AUTOGRAD else "intermediate"
            known[held.key[0]] = self._tensors[f"{holder.name} of {piece.data.name}"] = value
        return memory

    def _return(self) -> None:
        """The function returns: what its variables hold is let go of."""
        for value in self._variables:
            value.held_by_python = len(self.steps) - 1
        self._variables.clear()

    def _own_backward(self, piece: Compilation, memory: Memory) -> None:
        """The backward that was compiled with a forward."""
        count = sum(moment.phase == "forward" for moment in memory.rows)
        begins, known = len(self.steps) - count, self._saved[piece.data.name]
        self._add_steps(memory.rows[count:], "backward", piece, memory.halves[1])
        made: dict[Key, _Value] = {}
        for held in memory.held():
            key, _, holder, _ = held
            if holder.made_at >= count:
                number = OUTPUT.search(holder.name) if holder.kind == "tangent" else None
                of = self._tensors.get(f"{number[0]} of {piece.data.name}") if number else None
                if of in self._gradients:
                    made[key] = gradient = self._gradients.pop(of)
                    gradient.until, gradient.by = begins + holder.held_until, holder.held_by
                else:
                    made[key] = self._new(held, begins)
            elif holder.held_by != _CALLER and holder.held_until >= count:
                value = known[key[0]]
                if value.until == _END and value.by != _CALLER:
                    value.until = -1
                if value.until < begins + holder.held_until:
                    value.until, value.by = begins + holder.held_until, holder.held_by
        for name, value in _gradients(memory, made):
            of = self._tensors.get(f"{name} of {piece.data.name}")
            if of is not None:
                self._add_gradient(of, value)

    def _add_gradient(self, of: _Value, value: _Value) -> None:
        """A backward returned a gradient of what another backward has a gradient of too, or makes: autograd adds the
        first two of a value in new memory, and further ones to that sum."""
        before = self._gradients.get(of)
        if before is None:
            self._gradients[of] = value
            if of.kind not in OF_THE_CALLER and value.kind != "tangent":
                value.kind = "intermediate"
            return
        value.until, value.by = len(self.steps) - 1, _AUTOGRAD
        if before.by != _SUM:
            before.until, before.by = value.until, _AUTOGRAD
            kind = "gradient" if of.kind in OF_THE_CALLER else "tangent"
            self._gradients[of] = total = replace(value, kind=kind, made_at=len(self.steps), until=_END, by=_SUM)
            self.values.append(total)

    def _captured(self, piece: Compilation) -> None:
        links = self._links(piece)
        passed: dict[str, _Value] = {}  # by the name of the node
        pending: list[tuple[_Value, int]] = []  # results, and the part after which nothing reads them
        ends: list[int] = []  # of the parts
        begins = len(self.steps)
        whole = piece.graph("backward", "compiled parts")
        leaves = {node.name for node in whole.rows if node.target == _READS_GRADIENT}
        given = {node.name for node in whole.rows if node.op == "placeholder"}
        parts = self._parts(piece, whole)
        for number, part in enumerate(parts):
            kinds = {one.name: one.kind for one in part.data.inputs}
            for name in kinds:
                if name in leaves:
                    kinds[name] = "parameter"  # the caller's; see below
                elif name in passed or (name in links and links[name].kind not in OF_THE_CALLER):
                    kinds[name] = "saved"
                elif name not in links and name not in given:  # what Python made of a result
                    kinds[name] = "tangent"
                elif name not in links and _KEPT_BY_AUTOGRAD.search(name):
                    kinds[name] = "tangent" if name.startswith("graph_root") else "saved"
            memory = _memory(part, ["inference"], kinds)
            results = _by_storage(memory, part.graph("inference"), _results(whole, number))
            at = len(self.steps)
            self._add_steps(memory.rows, "backward", part, memory.halves[0])
            early = _added_in_place(part)
            for held in memory.held():
                key, _, holder, _ = held
                if holder.name in early:
                    continue
                known = links.get(holder.name) or passed.get(holder.name)
                if known is None and holder.kind == "tangent":
                    known = _through_python(whole, holder, passed)
                result = results.get(key)
                if known is None and holder.name in leaves:
                    known = self._held_throughout(held, "gradient")
                elif known is None and holder.kind in OF_THE_CALLER:
                    known = self._of_the_caller(held)
                elif known is None:
                    known = self._new(held, at)
                    if holder.kind == "saved":
                        known.made_at = begins
                elif known.kind not in OF_THE_CALLER and known.kind != "output":
                    known.until, known.by = at + holder.held_until, holder.held_by
                if result is not None and known is not None and known.kind not in OF_THE_CALLER:
                    passed[result.name] = known
                    known.until, known.by = _END, _CALLER
                    if result.becomes_gradient:
                        known.kind = "gradient"
                    elif not result.is_returned:
                        known.kind, known.by = "intermediate", _AUTOGRAD
                        pending.append((known, result.last_part))
            ends.append(len(self.steps))
        for value, last in pending:  # what Python reads between two parts
            value.until = ends[last] - 0.5 if value.until == _END else value.until
        for value in self.values:  # what nothing read is let go of with autograd's graph
            if value.until == _END and value.by == _AUTOGRAD:
                value.until = len(self.steps) - 0.5

    def _optimizer(self, piece: Compilation) -> None:
        memory = _memory(piece, ["inference"])
        begins = len(self.steps)
        free = {kind: [one for one in self.values if one.kind == kind] for kind in ("gradient", "parameter")}
        self._add_steps(memory.rows, STEP, piece, memory.halves[0])
        for held in memory.held():
            holder = held.holder
            kind = "gradient" if holder.kind in OF_THE_CALLER and holder.name.endswith(".grad") else holder.kind
            same = next((one for one in free.get(kind, []) if one.nbytes == holder.nbytes), None)
            if same is not None:
                free[kind].remove(same)
            elif kind == "gradient":
                self._held_throughout(held, kind)
            elif self._of_the_caller(held) is None:
                self._new(held, begins)

    # What they share.

    def _links(self, backward: Compilation) -> dict[str, _Value]:
        """The inputs of a captured backward that a forward saved, or got as its inputs, by their names."""
        found: dict[str, _Value] = {}
        graph = backward.graph("backward", "dead nodes")
        forwards = {one.data.name: one for one in self.pieces if one.kind == "training"}
        for prefix, name in forwards_of(backward).items():
            if name not in forwards:
                raise LookupError(f"the forward {name!r}, whose backward was captured, is not among the compilations")
            theirs = forwards[name].graph("backward")
            memory = _memory(forwards[name], ["forward", "backward"])
            for node in theirs.rows:
                copy = graph.by_name.get(f"{prefix}_{node.name}")
                if copy is None or len(copy.inputs) != len(node.inputs):
                    continue
                for ours, read in zip(copy.inputs, node.inputs, strict=True):
                    taken, source = graph.rows[ours], theirs.rows[read]
                    if taken.op == source.op == "placeholder":
                        for storage, _ in memory.storages_of(theirs, source):
                            if (value := self._saved[name].get(storage)) is not None:
                                found[taken.name] = self._same(found.get(taken.name), value)
        return found

    def _same(self, one: _Value | None, other: _Value) -> _Value:
        """Two values that the backward reads as one are one: a result of a forward, and an input of the next."""
        if one is None or one is other:
            return other
        kept, gone = (one, other) if one.made_at > other.made_at or other.kind == "input" else (other, one)
        self.values = [value for value in self.values if value is not gone]
        for known in self._saved.values():
            known.update({storage: kept for storage, value in known.items() if value is gone})
        return kept

    def _parts(self, backward: Compilation, whole: Graph) -> list[Compilation]:
        """The last program of each part of a captured backward."""
        after = [one.id for one in self.among].index(backward.id) + 1
        programs: dict[str, Compilation] = {}
        for one in self.among[after:]:
            if one.kind == CAPTURED and one.outline.error is None:
                break
            programs[one.outline.name] = one
        names = [node.target.rpartition("_")[2] for node in whole.rows if node.target.startswith(_PART)]
        found = [programs.get(f"{backward.data.name}, part {number}") for number in names]
        known = [one for one in found if one is not None and one.kind == "inference"]
        if len(known) < len(found):
            raise LookupError(f"a part of {backward.data.name} was not compiled, or is not in this recording")
        return known

    def _of_the_caller(self, held: Held, by_name: bool = True) -> _Value | None:
        """The value of a holder that the caller has; None for others. `by_name`: it is known if its name is."""
        holder = held.holder
        if holder.kind not in OF_THE_CALLER:
            return None
        for one in self.values if by_name else ():
            if one.kind == holder.kind and one.nbytes == holder.nbytes and _plain(one.name) == _plain(holder.name):
                return one
        return self._held_throughout(held, holder.kind)

    def _held_throughout(self, held: Held, kind: str) -> _Value:
        value, holder = self._new(held, 0, kind), held.holder
        value.made_at, value.until, value.by = 0, _END, holder.held_by if holder.kind == "constant" else _CALLER
        return value

    def _new(self, held: Held, begins: int, kind: str = "") -> _Value:
        """A value that a node of the graph makes which was added last."""
        holder = held.holder
        value = _Value(
            (len(self.graphs) - 1, held.maker),
            holder.name, kind or holder.kind, holder.nbytes, holder.source, holder.module,
            begins + holder.made_at, begins + holder.held_until, holder.held_by, holder.device,
        )  # fmt: skip
        if holder.held_by == _CALLER:
            value.until = _END
        self.values.append(value)
        return value

    def _add_steps(self, moments: Sequence[Moment], phase: str, piece: Compilation, graph: Graph) -> None:
        self.steps += [(len(self.graphs), moment.node, moment.made) for moment in moments]
        self.graphs.append(StepGraph(phase, piece, graph))


_END = 1 << 60


def _memory(
    piece: Compilation, roles: Sequence[str], kinds: Mapping[str, str] | None = None, released: Set[str] = frozenset()
) -> Memory:
    known = kinds if kinds is not None else {one.name: one.kind for one in piece.data.inputs}
    halves, replaced = [piece.graph(role) for role in roles], replaced_inputs(piece.data.inputs)
    return Memory(piece.data.name, halves, known, piece.data.sizes, released, replaced)


def _halves(piece: Compilation) -> list[str]:
    return ["forward", "backward"] if piece.kind == "training" else ["inference"]


def _outputs(memory: Memory) -> dict[Key, list[int]]:
    """The numbers of the results in each storage of a forward."""
    graph, found = memory.halves[0], dict[Key, list[int]]()
    for text, name in zip(graph.output_descriptors, graph.outputs, strict=True):
        if (said := OUTPUT.search(text)) and name in graph.by_name and not text.startswith("saved "):
            for key in memory.storages_of(graph, graph.by_name[name]):
                found.setdefault(key, []).append(int(said[1]))
    return found


def _gradients(memory: Memory, made: Mapping[Key, _Value]) -> Iterator[tuple[str, _Value]]:
    """The inputs of which a backward returns gradients, and the values that it made for them."""
    graph = memory.halves[1]
    begins = len(memory.rows) - sum(map(runs, graph.rows))
    for text, name in zip(graph.output_descriptors, graph.outputs, strict=True):
        if (said := _GRADIENT.match(text)) and name in graph.by_name:
            for storage, _ in memory.storages_of(graph, graph.by_name[name]):
                value = made.get((storage, begins)) or made.get((storage, 0))
                if value is not None:
                    yield said["name"], value


def _plain(name: str) -> str:
    """The name as a node of a graph has it."""
    return re.sub(r"\W", "_", name).lstrip("_")


def _by_storage(memory: Memory, graph: Graph, results: Iterator[_Result]) -> dict[Key, _Result]:
    """The results of a part by their storages, as its plan has them. Gradients come first."""
    found: dict[Key, _Result] = {}
    said = [OUTPUT.search(text) for text in graph.output_descriptors]
    numbered = {int(one[1]): name for one, name in zip(said, graph.outputs, strict=True) if one}
    for number, result in enumerate(results):
        node = graph.by_name.get(numbered.get(number, ""))
        for key in memory.storages_of(graph, node) if node is not None else ():
            if key not in found or result.becomes_gradient:
                found[key] = result
    return found


def _through_python(whole: Graph, holder: Holder, passed: Mapping[str, _Value]) -> _Value | None:
    """The result of an earlier part of which Python made this, or a value of its size in its place."""
    left = [node.index for node in whole.rows if node.name == holder.name]
    seen = set(left)
    for index in left:
        for one in whole.rows[index].inputs:
            value = passed.get(whole.rows[one].name)
            if value is not None and value.nbytes == holder.nbytes:
                return value
            if one not in seen and not whole.rows[one].target.startswith(_PART):
                seen.add(one)
                left.append(one)
    return None


def _added_in_place(part: Compilation) -> set[str]:
    """The sums that are computed in the memory of a gradient: what whole_backward/early_writes.py makes of them."""
    if part.data.options.get("backend", "").strip("'") != "eager":
        return set()
    graph = part.graph("inference")
    found = set()
    for node in graph.rows:
        if node.target == _ADD and list(graph.users[node.index])[:1] and node.inputs:
            first = graph.rows[graph.users[node.index][0]]
            reads = [user for user in graph.users[node.inputs[0]] if user != first.index]
            if first.target == _COPY and first.inputs[:2] == (node.inputs[0], node.index) and max(reads) == node.index:
                found.add(node.name)
    return found


def _results(whole: Graph, number: int) -> Iterator[_Result]:
    """The results of a part, in order."""
    parts = [node.index for node in whole.rows if node.target.startswith(_PART)]
    for user in whole.users[parts[number]]:
        node = whole.rows[user]
        readers = [whole.rows[one] for one in whole.users[user]]
        last = max((one.index for one in readers), default=user)
        yield _Result(
            node.name,
            any(one.target == _ACCUMULATES for one in readers),
            any(one.op == "output" for one in readers),
            sum(part <= last for part in parts) - 1,
        )
