"""Operators with side effects keep their order: a token goes from each to the next (docs/design/system.md C5).

A print, a call of a script object's method, a custom operator that was registered as effectful: nothing reads their
results, so a compiler could remove or reorder them. Functionalization therefore traces them as `with_effects(token, op,
...) -> (new token, *results)`.

Our graphs create and consume their own tokens: `_make_token()` makes the first and `_sink_tokens([...])` takes the
last, as Inductor expects, and no caller sees one. The forward and the backward have separate chains.

Note [Tokens across the cut]
A partitioner puts a node where its inputs are. So during partitioning the forward's token is an input and an output of
the forward, and the backward's is an input and an output together with the gradients; each effect then ends up in its
own half, once. `lift` does that to a joint graph and `unlift` undoes it in a half. Waits for collectives whose results
nothing reads are outputs meanwhile, too.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Sequence
from typing import Any

import torch.fx as fx
from torch.fx.experimental.proxy_tensor import get_proxy_mode

from aotviz.ir import graphs
from aotviz.torch_private import collectives
from aotviz.torch_private.cannot_trace import CannotTrace
from aotviz.torch_private.operators import MAKE_TOKEN, SINK_TOKENS, WITH_EFFECTS, kind_of

_DISCOVERED = "tangents_token"  # torch's name for the placeholder of a new token in a trace
_LIFTED = {"is_forward": "effect_token", "is_backward": _DISCOVERED}  # partitioners recognize tangents by name


class Tokens(dict[Any, Any]):
    """The newest token of each kind of effect in the graph that `tracer` makes; functionalization reads it."""

    def __init__(self, tracer: Any) -> None:
        super().__init__()
        self.tracer = tracer

    def __contains__(self, kind: object) -> bool:
        mode = get_proxy_mode()
        if mode is not None and mode.tracer is not self.tracer:
            raise CannotTrace("side effect in a higher-order operator")
        return super().__contains__(kind)


def has_effects(target: Any) -> bool:
    """Whether an operator wraps one with side effects."""
    return target is WITH_EFFECTS


def kinds(graph: fx.Graph) -> list[Any]:
    """The kinds of side effects in a graph; each has its own tokens."""
    calls = graph.find_nodes(op="call_function", target=WITH_EFFECTS)
    return list(dict.fromkeys(map(kind_of, calls)))


def operators(graph: fx.Graph) -> list[str]:
    """The names of the operators with side effects in a graph, each once."""
    calls = graph.find_nodes(op="call_function", target=WITH_EFFECTS)
    return list(dict.fromkeys(str(call.args[1]) for call in calls))


def close(graph: fx.Graph, last: Sequence[fx.Node]) -> None:
    """Close the effects: create tokens in place of those that are inputs, and sink `last`. Edits `graph`."""
    for node in graph.find_nodes(op="placeholder"):
        if str(node.target).startswith(tuple(_LIFTED.values())):
            _make_in_place_of(node)
    if last:
        sink = graph.call_function(SINK_TOKENS, (list(last),))
        sink.meta["val"] = None
        sink.meta["partitioner_tag"] = last[0].meta.get("partitioner_tag", "is_forward")


def lift(graph: fx.Graph, slots: int) -> tuple[int, int]:
    """Make tokens inputs and outputs of a joint graph with `slots` forward outputs. Edits `graph`, and returns how many
    outputs there are more in the forward and in the backward. Waits for collectives that nothing reads are outputs too.
    """
    counts: dict[str, int] = {}
    results = graphs.outputs(graph)
    described = list(graphs.output_node(graph).meta.get("desc") or [None] * len(results))
    places = {"is_forward": slots, "is_backward": len(results)}
    for tag in reversed(_LIFTED):  # outputs at the end first, so that the other position stays valid
        made = [node for node in graph.find_nodes(op="call_function", target=MAKE_TOKEN) if _tag(node) == tag]
        inputs = graphs.placeholders(graph)
        tangents = [one for one in inputs if "tangents" in str(one.target)]
        _as_inputs(graph, made, tag, tangents[0] if tag == "is_forward" and tangents else inputs[-1].next)
        sinks = [node for node in graph.find_nodes(op="call_function", target=SINK_TOKENS) if _tag(node) == tag]
        last = _without(graph, sinks)
        last += [node for node in collectives.unread(graph) if _tag(node) == tag]
        counts[tag] = len(last)
        results[places[tag] : places[tag]] = last
        described[places[tag] : places[tag]] = [None] * len(last)
    graphs.set_outputs(graph, results, described)
    return counts["is_forward"], counts["is_backward"]


def lift_first(graph: fx.Graph) -> tuple[list[str], list[str]]:
    """Make tokens the first inputs and outputs of a graph: an exported graph has no compiler that would create them.

    Edits `graph`, and returns the names of both.
    """
    made = graph.find_nodes(op="call_function", target=MAKE_TOKEN)
    inputs = _as_inputs(graph, list(made), "is_forward", next(iter(graph.nodes)))
    last = _without(graph, graph.find_nodes(op="call_function", target=SINK_TOKENS))
    described = graphs.output_node(graph).meta.get("desc") or ()
    graphs.set_outputs(graph, (*last, *graphs.outputs(graph)), [*[None] * len(last), *described])
    return [node.name for node in inputs], [node.name for node in last]


def close_around(module: fx.GraphModule, count: int) -> None:
    """Close a graph whose first inputs and first outputs are `count` tokens. Edits it."""
    for node in list(module.graph.find_nodes(op="placeholder"))[:count]:
        node.target = f"{_LIFTED['is_forward']}_{node.name}"
    unlift(module, 0, count)


def unlift(half: fx.GraphModule, at: int, count: int) -> None:
    """Close a half again, whose outputs from `at` on are `count` tokens, or unread waits. Edits it."""
    if not count:
        return
    graph = half.graph
    (output,) = graph.find_nodes(op="output")
    results = list(output.args[0])
    last = [node for node in results[at : at + count] if node is not None and not collectives.communicates(node.target)]
    output.args = (tuple(results[:at] + results[at + count :]),)
    with graph.inserting_before(output):
        close(graph, last)
    half.recompile()


def _tag(node: fx.Node) -> str:
    return str(node.meta.get("partitioner_tag", "is_forward"))


def _as_inputs(graph: fx.Graph, made: Sequence[fx.Node], tag: str, before: fx.Node) -> list[fx.Node]:
    """Replace tokens that the graph creates by graph inputs in front of a node."""
    with graph.inserting_before(before):
        tokens = [graph.placeholder(_LIFTED[tag]) for _ in made]
    for token, node in zip(tokens, made, strict=True):
        token.meta = dict(node.meta)
        node.replace_all_uses_with(token)
        graph.erase_node(node)
    return tokens


def _without(graph: fx.Graph, sinks: Collection[fx.Node]) -> list[Any]:
    """Erase these sinks. Returns the tokens that they took."""
    taken: list[Any] = [sink.args[0] for sink in sinks]
    for sink in sinks:
        graph.erase_node(sink)
    return list(itertools.chain.from_iterable(taken))


def _make_in_place_of(node: fx.Node) -> None:
    """Let the graph create the token that is the input `node`, at the same place, but after all inputs."""
    place = node
    while place.op == "placeholder" and place.next.op == "placeholder":
        place = place.next
    with node.graph.inserting_after(place):
        made = node.graph.call_function(MAKE_TOKEN)
    made.meta = dict(node.meta)
    node.replace_all_uses_with(made)
    node.graph.erase_node(node)
    if not made.users:
        made.graph.erase_node(made)
