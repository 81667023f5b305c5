"""aotviz as a backend of torch.compile: `torch.compile(model, backend="aotviz")`.

Dynamo captures the program as a graph of flat inputs; from there on it goes down our pipeline. "aotviz" lowers to
Inductor and takes Inductor's options, "aotviz_eager" runs the graphs as they are. Options of ours may stand among
them:

    torch.compile(model, backend="aotviz", options={"debug": True, "max_autotune": True})

A graph that aotviz refuses runs in eager, as Dynamo captured it, and a warning (`aotviz.RanInEager`) and the recording
say why; with `options={"on_refusal": "raise"}` the refusal is raised. What only a backward finds out is raised there.

What was compiled is seen by `aotviz.record()`, by `options={"on_stage": ...}`, and, after the fact, by `recent()`.
In a checkout that is not installed, import this module once and the two names are known to torch.

Note [Aliasing is not guarded]
Dynamo's guards say which arguments are one tensor, and nothing of how others share memory. A program that was compiled
for overlapping arguments looks for itself where they lie, and one that writes to an argument is entered only when no
other shares its memory (`dynamo_guards.py`). A call whose arguments lie otherwise is run by Dynamo's graph, operator by
operator: slower, and right. So is one inside a transform of torch.func, or forward-mode differentiation.
"""

from __future__ import annotations

import difflib
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from aotviz import dynamo_guards
from aotviz.api import compile_program
from aotviz.ir.forms import Reason
from aotviz.ir.refusals import RanInEager, in_words
from aotviz.lowerings import Eager, Inductor, Lowering
from aotviz.recorder.recording import Recording
from aotviz.recorder.store import Store
from aotviz.recorder.torch_trace.guards import told, told_all
from aotviz.requests import graph_request
from aotviz.runtime.refusals import CallDiffers
from aotviz.sessions import Session, live
from aotviz.torch_private import autograd_functions, capturing, dynamo, nested_inputs, runtime, scalars, settings

OPTIONS = (  # ours; each is given to the pipeline, but for the first three
    "record",
    "on_stage",
    "on_refusal",
    "debug",
    "decompositions",
    "donate_buffers",
    "keep_inference_input_mutations",
    "partition_fn",
)

_recent = Store()


def recent() -> Recording:
    """What the backends compiled last in this process, within the bounds of a recording, oldest first."""
    return live(_recent)


def aotviz_inductor(
    gm: Any, example_inputs: Sequence[Any], *, options: Mapping[str, Any] | None = None, mode: str | None = None
) -> Callable[..., Any]:
    """The backend "aotviz": our pipeline, lowered to Inductor.

    Args:
        gm: a graph; Dynamo's, or any that returns a tuple. Of inputs that are lists, each part is an input.
        example_inputs: one per graph input: tensors, fake or not, and symbolic ints.
        options: Inductor's, and ours (`OPTIONS`), by name.
        mode: Inductor's: "max-autotune", "reduce-overhead", ...

    Raises:
        ValueError: an option that neither knows, by its name.
    """
    ours, theirs = _sorted(options or {}, settings.names_of_inductor())
    gm, inputs, leaves = nested_inputs.flattened(gm, example_inputs)
    lowering = Inductor(settings.for_inductor(mode, theirs, None), origin=gm)
    with lowering.around():
        graph = lowering.compilers.before_gradients(gm, inputs)
    return _with_nested(_compile(graph, inputs, lowering, ours, gm), leaves)


def aotviz_eager(
    gm: Any, example_inputs: Sequence[Any], *, options: Mapping[str, Any] | None = None, mode: str | None = None
) -> Callable[..., Any]:
    """The backend "aotviz_eager": our pipeline, its graphs run as they are. Arguments as for "aotviz"."""
    if mode not in (None, "default"):
        raise ValueError(f"mode={mode!r} is Inductor's; aotviz_eager runs the graphs as they are")
    ours, _ = _sorted(options or {}, frozenset())
    gm, inputs, leaves = nested_inputs.flattened(gm, example_inputs)
    return _with_nested(_compile(gm, inputs, Eager(), ours, gm), leaves)


def _compile(
    gm: Any, example_inputs: Sequence[Any], lowering: Lowering, ours: dict[str, Any], original: Any
) -> Callable[..., Any]:
    name = dynamo.frame_name(original)
    raises = _raises(ours.pop("on_refusal", "eager"))
    place = dynamo.place(original)
    dynamo.count_compilation("total")
    session = Session(False, name, ours.pop("on_stage", None), dynamo.Moment().code())
    if ours.pop("record", True):
        session.store = _recent
    options = lowering.options(**ours, dynamic=any(map(dynamo.is_symbolic, example_inputs)))
    request = graph_request(autograd_functions.connected(gm), tuple(example_inputs), options, name)
    failed = [program for program in dynamo.Moment().failed_guards() if program.failed]
    said = [told_all(one.compile_id, [(guard.guard, guard.now) for guard in one.failed]) for one in failed]
    if not said and (reason := dynamo.recompile_reason()):
        said = [told(reason)]
    captured = capturing.capture(original)
    request = replace(request, evidence=tuple(Reason(name, text) for text in said), captured=captured)
    if dynamo.starts_in_module(original) and request.input_names is not None:
        request = replace(request, input_names=tuple(name.removeprefix("fn.") for name in request.input_names))
    try:
        with lowering.around():
            program = compile_program(request, session, in_eager=None if raises else place)
    except NotImplementedError as error:
        dynamo.count_compilation("not_ok")
        if raises:
            raise
        reason, where = in_words(error)
        _warn(f"{name.partition(' [')[0]} runs in eager, since aotviz refused its graph: {reason}", where or place)
        return _telling(_in_eager(original), captured)
    except Exception as error:
        if not scalars.asks_for_restart(error):
            dynamo.count_compilation("not_ok")
        raise
    dynamo_guards.install(original, len(request.named), program)
    dynamo.count_compilation("ok")
    function, lifted = program.function, request.convention.parameters
    read = lifted or tuple
    apart = dynamo_guards.separation(program, len(request.named))

    def compiled(*inputs: Any) -> Any:
        try:
            return function([*read(), *inputs])
        except CallDiffers:
            return original(*inputs)  # see Note [Aliasing is not guarded]

    def checked(*inputs: Any) -> Any:
        return compiled(*inputs) if apart is None or apart(inputs) else original(*inputs)

    return _telling(runtime.skipped(compiled if apart is None else checked), captured)


def _telling(compiled: Callable[..., Any], captured: capturing.Capture | None) -> Callable[..., Any]:
    """The same; its first call tells the recordings Dynamo's guards, which are made after the backend has returned."""
    if captured is None or not captured.guards.waiting:
        return compiled
    guards = captured.guards

    def telling(*inputs: Any) -> Any:
        if guards.waiting:
            guards.look()
        return compiled(*inputs)

    return runtime.skipped(telling)


def _with_nested(compiled: Callable[..., Any], leaves: Callable[..., list[Any]] | None) -> Callable[..., Any]:
    """The compiled graph as one that takes what Dynamo's graph took."""
    if leaves is None:
        return compiled

    def taken_apart(*inputs: Any) -> Any:
        return compiled(*leaves(inputs))

    return runtime.skipped(taken_apart)


def _in_eager(graph: Any) -> Callable[..., Any]:
    """Dynamo's graph as a function that runs it operator by operator."""
    graph = autograd_functions.connected(graph)

    def in_eager(*inputs: Any) -> Any:
        return graph(*inputs)

    return runtime.skipped(in_eager)


def _raises(on_refusal: Any) -> bool:
    if on_refusal not in ("eager", "raise"):
        raise ValueError(f"option 'on_refusal' is {on_refusal!r}; it can be 'eager' or 'raise'")
    return bool(on_refusal == "raise")


_warned: dict[Any, Any] = {}  # Python's register of what was said, by which a filter knows a second time


def _warn(text: str, place: str) -> None:
    file, _, line = place.partition(" in ")[0].rpartition(":")
    warnings.warn_explicit(text, RanInEager, file or __file__, int(line or 0), module="aotviz", registry=_warned)


def _sorted(options: Mapping[str, Any], theirs: frozenset[str]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Options that are ours, and options that are the compiler's."""
    mine = {name: value for name, value in options.items() if name in OPTIONS}
    rest = {name: value for name, value in options.items() if name not in OPTIONS}
    for name in rest:
        if name.replace("-", "_") not in theirs:
            raise ValueError(_unknown(name, theirs))
    return mine, rest


def _unknown(name: str, theirs: frozenset[str]) -> str:
    if name == "dynamic":
        return "option 'dynamic' is torch.compile's own: torch.compile(model, backend=..., dynamic=True)"
    near = difflib.get_close_matches(name, [*OPTIONS, *theirs], n=3)
    also = f", and the {len(theirs)} of torch._inductor.list_options()" if theirs else ""
    hint = f" Did you mean {' or '.join(map(repr, near))}?" if near else ""
    return f"option {name!r} is not known.{hint} Known are {', '.join(OPTIONS)}{also}"


dynamo.offer("aotviz", "aotviz.backend:aotviz_inductor")
dynamo.offer("aotviz_eager", "aotviz.backend:aotviz_eager")
