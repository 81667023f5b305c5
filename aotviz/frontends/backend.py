"""aotviz as a backend of torch.compile: `torch.compile(model, backend="aotviz")`.

Dynamo captures the program as a graph of flat inputs, and our pipeline compiles this graph. "aotviz" lowers to
Inductor and takes Inductor's options. "aotviz_eager" runs the graphs as they are. `options` may contain Inductor's
options and our own:

    torch.compile(model, backend="aotviz", options={"debug": True, "max_autotune": True})

A graph that aotviz refuses runs in eager, as Dynamo captured it, and a warning (`aotviz.RanInEager`) and the recording
say why; with `options={"on_refusal": "raise"}` the refusal is raised. An error that only a backward can detect is
raised by that backward.

`aotviz.record()` and `options={"on_stage": ...}` show what is being compiled, and `recent()` shows it afterwards.
In a checkout that is not installed, import this module once: that registers the two names with torch.
"""

from __future__ import annotations

import difflib
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch.fx as fx

from aotviz.cache import bypasses, captured_graphs, switch
from aotviz.cache.carried import Carried
from aotviz.frontends import cached, dynamo_graphs, memory_patterns, not_traced
from aotviz.frontends.compiling import (
    entered,
    guard_duplicates,
    is_any,
    is_refusal,
    lock,
    ran_in_eager,
    runs_in_eager,
    why_in_eager,
)
from aotviz.frontends.requests import graph_request, readable
from aotviz.ir import dynamo_capture, handed_over, partition_functions, symbolic_sizes
from aotviz.ir.dynamo_capture import Capture, CapturedGraph
from aotviz.ir.forms import Reason, Request
from aotviz.ir.refusals import RanInEager
from aotviz.live.structured_trace import Moment
from aotviz.lowerings import Lowering, lowering_named
from aotviz.recorder.sessions import Once, Session, live
from aotviz.recording.guard_texts import told, told_all
from aotviz.recording.store import Store
from aotviz.runtime.call_differs import CallDiffers
from aotviz.runtime.lowered import Program
from aotviz.stages import scalars
from aotviz.torch_private import configs, dynamo, dynamo_failures, graph_modes, runtime
from aotviz.torch_private.tensors import without_ended_transforms
from aotviz.tracing import fakes

if TYPE_CHECKING:
    from aotviz.reading.recording import Recording

# aotviz's own; all except the first four go to the pipeline
OPTIONS = tuple(
    "record on_stage on_refusal cache debug decompositions donate_buffers keep_inference_input_mutations "
    "partition_fn".split()
)

_recent = Store()


def recent() -> Recording:
    """What the backends compiled last in this process, oldest first, within the limits of a recording."""
    return live(_recent)


def aotviz_inductor(
    gm: Any, example_inputs: Sequence[Any], *, options: Mapping[str, Any] | None = None, mode: str | None = None
) -> Callable[..., Any]:
    """The backend "aotviz": our pipeline, lowered to Inductor.

    Args:
        gm: a graph from Dynamo, or any graph that returns a tuple. A list among its inputs is split into its elements.
        example_inputs: one per graph input: tensors, fake or not, and symbolic ints.
        options: Inductor's, and ours (`OPTIONS`), by name.
        mode: Inductor's: "max-autotune", "reduce-overhead", ...

    Raises:
        ValueError: neither aotviz nor Inductor has such an option; the message names it.
    """
    return named("inductor", options, mode)(gm, example_inputs)


def aotviz_eager(
    gm: Any, example_inputs: Sequence[Any], *, options: Mapping[str, Any] | None = None, mode: str | None = None
) -> Callable[..., Any]:
    """The backend "aotviz_eager": our pipeline, its graphs run as they are. Arguments as for "aotviz"."""
    return named("eager", options, mode)(gm, example_inputs)


aotviz_inductor.made_with = lambda options, mode: named("inductor", options, mode)  # type: ignore[attr-defined]
aotviz_eager.made_with = lambda options, mode: named("eager", options, mode)  # type: ignore[attr-defined]


def _is_ours(backend: Any) -> bool:
    return isinstance(backend, Backend) or backend in (aotviz_inductor, aotviz_eager)


_told = Once()


def _tell(left: dynamo_failures.Left) -> None:
    """Say once what Dynamo leaves to eager, and record it."""
    name = "inductor" if left.backend is aotviz_inductor else "eager"
    through = left.backend if isinstance(left.backend, Backend) else named(name, None, None)
    is_break, has_stores = left.part == "frame", bool(through.session.stores())
    if is_break and not has_stores:
        return
    said = not_traced.said(left)
    fact = (said.place, said.reason) if is_break else said.reason
    if not has_stores or _told.is_new(fact, through.session):
        if not is_break:  # of which torch does not warn either
            _warn(said.sentence, said.place)
        not_traced.tell(said, left.function, through.lowering.options(**through.options), through.session)


dynamo_failures.leave_to_eager(_is_ours, _tell)


def named(name: str, options: Mapping[str, Any] | None, mode: str | None) -> Backend:
    """The backend for "inductor" or "eager", with torch.compile's arguments for it. `recent()` has its recordings."""
    check_arguments(None, options)
    ours, theirs = sorted_options(options or {}, name)
    session = Session(False, name, ours.pop("on_stage", None), "torch.compile's")
    session.store = _recent if ours.pop("record", True) else None
    backend = Backend(lowering_named(name, theirs, mode), ours, session)
    backend.arguments = name, dict(options or {}), mode
    return backend


class Backend:
    """A backend as torch.compile takes it: `lowering` says what compiles the graphs, `session` where they are recorded.

    `options` are ours, without "record" and "on_stage".
    """

    arguments: tuple[str, dict[str, Any], str | None]  # of `named`, if that made it
    carried: Carried | None = None  # the programs of a file, which are used in place of a cache

    def __init__(self, lowering: Lowering, options: Mapping[str, Any], session: Session) -> None:
        ours = dict(options)
        self.__name__ = f"aotviz {lowering.name}"  # shown in Dynamo's errors
        self.raises = _raises(ours.pop("on_refusal", "eager"))
        self.cache = ours.pop("cache", None)
        switch.store_for(self.cache)  # raises for a wrong value
        if ours.get("partition_fn") is not None:
            ours["partition_fn"] = partition_functions.named(ours["partition_fn"])
        self.lowering, self.options, self.session = lowering, ours, session

    def asked(
        self, about: CapturedGraph, inputs: Sequence[Any], symbols: Sequence[tuple[int, ...]] | None = None
    ) -> Any:
        """The question to the cache about a graph from Dynamo. `symbols` as `numbers` of `of_graph`."""
        is_debugged = bool(self.options.get("debug"))
        store: Any = None if is_debugged else self.carried
        store = store or switch.store_of_compilation(self.cache, is_debugged)
        return cached.question(store, about.module, inputs, self.options, self.lowering, about.follows, symbols)

    def __call__(self, gm: Any, example_inputs: Sequence[Any]) -> Callable[..., Any]:
        if dynamo.id_for_next_process(gm) is not None:
            from aotviz.frontends import saved_functions  # loads what torch has for this, which few programs need

            if saved_functions.is_for_file():
                return saved_functions.compiled(self, gm, example_inputs)
        return self.compiled(gm, example_inputs)

    def compiled(self, gm: Any, example_inputs: Sequence[Any]) -> Callable[..., Any]:
        in_pieces = dynamo_graphs.compiled_in_pieces(gm, example_inputs, self)
        if in_pieces is not None:
            return in_pieces
        number, zeros = dynamo.id_for_next_process(gm), dynamo_graphs.zeros_without_memory(gm)
        left = dynamo_graphs.left_by_transforms(example_inputs)
        example_inputs = _unwrapped(example_inputs, left)
        dynamo.guard_empty_hooks()
        gm, inputs, leaves = dynamo_graphs.flattened(gm, example_inputs)
        about = dynamo_capture.captured_graph(gm, Moment().code())
        captured = dynamo_capture.capture(gm)
        if captured is not None and number is not None and leaves is None and not about.follows:
            captured = replace(captured, kept=_kept_for_next_process(number, about))
        compiled = _compile(self, about, inputs, captured)
        if not (left or zeros or leaves):
            return compiled

        def prepared(*passed: Any) -> Any:
            given = _with_memory(_unwrapped(passed, left), zeros)
            return compiled(*(given if leaves is None else leaves(given)))

        return runtime.skipped(prepared)

    def restored(self, about: CapturedGraph, kept: str) -> Callable[..., Any]:
        """A graph that Dynamo captured in an earlier process. It is compiled at its first call. `kept` says in the
        recording where the graph comes from."""
        eager, symbols = _in_eager(about.module), about.symbols or ()
        names = list(map(readable, about.module.graph.find_nodes(op="placeholder")))
        compiled: Callable[..., Any] | None = None

        def run(*inputs: Any) -> Any:
            nonlocal compiled
            if compiled is None:
                if runtime.transformed() or runtime.dispatched() or any(map(fakes.is_fake, inputs)):
                    return eager(*inputs)
                with lock:
                    if compiled is None:
                        examples = fakes.as_captured(inputs, names, symbols)
                        compiled = _compile(self, about, examples, dynamo_capture.captured_earlier(about, kept))
            return compiled(*inputs)

        return runtime.skipped(run)


def _with_memory(passed: Sequence[Any], zeros: Sequence[int]) -> list[Any]:
    return [one.clone() if i in zeros else one for i, one in enumerate(passed)]


def _unwrapped(passed: Sequence[Any], left: Sequence[int]) -> Sequence[Any]:
    return [without_ended_transforms(one) if i in left else one for i, one in enumerate(passed)] if left else passed


def _kept_for_next_process(number: str, about: CapturedGraph) -> str:
    """Let Dynamo keep the graph under the number that it gave it. Returns what the recording says of that."""
    from aotviz.frontends import precompiled  # loads what Dynamo has for this, which few programs need

    try:
        precompiled.keep(number, captured_graphs.packed(about))
    except Exception as error:  # a program must not fail because it cannot be kept
        why = error.reason if isinstance(error, bypasses.Uncacheable) else f"{type(error).__name__}: {error}"
        return f"Dynamo will trace the function in the next process too, although caching_precompile is set: {why}"
    return "the next process does not trace the function, if torch.compiler.save_cache_artifacts() is called"


def _compile(
    backend: Backend,
    about: CapturedGraph,
    example_inputs: Sequence[Any],
    captured: Capture | None,
) -> Callable[..., Any]:
    original = about.module
    asked = None if dynamo.changed_defaults() else backend.asked(about, example_inputs)
    graph = _Graph(backend, about, example_inputs)
    eager = _in_eager(original)
    request = graph.request(example_inputs, _failed_guards())
    names = request.input_names or ()
    if captured is not None:
        returned = tuple(names[i] for i in about.follows.returned if i < len(names))
        captured = replace(captured, handed_over=handed_over.look(original, names), returned=returned)
    request = replace(request, captured=captured)
    try:
        program = graph.compiled(request, asked)
    except Exception as error:
        if backend.raises or not runs_in_eager(error):
            raise
        reason, where = why_in_eager(error)
        refused = "aotviz refused its graph: " if is_refusal(error) else ""
        _warn(f"{about.function} runs in eager because {refused}{reason}", where or about.place)
        return _telling(eager, captured, about.name, names)
    guard_duplicates(original, request, program)
    read: Callable[[], Sequence[Any]] = request.convention.parameters or tuple
    further = _Further(graph, len(request.named), fakes.symbols_of(program.call.args))
    sizes = None
    if about.symbols and any(about.symbols):  # Dynamo's guards already exist
        sizes = fakes.SymbolGuards(program.call.fake_mode, program.call.args)
    first = memory_patterns.known(program, request, len(request.named), sizes)
    otherwise = memory_patterns.Patterns(first, eager, read, further.compiled, further.failed).run
    function, same_memory_layout = first.function, first.holds(read)

    def compiled(*inputs: Any) -> Any:
        try:
            return function([*read(), *inputs])
        except CallDiffers as differs:  # see Note [Aliasing is not guarded] in memory_patterns.py
            difference = str(differs)
        return otherwise(inputs, difference)

    def checked(*inputs: Any) -> Any:
        return compiled(*inputs) if same_memory_layout is None or same_memory_layout(inputs) else otherwise(inputs)

    return _telling(runtime.skipped(compiled if same_memory_layout is None else checked), captured, about.name, names)


def _in_eager(module: fx.GraphModule) -> Callable[..., Any]:
    """Runs a graph from Dynamo as it is, and leaves its modes as eager leaves them, also when it raises."""
    connected = dynamo_graphs.connected(module)

    def run(*inputs: Any) -> Any:
        with graph_modes.put_back():
            return connected(*inputs)

    return runtime.skipped(run)


def _telling(
    compiled: Callable[..., Any], captured: Capture | None, name: str, input_names: Sequence[str]
) -> Callable[..., Any]:
    """The same function, but its first call passes Dynamo's guards to the recordings, and notes what is handed over.
    Dynamo makes the guards after the backend has returned."""
    if captured is None or not captured.guards.waiting:
        return compiled
    guards = captured.guards

    def telling(*inputs: Any) -> Any:
        if not guards.waiting:
            return compiled(*inputs)
        guards.look()
        results = compiled(*inputs)
        handed_over.note(name, input_names, inputs, results)
        return results

    return runtime.skipped(telling)


class _Graph:
    """A graph from Dynamo, with everything that is needed to compile it except the inputs."""

    def __init__(self, backend: Backend, about: CapturedGraph, inputs: Sequence[Any]) -> None:
        self.lowering, graph = backend.lowering.for_graph(about.module, inputs)
        self.graph, self.about, self.backend = dynamo_graphs.connected(graph), about, backend
        dynamic = any(map(symbolic_sizes.is_symbolic, inputs))
        self.options = self.lowering.options(**backend.options, dynamic=dynamic)

    def session(self) -> Session:
        return self.backend.session.part(self.about.name, self.about.code)

    def request(self, inputs: Sequence[Any], reasons: Sequence[str]) -> Request:
        about = self.about
        request = graph_request(self.graph, tuple(inputs), self.options, about.name)
        names = request.input_names
        if about.arguments is not None and names is not None:
            names = tuple(dynamo_capture.named_outside(name, about.arguments) for name in names)
        evidence = tuple(Reason(about.name, text) for text in reasons)
        return replace(request, input_names=names, evidence=evidence, follows=about.follows)

    def compiled(
        self, request: Request, asked: Any = None, eager_after: Callable[[Exception], bool] = runs_in_eager
    ) -> Program:
        """Compile the graph, or load it from the cache, if its key is `asked`. After an error of which
        `eager_after` is true, record that it ran in eager, unless refusals are raised."""
        dynamo.counters["aot_autograd"]["total"] += 1  # which DDPOptimizer and users read
        in_eager, session = None if self.backend.raises else self.about.place, self.session()
        try:
            with self.lowering.around():
                found = cached.look_up(asked, request, session.observer())
                program = found.program
                if program is None:
                    with entered(request, session, found.observer, in_eager, eager_after) as stages:
                        program = stages.program()
                session.keep(program)
        except Exception as error:
            if not scalars.asks_for_restart(error):
                dynamo.counters["aot_autograd"]["not_ok"] += 1
            raise
        dynamo.counters["aot_autograd"]["ok"] += 1
        return program


@dataclass(frozen=True)
class _Further:
    """Compiles a graph again, after Dynamo has finished, for arguments that share memory differently."""

    graph: _Graph
    lifted: int  # tensors that come before the graph's own inputs
    symbols: tuple[tuple[int, ...], ...] | None  # those of the first program, as in Request

    def compiled(self, inputs: Sequence[Any], reasons: tuple[str, ...]) -> memory_patterns.Known:
        request = self.graph.request(inputs, reasons)
        options = replace(request.options, dynamic=self.symbols is not None)
        request = replace(request, options=options, symbols=self.symbols)
        symbols = self.symbols and self.symbols[self.lifted :]
        asked = self.graph.backend.asked(self.graph.about, inputs, symbols)
        program = self.graph.compiled(request, asked, eager_after=is_any)
        call = program.call
        sizes = None if self.symbols is None else fakes.SymbolGuards(call.fake_mode, call.args)
        return memory_patterns.known(program, request, self.lifted, sizes)

    def failed(self, error: Exception, inputs: Sequence[Any], reasons: tuple[str, ...]) -> None:
        """The call runs in eager, with a warning; the recording says why.

        Raises:
            Exception: `error`, if compiling failed and the user chose `on_refusal="raise"`.
        """
        full, about = isinstance(error, memory_patterns.TooManyPrograms), self.graph.about
        if self.graph.backend.raises and not full:
            raise error
        if full:
            ran_in_eager(self.graph.request(inputs, reasons), self.graph.session(), error, about.place)
        reason, where = why_in_eager(error)
        _warn(f"some calls of {about.function} run in eager: {reasons[-1]}, and {reason}", where or about.place)


def _failed_guards() -> list[str]:
    """For each of Dynamo's programs of the function, the reason why it does not match this call."""
    failed = [program for program in Moment().failed_guards() if program.failed]
    said = [told_all(one.compile_id, [(guard.guard, guard.now) for guard in one.failed]) for one in failed]
    reason = "" if said else dynamo.recompile_reason()
    return said or ([told(reason)] if reason else [])


def _raises(on_refusal: Any) -> bool:
    if on_refusal not in ("eager", "raise"):
        raise ValueError(f"option 'on_refusal' is {on_refusal!r}; it can be 'eager' or 'raise'")
    return bool(on_refusal == "raise")


_warned: dict[Any, Any] = {}  # the registry in which Python's warning filters look up repetitions


def _warn(text: str, place: str) -> None:
    file, _, line = place.partition(" in ")[0].rpartition(":")
    warnings.warn_explicit(text, RanInEager, file or __file__, int(line or 0), module="aotviz", registry=_warned)


def check_arguments(dynamic: Any, options: Any) -> None:
    """Raises:
    ValueError: `dynamic` is neither True, False nor None.
    TypeError: `options` is no mapping.
    """
    if dynamic not in (True, False, None):
        raise ValueError(f"dynamic is {dynamic!r}; it can be True, False or None")
    if not isinstance(options, Mapping | None):
        raise TypeError(f"options is {options!r}; it maps the names of options to their values")


def sorted_options(
    options: Mapping[str, Any], backend: str | Callable[..., Any]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Split options into ours and those of the compiler.

    Raises:
        ValueError: neither aotviz nor the compiler has such an option; the message names it.
    """
    theirs = configs.names_of_inductor() if backend == "inductor" else frozenset[str]()
    mine = {name: value for name, value in options.items() if name in OPTIONS}
    rest = {name: value for name, value in options.items() if name not in OPTIONS}
    for name in rest:
        if name == "dynamic":
            raise ValueError("option 'dynamic' is torch.compile's own: torch.compile(model, backend=..., dynamic=True)")
        if name.replace("-", "_") not in theirs:
            near = difflib.get_close_matches(name, [*OPTIONS, *theirs], n=3)
            also = f", and the {len(theirs)} of torch._inductor.list_options()" if theirs else ""
            hint = f" Did you mean {' or '.join(map(repr, near))}?" if near else ""
            raise ValueError(f"there is no option {name!r}.{hint} The options are {', '.join(OPTIONS)}{also}")
    return mine, rest


dynamo.offer("aotviz", "aotviz.frontends.backend:aotviz_inductor")
dynamo.offer("aotviz_eager", "aotviz.frontends.backend:aotviz_eager")
