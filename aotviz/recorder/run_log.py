"""What the user's function did with its tensors, in its order, and what was made of it.

The source is the ledger of the first run (tracing/ledger.py). Its tensors have numbers; here each tensor gets a
number, in the order in which the tensors come up, the arguments first. Random draws, side effects and resized storages
are not among the ledger's events: they are put where their nodes are in the graph. The results come last. A tensor has
the name that the board of storages shows (`memory.py`). Nothing else reads the ledger for the view of events.

Note [Views that autograd takes]
After a write, autograd regenerates the `grad_fn` of a view by taking the view again, at the next use of it. On real
tensors no dispatcher sees this; in a trace it is an event. Such a view repeats an earlier one, nothing reads it, and
the statement that it belongs to does something else. It is left out, for the user did not write it. So is the detached
alias with which autograd saves an operator's own result.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from itertools import islice
from typing import Any, NamedTuple

import torch
from torch import fx

from aotviz.ir import effects
from aotviz.ir.forms import TracedCall
from aotviz.ir.view_and_mutation import OutputAliasInfo, OutputType
from aotviz.recorder.memory import Frames, Memory, operator_name, step_text
from aotviz.recorder.naming import target_name
from aotviz.recording.schema import NONE, RunEvent, RunFact, RunLog
from aotviz.recording.sources import innermost
from aotviz.recording.strings import clean
from aotviz.torch_private import operators
from aotviz.tracing.events import (
    Hooked,
    Marked,
    MetadataOp,
    Mode,
    ResizedStorage,
    TensorNumber,
    Viewed,
    Wrote,
)
from aotviz.tracing.forward import Run
from aotviz.tracing.ledger import Ledger

Text = Callable[[str], int]  # gives a text its number
Fact = tuple[str, str, str]  # as in RunFact

INSIDE = ("", "", "in the graph, a new value")
REPEATED = "the wrapper repeats it on the caller's tensor"
COUNTED = "no element changes; the wrapper only counts the write"
NEAR = 4  # nodes of the graph: functionalization puts a few of its own around a statement's
IN_BACKWARD = ("", "", "it is part of the backward graph")


class _Extra(NamedTuple):
    """What is not among the events."""

    after: float  # the place of the node before it
    what: fx.Node | ResizedStorage


def of(call: TracedCall, memory: Memory, frames: Frames, text: Text) -> RunLog:
    """The log of a call whose `memory` was just read."""
    return _Log(call, memory, frames, text).read()


class _Log:
    def __init__(self, call: TracedCall, memory: Memory, frames: Frames, text: Text) -> None:
        self.run: Run = call.forward
        self.frames = frames
        self.text: Callable[[str], int] = lambda one: text(one) if one else NONE
        self.ledger: Ledger = call.forward.ledger
        self.numbers: dict[TensorNumber, int] = {}  # of the run -> in the order of the log
        self.names: list[str] = []  # one per tensor
        self.lines: dict[str, int] = {}  # stack -> the user's line
        self.rows: list[RunEvent] = []
        self.extras: list[_Extra] = []  # the last first
        names: list[str] = [clean(descriptor.name) for descriptor in call.descriptors]
        by_name = dict(zip(names, call.user_input_info.input_info, strict=True))
        number = self.ledger.number
        self.arguments = [(number(tensor), name, by_name[name]) for tensor, name in memory.inputs]
        results = zip(call.forward.outputs, call.outputs, call.meta.output_info, strict=True)
        self.results = [(number(value), clean(str(one)), info) for value, one, info in results if _is_tensor(value)]
        self.named = {value: name for value, name, _ in reversed([*self.arguments, *self.results])}
        self.same = {
            name: names[first] for name, first in zip(names, call.duplicate_of, strict=True) if first is not None
        }
        self.facts_of = {value: (name, info) for value, name, info in reversed(self.arguments)}

    def read(self) -> RunLog:
        known: dict[str, int] = {}
        for tensor, name, _ in self.arguments:
            first = self.same.get(name, "")
            if first:  # one tensor, passed twice
                self.numbers[tensor] = known[first]
            known[name] = self._number(tensor)
            self._put("argument", tensor, operator=f"passed as {name} too" if first else "")
        places = {node: k for k, node in enumerate(islice(self.run.open.graph.nodes, self.run.length))}
        self.extras, rebuilt, again = self._extras(places), self._rebuilt(), self._taken_again()
        hooks = defaultdict(list)
        for hook in self.ledger.traced_hooks:
            hooks[hook.position].append(hook.tensor)
        events = self.ledger.events
        now, after = -1.0, [_place(event, places) for event in events]
        for position, event in enumerate(events):
            now = max(now, after[position])
            if hooks[position] or isinstance(event, Hooked):  # it has no node
                self._hooks(hooks[position], event, after[position:])
            self._put_extras(now)
            if event not in again:
                self._event(event, rebuilt)
        self._hooks(hooks[len(events)], None, [])
        self._put_extras(math.inf)
        for value, name, info in self.results:
            self._put("result", value, made=[_of_result(name, info)])
        return RunLog(list(map(self.text, self.names)), self.rows)

    def _event(self, event: Any, rebuilt: Mapping[tuple[int, int], list[Fact]]) -> None:
        if isinstance(event, Viewed):
            self._number(event.source, _argument(event.node))
            for item, result in enumerate(event.results):
                self._number(result, f"{_name(event.node)}[{item}]" if event.several else _name(event.node))
                operator = ".data" if result in self.ledger.read_data else step_text(event, item)
                made = rebuilt.get((id(event), item), ())
                self._put(
                    "detach" if event.detaches else "view", result, event.source, operator, event.node, event.mode, made
                )
        elif isinstance(event, MetadataOp):
            what = {"set_": "set_", "resize_": "resize"}.get(operator_name(event.operator), "metadata")
            given = next((one for one in event.args if isinstance(one, TensorNumber)), None)
            self._change(what, event, step_text(event, 0), given)
        elif isinstance(event, Wrote):
            self._change("write", event, operator_name(event.operator) if event.operator is not None else ".data =")
        elif isinstance(event, Marked):
            operator = (
                "requires_grad_(False)" if event.method == "requires_grad_" and not event.on else f"{event.method}()"
            )
            self._put("mark", event.tensor, operator=operator, made=self._of_change(event.tensor, "mark"))
        elif isinstance(event, Hooked):
            for tensor in event.tensors:
                registered = (self.named.get(tensor, ""), "", "the wrapper registers it in each call")
                self._put("hook", tensor, operator=event.method, made=[registered])

    def _taken_again(self) -> set[Any]:
        """The views that autograd took, not the user; see Note [Views that autograd takes]."""
        used = {value for value, _, _ in (*self.arguments, *self.results)}
        nodes: set[Any] = set()
        again: set[Any] = set()
        for position, event in reversed(list(enumerate(self.ledger.events))):
            if not isinstance(event, Viewed):
                used.update(event.tensors if isinstance(event, Hooked) else (event.tensor,))
            elif used.isdisjoint(event.results) and self._repeats(position, event, nodes):
                again.add(event)
                nodes.add(event.node)
                continue
            if isinstance(event, Viewed):
                used.add(event.source)
        return again

    def _repeats(self, position: int, event: Viewed, others: set[Any]) -> bool:
        """Whether nothing reads a view, its statement does something else too, and it is an earlier view again."""
        node = event.node
        if not isinstance(node, fx.Node) or not others.issuperset(node.users):
            return False
        if not self.ledger.read_data.isdisjoint(event.results):
            return False
        if not node.meta.get("stack_trace"):
            return True  # the user has no such line
        if event.detaches and _saves(node):
            return True
        earlier = self.ledger.events[:position]
        if not any(isinstance(one, Wrote | MetadataOp) for one in earlier) or not _does_more(node):
            return False
        says = step_text(event, 0)
        same = (one for one in earlier if isinstance(one, Viewed) and one.operator is event.operator)
        return any(step_text(one, 0) == says for one in same)

    def _change(self, what: str, event: MetadataOp | Wrote, operator: str, given: Any = None) -> None:
        self._number(event.tensor, _argument(event.node))
        made = self._of_change(self.ledger.root(event.tensor), what)
        self._put(what, event.tensor, given, operator, event.node, event.mode, made)

    def _extra(self, what: fx.Node | ResizedStorage) -> None:
        if isinstance(what, ResizedStorage):
            made = self._of_change(what.tensor, "storage resized")
            self._put("storage resized", what.tensor, operator=f"resize_({what.size})", node=what.after, made=made)
        elif effects.has_effects(what.target):
            self._put("effect", None, operator=target_name(what.args[1]), node=what)
        else:
            self._put("random", None, operator=target_name(what.target), node=what)

    def _hooks(self, traced: Iterable[Any], event: Any, after: Iterable[float]) -> None:
        """Put hooks that became part of the trace. One on what the function has computed comes after what was drawn
        for it: before the next event that has a node."""
        tensors = [*traced, *(event.tensors if isinstance(event, Hooked) else ())]
        if not all(tensor in self.facts_of for tensor in tensors):
            self._put_extras(next((place for place in after if place >= 0), math.inf))
        for tensor in traced:
            self._put("hook", tensor, operator="register_hook", made=[IN_BACKWARD])

    def _put_extras(self, until: float) -> None:
        while self.extras and self.extras[-1].after < until:
            self._extra(self.extras.pop().what)

    def _put(
        self,
        what: str,
        tensor: TensorNumber | None,
        of: TensorNumber | None = None,
        operator: str = "",
        node: Any = None,
        mode: Mode | None = None,
        made: Iterable[Fact] = (),
    ) -> None:
        text = self.text
        said = "" if mode is None else "inference mode" if mode.inference else "" if mode.grad else "no_grad"
        numbers = NONE if tensor is None else self._number(tensor), NONE if of is None else self._number(of)
        facts = [RunFact(*map(text, fact)) for fact in made]
        self.rows.append(RunEvent(text(what), *numbers, text(operator), *self._origin(node), text(said), facts))

    def _number(self, tensor: TensorNumber, name: str = "") -> int:
        """The number of a tensor. `name`: what it is called if the user has no name for it."""
        if tensor not in self.numbers:
            self.numbers[tensor] = len(self.names)
            self.names.append(self.named.get(tensor, name))
        return self.numbers[tensor]

    def _origin(self, node: Any) -> tuple[int, int]:
        """A node's name and the user's line that made it."""
        if not isinstance(node, fx.Node):
            return self.text(""), self.text("")
        stack = node.meta.get("stack_trace") or ""
        if stack not in self.lines:
            self.lines[stack] = self.text(clean(innermost(self.frames(stack)).with_code))
        return self.text(node.name), self.lines[stack]

    def _extras(self, places: Mapping[fx.Node, int]) -> list[_Extra]:
        """The last first. A random write is an event, and not here as well."""
        known = {event.node for event in self.ledger.events if isinstance(event, Wrote)}
        targets = {node.target for node in places}
        wanted = {one for one in targets if operators.is_random(one) or effects.has_effects(one)}
        drawn = (node for node in places if node.target in wanted and node not in known) if wanted else ()
        found = [_Extra(places[node] - 0.5, node) for node in drawn]
        found += (_Extra(places.get(one.after, -1), one) for one in self.ledger.resized_storages)
        return sorted(found, key=lambda one: one.after, reverse=True)

    def _rebuilt(self) -> dict[tuple[int, int], list[Fact]]:
        """For each view that the wrapper takes again, the results that it takes it for."""
        found: dict[tuple[int, int], list[Fact]] = defaultdict(list)
        for value, name, info in self.results:
            if not info.output_type.owns_memory and info.output_type is not OutputType.is_input:
                for event, item in self.ledger.path(value)[1]:
                    found[id(event), item].append(_of_result(name, info))
        return found

    def _of_change(self, root: TensorNumber, what: str) -> list[Fact]:
        """What a change of `root` came to."""
        if root not in self.facts_of:
            return [INSIDE] if what != "mark" else []
        name, info = self.facts_of[root]
        if what == "write" and info.assigns_data:
            return [(name, "set_", REPEATED)]
        if what == "write" and info.mutates_data:
            unseen = " (hidden from autograd)" if info.mutations_hidden_from_autograd else ""
            return [(name, "data", f"{info.mutation_type.value}{unseen}")]
        if what == "write":
            return [(name, "", COUNTED if info.version_bumps else INSIDE[2])]
        done = {"set_": info.mutates_storage_metadata, "storage resized": info.resizes_storage, "mark": True}
        if not done.get(what, info.mutates_metadata):
            return []
        return [(name, {"resize": "metadata", "mark": ""}.get(what, what), REPEATED)]


def _saves(node: fx.Node) -> bool:
    """Whether a node detaches what the statement itself has computed."""
    made = node.args[0]
    return isinstance(made, fx.Node) and made.meta.get("stack_trace") == node.meta.get("stack_trace")


def _does_more(node: fx.Node) -> bool:
    """Whether a nearby node of another operator comes from the same statement."""
    before = after = node
    for _ in range(NEAR):
        before, after = before.prev, after.next
        for one in (before, after):
            if one.target is not node.target and one.meta.get("stack_trace") == node.meta.get("stack_trace"):
                return True
    return False


def _of_result(name: str, info: OutputAliasInfo) -> Fact:
    return name, info.output_type.name, info.output_type.value


def _place(event: Any, places: Mapping[fx.Node, int]) -> float:
    if isinstance(event, Marked):
        return places.get(event.after, -1) + 0.5 if event.after is not None else -1.0
    node = getattr(event, "node", None)
    return places.get(node, -1) if node is not None else -1.0


def _is_tensor(value: Any) -> bool:
    return isinstance(value, torch.Tensor)


def _name(node: Any) -> str:
    return node.name if isinstance(node, fx.Node) else ""


def _argument(node: Any) -> str:
    """The name of a node's first argument."""
    return _name(node.args[0]) if isinstance(node, fx.Node) and node.args else ""
