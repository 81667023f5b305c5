"""`aotviz.compile`: the one-liner (SYSTEM.md B5).

The function is traced as it is, without Dynamo, so that what the recording shows is what AOTAutograd makes of the
user's own program. Each kind of call gets a program; a call that no program fits is compiled, with a reason in the
recording's name of it. Shapes that vary become symbolic at the second one, or from the start with `dynamic=True`.
"""

from __future__ import annotations

import contextlib
import functools
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from aotviz import captured, compiling
from aotviz.api import compile_program
from aotviz.guards import Call, DynamicGuard, StaticGuard
from aotviz.ir.forms import Reason, Request
from aotviz.ir.refusals import Refused
from aotviz.ir.spelling import called
from aotviz.lowerings import Lowering, lowering_named
from aotviz.reached import Reached
from aotviz.requests import request_for
from aotviz.runtime.refusals import CallDiffers
from aotviz.sessions import CompiledCallable, Session
from aotviz.torch_private import attributes, operators, partitioners, runtime
from aotviz.torch_private.fakes import SymbolGuards
from aotviz.torch_private.subclasses import has_ragged_sizes

MANY_PROGRAMS = 64


def compile(
    fn: Callable[..., Any] | torch.nn.Module | None = None,
    *,
    backend: str | Callable[..., Any] = "inductor",
    dynamic: bool | None = None,
    partition_fn: str | Callable[..., Any] | None = None,
    decompositions: Mapping[Any, Any] | None = None,
    keep_inference_input_mutations: bool | None = None,
    options: Mapping[str, Any] | None = None,
    donate_buffers: bool | None = None,
    record: bool = True,
    debug: bool = False,
    on_stage: Callable[[str, int | None], None] | None = None,
) -> Any:
    """Compile a function or module through the aotviz pipeline, and keep a recording of every stage.

    The result is called like the original and gives what eager gives: outputs, gradients, mutations, aliasing. It
    has `.recording` (shows itself in a notebook), `.program` and `.source`, the generated Python that runs. Tensors
    that it reaches in another way than by its arguments become inputs too: parameters and buffers of modules, and what
    lies in its closure, in globals, and in objects and containers there. They are read there at each call. Where a
    plain value that its code reads there by name has changed, it is compiled anew.

    Args:
        fn: takes and returns any pytrees of tensors. Without it, a decorator is returned.
        backend: "inductor", "eager" (run the graphs as they are), or `(graph_module, example_inputs) -> callable`.
        dynamic: True traces with symbolic sizes; False compiles each shape anew; None starts with static sizes and
            changes to symbolic ones when they vary.
        partition_fn: cuts the joint graph in two: a function, "default_partition" (keep what the backward reads) or
            "min_cut_rematerialization_partition" (recompute what is cheap); the backend's own choice if None.
        decompositions: operator -> function that it is traced as; the backend's own if None.
        keep_inference_input_mutations: let the graph write inputs where nothing can tell the difference.
        options: settings of Inductor's config.
        donate_buffers: let the backward overwrite saved tensors that nothing else can see; on if None.
        record: keep a recording; without it `.recording` raises.
        debug: verify every form at every stage boundary, compare each call's arguments with the traced ones, and, where
            the function writes to its inputs, run it once more on copies and compare all memory of what is written.
        on_stage: called with (stage, None) when a stage begins and (stage, elapsed nanoseconds) when it ends.

    Raises:
        ValueError: an unknown backend.
        NotImplementedError: an input that aotviz can't compile, by its name.

    >>> import torch, aotviz
    >>> @aotviz.compile(backend="eager")
    ... def scale(x, w):
    ...     x.mul_(2)
    ...     return (x * w).sum()
    >>> scale(torch.ones(3), torch.ones(3))
    tensor(6.)
    >>> print(scale.recording.compilations[0].name)
    scale
    """
    if fn is None:
        arguments = {k: v for k, v in locals().items() if k != "fn"}
        return functools.partial(compile, **arguments)
    if not callable(fn):
        raise TypeError(f"aotviz.compile takes a function or a module, and got {fn!r}")
    operators.check_decompositions(decompositions)
    lowering = lowering_named(backend, options)
    overrides = {
        "partition_fn": partition_fn if partition_fn is None else partitioners.named(partition_fn),
        "decompositions": decompositions,
        "keep_inference_input_mutations": keep_inference_input_mutations,
        "donate_buffers": donate_buffers,
        "debug": debug,
    }
    watching = Session(record, called(fn), on_stage)
    programs = _Programs(fn, lowering, overrides, dynamic, watching)
    settings = {"backend": backend, "options": options, "dynamic": dynamic, "record": record, "on_stage": on_stage}
    made = CompiledCallable(programs, watching, (_again, (fn, {**overrides, **settings})))
    return (
        CompiledModule(fn, made) if isinstance(fn, torch.nn.Module) else functools.update_wrapper(made, fn, updated=())
    )


def _again(fn: Any, settings: dict[str, Any]) -> Any:
    return compile(fn, **settings)


class CompiledModule(torch.nn.Module):
    """A compiled module: the original's parameters and attributes, the compiled forward."""

    def __init__(self, original: torch.nn.Module, compiled: CompiledCallable) -> None:
        super().__init__()
        self.original = original
        self.__dict__["compiled"] = compiled

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        """Past the hooks that run at every module, which ran for the original when it was traced."""
        call = super().__call__ if any(attributes.hooks_of(self)) else self.forward
        return call(*args, **kwargs)

    def forward(self, /, *args: Any, **kwargs: Any) -> Any:
        if torch.compiler.is_compiling():
            return self.original(*args, **kwargs)  # whoever compiles the caller compiles this with it
        return self.compiled(*args, **kwargs)

    def __reduce__(self) -> Any:
        """A copy, or what a file holds, is the original and the options: it is compiled anew."""
        return self.compiled.__reduce__()

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(super().__getattr__("original"), name)

    @property
    def recording(self) -> Any:
        """What was recorded so far: a Recording, which shows itself in a notebook."""
        return self.compiled.recording

    @property
    def program(self) -> Any:
        """The latest program."""
        return self.compiled.program

    @property
    def source(self) -> str:
        """The generated Python that runs."""
        return str(self.compiled.source)

    def _repr_mimebundle_(self, **kwargs: Any) -> Any:
        return self.recording._repr_mimebundle_(**kwargs)


@dataclass(frozen=True)
class _Known:
    """A program, and which calls it is good for."""

    guard: StaticGuard | DynamicGuard
    function: Callable[..., Any]
    names: tuple[str, ...]  # one per flat input, as the user knows it


class _Programs:
    """The programs of one function, and which of them a call gets."""

    def __init__(
        self, fn: Any, lowering: Lowering, overrides: dict[str, Any], dynamic: bool | None, watching: Session
    ) -> None:
        self.fn, self.lowering, self.overrides = fn, lowering, overrides
        self.dynamic, self.watching = dynamic, watching
        self.__wrapped__ = fn
        self.reached = Reached(fn)
        self.settings: tuple[Any, ...] | None = None  # none before the first call, which looks for the next two
        self.root: torch.nn.Module | None = None
        self.state: attributes.State | None = None
        self.known: list[_Known] = []  # the newest first

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        if runtime.transformed():  # a transform sees operators, and the original has them
            return self.fn(*args, **kwargs)
        function = self._find(self._call(args, kwargs))
        if function is None:
            with compiling.lock:  # another thread may have compiled it meanwhile
                call = self._call(args, kwargs)
                function = self._find(call) or self._compile(call, args, kwargs)
        try:
            return function(*args, **kwargs)
        except CallDiffers as difference:
            return self._otherwise(difference, args, kwargs)

    def _otherwise(self, difference: CallDiffers, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """A call that the guard of a program lets pass, and the program itself does not."""
        call = self._call(args, kwargs)
        for known in [known for known in self.known if known.guard.holds(call)][1:]:
            try:
                return known.function(*args, **kwargs)
            except CallDiffers as another:
                difference = another
        with compiling.lock:
            function = self._compile(call, args, kwargs, str(difference))
        return function(*args, **kwargs)

    def _call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Call:
        settings = self.reached.settings()
        if settings != self.settings:  # a module that the function refers to may be another one
            self.root, self.settings = captured.root_of(self.fn), settings
            self.state = None if self.root is None else attributes.State(self.root)
        lifted, held = ((), ()) if self.state is None else self.state.read()
        names = self.reached.read_of_arguments
        return Call.of(lifted, args, kwargs, held, self.reached.tensors(), settings, names)

    def _find(self, call: Call) -> Callable[..., Any] | None:
        for known in self.known:
            if known.guard.holds(call):
                return known.function
        return None

    def _compile(
        self, call: Call, args: tuple[Any, ...], kwargs: dict[str, Any], difference: str = ""
    ) -> Callable[..., Any]:
        """`difference` is what a program found for which the guards hold."""
        if self.known:  # what was true when it was first called may have changed
            self.reached.look()
            call = self._call(args, kwargs)
        dynamic = self._is_dynamic(call, bool(difference))
        options = self.lowering.options(**self.overrides, dynamic=dynamic, guards_duplicates=True)
        reasons = tuple(
            Reason(
                self.watching.name,
                difference if known.guard.holds(call) else known.guard.failure(call, known.names),
            )
            for known in self.known
        )

        def request() -> Request:
            return request_for(
                self.fn, args, kwargs, options, root=self.root, reached=self.reached.places, evidence=reasons
            )

        with self.lowering.around(), self._state_noted():
            program = compile_program(
                request(), self.watching, lambda met: request() if self.reached.lift(met) else None
            )
        if len(call.flat) < len(program.lowered.descriptors):  # tensors were lifted meanwhile
            call = self._call(args, kwargs)
        signature, kind = call.signature(), call.kind()
        guard: StaticGuard | DynamicGuard = StaticGuard(signature)
        if dynamic:
            lowered = program.lowered
            guard = DynamicGuard(kind, SymbolGuards(lowered.fake_mode, lowered.args))
        names = tuple(descriptor.name for descriptor in program.lowered.descriptors)
        self.known.insert(0, _Known(guard, program.function, names))
        if len(self.known) == MANY_PROGRAMS:
            warnings.warn(
                f"{self.watching.name} has been compiled {MANY_PROGRAMS} times; the last time because "
                f"{reasons[0].text}. See recording.recompiles()",
                stacklevel=4,
            )
        return program.function

    @contextlib.contextmanager
    def _state_noted(self) -> Iterator[None]:
        """Refuse a function that reads an iterator, and warn of one that counts: a compiled call does neither again.

        Raises:
            Refused: "argument is changed".
        """
        name = self.watching.name
        if self.reached.iterators:
            raise Refused("argument is changed", f"the iterator {self.reached.iterators[0]!r}", name)
        before = self.reached.counters()
        yield
        for path, now in self.reached.counters().items():
            if before.get(path) != now:
                warnings.warn(
                    f"{name} changes {path} from {before.get(path)!r} to {now!r} while it runs; a compiled call goes "
                    "on with what it read when it was compiled, and does not change it again",
                    stacklevel=6,
                )

    def _is_dynamic(self, call: Call, differs: bool) -> bool:
        """Symbolic sizes where they were asked for, or where only sizes keep the known programs from fitting.

        `differs`: something does of which no guard knows; then the sizes are those of a program that there is.
        """
        if any(map(has_ragged_sizes, call.flat)):
            return True
        if self.dynamic is not None:
            return self.dynamic
        if differs:
            return any(isinstance(known.guard, DynamicGuard) and known.guard.holds(call) for known in self.known)
        kind, guards = call.kind(), [known.guard for known in self.known]
        return any(isinstance(guard, StaticGuard) and guard.signature[0] == kind for guard in guards)
