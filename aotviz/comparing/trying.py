"""Trying a cure: calls are repeated as they are, and with torch's settings that apply the cure.

Both runs begin with nothing compiled and with the same state of the random number generators. The calls are the
user's, or those that were noted while they were compiled (recorder/calls.py). The latter run on copies of the modules
and tensors that the function refers to, with inputs of random values, and are not recorded.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from aotviz.comparing.given_call import fresh
from aotviz.explain import answers
from aotviz.explain.cures.registry import Cure
from aotviz.explain.explanation import Point, listed
from aotviz.explain.trials import CallsNeeded, CureNeedsEdit, Run, Trial
from aotviz.live.watching import watch
from aotviz.reading.recording import Recording
from aotviz.recorder import sessions
from aotviz.recorder.calls import as_noted
from aotviz.recording.noted_calls import Made, NotedCall
from aotviz.torch_private import configs, dynamo, pytree


def tried(
    recording: Recording,
    point: Point | int,
    calls: Callable[[], object] | None,
    noted: Mapping[str, NotedCall],
) -> Trial:
    """What `Recording.try_cure` does."""
    points = recording.explain().points
    if isinstance(point, int) and not 0 <= point < len(points):
        raise IndexError(f"no point {point}: `explain()` has {len(points)}, from 0 on")
    chosen = points[point] if isinstance(point, int) else point
    if not isinstance(chosen, Point):
        raise TypeError(f"point is {chosen!r}; it is a point of `explain()`, or its number there")
    settings = {name: value for cure in chosen.fix.cures for name, value in cure.settings.items()}
    if not settings:
        needed = f"this cure is a change of the code: {chosen.fix}" if chosen.fix else "no cure is known for this point"
        raise CureNeedsEdit(f"nothing was run, because {needed}")
    if calls is not None:
        return _tried(chosen, settings, calls, 0)
    repeated = _calls_of(_of_one_frame(recording, chosen.ids), noted)
    with sessions.apart():
        return _tried(chosen, settings, lambda: _repeat(repeated), len(repeated))


def _tried(point: Point, settings: Mapping[str, object], calls: Callable[[], object], made: int) -> Trial:
    before, found, expected = _run(calls, {})
    if made and not _of_settings(point) & _advised(found):
        met = f"it raised {before.error}" if before.error else "the fault is not there"
        raise CallsNeeded(point.ids[0], f"with made inputs, {met}; it may depend on values or globals")
    after, cured, result = _run(calls, settings)
    written = "; ".join(f"{name} = {_written(value)}" for name, value in settings.items())
    is_cured = not _of_settings(point) & _advised(cured)
    return Trial(written, before, after, _equal(expected, result), is_cured, made)


def _of_settings(point: Point) -> set[Cure]:
    return {cure for cure in point.fix.cures if cure.settings}


def _advised(recording: Recording) -> set[Cure]:
    return {cure for one in recording.explain().points for cure in one.fix.cures}


def _run(calls: Callable[[], object], settings: Mapping[str, object]) -> tuple[Run, Recording, object]:
    torch.compiler.reset()
    result, error = None, ""
    with torch.random.fork_rng(), configs.patched(settings), watch() as recording:
        try:
            result = calls()
        except dynamo.CompileError as raised:  # it may be what the cure is for
            error = type(raised).__name__
    torch.compiler.reset()
    breaks, again = len(recording.graph_breaks), len(recording.recompiles())
    return Run(len(recording), again, breaks, recording.overview().seconds, error), recording, result


def _of_one_frame(recording: Recording, ids: Sequence[str]) -> list[str]:
    """The compilations with these ids, and all others of the same code, as of blocks that are compiled one by one."""
    facts = answers.facts_of(recording)
    frames = [facts.frames.get(facts.frame(place), [place]) for place in map(facts.place_of, ids) if place >= 0]
    return [*dict.fromkeys([*ids, *(facts.id(place) for places in frames for place in places)])]


def _calls_of(ids: Sequence[str], noted: Mapping[str, NotedCall]) -> list[NotedCall]:
    """The noted calls of the functions of these compilations, in their order. Raises CallsNeeded."""
    if not noted:
        raise CallsNeeded("", "the recording is from a file or a log, or saw no call of a compiled function")
    about = [noted[id] for id in ids if id in noted]
    if not about:
        raise CallsNeeded(", ".join(ids), "it is not known which call it was compiled for")
    functions = set()
    for call in about:
        found = call.function()
        if found is None:
            raise CallsNeeded(call.name, "the compiled function no longer exists")
        functions.add(id(found[1]))
    chosen = {call.number: call for call in noted.values() if (both := call.function()) and id(both[1]) in functions}
    for call in chosen.values():
        if call.foreign:
            kinds = listed([f"`{kind}`" for kind in call.foreign])
            raise CallsNeeded(call.name, f"inputs of class {kinds} cannot be made from what was recorded")
    return [chosen[number] for number in sorted(chosen)]


def _repeat(calls: Sequence[NotedCall]) -> list[Any]:
    """The results of the calls. Raises CallsNeeded."""
    copied: dict[int, tuple[Any, Any]] = {}  # id of a function -> its copy, that copy compiled
    results = []
    for number, call in enumerate(calls):
        found = call.function()
        if found is None:
            raise CallsNeeded(call.name, "the compiled function no longer exists")
        context, function = found
        try:
            if id(function) not in copied:
                copy, *_ = fresh(function, (), {})
                copied[id(function)] = copy, context(copy)
            copy, compiled = copied[id(function)]
            as_noted(copy, call)
            with call.modes.again():
                args, kwargs = _inputs(call, number)
                results.append(compiled(*args, **kwargs))
        except dynamo.CompileError:
            raise
        except Exception as error:
            said = f"on copies and made inputs it raised {type(error).__name__}: {error}"
            raise CallsNeeded(call.name, said) from error
    return results


def _inputs(call: NotedCall, seed: int) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """(args, kwargs) like those of the call; the same ones for the same seed."""
    generator = torch.Generator().manual_seed(seed)
    made = {id(one): _made(one, generator) for one in call.inputs if isinstance(one, Made)}
    args, kwargs = pytree.tree_unflatten([made.get(id(one), one) for one in call.inputs], call.structure)
    return args, kwargs


def _made(one: Made, generator: torch.Generator) -> torch.Tensor:
    """A tensor with numbers from 0 to 1: indices and lengths are then seldom out of range."""
    with torch.inference_mode(torch.is_inference_mode_enabled()), torch.enable_grad():
        tensor = torch.empty_strided(one.shape, one.stride, dtype=one.dtype, device=one.device)
        memory = tensor.as_strided((tensor.untyped_storage().nbytes() // tensor.element_size(),), (1,))
        if one.dtype.is_floating_point or one.dtype.is_complex:
            numbers = torch.rand(memory.shape, generator=generator, dtype=torch.float32, device="cpu")
        else:
            numbers = torch.randint(0, 2, memory.shape, generator=generator, dtype=torch.int64, device="cpu")
        memory.copy_(numbers)
        if one.is_parameter:
            tensor = torch.nn.Parameter(tensor, one.requires_grad)
        elif one.requires_grad:
            tensor.requires_grad_()
            tensor = tensor if one.is_leaf else tensor.clone()
    vars(tensor).update(one.marks)
    return tensor


def _equal(expected: object, result: object) -> bool | None:
    """Whether the tensors and numbers of both results are close; None if there are none."""
    before, after = (
        [leaf for leaf in pytree.tree_leaves(tree) if isinstance(leaf, (torch.Tensor, bool, int, float, complex))]
        for tree in (expected, result)
    )
    if not before and not after:
        return None
    try:
        torch.testing.assert_close(after, before, equal_nan=True)
    except AssertionError:
        return False
    return True


def _written(value: object) -> str:
    return f"{{{', '.join(sorted(one.__name__ for one in value))}}}" if isinstance(value, set) else repr(value)
