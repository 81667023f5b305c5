"""What a recorded graph says of memory: its results, what it saves, what shares memory by its operators."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Set
from functools import lru_cache

from aotviz.recording import sizes
from aotviz.recording.graph import ITEM, Graph
from aotviz.recording.schema import InputRecord

CASTS = ("aten._to_copy.default", "prims.convert_element_type.default")
PRIMAL = re.compile(r"primals_(?P<number>[1-9]\d{0,8})")
_UPDATED = " after mutation"
_IN_PLACE = re.compile(r"[^_]_\.\w+$")
_SAID_SAVED = re.compile(r"saved |SavedForBackwards")
_SAID_UPDATED = re.compile(rf"{_UPDATED}$|^InputMutationAOTOutput\(")


@lru_cache(4096)  # a graph has few different operators
def _shares_memory(target: str) -> bool:
    """Whether the result is in the memory of the first argument."""
    return bool(sizes.VIEW.fullmatch(target) or _IN_PLACE.search(target))


def primals(graph: Graph) -> int:
    """The largest number of a primal."""
    found = (PRIMAL.fullmatch(node.name) for node in graph.rows if node.op == "placeholder")
    return max((int(one["number"]) for one in found if one), default=0)


def views(graph: Graph) -> Iterator[tuple[int, int]]:
    """(value, value whose memory it has) of the views and writes, by their operators."""
    owners: dict[int, int] = {}  # by node
    for node in graph.rows:
        first = node.inputs[0] if node.inputs else -1
        if first >= 0 and (_shares_memory(node.target) or (node.target == ITEM and first in owners)):
            owners[node.index] = owner = owners.get(first, first)
            yield node.value_id, graph.rows[owner].value_id


def replaced_inputs(inputs: Iterable[InputRecord]) -> set[str]:
    """Those that get another storage, as by `set_`."""
    return {one.name for one in inputs if one.storage_replaced}


def saved_place(forward: Graph, backward: Graph) -> int:
    """The place among the forward's outputs at which the saved values begin."""
    said = forward.output_descriptors
    if any(said):
        return next((place for place, text in enumerate(said) if _SAID_SAVED.match(text)), len(said))
    taken = sum(n.op == "placeholder" and not n.name.startswith("tangents_") for n in backward.rows)
    return len(forward.outputs) - taken  # a log does not say


def results(
    graph: Graph, saved_for: Graph | None, replaced: Set[str] = frozenset()
) -> tuple[set[int], set[int], set[int]]:
    """The nodes that the caller gets, those that the wrapper copies into inputs, and those that are saved for the
    backward `saved_for`. The caller gets the new storage of an input that is `replaced`."""
    outputs, said = graph.outputs, graph.output_descriptors
    saved = saved_place(graph, saved_for) if saved_for is not None else len(outputs)
    found: tuple[set[int], set[int], set[int]] = (set(), set(), set())
    for place, (name, text) in enumerate(zip(outputs, said, strict=True)):
        if name in graph.by_name:
            is_update = _SAID_UPDATED.search(text) and text.removesuffix(_UPDATED) not in replaced
            found[2 if place >= saved else 1 if is_update else 0].add(graph.by_name[name].index)
    return found
