"""The compilations that make a training step, in the order in which they run, and what they say of each other.

A captured backward names the forwards whose backwards were copied into it. A graph that Dynamo captured has evidence of
what it shares with earlier ones (ir/handed_over.py).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from aotviz.recording import dynamo_stage
from aotviz.recording.compilation import Compilation

MOST_NAMED = 5  # compilations, in an error
CAPTURED = "compiled autograd"
OUTPUT = re.compile(r"\boutput\[(\d{1,9})\]")  # what a result of a graph is
_COPIED = re.compile(r"copied from the backward of (?P<name>.*)", re.S)
_AS_IT_IS = re.compile(r"backward of (?P<name>.*)", re.S)


def last_step(compilations: Sequence[Compilation]) -> list[Compilation]:
    captured = [one for one in compilations if one.kind == CAPTURED and one.outline.error is None]
    if captured:
        backward = captured[-1]
        before = compilations[: compilations.index(backward)]
        copied = [latest(before, name) for name in forwards_of(backward).values()]
        own = {**_latest_graphs(before), **{_function(one): one for one in copied}}
        forwards = _connected([one for one in before if one is own.get(_function(one))], copied)
        backwards = [backward]
    else:
        candidates = [*_latest_graphs(compilations).values()]
        training = [one for one in candidates if one.kind == "training"]
        forwards, backwards = _connected(candidates, training[-1:]), list[Compilation]()
        if not training or any(one not in forwards for one in training):
            ids = ", ".join(one.id for one in training[:MOST_NAMED]) + ", …" * (len(training) > MOST_NAMED)
            known = f"{len(training)} functions were compiled with a backward ({ids})"
            what = known if training else "no backward is recorded"
            raise LookupError(f"which compilations make a step? {what}: name them, in order, by their ids.")
    optimizers = {_function(one): one for one in compilations if one.kind == "inference" and reads_gradients(one)}
    return [*forwards, *backwards, *optimizers.values()]


def _latest_graphs(compilations: Sequence[Compilation]) -> dict[tuple[int, str], Compilation]:
    """The latest graph of each function that was compiled."""
    return {_function(one): one for one in compilations if one.kind in ("training", "inference")}


def _connected(pieces: Sequence[Compilation], to: Sequence[Compilation]) -> list[Compilation]:
    """Those of `to`, the pieces that hand something on to them, and what the same calls run after these."""
    shared = {piece.data.name: handed(piece) for piece in pieces}
    found = {one.data.name for one in to}
    for name in reversed(shared):
        if name in found:
            found |= _read(shared[name])
    for name, sharing in shared.items():
        if not found.isdisjoint(map(_graph, sharing.of_call)):
            found.add(name)
    return [one for one in pieces if one.data.name in found]


def runs_forward(pieces: Sequence[Compilation]) -> list[bool]:
    """For each piece, whether it runs before the backwards: with a backward of its own, or connected to one that has
    one. Without any, all that read no gradients do."""
    own = [one for one in pieces if one.kind != CAPTURED and not reads_gradients(one)]
    training = [one for one in own if one.kind == "training"]
    found = {one.id for one in (_connected(own, training) if training else own)}
    return [one.id in found for one in pieces]


def _read(sharing: Handed) -> set[str]:
    """The names of the graphs that ran in the same call, or of which a graph gets results."""
    return {_graph(one) for one in sharing.of_call | {one for one in sharing.shared.values() if OUTPUT.match(one)}}


def _graph(tensor: str) -> str:
    return tensor.partition(" of ")[2]


class Handed(NamedTuple):
    """What a graph that Dynamo captured shares with earlier ones. A tensor is named "output[0] of f [0/0]"."""

    shared: dict[str, str]  # an input -> the tensor of an earlier graph
    of_call: set[str]  # such tensors, of graphs that the same call ran
    gone: list[str]  # tensors of the same call that nothing holds any more
    returned: set[str]  # inputs that the function returns


def handed(piece: Compilation) -> Handed:
    found = Handed({}, set(), [], set())
    for one in (one for stage in piece.data.stages if stage.name == dynamo_stage.NAME for one in stage.evidence):
        if one.reason.startswith(dynamo_stage.SHARES):
            text = one.reason.removeprefix(dynamo_stage.SHARES)
            found.shared[one.subject] = earlier = text.removesuffix(dynamo_stage.OF_CALL)
            if earlier != text:
                found.of_call.add(earlier)
        elif one.reason == dynamo_stage.GONE:
            found.gone.append(one.subject)
        elif one.reason == dynamo_stage.RETURNED:
            found.returned.add(one.subject)
    return found


def _function(piece: Compilation) -> tuple[int, str]:
    return piece.outline.frame, piece.outline.name.partition(" [")[0]


def reads_gradients(piece: Compilation) -> bool:
    """Whether it is a step of an optimizer, or something like it."""
    return any(one.name.endswith(".grad") for one in piece.data.inputs)


def latest(compilations: Sequence[Compilation], name: str) -> Compilation:
    for one in reversed(compilations):
        if one.outline.name == name and one.kind == "training":
            return one
    raise LookupError(f"the forward {name!r}, whose backward was captured, is not in this recording")


def forwards_of(backward: Compilation) -> dict[str, str]:
    """The prefix of the steps that were copied from each forward's backward, and the forward's name.

    Raises LookupError if a backward was not copied.
    """
    found = {}
    for one in (one for stage in backward.data.stages for one in stage.evidence):
        if "is called as it is" in one.reason and (called := _AS_IT_IS.match(one.subject)):
            raise LookupError(
                f"the memory of this step cannot be planned: the backward of {called['name']} {one.reason}"
            )
        if copied := _COPIED.match(one.reason):
            found[one.subject] = copied["name"]
    return found
