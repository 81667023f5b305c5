"""`aotviz.compile`: the one-liner (docs/design/system.md B5).

It is `torch.compile` with our backend, and its result has a recording. Dynamo captures Python: closures, globals,
attributes, guards, graph breaks. Our pipeline compiles what Dynamo captures. One recording keeps everything that is
compiled for one function, including the graphs after a graph break.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from os import PathLike
from typing import Any

import torch

from aotviz.frontends.backend import Backend, check_arguments, sorted_options
from aotviz.ir.spelling import called
from aotviz.lowerings import lowering_named
from aotviz.recorder.sessions import CompiledCallable, Inspected, Session, session_of
from aotviz.torch_private import dynamo, operators
from aotviz.traced import CallsForward


def compile(
    fn: Callable[..., Any] | torch.nn.Module | None = None,
    *,
    backend: str | Callable[..., Any] = "inductor",
    mode: str | None = None,
    dynamic: bool | None = None,
    fullgraph: bool = False,
    options: Mapping[str, Any] | None = None,
    partition_fn: str | Callable[..., Any] | None = None,
    decompositions: Mapping[Any, Any] | None = None,
    keep_inference_input_mutations: bool | None = None,
    donate_buffers: bool | None = None,
    compiled_autograd: bool = False,
    cache: bool | str | PathLike[str] | None = None,
    record: bool = True,
    debug: bool = False,
    on_stage: Callable[[str, int | None], None] | None = None,
) -> Any:
    """`torch.compile` through the aotviz pipeline, with a recording of every stage.

    The result is called like the original and gives what eager gives: outputs, gradients, mutations, aliasing. It has
    `.recording` (shows itself in a notebook), `.explain()`, `.program` and `.source`, the generated Python that ran
    last. A compiled module is an instance of the same class, with the same parameters and attributes.

    Args:
        fn: a function, a method or a module. Without it, `compile` returns a decorator.
        backend: "inductor", "eager" (run the graphs as they are), or `(graph_module, example_inputs) -> callable`.
        mode: Inductor's: "max-autotune", "reduce-overhead", ...
        dynamic: True traces with symbolic sizes; False compiles each shape again; None starts with static sizes and
            changes to symbolic ones when they vary.
        fullgraph: raise an error instead of breaking the graph.
        options: settings of Inductor's config, and `on_refusal`: "eager" (the default) runs a graph that aotviz
            refuses as Dynamo captured it, with a warning; "raise" raises the refusal. The arguments below may also be
            given here.
        partition_fn: splits the joint graph in two: a function, "default_partition" (keep what the backward reads) or
            "min_cut_rematerialization_partition" (recompute what is cheap); the backend's own choice if None.
        decompositions: operator -> function that it is traced as; the backend's own if None.
        keep_inference_input_mutations: let the graph write inputs where nothing can tell the difference.
        donate_buffers: let the backward overwrite saved tensors that nothing else can see; on if None.
        compiled_autograd: also capture and compile the whole backward of what `fn` differentiates, as
            `aotviz.compiled_autograd` does, into the same recording.
        cache: keep compiled programs on disk, so that a later process loads them: True, False, or a folder. If None,
            the environment decides: AOTVIZ_CACHE_DIR names a folder, or is "off"; see docs/cache.md.
        record: keep a recording; without it `.recording` raises.
        debug: verify every form at every stage boundary, compare each call's arguments with the traced ones, and, where
            the function writes to its inputs, run it once more on copies and compare all memory of what is written.
        on_stage: called with (stage, None) when a stage begins and (stage, elapsed nanoseconds) when it ends. For
            "dynamo", Dynamo's part, both calls are made when it has ended.

    Raises:
        TypeError: `fn` can't be called, or `options` is no mapping.
        ValueError: there is no such backend, mode or option, or another value of `dynamic`; the message names it.

    >>> import torch, aotviz
    >>> @aotviz.compile(backend="eager")
    ... def scale(x, w):
    ...     x.mul_(2)
    ...     return (x * w).sum()
    >>> scale(torch.ones(3), torch.ones(3))
    tensor(6.)
    >>> print(scale.recording.compilations[0].name)
    scale [...]
    """
    arguments = {k: v for k, v in locals().items() if k != "fn"}
    if fn is None:
        return functools.partial(compile, **arguments)
    if not callable(fn):
        raise TypeError(f"aotviz.compile takes a function or a module, not {fn!r}")
    check_arguments(dynamic, options)
    operators.check_decompositions(decompositions)
    ours, theirs = sorted_options(options or {}, backend)
    session = Session(ours.pop("record", record), called(fn), ours.pop("on_stage", on_stage))
    given = {
        "partition_fn": partition_fn,
        "decompositions": decompositions,
        "keep_inference_input_mutations": keep_inference_input_mutations,
        "donate_buffers": donate_buffers,
        "debug": debug or None,
        "cache": cache,
    }
    ours |= {name: value for name, value in given.items() if value is not None}
    through = Backend(lowering_named(backend, theirs, mode), ours, session)
    run = _by_dynamo(fn, functools.partial(dynamo.compiled, fn, through, dynamic=dynamic, fullgraph=fullgraph))
    if isinstance(fn, torch.nn.Module):  # whose `__call__` would call the global module hooks again
        run = run.forward
    if compiled_autograd:
        run = _with_whole_backwards(run, through, bool(dynamic))
    made = CompiledCallable(run, session, fn, (_again, (fn, arguments)), functools.partial(_instead, session))
    if isinstance(fn, torch.nn.Module):
        return _module(fn, made)
    return functools.update_wrapper(made, fn, updated=())


def _by_dynamo(fn: Any, wrap: Callable[[], Any]) -> Any:
    if not dynamo.config.caching_precompile:
        return wrap()
    from aotviz.frontends import precompiled  # loads what Dynamo has for this, which few programs need

    return precompiled.compiled(fn, wrap)


def _again(fn: Any, arguments: dict[str, Any]) -> Any:
    return compile(fn, **arguments)


def _instead(session: Session, failed: Exception) -> Exception | None:
    """Our own error instead of Dynamo's error about its backend. Others of a call are recorded."""
    if isinstance(failed, dynamo.BackendFailed):
        return failed.inner_exception
    session.raised(failed)
    return None


def _with_whole_backwards(run: Callable[..., Any], through: Backend, dynamic: bool) -> Callable[..., Any]:
    """The same function, but backwards that it calls are captured."""
    from aotviz.frontends.backwards import setting  # loads torch's compiled autograd, which few programs need
    from aotviz.whole_backward.engine import capturing

    return capturing(setting(through, dynamic))(run)


class CompiledModule(CallsForward, Inspected):
    """The base class of a compiled module, together with the class of the original.

    A compiled module shares the original's `__dict__`, so both have the same parameters, buffers, submodules, hooks and
    attributes. Only an assigned `forward` belongs to the compiled module alone, because it usually calls the `forward`
    that it replaces.
    """

    _compiled: CompiledCallable

    def __init_subclass__(cls, /, **kwargs: Any) -> None:
        """Skip the original class's hook: it may keep a list of its subclasses."""

    def __reduce__(self) -> Any:
        """A copy or pickle holds the original and the options, and is compiled again."""
        return self._compiled.__reduce__()


def _module(original: torch.nn.Module, made: CompiledCallable) -> torch.nn.Module:
    """`original` as an instance of a subclass of its class, which runs the compiled code."""
    kind = type(original)
    made.__wrapped__ = original.forward  # for `inspect.signature`
    names = {
        "_compiled": staticmethod(made),
        "_forward": staticmethod(made),
        "_session": session_of(made),
        "__module__": kind.__module__,
        "__qualname__": kind.__qualname__,
        "__doc__": kind.__doc__,
    }
    make: Any = type(kind)
    derived = make(kind.__name__, (CompiledModule, kind), names)
    module = object.__new__(derived)
    object.__setattr__(module, "__dict__", original.__dict__)
    return module
