"""Write a compiled program as one Python file (docs/compiling.md, "A file of its own").

In reading order: what was compiled; imports; the forward graph and the backward graph; what else the wrapper refers to;
the wrapper, as it runs; example inputs. The file traces nothing and compiles nothing. It needs torch and aotviz, whose
helpers the wrapper calls, and what the program itself has registered with torch.

What of a program holds its trace is replaced (`runtime/from_file.py`). A backward with some gradients missing is a
function of its own for each pattern of up to three gradients, and for each gradient alone if there are more.
"""

from __future__ import annotations

import ast
import itertools
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import torch
import torch.fx as fx

from aotviz import __version__
from aotviz.ir import absent, graphs
from aotviz.ir.forms import Executable, GraphCall, Split, Tangent
from aotviz.ir.spelling import literal, spoken
from aotviz.runtime import from_file
from aotviz.runtime.captured_backward import Capturable
from aotviz.runtime.deferred_stages import LazyBackward
from aotviz.runtime.lowered import LoweredSplit, Program
from aotviz.runtime.partial_backward import Pattern
from aotviz.standalone.example_inputs import Examples
from aotviz.standalone.graph_functions import GraphFunctions, docstring, users_names
from aotviz.standalone.spelled import CannotBeWritten, Spelling
from aotviz.torch_private import pytree

_LINES = re.compile(r"\n{4,}")
FEW_GRADIENTS = 3  # for which each pattern has a backward in the file


def written(program: Executable) -> str:
    """The text of the file.

    Raises:
        CannotBeWritten: the program has something that has no form in Python, or was compiled without a recording.
    """
    if not isinstance(program, Program):
        raise CannotBeWritten(
            f"{program.name} was compiled with record=False, so that its graphs were not kept. Compile it with a "
            "recording to write it as a file."
        )
    return _File(program).text()


class _File:
    def __init__(self, program: Program) -> None:
        self.program, self.lowered, self.call = program, program.lowered, program.lowered.call
        self.outer: GraphCall = self.call.outer
        self.names: dict[str, Any] = program.function.__globals__
        self.own = _defined(program.source)
        self.spelling = Spelling(name for name in self.names if name != "__builtins__")
        self.functions = GraphFunctions(self.spelling)
        self.examples = Examples(self.spelling, self.outer)
        self.lines: list[str] = ["", "", "# what the wrapper refers to"]
        self.late: list[str] = []  # what it refers to on the paths that few calls take
        self.inputs_of: dict[str, str] = {}

    def text(self) -> str:
        with self.spelling.within(self.call.name):
            self._graphs()
            self._referred()
            examples = self._inputs()
            main = self._main()
        wrapper = ["", "", *self.program.source.rstrip("\n").split("\n")]
        torchs = "import torch" + (f" as {self.spelling.torch}" if self.spelling.torch != "torch" else "")
        imports = ["", torchs, *([""] if self.spelling.imports else []), *self.spelling.imports]
        imports += [f"# import here what registers the operators {one}" for one in self._operators]
        parts = [self._head(), imports, self.functions.lines, self.lines, wrapper, self.late, examples, main]
        return _LINES.sub("\n\n\n", "\n".join(itertools.chain(*parts))) + "\n"

    # --- the graphs ---

    def _graphs(self) -> None:
        call = self.call
        forward = call.forward_module if isinstance(call, Split) else call.graph_module
        self.inputs_of = users_names(forward.graph)
        name = self.spelling.fresh("forward" if isinstance(call, Split) else "graph")
        about = f"The {'forward graph' if isinstance(call, Split) else 'graph'} of {call.name}."
        self.functions.write(name, forward, about, self.inputs_of)
        self._in_a_list(forward.graph, name)
        if isinstance(call, Split) and isinstance(self.lowered, LoweredSplit):
            for tangent in graphs.placeholders(call.backward_module.graph):
                if absent.is_tangent(tangent):
                    known = call.tangents[absent.tangent_number(tangent)]
                    self.inputs_of[tangent.name] = f"grad_{call.slots[known.slot].descriptor}".replace("output", "out")
            self._backward(call, self.lowered)

    def _backward(self, call: Split, lowered: LoweredSplit) -> None:
        if lowered.generators is not None:
            raise self.spelling.refuse("its graphs share random generators (for CUDA graphs)")
        name = self.spelling.fresh("backward")
        self.functions.write(name, call.backward_module, f"The gradients of {call.name}.", self.inputs_of)
        lazy = self._name_of(lowered.backward)
        if lazy is not None:
            taking, made = self.spelling.of(from_file.taking_a_list), self.spelling.of(LazyBackward)
            run = self.spelling.fresh(f"run_{name}")
            self.lines.append(f"{run} = {taking}({name})")
            self.lines.append(f"{lazy} = {made}(lambda keep: {run}, donates=False, plain={run})")

    def _in_a_list(self, graph: fx.Graph, function: str) -> None:
        """The function as the wrapper calls it."""
        name = self._name_of(self.lowered.compiled_forward)
        made = f"{self.spelling.of(from_file.taking_a_list)}({function})"
        if not self.call.options.graph_counts_writes:
            inputs = graphs.placeholders(graph)
            nodes = (graphs.owner(node.args[0]) for node in graph.nodes if graphs.writes_an_input(node))
            if written := tuple(sorted({inputs.index(node) for node in nodes})):
                made = f"{self.spelling.of(from_file.counting_no_writes)}({function}, {written})"
        self.lines.append(f"{name} = {made}")

    def _name_of(self, value: Any) -> str | None:
        return next((name for name, one in self.names.items() if one is value), None)

    # --- what the wrapper refers to ---

    def _referred(self) -> None:
        """Every name of the wrapper. What stands for the trace comes last, since it refers to the rest."""
        replaced = self._replaced()
        for name, value in self.names.items():
            if name in self.own or name == "__builtins__" or id(value) in replaced:
                continue
            with self.spelling.within(f"{self.call.name}: `{name}` of its wrapper"):
                if isinstance(value, type) and issubclass(value, Capturable):
                    value = from_file.Function
                if not (callable(value) and self.spelling.import_as(name, value)):
                    text = self.spelling.of(value)
                    self.lines.append(f"{name} = {text}")
                    self.spelling.name(name, value)
        for value, write in replaced.values():
            used = self._name_of(value)
            text = "" if used is None else write()
            if used is not None and text:
                self.late += ["", "", f"{used} = {text}"]
                self.spelling.name(used, value)

    def _replaced(self) -> dict[int, tuple[Any, Callable[[], str]]]:
        """The objects of the wrapper that are not spelled as they are, and what is written in their place."""
        lowered, parameters = self.lowered, self.outer.convention.parameters
        found: list[tuple[Any, Callable[[], str]]] = [(lowered.compiled_forward, str)]  # written with the graphs
        if parameters is not None:
            found.append((parameters, self._parameters))
        if isinstance(lowered, LoweredSplit):
            found += [(lowered.backward, str), (lowered.partial, self._partial)]
            found.append((lowered.with_history, self._without_history))
            if lowered.cut is not None:
                found.append((lowered.cut, lambda: self._cut(lowered.cut)))
        return {id(value): (value, write) for value, write in found}

    def _cut(self, cut: Any) -> str:
        return self.spelling.of(replace(cut))  # a copy, which has no name yet

    def _without_history(self) -> str:
        slots = tuple(tangent.slot for tangent in self.outer.tangents) if isinstance(self.outer, Split) else ()
        made = self.spelling.of(from_file.PlainGradients)
        return f"{made}({literal(self.call.name)}, {slots}, {len(self.outer.slots)})"

    def _partial(self) -> str:
        lowered = self.lowered
        if not isinstance(lowered, LoweredSplit):
            return ""
        known = replace(lowered.partial.known, tangents=tuple(map(_without_value, lowered.partial.tangents)))
        names = [str(lowered.call.slots[tangent.slot].descriptor) for tangent in known.tangents]
        incoming = ",".join(
            f"\n    {self.spelling.of(from_file.Incoming(name, sharing, frozenset(lowered.partial.read_alone(i))))}"
            for i, (name, sharing) in enumerate(zip(names, lowered.partial.sharing, strict=True))
        )
        patterns = _patterns([max(1, len(tangent.parts)) for tangent in lowered.call.outer.tangents])
        parts = "".join(f"\n    {pattern}: {self._part(lowered, pattern)}," for pattern in patterns)
        made = self.spelling.of(from_file.PartsOfFile)
        known_as = self.spelling.fresh("whole_backward")
        self.late += [
            "",
            "",
            "# a backward in which some gradients are missing",
            f"{known_as} = {self.spelling.spread(known)}",
        ]
        return f"{made}({known_as}, ({incoming},\n), {{{parts}\n}})"

    def _part(self, lowered: LoweredSplit, pattern: Pattern) -> str:
        part = lowered.partial.part(pattern)
        name = self.spelling.fresh(f"backward_{''.join(str(int(there)) for there in pattern)}")
        came = [one for one, there in zip(lowered.partial.tangents, pattern, strict=True) if there]
        results = ", ".join(str(lowered.call.slots[tangent.slot].descriptor) for tangent in came)
        about = f"The gradients of {self.call.name} if only {results} received one."
        written = GraphFunctions(self.spelling)
        written.write(name, part.module, about, self.inputs_of)
        self.late += written.lines
        return f"({name}, {tuple(part.sources)})"

    def _parameters(self) -> str:
        """Parameters and buffers, which the program reads at each call."""
        positions = range(self._lifted)
        name = self.spelling.fresh("parameters_and_buffers")
        inside = [*self.examples.lines(positions), f"return [{', '.join(self.examples.made[i] for i in positions)}]"]
        held = self.spelling.fresh("held")
        self.late += ["", "", f"def {name}():", *(f"    {line}" for line in inside), "", ""]
        self.late += ["# the program's own tensors: replace the numbers with your own", f"{held} = {name}()"]
        return f"lambda: {held}"

    # --- example inputs, and a run ---

    @property
    def _lifted(self) -> int:
        spec = self.outer.convention.in_spec
        return 0 if spec is None else len(self.outer.descriptors) - spec.num_leaves

    def _inputs(self) -> list[str]:
        positions = range(self._lifted, len(self.outer.descriptors))
        lines = self.examples.lines(positions)
        made = [self.examples.made[i] for i in positions]
        about = '"""Arguments with the layouts that this was compiled for. Replace the numbers with your own."""'
        result = self._arguments(made)
        return ["", "", "def inputs():", *(f"    {line}" for line in [about, *lines, f"return {result}"])]

    def _arguments(self, made: Sequence[str]) -> str:
        """What `inputs` returns: the arguments in a list, or, if they are nested, those by position and by name."""
        if not self._nested:
            return f"[{', '.join(made)}]"
        unflatten = self.spelling.of(pytree.tree_unflatten)
        return f"{unflatten}([{', '.join(made)}], {self.spelling.of(self.outer.convention.in_spec)})"

    @property
    def _nested(self) -> bool:
        spec = self.outer.convention.in_spec
        if spec is None:
            return False
        positional, keywords = spec.children()
        return bool(keywords.num_leaves) or not all(child.is_leaf() for child in positional.children())

    def _main(self) -> list[str]:
        function, torchs = self.program.function.__name__, self.spelling.torch
        args = [f"args, kwargs = {self._inputs_name}()", f"results = {function}(*args, **kwargs)"]
        if not self._nested:
            star = "" if self.outer.convention.kind == "boxed" else "*"
            args = [f"results = {function}({star}{self._inputs_name}())"]
        leaves = self.spelling.of(pytree.tree_leaves)
        lines = [
            f"{torchs}.manual_seed(0)",
            *args,
            f"tensors = [one for one in {leaves}(results) if isinstance(one, {torchs}.Tensor)]",
            'print("results:", [tuple(one.shape) for one in tensors])',
        ]
        if isinstance(self.call, Split):
            lines += [
                "computed = [one for one in tensors if one.grad_fn is not None]",
                f"{torchs}.autograd.backward(computed, [{torchs}.ones_like(one) for one in computed])",
                'print("the backward ran for", len(computed), "of them")',
            ]
        if any(info.only_in_inference_mode for info in self.outer.user_input_info.input_info):
            lines = [f"with {torchs}.inference_mode():", *(f"    {line}" for line in lines)]
        return ["", "", 'if __name__ == "__main__":', *(f"    {line}" for line in lines)]

    _inputs_name = "inputs"  # which no wrapper uses: it is reserved in runtime/codegen.py

    def _head(self) -> list[str]:
        call = self.outer
        by = f"Compiled by aotviz {__version__} with torch {torch.__version__}, for the backend {call.options.backend}."
        graph = (
            "a forward graph and a backward graph" if isinstance(self.call, Split) else "one graph, without gradients"
        )
        lines = [f"{call.name}: {graph}.", "", by]
        when = f", once the operators {', '.join(self._operators)} are registered" if self._operators else ""
        lines.append("The graphs run operator by operator.")
        lines.append(f"`python` with the name of this file runs it on example inputs{when}.")
        described = [self.examples.about(i) for i in range(len(call.descriptors))]
        if described:
            lines += ["", "Arguments:", *(f"    {one}" for one in described)]
        return ['"""' + docstring(spoken(lines[0])), *map(docstring, lines[1:]), '"""']

    @property
    def _operators(self) -> list[str]:
        """The namespaces of operators that are not torch's."""
        return [f"torch.ops.{name}" for name in sorted(self.spelling.namespaces)]


def _defined(source: str) -> set[str]:
    """The names that a source itself defines."""
    found: set[str] = set()
    for node in ast.parse(source).body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            found.add(node.name)
        elif isinstance(node, ast.Assign):
            found.update(one.id for one in node.targets if isinstance(one, ast.Name))
    return found


def _patterns(counts: Sequence[int]) -> Iterator[Pattern]:
    """The patterns of missing gradients that a file has a backward for. `counts` has the number of tensors that each
    gradient consists of, which come together.

    >>> list(_patterns([1, 2])), len(list(_patterns([1] * 3))), len(list(_patterns([1] * 4)))
    ([(False, True, True), (True, False, False)], 6, 4)
    """
    every = itertools.product((False, True), repeat=len(counts))
    alone = (tuple(i == place for i in range(len(counts))) for place in range(len(counts)))
    for pattern in every if len(counts) <= FEW_GRADIENTS else alone:
        if any(pattern) and not all(pattern):
            yield tuple(there for there, count in zip(pattern, counts, strict=True) for _ in range(count))


def _without_value(tangent: Tangent) -> Tangent:
    """A tangent without its fake, which only a trace reads."""
    return replace(tangent, value=None, parts=tuple(map(_without_value, tangent.parts)))
