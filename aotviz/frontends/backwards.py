"""`aotviz.compiled_autograd`: the whole backward, captured as one graph (docs/design/system.md F1).

Blocks with equal arguments share their captures, so that a block that is entered at every step captures once. What is
captured in a block is in the recording of that block only.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
import torch.fx as fx

from aotviz.frontends import memory_patterns
from aotviz.frontends.backend import Backend, check_arguments, sorted_options
from aotviz.frontends.compiling import entered, is_any, ran_in_eager
from aotviz.frontends.requests import graph_request
from aotviz.ir.forms import Reason
from aotviz.ir.refusals import RanInEager
from aotviz.ir.spelling import called
from aotviz.ir.user_warnings import users_place, warn
from aotviz.lowerings import Lowering, lowering_named
from aotviz.options import Options
from aotviz.reading.recording import Recording
from aotviz.recorder.sessions import Once, Session, live
from aotviz.recording.store import Store
from aotviz.runtime.call_differs import CallDiffers
from aotviz.torch_private import configs
from aotviz.torch_private.modules import boxed
from aotviz.tracing.fakes import SymbolGuards
from aotviz.whole_backward import backward_stages, cpu_scalars, engine, uncompiled_parts
from aotviz.whole_backward.captured import BackwardCall, Replay, WholeBackward
from aotviz.whole_backward.compiled_parts import MOST_PROGRAMS, Compiled, CompiledParts, Part, Symbols
from aotviz.whole_backward.early_writes import run_early

MOST_SETTINGS = 16  # whose captures are kept for the next block with equal arguments
_lock = threading.RLock()
_known: dict[Any, tuple[engine.Setting, Session]] = {}  # the one that was used last is last


class _Open(threading.local):
    def __init__(self) -> None:
        self.blocks: list[Any] = []


class compiled_autograd:
    """Capture the backwards that this thread begins, compile them, and replay them from then on.

    A context manager, and a decorator with or without arguments. The context gives a recording of what is captured and
    compiled in it, the newest last. Blocks with equal arguments share their captures: a backward that an earlier block
    captured is replayed, and is in that block's recording. A context that is made once and entered at every step has
    one recording of all its blocks, as has `aotviz.record()` around them.

    Gradients, hooks and their order are eager's. Steps that only compute become graphs for the backend, from one call
    of Python to the next; hooks and the backward of a custom `torch.autograd.Function`, or of a compiled forward, run
    as they are.

    Some backwards are run by autograd's engine, and a warning (`aotviz.RanInEager`) says why: with `create_graph=True`,
    `is_grads_batched=True` or anomaly mode, inside a TorchDispatchMode, beside a backward of another thread, and
    whatever could not be captured.

    Args:
        fn: a function that calls `backward()`. Without it, the result is a context manager and a decorator.
        backend: "inductor", "eager" (run the graphs as they are), or `(graph_module, example_inputs) -> callable`. A
            callable that is made at every step is another backend at every step, which captures again.
        mode: Inductor's: "max-autotune", ...
        dynamic: True makes sizes symbols at once; else those that have changed, at the second capture.
        options: as for `aotviz.compile`. With `"record": False`, the context gives None.

    Raises:
        ValueError: an unknown backend, mode or option, by its name.
        TypeError: `fn` is no function, or one whose body runs after the call: a generator or an async function.

    >>> import torch, aotviz
    >>> x = torch.ones(3, requires_grad=True)
    >>> with aotviz.compiled_autograd(backend="eager") as recording:
    ...     (x.sin() * x).sum().backward()
    >>> torch.equal(x.grad, torch.ones(3).sin() + torch.ones(3).cos())
    True
    >>> recording[0].name
    'backward'
    """

    _setting: engine.Setting
    _session: Session
    _store: Store | None
    _open: _Open

    def __new__(
        cls,
        fn: Callable[..., Any] | None = None,
        *,
        backend: str | Callable[..., Any] = "inductor",
        mode: str | None = None,
        dynamic: bool | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> Any:
        self = super().__new__(cls)
        self._setting, self._session = _shared(backend, mode, dynamic, options)
        self._store = Store() if (options or {}).get("record", True) else None
        self._open = _Open()
        return self if fn is None else self(fn)

    def __call__(self, fn: Callable[..., Any]) -> Callable[..., Any]:
        _check_function(fn)
        return engine.capturing(self._setting)(fn)  # each call has a block of its own

    def __enter__(self) -> Recording | None:
        block = contextlib.ExitStack()
        block.enter_context(engine.capturing(self._setting))
        if self._store is not None:
            block.enter_context(self._session.recording_into(self._store))
        self._open.blocks.append(block)
        return None if self._store is None else live(self._store)

    def __exit__(self, *error: Any) -> None:
        self._open.blocks.pop().__exit__(*error)

    @staticmethod
    def disable() -> contextlib.AbstractContextManager[None]:
        """A block whose backwards are run by autograd's engine."""
        return engine.capturing(None)

    @staticmethod
    def reset() -> None:
        """Forget all captures."""
        with _lock:
            gone = dict(_known)
            _known.clear()
        engine.reset()
        del gone  # after the lock: it may be the last to hold the user's objects


def _check_function(fn: Any) -> None:
    if isinstance(fn, str):
        raise TypeError(f"the backend is passed by its name: aotviz.compiled_autograd(backend={fn!r})")
    if not callable(fn) or isinstance(fn, torch.nn.Module | type):
        what = f"the module {type(fn).__name__}" if isinstance(fn, torch.nn.Module) else repr(fn)
        raise TypeError(f"aotviz.compiled_autograd takes a function that calls backward(), not {what}")
    if inspect.isgeneratorfunction(fn) or inspect.iscoroutinefunction(fn) or inspect.isasyncgenfunction(fn):
        kind = "a generator" if inspect.isgeneratorfunction(fn) else "an async"
        raise TypeError(
            f"{called(fn)} is {kind} function, whose body runs after the call. "
            "Write `with aotviz.compiled_autograd():` around backward() inside of it."
        )


def _shared(
    backend: str | Callable[..., Any], mode: str | None, dynamic: bool | None, options: Mapping[str, Any] | None
) -> tuple[engine.Setting, Session]:
    """What blocks with equal arguments share."""
    check_arguments(dynamic, options)
    given = frozenset((name, _key(value)) for name, value in (options or {}).items())
    key = (_key(backend), _key(mode), bool(dynamic), given)
    made = None
    if key not in _known:
        ours, theirs = sorted_options(options or {}, backend)
        ours.pop("record", None)  # each block's own matter
        session = Session(False, "backward", ours.pop("on_stage", None))
        made = setting(Backend(lowering_named(backend, theirs, mode), ours, session), bool(dynamic)), session
    gone = None
    with _lock:
        found = _known.pop(key, None) or made
        if found is not None:
            _known[key] = found
            if len(_known) > MOST_SETTINGS:
                gone = _known.pop(next(iter(_known)))
    del gone  # after the lock, as in `reset`
    return _shared(backend, mode, dynamic, options) if found is None else found  # another thread dropped it


def _key(value: Any) -> Any:
    """What an argument is found by. Without a hash, a callable is found by its identity: its setting holds it."""
    try:
        hash(value)
    except TypeError:
        return id(value) if callable(value) else repr(value)
    return value


def setting(through: Backend, dynamic: bool) -> engine.Setting:
    """How backwards are captured for a backend: in its recording, and compiled by it."""
    parts = CompiledParts(functools.partial(_part, through), functools.partial(_too_many, through))

    told = Once()

    def compiled(asked: BackwardCall, call: WholeBackward) -> Replay:
        return backward_stages.compiled(asked, call, through.session.observer(call.number), parts)

    def by_the_engine(why: str) -> None:
        warn(f"a backward runs in autograd's engine because {why}", RanInEager)
        place = users_place()
        if told.is_new((why, place), through.session):
            asked = BackwardCall(options, "backward", ())
            backward_stages.by_the_engine(asked, through.session.observer(), why, place)

    options = _options(through, through.lowering, dynamic)
    return engine.Setting(options, compiled, by_the_engine, dynamic)


def _by_operators(module: fx.GraphModule, why: str) -> Callable[[list[Any]], Sequence[Any]]:
    plain, is_told = boxed(module), False

    def run(given: list[Any]) -> Sequence[Any]:
        nonlocal is_told
        found: Sequence[Any] = plain(given)
        if not is_told:
            is_told = True
            warn(f"a part of a backward runs operator by operator because {why}", RanInEager)
        return found

    return run


def _options(through: Backend, lowering: Lowering, dynamic: bool) -> Options:
    """A part adds to gradients where it computes them, so that they need not all be alive at once."""
    writes = (
        {} if lowering.name != "eager" else {"inference_compiler": run_early, "keep_inference_input_mutations": True}
    )
    return lowering.options(**writes | through.options, dynamic=dynamic)


def _part(
    through: Backend,
    part: Part,
    module: fx.GraphModule,
    inputs: Sequence[Any],
    symbols: Symbols | None,
    reasons: tuple[str, ...],
) -> Compiled:
    """Compile a part of a captured backward. One that cannot be compiled runs operator by operator, with a warning once
    it has run: it may raise the error that kept it from being compiled."""
    lowering, graph = through.lowering.for_graph(module, inputs)
    options = _options(through, lowering, symbols is not None)
    with lowering.around():
        has_cuda_graphs = lowering.name == "inductor" and configs.has_cuda_graphs()
        moved = cpu_scalars.moves(module.graph, inputs) if has_cuda_graphs else {}
    inputs = [one.to(moved[i]) if i in moved else one for i, one in enumerate(inputs)]
    request = graph_request(graph, tuple(inputs), options, part.title)
    request = replace(request, symbols=symbols, evidence=tuple(Reason(part.title, text) for text in reasons))
    session = through.session.part(part.title, id(part))
    place = None if through.raises else users_place()
    explained = None if through.raises else functools.partial(uncompiled_parts.explained, module)
    try:
        observer = session.observer(part.backward)
        with lowering.around(), entered(request, session, observer, place, is_any, explained) as stages:
            program = stages.program()
        session.keep(program)
    except Exception as error:
        if explained is None:
            raise
        return Compiled(_by_operators(module, str(explained(error))), None)
    sizes = None if symbols is None else SymbolGuards(program.call.fake_mode, program.call.args).hold
    read: Callable[[], Sequence[Any]] = request.convention.parameters or tuple
    known = memory_patterns.known(program, request, len(request.named))
    function, same_memory_layout, plain = known.function, known.same_memory_layout, boxed(module)
    checks = bool(program.call.rewrites)  # of memory that gradients share, to which the part adds

    def run(given: list[Any]) -> Sequence[Any]:
        for i, device in moved.items():
            given[i] = given[i].to(device)
        if same_memory_layout is not None and not same_memory_layout(given):
            return plain(given)
        kept = list(given) if checks else []
        given[:0] = read()
        try:
            found: Sequence[Any] = function(given)
        except CallDiffers:
            if not checks:
                raise
            return plain(kept)
        return found

    return Compiled(run, sizes)


def _too_many(
    through: Backend, part: Part, module: fx.GraphModule, inputs: Sequence[Any], reasons: tuple[str, ...]
) -> None:
    """Tell that a part runs operator by operator from now on where no program fits."""
    why = f"it reached the recompile limit (currently set to {MOST_PROGRAMS})"
    warn(f"{part.title} runs operator by operator where none of its programs fits because {why}", RanInEager)
    lowering, graph = through.lowering.for_graph(module, inputs)
    request = graph_request(graph, tuple(inputs), _options(through, lowering, False), part.title)
    request = replace(request, evidence=tuple(Reason(part.title, text) for text in reasons))
    ran_in_eager(request, through.session.part(part.title, id(part)), RuntimeError(why), users_place())
