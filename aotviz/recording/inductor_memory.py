"""Which memory Inductor's program needs, read from the text that calls its kernels: before anything runs.

Inductor computes several nodes in one kernel, whose intermediate values are never in memory, and uses a buffer again
for a later value. All of that is decided in the text: `empty_strided_cpu(...)` allocates, `buf2 = buf1; del buf1  #
reuse` gives a buffer another name, `del buf3` frees, and an operator that Inductor does not compile allocates its
results. So the text is executed here as far as memory goes: names hold buffers, and a buffer lives as long as a name, a
list, the saved tensors or the caller have it. Nothing in the text is called. What a kernel allocates for itself and
frees again is in no text.
"""

from __future__ import annotations

import ast
import re
import warnings
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from aotviz.recording import sizes, tables
from aotviz.recording.frozen import Frozen
from aotviz.recording.graph import Graph
from aotviz.recording.listing import Node
from aotviz.recording.live_bytes import KINDS, OF_THE_CALLER, Memory, alive_through, bytes_of, moment_of
from aotviz.recording.memory_facts import results
from aotviz.recording.schema import StageRecord

if TYPE_CHECKING:
    import pandas as pd

LONGEST = 1 << 24  # characters of a text that is read; GPT-2 has some 300,000
_MOST_ITEMS = 1000  # that an operator returns
_MOST_VISITS = 4_000_000  # of tensors in lists; GPT-2 with 96 layers has some 100,000
_MOST_BYTES = 1 << 50  # of a buffer
_HANDLE = re.compile(r"\[Provenance debug handles\] (\S+)")
_ALIASES = re.compile(r"(?:reinterpret_tensor|alias|as_strided)$|\.(?:view|alias|as_strided|detach)$")
_NO_KERNEL = re.compile(
    r"\b(?>\w*?assert_)\w++$|\.clear$|set_device$|synchronize|get_raw_stream|run_intermediate_hooks$|^print$"
)
_SAYS_SIZES = ("assert_size_stride", "assert_tensor_metadata")  # the second since torch 2.14
_OPERATOR = re.compile(r"torch\.ops\.(?P<name>\w+\.\w+\.\w+)$")
_PARTITION = re.compile(r"self\.partitions\[(?P<number>\d{1,6})\]$")

Text = tuple[str, Mapping[str, list[str]]]  # that calls kernels; the nodes of each call: "kernel:number" -> names


def texts(stages: Iterable[StageRecord]) -> dict[str, Text]:
    """Inductor's texts of a compilation, by the role of their graph."""
    return {
        name.removeprefix("inductor "): (text, stage.kernels.get(name, {}))
        for stage in stages
        for name, text in stage.code.items()
        if name.startswith("inductor ")
    }


class InductorMoment(NamedTuple):
    """A kernel that runs, and the bytes that are alive."""

    at: int
    phase: str
    line: int
    kernel: str
    nodes: tuple[str, ...]
    made: int
    alive: int
    by_kind: dict[str, int]


class InductorBuffer(Frozen, frozen=True):
    """A buffer of Inductor's, or a tensor that comes from outside."""

    name: str
    kind: str
    nbytes: int
    line: int  # of the text that allocates it; 0 if it comes from outside
    made_at: int
    held_until: int
    held_by: str
    names: tuple[str, ...]  # the other names under which it is used again


class InductorPeak(NamedTuple):
    """The kernel during which most bytes are alive."""

    at: int
    phase: str
    kernel: str
    line: int
    nbytes: int


class InductorMemory:
    """The memory of a program that Inductor compiled: a moment for each kernel of the forward, then of the backward.

    >>> import torch
    >>> import aotviz
    >>> f = aotviz.compile(lambda x: (x.exp() @ x).sin().sum(), backend="inductor")
    >>> f(torch.ones(64, 64, requires_grad=True)).backward()
    >>> memory = f.recording[0].inductor_memory()
    >>> memory  # doctest: +ELLIPSIS
    <aotviz InductorMemory of '<lambda> [...]': at most ... KiB, at `...` in the backward>
    >>> print(memory)  # doctest: +ELLIPSIS
    Inductor's program needs at most ... KiB, at `...` in the backward.
    ...
    >>> list(memory.moments.columns)[:7]
    ['at', 'phase', 'line', 'kernel', 'nodes', 'made', 'alive']
    """

    def __init__(self, plan: Memory, texts: Mapping[str, Text]) -> None:
        """`texts`: by the role of a graph of the plan. Raises LookupError if there is no text for any of them."""
        self.name = plan.name
        self.plan = plan
        """What the same graphs need operator by operator."""
        self.texts = {role.split()[0]: text for role, (text, _) in texts.items()}  # by phase
        halves = [graph for graph in plan.halves if graph.role in texts]
        if not halves:
            raise LookupError(f"{self.name} has no text of Inductor's: its backend was another, or did not compile it")
        found = _Program(plan)
        for graph, following in zip(halves, [*halves[1:], None], strict=True):
            found.run(graph, *texts[graph.role], following)
        found.finish()
        self.rows, self._buffers = found.moments(), found.buffers
        """The moments, before they are a table, and the buffers."""
        self.unread = tuple(found.unread)
        """Lines of the text whose meaning for memory is not known."""

    @property
    def moments(self) -> pd.DataFrame:
        """One row per kernel, in the order in which they run.

        Columns: at (the moment's number), phase, line (of Inductor's text), kernel, nodes (of the graph, that it
        computes), made (bytes allocated for it), alive (bytes while it runs), and the alive bytes by kind, a column for
        each of `live_bytes.KINDS`.
        """
        return tables.table(_MOMENTS, self.rows)

    @property
    def peak(self) -> InductorPeak:
        """The kernel during which most bytes are alive; the first one, if there are several."""
        most = max(self.rows, key=lambda moment: moment.alive, default=None)
        if most is None:
            return InductorPeak(0, "", "", 0, 0)
        return InductorPeak(most.at, most.phase, most.kernel, most.line, most.alive)

    def holders(self, at: int | None = None) -> pd.DataFrame:
        """One row per buffer that is alive at a moment, the largest first. None means the peak.

        Columns: name, kind, nbytes, line (of the text, that allocates it), made_at and held_until (moments), held_by
        (the last kernel that has it, or who holds it then), names (others, under which the buffer is used again).

        Raises IndexError if there is no such moment.
        """
        moment = moment_of(self.peak.at if at is None else at, self.rows, self.name)
        largest_first = sorted(self._buffers, key=lambda one: -one.nbytes)
        alive = [one for one in largest_first if one.made_at <= moment <= one.held_until and one.nbytes]
        return tables.records(InductorBuffer, alive)

    @property
    def sentences(self) -> list[str]:
        """The peak; what it is that is more or less than operator by operator; how much is used again."""
        return [*self._about_the_peak(), *self._about_reuse(), *self._about_unread_lines()]

    def _about_the_peak(self) -> Iterator[str]:
        peak, planned = self.peak, self.plan.peak
        yield f"Inductor's program needs at most {sizes.told(peak.nbytes)}, at `{peak.kernel}` in the {peak.phase}."
        if planned.nbytes == peak.nbytes or not self.rows:
            return
        at, now = self.plan.rows[planned.at].by_kind, self.rows[peak.at].by_kind
        changes = {kind: change for kind in KINDS if (change := now.get(kind, 0) - at.get(kind, 0))}
        parts = (
            f"{_words(kind)} {sizes.told(abs(changes[kind]))} {'more' if changes[kind] > 0 else 'less'}"
            for kind in sorted(changes, key=lambda kind: -abs(changes[kind]))
        )
        difference = peak.nbytes - planned.nbytes
        yield (
            f"That is {sizes.told(abs(difference))} {'more' if difference > 0 else 'less'} than operator by operator, "
            f"where the peak is at `{planned.node}` in the {planned.phase}: {', '.join(parts)}."
        )

    def _about_reuse(self) -> Iterator[str]:
        again = [one for one in self._buffers if one.names]
        if again:
            saved = sizes.told(sum(one.nbytes * len(one.names) for one in again))
            verb = "is" if len(again) == 1 else "are"
            yield f"{sizes.counted(len(again), 'buffer')} {verb} used again for later values, instead of {saved} more."

    def _about_unread_lines(self) -> Iterator[str]:
        if self.unread:
            verb = "was" if len(self.unread) == 1 else "were"
            yield f"{sizes.counted(len(self.unread), 'line')} {verb} not understood, such as `{self.unread[0]}`."

    def __str__(self) -> str:
        return "\n".join(self.sentences)

    def __repr__(self) -> str:
        peak = self.peak
        where = f"`{peak.kernel}` in the {peak.phase}" if peak.kernel else "no kernel"
        return f"<aotviz InductorMemory of {self.name!r}: at most {sizes.told(peak.nbytes)}, at {where}>"


_MOMENTS: tables.Columns = {
    **tables.attributes(at="int64", phase="str", line="int64", kernel="str", nodes="object"),
    **tables.attributes(made="int64", alive="int64"),
    **{kind: bytes_of(kind) for kind in KINDS},
}


@dataclass(eq=False)
class _Buffer:
    name: str
    kind: str
    nbytes: int
    line: int
    made_at: int
    dtype: str = ""
    until: int = -1
    by: str = ""
    holders: int = 0  # names, lists and others that have it
    names: dict[str, None] = field(default_factory=dict)


@dataclass
class _Kernel:
    phase: str
    line: int
    name: str
    nodes: tuple[str, ...]


Value = Any  # a _Buffer, a list of values, or None for what is no tensor


class _Program:
    """What is known after the texts of one or two graphs, one after the other."""

    def __init__(self, plan: Memory) -> None:
        self.plan = plan
        self.symbols = plan.symbols
        self.kernels: list[_Kernel] = []
        self._made: list[_Buffer] = []
        self._of_storage: dict[tuple[int, int], _Buffer] = {}
        self._saved: dict[str, Value] = {}
        self._kept: list[Value] = []
        self._visited = 0
        self.unread: list[str] = []
        for held in plan.held():
            one = held.holder
            if one.kind in OF_THE_CALLER:
                buffer = self.made(one.name, one.kind, one.nbytes, 0)
                self._of_storage[held.key] = buffer
                self.hold(buffer)
                self._kept.append(buffer)

    def made(self, name: str, kind: str, nbytes: int, line: int, dtype: str = "") -> _Buffer:
        buffer = _Buffer(name, kind, nbytes, line, len(self.kernels), dtype)
        self._made.append(buffer)
        return buffer

    def hold(self, value: Value) -> None:
        for buffer in self.buffers_in(value):
            buffer.holders += 1

    def let_go(self, value: Value) -> None:
        for buffer in self.buffers_in(value):
            buffer.holders -= 1
            if not buffer.holders:
                buffer.until = len(self.kernels) - 1
                buffer.by = self.kernels[-1].name if self.kernels else ""

    def buffers_in(self, value: Value) -> Iterator[_Buffer]:
        """The buffers in a value. A text may come from a stranger, so this is counted over the whole text."""
        pending = [value]
        while pending:
            self._visited += 1
            if self._visited > _MOST_VISITS:
                raise ValueError("Inductor's text has lists that are too long to follow")
            one = pending.pop()
            if isinstance(one, _Buffer):
                yield one
            elif isinstance(one, list):
                pending += reversed(one)

    def run(self, graph: Graph, text: str, nodes: Mapping[str, list[str]], following: Graph | None) -> None:
        """Run the text of one graph."""
        half = _Half(self, graph, text, nodes)
        taken, self._saved = self._saved, {}
        try:
            returned = half.run(self._inputs(graph, taken))
        except RecursionError:
            raise ValueError("Inductor's text is nested too deeply to follow") from None
        for value in taken.values():  # of a text that does not take them
            self.let_go(value)
        of_result, of_update, of_saved = results(graph, following)
        result = "gradient" if graph.role.startswith("backward") else "output"
        for name, value in zip(graph.outputs, returned, strict=False):
            index = graph.by_name[name].index if name in graph.by_name else -1
            if index in of_saved:
                self.hold(value)
                self._saved[name] = value
                self._is(value, "saved", ("intermediate",))
            if index in of_result:
                self.hold(value)
                self._kept.append(value)
                self._is(value, result, ("intermediate", "saved"))
            elif index in of_update:
                self._is(value, "update", ("intermediate",))
        self.let_go(returned)

    def _is(self, value: Value, kind: str, instead_of: Sequence[str]) -> None:
        for buffer in self.buffers_in(value):
            if buffer.kind in instead_of:
                buffer.kind = kind

    def _inputs(self, graph: Graph, saved: dict[str, Value]) -> list[Value]:
        """What the text gets, in order. The list of the saved tensors is emptied by it."""
        given: list[Value] = []
        for node in graph.rows:
            if node.op != "placeholder":
                continue
            if node.name in saved:
                given.append(saved.pop(node.name))
                continue
            keys = self.plan.storages_of(graph, node)
            found = [self._of_storage[key] for key in keys if key in self._of_storage]
            if not found:
                dtype = graph.text(node.value.dtype) if node.is_tensor and node.value is not None else ""
                found = [
                    self.made(node.descriptor or node.name, "tangent", nbytes, 0, dtype) for nbytes in keys.values()
                ]
            value = found[0] if len(found) == 1 else found or None
            self.hold(value)
            given.append(value)
        return given

    def finish(self) -> None:
        """What is still held is the caller's."""
        for buffer in self._made:
            if buffer.holders:
                buffer.until, buffer.by = len(self.kernels), "the caller"

    @property
    def buffers(self) -> list[InductorBuffer]:
        return [
            InductorBuffer(b.name, b.kind, b.nbytes, b.line, b.made_at, b.until, b.by, tuple(b.names))
            for b in self._made
        ]

    def moments(self) -> list[InductorMoment]:
        lives = (one for one in self._made if one.until >= one.made_at)
        found = []
        for at, (fresh, by_kind, alive, _) in enumerate(alive_through(lives, len(self.kernels))):
            kernel, made = self.kernels[at], sum(one.nbytes for one in fresh if one.line)
            found.append(InductorMoment(at, kernel.phase, kernel.line, kernel.name, kernel.nodes, made, alive, by_kind))
        return found


class _Half:
    """The text of one graph, executed as far as memory goes."""

    def __init__(self, program: _Program, graph: Graph, text: str, nodes: Mapping[str, list[str]]) -> None:
        self.program, self.graph, self.nodes = program, graph, nodes
        self.phase = graph.role.split()[0]
        self.names: dict[str, Value] = {}
        self.lines = text.splitlines()
        tree = _parsed(text)
        functions = {one.name: one for one in ast.walk(tree) if isinstance(one, ast.FunctionDef)}
        if "call" not in functions:
            raise ValueError(f"Inductor's text of the {self.phase} has no Python that calls its kernels")
        self.functions = functions
        self.said, self.items = _said_of(functions.values())
        self._nodes: dict[str, deque[Node]] = defaultdict(deque)  # by operator: those that no call was found for yet
        for node in graph.rows:
            self._nodes[node.target].append(node)
            self._nodes[node.target.rpartition(".")[0]].append(node)  # Inductor may call another overload

    def run(self, given: list[Value]) -> list[Value]:
        """Run `call`; returns what it returns. The caller must let go of it."""
        return self._function(self.functions["call"], given)

    def _function(self, function: ast.FunctionDef, given: list[Value]) -> list[Value]:
        """Run a function that takes one list, and empties it."""
        outer, self.names = self.names, {}
        returned = self._body(function.body, function.args.args[-1].arg if function.args.args else "", given)
        for value in self.names.values():
            self.program.let_go(value)
        self.names = outer
        return returned or []

    def _body(self, body: Sequence[ast.stmt], argument: str, given: list[Value]) -> list[Value] | None:
        for statement in body:
            match statement:
                case ast.With(body=inner):
                    returned = self._body(inner, argument, given)
                    if returned is not None:
                        return returned
                case ast.Return(value=value):
                    returned = self._value(value)
                    returned = returned if isinstance(returned, list) else [returned]
                    self.program.hold(returned)
                    return returned
                case ast.Delete(targets=targets):
                    for target in targets:
                        if isinstance(target, ast.Name):
                            self._bind(target.id, None)
                case ast.Assign(
                    targets=[ast.Tuple(elts=targets) | ast.List(elts=targets)], value=ast.Name(id=name)
                ) if name == argument:
                    for target, value in zip(targets, given, strict=False):
                        self._bind(ast.unparse(target), value)
                    self.program.let_go(given)
                    given = []
                case ast.Assign(targets=[target], value=value):
                    self._assign(target, value)
                case ast.Expr(value=ast.Call() as call):
                    self._call(call)
                case ast.Expr() | ast.Import() | ast.ImportFrom() | ast.Pass() | ast.Global() | ast.Assert():
                    pass
                case _:
                    self._unread(statement)
        return None

    def _unread(self, statement: ast.AST) -> None:
        self.program.unread.append(self.lines[getattr(statement, "lineno", 1) - 1].strip()[:80])

    def _bind(self, name: str, value: Value) -> None:
        self.program.hold(value)
        self.program.let_go(self.names.pop(name, None))
        if value is not None:
            self.names[name] = value

    def _assign(self, target: ast.expr, value: ast.expr) -> None:
        if isinstance(value, ast.Call) and (found := _PARTITION.match(ast.unparse(value.func))):
            function = self.functions.pop(f"partition_{found['number']}", None)  # each is called once
            match value.args:
                case [ast.Name(id=name)] if function is not None:
                    given = [*_listed(self.names.get(name))]
                    self.program.hold(given)
                    self._bind(name, None)  # the function empties it
                    made: Value = self._function(function, given)
                    self._store(target, made)
                    return self.program.let_go(made)
            return self._unread(target)
        if isinstance(value, ast.Call):
            return self._store(target, self._made_by(value, ast.unparse(target)))
        return self._store(target, self._value(value))

    def _store(self, target: ast.expr, value: Value) -> None:
        if isinstance(target, ast.Tuple | ast.List):
            parts = _listed(value)
            for place, one in enumerate(target.elts):
                self._store(one, parts[place] if place < len(parts) else None)
        elif isinstance(target, ast.Name):
            again = isinstance(value, _Buffer) and target.id != value.name
            if again and "# reuse" in self.lines[target.lineno - 1]:
                value.names[target.id] = None
            self._bind(target.id, value)

    def _value(self, node: ast.expr | None) -> Value:
        """What an expression gives that calls nothing but a view."""
        match node:
            case ast.Name(id=name):
                return self.names.get(name)
            case ast.Tuple(elts=elements) | ast.List(elts=elements):
                return [self._value(element) for element in elements]
            case ast.Subscript(value=whole, slice=ast.Constant(value=int(place))):
                parts = self._value(whole)
                return parts[place] if isinstance(parts, list) and -len(parts) <= place < len(parts) else None
            case ast.Call(func=func, args=args):
                if _ALIASES.search(ast.unparse(func)):
                    return self._value(func.value if isinstance(func, ast.Attribute) else args[0] if args else None)
        return None

    def _made_by(self, call: ast.Call, target: str) -> Value:
        function = ast.unparse(call.func)
        if function.removeprefix("torch.").startswith("empty_strided"):
            match call.args:
                case [size, stride, *others]:
                    dtype = next((text for text in map(ast.unparse, others) if text.startswith("torch.")), "")
                    return self._allocated(target, self._bytes(size, stride, dtype), call.lineno, dtype)
            return self._unread(call)
        if _ALIASES.search(function):
            return self._value(call)
        if _NO_KERNEL.search(function) or not self._reads(call):
            return None
        return self._results(call, function, target)

    def _results(self, call: ast.Call, function: str, target: str) -> Value:
        """What an operator allocates that Inductor does not compile."""
        operator = _OPERATOR.match(function)
        if operator is None:
            made = self._said(target, self._dtype(call), call.lineno)
        elif sizes.VIEW.fullmatch(operator["name"]):
            made = self._value(call.args[0]) if call.args else None
        else:
            name = operator["name"]  # the first call is that of the first such node
            nodes = self._nodes[name] or self._nodes[name.rpartition(".")[0]]
            if not nodes:
                made = self._said(target, self._dtype(call), call.lineno)
            else:
                bytes_of = self.program.plan.made_by(self.graph, nodes.popleft())
                parts = [self._allocated(target, nbytes, call.lineno, "") for nbytes in bytes_of]
                made = parts if len(parts) != 1 or target in self.items else parts[0]
        self._ran(call, function)
        return made

    def _said(self, name: str, dtype: str, line: int) -> Value:
        """What an operator gives that is in no graph: a tensor, or several that the text takes apart."""
        named = self.items.get(name)
        if named is None:
            return self._said_tensor(name, dtype, line)
        parts = map(named.get, range(max(named) + 1))
        return [self._said_tensor(part, dtype, line) if part is not None else None for part in parts]

    def _said_tensor(self, name: str, dtype: str, line: int) -> _Buffer:
        size, stride = self.said.get(name) or (None, None)
        return self._allocated(name, self._bytes(size, stride, dtype) if size and stride else 0, line, dtype)

    def _allocated(self, name: str, nbytes: int, line: int, dtype: str) -> _Buffer:
        return self.program.made(name, "intermediate", nbytes, line, dtype)

    def _dtype(self, call: ast.Call) -> str:
        known = filter(None, (buffer.dtype for buffer in self.program.buffers_in(self._reads(call))))
        return next(known, "torch.float32")

    def _bytes(self, size: ast.expr, stride: ast.expr, dtype: str) -> int:
        extents, steps = ([self._number(one) for one in getattr(each, "elts", [])] for each in (size, stride))
        nbytes = (sizes.reach(0, extents, steps) or 0) * sizes.element_bytes(dtype)
        return min(max(nbytes, 0), _MOST_BYTES)

    def _number(self, node: ast.expr) -> int:
        return sizes.evaluated(ast.unparse(node), self.program.symbols)

    def _reads(self, call: ast.Call) -> list[Value]:
        """The tensors among the arguments of a call."""
        parts = [*call.args, *(keyword.value for keyword in call.keywords)]
        return [value for part in parts if (value := self._value(part)) is not None]

    def _call(self, call: ast.Call) -> None:
        function = ast.unparse(call.func)
        if not _NO_KERNEL.search(function) and self._reads(call):
            self._ran(call, function)

    def _ran(self, call: ast.Call, function: str) -> None:
        handle = _HANDLE.search(self.lines[call.lineno - 2]) if call.lineno > 1 else None
        nodes = tuple(self.nodes.get(handle[1], ())) if handle is not None else ()
        name = function.removesuffix(".run")
        self.program.kernels.append(_Kernel(self.phase, call.lineno, name, nodes))


def _parsed(text: str) -> ast.Module:
    if len(text) > LONGEST:
        raise ValueError(f"Inductor's text has {len(text):,} characters; {LONGEST:,} are read")
    try:
        with warnings.catch_warnings(action="ignore"):
            return ast.parse(text)
    except (SyntaxError, RecursionError, MemoryError, ValueError):
        raise ValueError("Inductor's text is not Python: cpp_wrapper was on, or the file is damaged") from None


def _said_of(
    functions: Iterable[ast.FunctionDef],
) -> tuple[dict[str, tuple[ast.expr, ast.expr]], dict[str, dict[int, str]]]:
    """The sizes and strides that the text asserts, by name, and the names of the items of a name."""
    said: dict[str, tuple[ast.expr, ast.expr]] = {}
    items: dict[str, dict[int, str]] = {}
    for function in functions:
        for node in ast.walk(function):
            match node:
                case ast.Call(func=ast.Name(id=by), args=[ast.Name(id=name), size, stride, *_]) if by in _SAYS_SIZES:
                    said[name] = size, stride
                case ast.Assign(
                    targets=[ast.Name(id=name)],
                    value=ast.Subscript(value=ast.Name(id=whole), slice=ast.Constant(value=int(place))),
                ) if 0 <= place < _MOST_ITEMS:
                    items.setdefault(whole, {})[place] = name
    return said, items


def _words(kind: str) -> str:
    """
    >>> _words("intermediate"), _words("saved")
    ('intermediate values', 'saved values')
    """
    return f"{kind} values" if kind in ("saved", "intermediate") else f"{kind}s"


def _listed(value: Value) -> list[Value]:
    return value if isinstance(value, list) else [value]
