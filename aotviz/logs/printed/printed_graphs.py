"""Parse the text of a printed graph, line by line, into snapshots: one for the graph, and one for each graph inside it.

Torch prints a graph as a class with a `forward`, and the graphs inside it (the branches of a `cond`, checkpointed
regions) as classes inside that class. Every value has its own line, so a line that cannot be parsed affects only one
node: the node keeps its name, gets the words of the line as arguments, and a note gives the line number. The parser
never raises, and never runs anything.

Facts that the text does not contain stay unknown: storages, requires_grad, module paths, sequence numbers, and the
types of tuples. A value is identified by name: in graphs of one `family` (the joint graph and the graphs partitioned
from it), nodes with the same name, type and target have the same value.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from aotviz.logs.printed.printed_types import annotation
from aotviz.logs.printed.statements import (
    UNREADABLE,
    WORD,
    Name,
    Statement,
    Text,
    Unreadable,
    annotation_text,
    argument,
    expression,
    parse,
    parse_expression,
    plain_target,
    statement,
)
from aotviz.recording.node_arguments import NODE, references
from aotviz.recording.schema import NONE, GraphSnapshot, ValueRecord
from aotviz.recording.strings import StringTable, clean

SOURCE = re.compile(r"#(?>.*?\bFile: )(?>(?P<file>.+?):(?P<line>\d++) in )(?>(?P<function>.+?), code: ?)(?P<code>.*)")
CLASS = re.compile(r"class (?P<name>[^(]+?)(?:\(.*\))?:\s*$")
PARAMETER = re.compile(
    r"(?P<name>\*{0,2}[^\W\d]\w*+)\s*+(?::\s*+(?:\"(?P<note>[^\"]*+)\"|(?P<bare>[^=#,]++)))?+"
    r"\s*+(?:=[^#]*+)?+,?\s*+(?:#\s*+(?P<meaning>.*))?$"
)
DECLARED = re.compile(r"(?P<name>[^\W\d]\w*)\s*:\s*\"(?P<note>[^\"]*)\"\s*(?:;|#\s*(?P<meaning>.*)|$)")
UNPACKED = re.compile(r"(?P<names>[\w*, ]+?),? = (?:fx_pytree\.tree_flatten_spec|self\._in_shuffle_graph)\(")
BOXED = re.compile(r"(?P<name>\w+) = next\(args_iter\)$")
PLUMBING = re.compile(
    r"(?:_rf\w* = |_rf\w*\.__exit__\(|args_iter = |args_list\.clear\(\)|.*?, = pytree\.tree_leaves\()"
)
IN_PLACE = re.compile(r"_\.\w+$")
INT64 = range(-(2**63), 2**63)  # the integers that msgpack can encode
MOST_NOTES = 20  # per text; further notes are only counted


@dataclass(frozen=True)
class Printed:
    """The content of a text.

    The keys of `graphs` are paths: "" for the graph itself, "true_graph_0" for a graph inside it, "a.b" for a graph
    inside "a".
    """

    graphs: dict[str, GraphSnapshot]
    notes: tuple[str, ...] = ()  # what could not be parsed, with line numbers in the text


@dataclass
class _Graph:
    """A graph while its lines are being parsed."""

    path: str
    indent: int
    parameters: list[tuple[str, str, str]] = field(default_factory=list)  # name, annotation, meaning
    statements: list[tuple[Statement, int]] = field(default_factory=list)  # (statement, text number of the frame)
    declared: dict[str, tuple[str, str]] = field(default_factory=dict)  # name -> annotation, meaning
    returned: Any = None
    meanings: list[str] = field(default_factory=list)  # of the outputs
    has_return: bool = False
    source: int = NONE


class PrintedGraphs:
    r"""Parses the printed graphs of one compilation, which share a table of texts and a list of values.

    >>> reader = PrintedGraphs()
    >>> printed = reader.read('class G(torch.nn.Module):\n    def forward(self, x: "f32[4][1]cpu"):\n'
    ...                       '        add: "f32[4][1]cpu" = x + 1;  x = None\n        return (add,)\n')
    >>> graph = printed.graphs[""]
    >>> graph.op, [reader.strings.texts[number] for number in graph.target], graph.args
    ('pfo', ['x', 'operator.add', 'output'], [[], [[1], 1], [['L', [1]]]])
    """

    def __init__(self, strings: StringTable | None = None) -> None:
        self.strings = strings or StringTable()
        self.values: list[ValueRecord] = []
        self._known: dict[tuple[str, str, str], int] = {}  # family and path, name, annotation -> value
        self._target_of: list[int] = []  # per value: its producer's target; NONE while only placeholders have it

    def read(self, text: str, role: str = "forward", family: str = "") -> Printed:
        """The graphs in a text. `role` is that of the outermost graph ("joint", "backward", ...). Never raises."""
        lines = _Lines(clean(text))
        found: list[_Graph] = []
        try:
            self._collect(lines, found)
        except RecursionError:
            lines.note("it is nested too deeply")
        graphs: dict[str, GraphSnapshot] = {}
        backward_calls: dict[str, bool] = {}  # path of an inner graph -> whether only backward nodes refer to it
        for graph in found:
            path = graph.path
            side = role if not path else "backward" if backward_calls.get(path) else "forward"
            while path in graphs:  # two graphs in the text have the same name
                path += "_"
            if not graph.has_return:
                lines.note(f"the graph {path!r} has no return" if path else "the text ends before the graph's return")
            graphs[path] = snapshot = _Nodes(self, graph, side, f"{family or role}:{graph.path}").snapshot()
            for index in [index for index, op in enumerate(snapshot.op) if op == "a"]:
                name = self.strings.texts[snapshot.target[index]]
                called = f"{path}.{name}" if path else name
                backward_calls[called] = backward_calls.get(called, True) and snapshot.backward[index] == "1"
        if not found:
            lines.note("there is no graph in the text")
        return Printed(graphs, tuple(lines.notes))

    def _collect(self, lines: _Lines, found: list[_Graph]) -> None:
        """Append the graphs of a text to `found`, outermost first, each with its parameters and statements."""
        open_graphs: list[_Graph] = []
        for indent, line in lines:
            if line.startswith("class ") and (head := CLASS.match(line)):
                while open_graphs and open_graphs[-1].indent >= indent:
                    open_graphs.pop()
                above = open_graphs[-1].path if open_graphs else ""
                name = head["name"] if open_graphs else ""
                graph = _Graph(f"{above}.{name}" if above else name, indent)
                open_graphs.append(graph)
                found.append(graph)
            elif line.startswith("def "):
                if not open_graphs:  # a function without a class, as in `gm.code`
                    open_graphs.append(_Graph("", indent - 4))
                    found.append(open_graphs[0])
                _parameters(open_graphs[-1], line, lines)
            elif open_graphs:
                while len(open_graphs) > 1 and indent < open_graphs[-1].indent + 8:
                    open_graphs.pop()
                if indent <= open_graphs[-1].indent:
                    continue  # after the graph, e.g. "# graph id: 1397"
                self._line(open_graphs[-1], line, lines)

    def _line(self, graph: _Graph, line: str, lines: _Lines) -> None:
        """Parse one line of a graph's body."""
        if line.startswith("#"):
            frame = SOURCE.match(line)
            graph.source = NONE if frame is None else self.strings.add(
                f'  File "{frame["file"]}", line {frame["line"]}, in {frame["function"]}\n    {frame["code"]}'
            )  # fmt: skip
        elif line.startswith("return ") or line == "return":
            _returned(graph, line, lines)
        elif (declared := DECLARED.match(line)) is not None:
            while declared is not None:
                graph.declared[declared["name"]] = (declared["note"], declared["meaning"] or "")
                declared = DECLARED.match(line, declared.end() + 1)
        elif (unpacked := UNPACKED.match(line)) is not None:
            names = WORD.findall(unpacked["names"])
            graph.parameters = [(name, *graph.declared.get(name, ("", ""))) for name in names]
        elif (boxed := BOXED.match(line)) is not None:
            graph.parameters = [known for known in graph.parameters if known[0] != "args_list"]
            graph.parameters.append((boxed["name"], "", ""))
        elif line != "pass" and not PLUMBING.match(line):
            try:
                graph.statements.append((statement(line), graph.source))
            except Unreadable:
                lines.note(f"line {lines.number} is not a statement of a graph")
                return
            if graph.statements[-1][0].kind == "guess":
                lines.note(f"line {lines.number} could be read only in part")

    def value(self, family: str, name: str, note: str, target: int) -> int:
        """The number of a node's value. `target` is NONE for a placeholder, whose value another graph computes."""
        known = annotation(note)
        if known is None:
            return NONE
        key = (family, name, note)
        number = self._known.get(key)
        if number is not None:
            made_by = self._target_of[number]
            if NONE in (made_by, target) or made_by == target:
                self._target_of[number] = target if made_by == NONE else made_by
                return number
        add, tensor = self.strings.add, known.kind == "tensor"
        self.values.append(
            ValueRecord(
                known.kind,
                add(known.dtype) if tensor else NONE,
                list(known.shape),
                list(known.stride),
                0,
                add(known.device) if known.device else NONE,
                NONE,
                False,
                [],
                NONE if tensor else add(known.text),
            )
        )
        self._target_of.append(target)
        number = self._known[key] = len(self.values) - 1
        return number


class _Nodes:
    """The columns of one snapshot while they are filled."""

    def __init__(self, reader: PrintedGraphs, graph: _Graph, role: str, family: str) -> None:
        self.reader, self.graph, self.role, self.family = reader, graph, role, family
        self.text = reader.strings.add
        self.op: list[str] = []
        self.name: list[int] = []
        self.target: list[int] = []
        self.args: list[list[Any]] = []
        self.kwargs: dict[int, Any] = {}
        self.values: list[int] = []
        self.stack: list[int] = []
        self.descriptor: dict[int, int] = {}
        self.position: dict[str, int] = {}
        self.tangents: set[int] = set()  # placeholders of a joint graph
        for parameter in graph.parameters:
            self.placeholder(*parameter)
        for made, source in graph.statements:
            self.add(made, source)
        if graph.has_return:
            self._row("o", "output", self.text("output"), [self.encode(graph.returned, len(self.op))], NONE, NONE)

    def placeholder(self, name: str, note: str, meaning: str) -> None:
        index, plain = len(self.op), name.lstrip("*")
        tangent = self.role == "joint" and (plain.startswith("tangents_") or meaning.startswith("TangentAOTInput"))
        self._row("p", plain, self.text(name), [], self.reader.value(self.family, plain, note, NONE), NONE)
        if tangent:
            self.tangents.add(index)
        if meaning:
            self.descriptor[index] = self.text(meaning)

    def add(self, made: Statement, source: int) -> None:
        """Add one node of the body."""
        index, root = len(self.op), made.callee[0]
        if made.kind == "rename" and root in self.position and self.op[self.position[root]] == "p":
            # `l_x_ = L_x_`: a placeholder whose name differs from its parameter's name
            self.position[made.name] = self.position.pop(root)
            self.name[self.position[made.name]] = self.text(made.name)
            return
        op, target, first = self._callee(made, root)
        given = [arg for arg in made.args if made.kind != "guess" or arg.text in self.position]
        args = [*first, *[self.encode(arg, index) for arg in given]]
        kwargs = {clean(key): self.encode(arg, index) for key, arg in made.kwargs.items()}
        number = self.text(target)
        value = self.reader.value(self.family, made.name, made.annotation, number)
        self._row(op, made.name, number, args, value, source)
        if kwargs:
            self.kwargs[index] = kwargs

    def snapshot(self) -> GraphSnapshot:
        meanings = self.graph.meanings
        outputs = len(self.graph.returned) if isinstance(self.graph.returned, list) else 1
        described = [self.text(meaning) if meaning else NONE for meaning in meanings] or [NONE] * outputs
        return GraphSnapshot(
            op="".join(self.op),
            name=self.name,
            target=self.target,
            args=self.args,
            kwargs=self.kwargs,
            value=self.values,
            stack=self.stack,
            module=[NONE] * len(self.op),
            sequence=[NONE] * len(self.op),
            backward=self._sides(),
            descriptor=self.descriptor,
            output_descriptors=described if self.graph.has_return else [],
        )

    def encode(self, arg: Any, index: int) -> Any:
        """Encode one argument of the node at `index` (see GraphSnapshot)."""
        kind = type(arg)
        if kind is Name and arg.text in self.position:
            return [index - self.position[arg.text]]
        if kind in (Name, Text):
            return {"r": self.text(arg.text)}
        if kind is list:
            return ["L", *[self.encode(part, index) for part in arg]]
        if kind is dict:
            return {"d": {clean(key): self.encode(part, index) for key, part in arg.items()}}
        if kind is slice:
            return {"s": [self.encode(part, index) for part in (arg.start, arg.stop, arg.step)]}
        if kind is int:
            return arg if arg in INT64 else {"r": self.text(str(arg))}
        return clean(arg) if kind is str else arg

    def _callee(self, made: Statement, root: str) -> tuple[str, str, list[Any]]:
        """(op, target, leading arguments) of a node. The leading arguments are those that come from the dotted name."""
        index, parts = len(self.op), made.callee
        if made.kind == "operator":
            return "f", f"operator.{root}", []
        if made.kind == "rename":
            return "f", "?", []
        if root == "self" and len(parts) > 1:
            return ("a" if made.kind == "attribute" else "m"), ".".join(parts[1:]), []
        if root in self.position:
            before = self.encode(Name(root), index)
            if made.kind == "attribute":
                return "f", "builtins.getattr", [before, ".".join(parts[1:])]
            return "c", ".".join(parts[1:]) or root, [before]
        if made.kind == "attribute":
            return "a", ".".join(parts), []
        return "f", plain_target(parts), []

    def _row(self, op: str, name: str, target: int, args: list[Any], value: int, source: int) -> None:
        self.position[name] = len(self.op)
        self.op.append(op)
        self.name.append(self.text(name))
        self.target.append(target)
        self.args.append(args)
        self.values.append(value)
        self.stack.append(source)

    def _sides(self) -> str:
        """Which nodes belong to the backward, one letter per node, for GraphSnapshot.backward.

        A printed joint graph does not say this, but its order does, since the forward is traced first. The forward ends
        with the last value that it returns or writes to an input (torch puts these writes at the end of the graph). If
        the outputs have no descriptions, the forward ends before the first node that reads a tangent.
        """
        nodes = len(self.op)
        if self.role != "joint":
            return ("1" if self.role == "backward" else "0") * nodes
        reads = [{i - number for kind, number in references(args) if kind == NODE} for i, args in enumerate(self.args)]
        texts = self.reader.strings.texts
        writes = {i for i in range(nodes) if IN_PLACE.search(texts[self.target[i]]) and not self.tangents & reads[i]}
        made = {index for write in writes for index in reads[write]}
        returned = self.graph.returned if isinstance(self.graph.returned, list) else []
        for value, meaning in zip(returned, self.graph.meanings, strict=False):
            if type(value) is Name and value.text in self.position and not meaning.startswith("Grad"):
                made.add(self.position[value.text])
        first_reader = next((index for index in range(nodes) if self.tangents & reads[index]), nodes)
        begins = max(made, default=-1) + 1 if self.graph.meanings else first_reader
        forward = {i for i in range(nodes) if i < begins or self.op[i] in "po"} - self.tangents | writes
        return "".join("0" if index in forward else "1" for index in range(nodes))


class _Lines:
    """The lines of a text as (indent, content), without blank lines and blocks of metadata."""

    def __init__(self, text: str) -> None:
        self._lines = text.split("\n")
        self.number = 0
        self.notes: list[str] = []
        self._more = 0

    def __iter__(self) -> Iterator[tuple[int, str]]:
        quoted = False
        while self.number < len(self._lines):
            raw = self._lines[self.number]
            self.number += 1
            line = raw.strip()
            if line.startswith('"""') or (quoted and line.endswith('"""')):
                quoted = not quoted
            elif line and not quoted:
                yield len(raw) - len(raw.lstrip()), line

    def until(self, closing: tuple[str, ...]) -> list[str]:
        """The next lines, up to and including the first that starts with one of `closing`."""
        taken = []
        while self.number < len(self._lines):
            line = self._lines[self.number].strip()
            if line.startswith(("class ", "def ")):  # the closing line is missing
                break
            self.number += 1
            taken.append(line)
            if line.startswith(closing):
                break
        return taken

    def note(self, what: str) -> None:
        if len(self.notes) < MOST_NOTES:
            self.notes.append(what)
        else:
            self._more += 1
            self.notes[-1] = f"and {self._more + 1} more"


def _parameters(graph: _Graph, line: str, lines: _Lines) -> None:
    """Parse the parameters of a `def`, which are on its line or on separate lines."""
    graph.parameters = []
    if line.endswith("("):
        for part in lines.until((")",)):
            found = PARAMETER.match(part)
            if found is not None and found["name"] != "self":
                note = found["note"] or (found["bare"] or "").strip()
                graph.parameters.append((found["name"], note, found["meaning"] or ""))
        return
    try:
        (function,) = parse(f"{line}\n pass")
        assert isinstance(function, ast.FunctionDef)
        arguments = function.args
        listed = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
        graph.parameters = [(arg.arg, annotation_text(arg.annotation), "") for arg in listed if arg.arg != "self"]
        for star, rest in (("*", arguments.vararg), ("**", arguments.kwarg)):
            if rest is not None:
                graph.parameters.append((star + rest.arg, annotation_text(rest.annotation), ""))
    except (*UNREADABLE, AssertionError):
        lines.note(f"line {lines.number}: the parameters could be read only in part")
        found_notes = re.findall(r"\b([^\W\d]\w*): \"([^\"]*)\"", line)
        graph.parameters = [(name, note, "") for name, note in found_notes]


def _returned(graph: _Graph, line: str, lines: _Lines) -> None:
    """Parse a graph's return, which is one line, or has a separate line with a description for each output."""
    graph.has_return = True
    where = lines.number
    text = line.removeprefix("return").strip()
    try:
        if text.endswith(("(", "[")):
            items, graph.meanings = [], []
            for part in lines.until((")", "]")):
                if part.startswith((")", "]")):
                    break
                value, _, meaning = part.partition("  # ")
                items.append(expression(value.strip().removesuffix(",")))
                graph.meanings.append("" if meaning == "None" else meaning)
            graph.returned = items
        elif text.startswith("pytree.tree_unflatten("):  # of the flat outputs
            match parse_expression(text):
                case ast.Call(args=[outputs, *_]):
                    graph.returned = argument(outputs)
                case _:
                    raise Unreadable(text)
        else:
            graph.returned = expression(text) if text else None
    except UNREADABLE:
        lines.note(f"line {where}: the return could be read only in part")
        graph.returned, graph.meanings = [Name(word) for word in WORD.findall(text)], []
