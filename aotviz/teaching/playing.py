"""A scene, played with a program: its variables, what it printed, and what it raised.

A scene is a function that calls the program that it is passed, and ends in `return locals()`. Played with the original,
it shows what eager does; played with the compiled program, what aotviz does. Each time it starts with the same random
numbers and, if the program is a module, with a copy of it.
"""

from __future__ import annotations

import ast
import contextlib
import copy
import functools
import io
import types
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from aotviz.reading.recording import Recording
from aotviz.recording.compilation import Compilation
from aotviz.torch_private import tensors

Program = Callable[..., Any]
Scene = Callable[[Any], Mapping[str, Any]]
COMPILED = frozenset({"wrapper", "graph_inputs", "graph_outputs", "saved", "stages", "compilations", "recording"})
PLAYED = {"by_eager": "eager", "by_aotviz": "aotviz", "by_torch": "torch"}  # name in a question -> property of Stage


@dataclass(frozen=True)
class Played:
    """What was seen of a scene."""

    variables: Mapping[str, Any]
    raised: str | None  # the name of the error's class, if the scene raised one
    printed: list[str]  # lines

    @property
    def names(self) -> dict[str, Any]:
        """What an expression about the scene may name."""
        return {
            **self.variables,
            "raised": self.raised,
            "printed": self.printed,
            "same_storage": functools.partial(same_storage, self.variables),
        }


def play(scene: Scene, program: Program) -> Played:
    """Play a scene. An error of the scene ends it, and its variables are those that it had then.

    Raises TypeError if the scene does not return its variables.
    """
    raised = None
    said = io.StringIO()
    with warnings.catch_warnings(), torch.random.fork_rng(devices=()), contextlib.redirect_stdout(said):
        warnings.simplefilter("ignore")
        torch.manual_seed(0)
        try:
            variables = scene(program)
        except Exception as error:
            raised = type(error).__name__
            variables = _variables_at(error, scene)
    if not isinstance(variables, Mapping):
        raise TypeError(f"{scene.__name__} must end in `return locals()`, so that its variables can be asked about")
    return Played(dict(variables), raised, said.getvalue().splitlines())


def _variables_at(error: BaseException, scene: Any) -> dict[str, Any]:
    """The variables of the scene when the error left it."""
    at = error.__traceback__
    while at is not None:
        if at.tb_frame.f_code is scene.__code__:
            return dict(at.tb_frame.f_locals)
        at = at.tb_next
    raise error


def same_storage(variables: Mapping[str, Any], name: str) -> set[str]:
    """The names of the other variables whose tensors are in the same storage as the named one."""
    memory = {other: tensors.storage_key(t) for other, t in variables.items() if isinstance(t, torch.Tensor)}
    if name not in memory:
        raise NameError(f"there is no tensor named {name!r}; the tensors are {', '.join(memory)}")
    return {other for other, where in memory.items() if other != name and where == memory[name]}


class Stage:
    """A scene and its program: played in eager, with aotviz and with torch's own compiler, each once, on demand."""

    def __init__(self, scene: Scene, program: Program, compiler: Callable[[Program], Any]) -> None:
        self.scene = scene
        self._program = program
        self._compiler = compiler

    @functools.cached_property
    def eager(self) -> Played:
        return play(self.scene, self._fresh())

    @functools.cached_property
    def _compiled(self) -> tuple[Played, Recording]:
        program = self._compiler(self._fresh())
        return play(self.scene, program), program.recording

    @property
    def aotviz(self) -> Played:
        return self._compiled[0]

    @property
    def recording(self) -> Recording:
        return self._compiled[1]

    @functools.cached_property
    def torch(self) -> Played:
        """With torch's own AOTAutograd."""
        return play(self.scene, torch.compile(self._fresh(), backend="aot_eager"))

    def _fresh(self) -> Any:
        return copy.deepcopy(self._program) if isinstance(self._program, torch.nn.Module) else self._program

    @property
    def names(self) -> list[str]:
        """The variables of the scene, but for the program."""
        return [name for name, value in self.eager.variables.items() if not callable(value) or isinstance(value, type)]

    @property
    def tensor_names(self) -> list[str]:
        return [name for name, value in self.eager.variables.items() if isinstance(value, torch.Tensor)]

    def value(self, question: str) -> Any:
        """The value of an expression: in eager, but with the compiled program if it names what only that has."""
        compiled = _names_in(question) & COMPILED - self.eager.variables.keys()
        return self._value(question, self.aotviz if compiled else self.eager)

    def value_compiled(self, question: str) -> Any:
        """The value with the compiled program."""
        return self._value(question, self.aotviz)

    def says_how(self, question: str) -> bool:
        """Whether an expression itself says how the scene is played. Otherwise it has a value in eager and another one
        with the compiled program, which should be equal."""
        return bool(_names_in(question) & (COMPILED | PLAYED.keys()) - self.eager.variables.keys())

    def _value(self, question: str, played: Played) -> Any:
        names = _names_in(question)
        scope = dict(getattr(self.scene, "__globals__", {}))
        for name in names & PLAYED.keys():
            scope[name] = types.SimpleNamespace(**getattr(self, PLAYED[name]).names)
        if names & COMPILED:
            scope |= facts(self.recording)
        return eval(question.strip(), scope | played.names)


def _names_in(question: str) -> set[str]:
    return {node.id for node in ast.walk(ast.parse(question.strip(), mode="eval")) if isinstance(node, ast.Name)}


def facts(recording: Recording) -> dict[str, Any]:
    """What an expression about the compiled program may name."""
    found: dict[str, Any] = {"recording": recording, "compilations": len(recording)}
    found |= {"wrapper": "", "graph_inputs": [], "graph_outputs": [], "saved": [], "stages": []}
    if len(recording):
        first = recording[0]
        found["stages"] = list(first.stages.stage)
        found["saved"] = list(first.saved_tensors.name)
        if first.wrapper is not None:
            found["wrapper"] = first.wrapper.source
            found["graph_inputs"], found["graph_outputs"] = _ends(first)
    return found


def _ends(compilation: Compilation) -> tuple[list[str], list[str]]:
    """What the inputs and the outputs of the graph mean that runs in the forward: "x", "x after mutation"."""
    graph = compilation.graph("inference" if compilation.kind == "inference" else "forward")
    inputs = [
        meaning for op, meaning in zip(graph.nodes.op, graph.nodes.descriptor, strict=True) if op == "placeholder"
    ]
    return inputs, list(graph.output_descriptors)
