"""What a failed check of a captured whole backward means: `guard_failures.py` for what aotviz's compiled autograd, or
torch's, says of it.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from aotviz.explain import advice
from aotviz.explain.cures import backward_cures
from aotviz.explain.guard_failure import GuardFailure

COMPILED = re.compile(r"CompiledFunctionBackward\d*|backward of .+ \[[^\[\]]+\]")  # autograd nodes of compiled forwards


def _another_node(match: re.Match[str]) -> GuardFailure:
    number, before, after = match["number"], match["before"], match["after"]
    words = f"node {number} of the autograd graph was `{before}` and is now `{after}`"
    if COMPILED.fullmatch(before) and COMPILED.fullmatch(after):
        words = f"the forward ran another compiled program: node {number} of the autograd graph was `{before}` and is "
        words += f"now `{after}`"
        return GuardFailure(
            "autograd graph", "the compiled forward", before, after, words, backward_cures.FORWARD.said()
        )
    if "absent" in (before, after):
        words = f"the autograd graph {'has' if before == 'absent' else 'no longer has'} a node {number}, "
        words += f"`{after if before == 'absent' else before}`"
    return GuardFailure(
        "autograd graph", f"autograd node {number}", before, after, words, backward_cures.AUTOGRAD_GRAPH.said()
    )


def _another_gradient(match: re.Match[str]) -> GuardFailure:
    name, before, after = match["name"], match["before"], match["after"]
    words = f"`{name}.grad` was {before} and is now {after}"
    return GuardFailure("gradient", f"{name}.grad", before, after, words, backward_cures.GRADIENT.said())


def _another_number_of_hooks(match: re.Match[str]) -> GuardFailure:
    what, where, before, after = match["kind"], match["where"], match["before"], match["after"]
    words = f"the number of {what} at {where} was {before} and is now {after}"
    return GuardFailure("hooks", f"{what} at {where}", before, after, words, backward_cures.HOOKS.said())


def _size_in_a_backward(match: re.Match[str]) -> GuardFailure:
    name, dimension, before, after = match["name"], match["dimension"], match["before"], match["after"]
    reads, fix = (
        (", which the backward reads,", backward_cures.KEPT_SIZE.said())
        if match["kept"]
        else ("", advice.taken_size(after))
    )
    words = f"dimension {dimension} of `{name}`{reads} had size {before} and now has size {after}"
    return GuardFailure("size", f"{name}.shape[{dimension}]", before, after, words, fix)


def _taken_number(match: re.Match[str]) -> GuardFailure:
    name, before, after = match["name"], match["before"], match["after"]
    words = f"the number `{name}`, which the backward reads, was {before} and is now {after}"
    return GuardFailure("value", name, before, after, words, advice.taken_size(after))


def _taken_strides(match: re.Match[str]) -> GuardFailure:
    name, before, after = match["name"], match["before"], match["after"]
    words = f"the memory layout of `{name}` changed: its strides were {before} and are now {after}"
    return GuardFailure("stride", f"{name}.stride()", before, after, words, backward_cures.TAKEN_STRIDES.said())


def _kept_otherwise(match: re.Match[str]) -> GuardFailure:
    name, what = match["name"], match["what"]
    words = f"`{name}`, which the backward reads, had {what} {match['before']} and now has {match['after']}"
    return GuardFailure(what, name, match["before"], match["after"], words, backward_cures.AUTOGRAD_GRAPH.said())


def _kept_number(match: re.Match[str]) -> GuardFailure:
    words = f"a number that the autograd node `{match['node']}` keeps changed, such as the start of a slice"
    return GuardFailure("value", match["node"], "", "", words, backward_cures.KEPT_SIZE.said())


def _kept_sizes(match: re.Match[str]) -> GuardFailure:
    words = "sizes that the backward reads changed, and became symbols"
    return GuardFailure("size", "sizes", "", "", words, backward_cures.SIZES_OF_TORCHS.said())


def _kept_something(match: re.Match[str]) -> GuardFailure:
    words = "the autograd graph changed, in something that the captured graph does not show"
    return GuardFailure("autograd graph", "the autograd graph", "", "", words, backward_cures.AUTOGRAD_GRAPH.said())


def _dropped(match: re.Match[str]) -> GuardFailure:
    words = "all captures were dropped since: by `reset()`, a change of autocast, or a backward that was not captured"
    return GuardFailure("dropped", "aotviz.compiled_autograd", "", "", words, backward_cures.DROPPED.said())


Reader = Callable[[re.Match[str]], GuardFailure]
FORMS: tuple[tuple[str, Reader], ...] = (
    (r"autograd node (?P<number>\d+) was (?P<before>.+) and is (?P<after>.+)", _another_node),
    (r"(?P<name>.+)\.grad was (?P<before>None|a tensor) and is (?P<after>None|a tensor)", _another_gradient),
    (
        r"the number of (?P<kind>.*?hooks) at (?P<where>.+) changed from (?P<before>\d{1,9}) to (?P<after>\d+)",
        _another_number_of_hooks,
    ),
    (
        r"(?:(?P<kept>the backward keeps)|the part takes) (?P<name>\S+), whose size (?P<dimension>\d+) was "
        r"(?P<before>\d+) and is (?P<after>\d+)",
        _size_in_a_backward,
    ),
    (
        r"the backward keeps (?P<name>\S+), whose (?P<what>dtype) was (?P<before>\S+) and is (?P<after>\S+)",
        _kept_otherwise,
    ),
    (
        r"the backward keeps (?P<name>\S+), whose (?P<what>number of dimensions) was (?P<before>\d+) and is "
        r"(?P<after>\d+)",
        _kept_otherwise,
    ),
    (r"the part takes (?P<name>\S+), whose strides were (?P<before>.+) and are (?P<after>.+)", _taken_strides),
    (r"the part takes (?P<name>\S+), which was (?P<before>.+) and is (?P<after>.+)", _taken_number),
    (r"a number that (?P<node>.+) keeps changed", _kept_number),
    (r"sizes that autograd's nodes keep changed", _kept_sizes),
    (r"something else that autograd's nodes keep changed|what .+ does changed", _kept_something),
    (r"all captures were dropped since", _dropped),
)
