"""The ingredients of a key of aotviz's cache: what a difference in one of them means, and what to do about it.

A key is made of named texts (`aotviz/cache/key.py`). Most texts have one line for each setting, input or node, so that
the lines that differ say what happened. An ingredient that is not listed here is compared all the same, line by line.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import zip_longest

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
_UPGRADED = "Nothing to do after an upgrade: the first run with another version fills the cache again."
_MACHINE = "Let each kind of machine fill the cache once: a program is compiled for one kind."
FIXES = {
    PROGRAM: "Nothing to do if you changed the code: other code needs another program.",
    "autograd": "Nothing to do if you changed the code: other code needs another program.",
    INPUTS: "Pass inputs with the same dtype, sizes, strides, device and `requires_grad` in both runs.",
    "symbols": "Mark the same dimensions as dynamic, with the same bounds, before the first call of both runs.",
    "memory layout": "Pass tensors that share memory in the same way in both runs, or clone the one that may overlap.",
    "options": "Pass the same `options` in both runs.",
    "backend": "Compile with the same backend and the same partitioner in both runs.",
    **{name: f"Set `{module}` in the same way before both runs." for name, module in SETTINGS.items()},
    "grad mode": "Call it in the same grad mode in both runs: training, `no_grad` and `inference_mode` need different "
    "programs.",
    "autocast": "Call it under the same `torch.autocast` in both runs.",
    "determinism": "Call `torch.use_deterministic_algorithms` with the same arguments before both runs.",
    "defaults": "Set the same default dtype and default device before both runs.",
    "methods of tensors": "Give `torch.Tensor` the same methods before both runs.",
    "precision": "Set the same precision of matrix products (`torch.set_float32_matmul_precision`, "
    "`torch.backends`) before both runs.",
    "saved tensor hooks": "Use the same hooks on saved tensors in both runs, or none.",
    "first call": "Nothing to do: under DistributedDataParallel the first call is with fake tensors.",
    "threads": "Set the same number of threads in both runs (`torch.set_num_threads`, `OMP_NUM_THREADS`).",
    "processes": "Start the same number of processes in both runs: a program with collectives is for one world size.",
    "environment": "Set the same environment variables before both runs.",
    "devices": _MACHINE,
    "processor": _MACHINE,
    "torch": _UPGRADED,
    "libraries": _UPGRADED,
    "Python": _UPGRADED,
    "aotviz": _UPGRADED,
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
_INPUT_FIXES = {
    "dtype": "Pass {} with the same dtype in both runs.",
    "shape": "Pass {} with the same sizes, or mark the dimension as dynamic before the first call, so that one program "
    "serves all sizes.",
    "stride": "Pass {} with the same strides in both runs, e.g. by `.contiguous()`.",
    "offset": "Pass {} at the same place of its storage in both runs, e.g. by `.clone()`.",
    "device": "Pass {} on the same device in both runs.",
    "mesh": "Pass {} over the same mesh of devices in both runs.",
    "requires_grad": "Pass {} with the same `requires_grad` in both runs.",
    "kind": "Pass {} as the same kind of tensor in both runs: its class, `requires_grad`, and whether it is a view.",
}


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


def fix(found: Sequence[Difference]) -> str:
    """What to do about differences, the first kind first."""
    return " ".join(dict.fromkeys(_fix(one) for one in found))


def _fix(one: Difference) -> str:
    if one.part in SETTINGS and one.subject.startswith("`"):
        return f"Set {one.subject} to the same value before both runs."
    if one.part == "environment" and one.subject.startswith("`"):
        return f"Set {one.subject} to the same value before both runs."
    if one.part.startswith(f"{INPUTS}:"):
        fact, _, subject = one.subject.removeprefix("the ").partition(" of ")
        return _INPUT_FIXES.get(fact, FIXES[INPUTS]).format(subject)
    return FIXES.get(one.part) or f"Make `{one.part}` the same in both runs."


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
