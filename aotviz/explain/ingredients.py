"""The ingredients of a key of aotviz's cache: what a difference in one of them means, and what to do about it.

A key is made of named texts (`aotviz/cache/key.py`). Most texts have one line for each setting, input or node, so that
the lines that differ say what happened. An ingredient that is not listed here is compared all the same, line by line.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import reduce
from itertools import zip_longest

from aotviz.explain.cures import key_cures
from aotviz.explain.cures.registry import NO_ADVICE, Advice
from aotviz.explain.key_parts import Difference
from aotviz.recording import own_lookups

PROGRAM, INPUTS = own_lookups.PROGRAM, "inputs"
CALL = "the kinds of its inputs", "the structure of its arguments"  # lines after the inputs of a traced program
DEFAULT, UNSET = "the default", "not set"
SETTINGS = {  # ingredient -> the module whose settings it has
    "Inductor's settings": "torch._inductor.config",
    "AOTAutograd's settings": "torch._functorch.config",
    "Dynamo's settings": "torch._dynamo.config",
    "settings of symbols": "torch.fx.experimental._config",
}
FIXES: dict[str, Advice] = {
    PROGRAM: key_cures.CHANGED.said(),
    "autograd": key_cures.CHANGED.said(),
    INPUTS: key_cures.SAME_PART.said(name=INPUTS),
    "symbols": key_cures.SYMBOLS.said(),
    "memory layout": key_cures.MEMORY.said(),
    "options": key_cures.OPTIONS.said(),
    "backend": key_cures.BACKEND.said(),
    **{name: key_cures.SAME_SETTINGS.said(module=module) for name, module in SETTINGS.items()},
    "grad mode": key_cures.GRAD_MODE.said(),
    "autocast": key_cures.AUTOCAST.said(),
    "determinism": key_cures.DETERMINISM.said(),
    "defaults": key_cures.DEFAULTS.said(),
    "methods of tensors": key_cures.METHODS.said(),
    "precision": key_cures.PRECISION.said(),
    "saved tensor hooks": key_cures.HOOKS.said(),
    "first call": key_cures.FIRST_CALL.said(),
    "threads": key_cures.THREADS.said(),
    "processes": key_cures.PROCESSES.said(),
    "environment": key_cures.ENVIRONMENT.said(),
    "devices": key_cures.MACHINE.said(),
    "processor": key_cures.MACHINE.said(),
    **dict.fromkeys(("torch", "libraries", "Python", "aotviz"), key_cures.UPGRADED.said()),
}
_LINE = re.compile(r"(?P<name>[\w. -]+?) ?[=:] ?(?P<value>.*)")
_TENSOR = re.compile(
    r"torch\.(?P<dtype>\w+) \((?P<shape>[^()]*)\) strides \((?P<stride>[^()]*)\)(?: from (?P<offset>\S++))?"
    r" on (?P<device>\S++)(?P<rest>.*)"
)
_CONTENT = re.compile(r"\b(\w+) [0-9a-f]{20}\b")  # a digest of the content of a class, a function or an object
_AN = {"class": "a class", "kernel": "a Triton kernel"}
_MESH = re.compile(r"\bmesh (?P<mesh>[^;}]+)")  # of a DTensor, or an input itself
_FACTS = ("dtype", "shape", "stride", "offset", "device")


def differences(name: str, before: str, after: str, inputs: Sequence[str] = ()) -> list[Difference]:
    """What differs in an ingredient. `inputs` are the user's names of the program's inputs, if they are known.

    >>> [d.words for d in differences("Inductor's settings", "all 9: a1", "max_autotune = True\\nall 9: b2")]
    ['`torch._inductor.config.max_autotune` was `the default` and is now `True`']
    >>> [d.words for d in differences("torch", "2.12", "2.13")]
    ['torch was `2.12` and is now `2.13`']
    >>> [d.words for d in differences("autograd", "0 class 63b124f69e4017a09a21 {}", "0 class c0c99a1081cfb733feab {}")]
    ['the code of a class that it uses changed']
    """
    if _CONTENT.sub("", before) == _CONTENT.sub("", after):
        kinds = sorted({match[1] for match in _CONTENT.finditer(after) if match[0] not in before})
        return [Difference(name, f"the code of {_AN.get(kind, 'an object')} that it uses", "", "") for kind in kinds]
    if name == PROGRAM:
        was, now = first_difference(before, after)[1:]
        return [Difference(name, "the program", was, now)]
    if name == INPUTS:
        return list(_inputs(before, after, inputs))
    found = list(_lines(name, before, after))
    return found or [Difference(name, name, before, after)]


def first_difference(before: str, after: str) -> tuple[int, str, str]:
    """The number of the first line that differs, from 0, and that line in both texts."""
    pairs = zip_longest(before.splitlines(), after.splitlines(), fillvalue="")
    return next(((i, was, now) for i, (was, now) in enumerate(pairs) if was != now), (0, "", ""))


def fix(found: Sequence[Difference]) -> Advice:
    """What to do about differences, the first kind first."""
    return reduce(Advice.together_with, dict.fromkeys(map(_fix, found)), NO_ADVICE)


def _fix(one: Difference) -> Advice:
    if one.part in (*SETTINGS, "environment") and one.subject.startswith("`"):
        return key_cures.SAME_VALUE.said(name=one.subject)
    if one.part.startswith(f"{INPUTS}:"):
        fact, _, subject = one.subject.removeprefix("the ").partition(" of ")
        return key_cures.OF_INPUT[fact].said(name=subject, fact=fact) if fact in key_cures.OF_INPUT else FIXES[INPUTS]
    return FIXES.get(one.part) or key_cures.SAME_PART.said(name=one.part)


def _lines(name: str, before: str, after: str) -> Iterator[Difference]:
    """The lines "name = value" that differ."""
    was, now = _named(before), _named(after)
    if was is None or now is None:
        return
    module = SETTINGS.get(name)
    absent = DEFAULT if module else UNSET
    for line in [*now, *(line for line in was if line not in now)]:
        if was.get(line) != now.get(line):
            subject = f"`{module}.{line}`" if module else f"`{line}`"
            yield Difference(name, subject, was.get(line, absent), now.get(line, absent))


def _named(text: str) -> dict[str, str] | None:
    """The lines of a text by their names; None if it is not made of such lines."""
    found = {}
    for line in text.splitlines():
        if own_lookups.DIGEST.fullmatch(line):
            continue
        match = _LINE.fullmatch(line)
        if match is None:
            return None
        found[match["name"]] = match["value"]
    return found


def _inputs(before: str, after: str, names: Sequence[str]) -> Iterator[Difference]:
    was, now = before.splitlines(), after.splitlines()
    if len(was) != len(now):
        yield Difference(INPUTS, "the number of inputs", str(len(was)), str(len(now)))
        return
    known = len(names) in (len(now), len(now) - len(CALL))
    for i, (one, other) in enumerate(zip(was, now, strict=True)):
        if one == other:
            continue
        if known and i >= len(names):
            yield Difference(INPUTS, CALL[i - len(names)], one, other)
        else:
            yield from _input(f"`{names[i]}`" if known else f"input {i}", one, other)


def _input(named: str, before: str, after: str) -> Iterator[Difference]:
    part = f"{INPUTS}: {named}"
    was, now = _TENSOR.fullmatch(before), _TENSOR.fullmatch(after)
    meshes = [_MESH.search(text) for text in (before, after)]
    if meshes[0] and meshes[1] and meshes[0]["mesh"] != meshes[1]["mesh"]:
        yield Difference(part, f"the mesh of {named}", meshes[0]["mesh"], meshes[1]["mesh"])
        return
    if was is None or now is None:
        yield Difference(part, named, before, after)
        return
    facts = [fact for fact in _FACTS if was[fact] != now[fact]]
    if "shape" in facts:  # the strides follow from it
        facts = [fact for fact in facts if fact != "stride"]
    for fact in facts:
        yield Difference(part, f"the {fact} of {named}", *(_plain(fact, match[fact]) for match in (was, now)))
    rest = [match["rest"].strip() for match in (was, now)]
    grad = ["requires grad" in one for one in rest]
    if grad[0] != grad[1]:
        yield Difference(part, f"the requires_grad of {named}", str(grad[0]), str(grad[1]))
    elif rest[0] != rest[1]:
        yield Difference(part, f"the kind of {named}", *(one or "plain tensor" for one in rest))


def _plain(fact: str, value: str | None) -> str:
    return f"({value})" if fact in ("shape", "stride") else value or "0"
