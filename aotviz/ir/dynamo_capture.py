"""What Dynamo knows about a graph that it hands to a backend: the function, why the graph ends, and later its guards.

Dynamo makes the guards after the backend has returned, and stores them with the program at the function's code. The
first call of the program finds them there; nothing in Dynamo is changed for that.
"""

from __future__ import annotations

import re
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import starmap
from types import CodeType
from typing import Any

import torch
from torch import fx

from aotviz.ir.handed_over import HandedOver
from aotviz.ir.spelling import positional
from aotviz.ir.user_warnings import callers
from aotviz.torch_private import dynamo, what_follows
from aotviz.torch_private.what_follows import NOTHING, Follows


@dataclass(frozen=True)
class Guard:
    """One check before a program is used again."""

    kind: str  # e.g. "TENSOR_MATCH"
    source: str  # the expression that it is about, e.g. "L['x']"
    text: str  # the check with its comment, as Dynamo logs it


@dataclass(frozen=True)
class Symbol:
    """A number that is symbolic in the graph."""

    name: str  # e.g. "s77"
    source: str  # the expression that it stands for, e.g. "L['x'].size()[0]"
    value: str  # what it was in the call that was compiled


class Guards:
    """The guards of one compilation, and the listeners that wait for them."""

    def __init__(self, code: CodeType | None, compile_id: str) -> None:
        self.waiting: tuple[Callable[[list[Guard] | None], None], ...] = ()
        self._code, self._compile_id = code, compile_id
        self._lock = threading.RLock()

    def when_known(self, listener: Callable[[list[Guard] | None], None]) -> None:
        """Call `listener` once, with the guards, or with None if Dynamo has no such program (any more)."""
        with self._lock:
            self.waiting = (*self.waiting, listener)

    def look(self) -> None:
        """Called with the program: notify the listeners, unless Dynamo is still compiling it."""
        if str(dynamo.compile_id()) == self._compile_id:
            return
        with self._lock:
            waiting, self.waiting = self.waiting, ()
        if waiting:
            found = self._find()
            for listener in waiting:
                listener(found)

    def _find(self) -> list[Guard] | None:
        try:
            for program in () if self._code is None else dynamo.programs_of(self._code):
                if str(program.compile_id) == self._compile_id:
                    return list(_guards(program.guard_manager.root))
        except Exception:  # this release keeps its guards elsewhere
            pass
        return None


@dataclass(frozen=True)
class CapturedGraph:
    """A graph captured by Dynamo, and what is known of it only while Dynamo runs."""

    module: fx.GraphModule
    function: str  # the user's name for it
    place: str  # "file:line in function", "" if unknown
    arguments: tuple[str, ...] | None  # as `arguments_inside`
    code: int | None  # a hash of the function's code
    compile_id: str  # "" outside any compilation
    # If an earlier process captured it: for each input the dimensions that are symbols, with the number of the symbol
    symbols: Sequence[Sequence[tuple[int, int]]] | None = None
    follows: Follows = NOTHING

    @property
    def name(self) -> str:
        """The function with the compile id: "train_step [0/1]"."""
        return f"{self.function} [{self.compile_id}]" if self.compile_id else self.function


def captured_graph(module: Any, code: int | None) -> CapturedGraph:
    """The graph for which Dynamo called this thread's backend."""
    number = dynamo.compile_id()
    return CapturedGraph(
        module,
        _function(module),
        place(module),
        arguments_inside(module),
        code,
        "" if number is None else str(number),
        follows=what_follows.of(module),
    )


@dataclass(frozen=True)
class Capture:
    """A graph captured by Dynamo, and how it was captured."""

    function: str  # its own name; after a graph break, Dynamo's name for the rest of it
    place: str  # "file:line" where it begins
    stack: str  # the same in the format of a traceback
    compile_id: str  # e.g. "0/1"
    graph: fx.Graph
    guards: Guards
    elapsed_ns: int = 0  # since Dynamo began with the function; 0 if unknown
    restarts: tuple[str, ...] = ()  # Dynamo's reasons for starting again, in no particular order
    attempts: int = 1  # how often it started
    broken: bool = False  # the graph ends at a graph break, not where the function returns
    ended: str = ""  # Dynamo's reason why the graph ends there
    ended_at: str = ""  # the user's frames at the end of the graph, in the format of a traceback
    symbols: tuple[Symbol, ...] = ()
    kept: str = ""  # what Dynamo's own cache has to do with it, if caching_precompile is set
    earlier: bool = False  # an earlier process captured it
    handed_over: HandedOver = field(default_factory=HandedOver)
    returned: tuple[str, ...] = ()  # inputs that the function returns


def captured_earlier(graph: CapturedGraph, kept: str) -> Capture:
    """What is known of a graph that Dynamo captured in an earlier process. `kept` says where it comes from."""
    begins = graph.place.partition(" in ")[0]
    file, _, line = begins.rpartition(":")
    return Capture(
        function=graph.function,
        place=begins,
        stack=f'  File "{file}", line {line}, in {graph.function}',
        compile_id=graph.compile_id,
        graph=graph.module.graph,
        guards=Guards(None, graph.compile_id),
        kept=kept,
        earlier=True,
    )


def capture(graph_module: Any) -> Capture | None:
    """What Dynamo knows about the graph for which it called this thread's backend; None outside any compilation."""
    call = dynamo.compile_call()
    number = dynamo.compile_id()
    if call is None or number is None or "code" not in call or not isinstance(graph_module, fx.GraphModule):
        return None
    code: CodeType = call["code"]
    reason = getattr(graph_module, "compile_subgraph_reason", None)
    function, begins = code.co_name, f"{code.co_filename}:{code.co_firstlineno}"
    if starts_in_module(graph_module):
        function, begins = _function(graph_module), place(graph_module).partition(" in ")[0] or begins
    file, _, line = begins.rpartition(":")
    began = call.get("start_time_ns")
    called, ended_at = callers(), getattr(reason, "user_stack", None)
    return Capture(
        function=function,
        place=begins,
        stack=f'{called}  File "{file}", line {line}, in {function}',
        compile_id=str(number),
        graph=graph_module.graph,
        elapsed_ns=max(0, time.time_ns() - began) if isinstance(began, int) else 0,
        restarts=tuple(sorted(map(str, call.get("restart_reasons") or ()))),
        attempts=int(getattr(dynamo.compilation(), "attempt", None) or 0) + 1,
        broken=bool(getattr(reason, "graph_break", False)),
        ended=_ended(str(getattr(reason, "reason", "") or "")),
        ended_at="".join([called, *traceback.format_list(ended_at)]).rstrip() if ended_at else "",
        symbols=tuple(starmap(Symbol, dynamo.symbols())),
        guards=Guards(code, str(number)),
    )


_unsupported: dict[str, int] = {}
"""How often Dynamo had met each construct that it can't trace when it captured the last graph."""


def _ended(reason: str) -> str:
    """Dynamo's reason why a graph ends. Of a graph that ends before the line from which Dynamo can resume, the reason
    is a word of Dynamo's own: the construct that it met since the last graph, if it was one."""
    global _unsupported
    earlier, _unsupported = _unsupported, dict(dynamo.counters["unimplemented"])
    new = [text for text, count in _unsupported.items() if count > earlier.get(text, 0)]
    return new[0] if reason == "step_unsupported" and len(new) == 1 else reason


def _guards(root: Any) -> Iterator[Guard]:
    """All guards of a tree, in the order of checking."""
    waiting, found = [root], []
    while waiting:
        node = waiting.pop()
        source = "" if node is root else node.get_source()
        found += [(source, guard) for guard in node.get_leaf_guards()]
        waiting += reversed(children(node))
    found += [("", guard) for guard in root.get_epilogue_lambda_guards()]
    for source, guard in found:
        yield from (Guard(type(guard).__name__, source, text) for text in guard.verbose_code_parts())


def children(node: Any) -> list[Any]:
    """The children of a node in Dynamo's tree of guards."""
    found = [*node.get_child_managers()]
    if hasattr(node, "get_key_value_managers"):
        pairs = node.get_key_value_managers()
        found += [child for index in sorted(pairs) for child in pairs[index] if child is not None]
    return found


def _function(graph_module: Any) -> str:
    """The name of the user's function, or the class of a module."""
    stack = _user_stack(graph_module)
    function = stack[0].name if stack else "graph"
    inside = starts_in_module(graph_module)
    called = _variables().get("fn" if inside else "self") if inside or function == "forward" else None
    if isinstance(called, torch.nn.Module):
        return type(called).__name__
    return str(getattr(called, "__name__", function) if inside else function)


def place(graph_module: Any) -> str:
    """The place of the user's code that was captured: "file:line in function", "" if unknown."""
    stack = _user_stack(graph_module)
    inside = stack[1:] if starts_in_module(graph_module) and len(stack) > 1 else stack
    return f"{inside[0].filename}:{inside[0].lineno or 0} in {inside[0].name}" if inside else ""


def stacks(graph_module: fx.GraphModule) -> tuple[str, ...]:
    """The stack of each node, also of the graphs inside; "" if unknown."""
    inside = (one for one in graph_module.modules() if isinstance(one, fx.GraphModule))
    return tuple(stack for one in inside for stack in stacks_of(one.graph))


def stacks_of(graph: fx.Graph) -> tuple[str, ...]:
    return tuple(str(node.meta.get("stack_trace") or "") for node in graph.nodes)


def starts_in_module(graph_module: Any) -> bool:
    """Whether a module of torch.nn was compiled: Dynamo then starts in a frame of its own, where the module is `fn`."""
    stack = _user_stack(graph_module)
    return bool(stack) and stack[0].filename == dynamo.ENTRY


def _user_stack(graph_module: Any) -> list[Any]:
    return getattr(getattr(graph_module, "compile_subgraph_reason", None), "user_stack", None) or []


def arguments_inside(graph_module: Any) -> tuple[str, ...] | None:
    """The user's names for the positional arguments of what Dynamo's own frame calls; None for another frame.

    Only valid while the graph is handed to a backend.
    """
    if not starts_in_module(graph_module):
        return None
    return tuple(positional(_variables().get("fn")))


def named_outside(name: str, arguments: Sequence[str]) -> str:
    """The user's name for an input of a graph that starts in such a frame.

    >>> [named_outside(name, ["x"]) for name in ("args[0].T", "args[1]", "kwargs['mask']", "fn.weight")]
    ['x.T', 'args[1]', 'mask', 'weight']
    """
    name = name.removeprefix("fn.")
    found = re.fullmatch(r"(?:args\[(?P<place>\d+)\]|kwargs\['(?P<key>\w+)'\])(?P<part>.*)", name)
    if found is None or (found["place"] and int(found["place"]) >= len(arguments)):
        return name
    return (found["key"] or arguments[int(found["place"])]) + found["part"]


def _variables() -> dict[str, Any]:
    """The local variables of the frame that Dynamo compiles."""
    return getattr((dynamo.compile_call() or {}).get("frame"), "f_locals", {})
