"""Whom to judge: aotviz and torch's own AOTAutograd, by each of their doors.

How a candidate is judged is the package's own (`aotviz/comparing/`), since `aotviz.verify` judges the same way.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import torch

from aotviz.comparing.judging import Expectation, differences, expect, judge, show
from aotviz.comparing.observed import (
    DETAILS,
    SEED,
    Candidate,
    Difference,
    EagerRaised,
    Fact,
    Facts,
    Failure,
    Function,
    Run,
    Setup,
    Trial,
    Verdict,
    run,
    same,
    tensor_leaves,
    values,
)

__all__ = [
    "CANDIDATES",
    "Candidate",
    "DETAILS",
    "Difference",
    "EagerRaised",
    "Expectation",
    "Fact",
    "Facts",
    "Failure",
    "Function",
    "Trial",
    "Run",
    "SEED",
    "Setup",
    "Verdict",
    "differences",
    "eager_itself",
    "expect",
    "judge",
    "run",
    "same",
    "show",
    "tensor_leaves",
    "values",
]


def _boxed(graph: Any, _example_inputs: Any) -> Any:
    """A compiler that runs the graph as it is, freeing the argument list as it starts."""

    def call(args: list[Any]) -> Any:
        taken = list(args)
        args.clear()
        return graph(*taken)

    call._boxed_call = True  # type: ignore[attr-defined]
    return call


def _partition(name: str) -> Any:
    from torch._functorch import partitioners  # the oracle may; aotviz may not

    return partitioners.default_partition if name == "default" else partitioners.min_cut_rematerialization_partition


def torch_aot(partition: str = "min_cut", keep_mutations: bool = False) -> Candidate:
    def compile(fn: Function, dynamic: bool) -> Function:
        from torch._functorch.aot_autograd import aot_function

        return aot_function(
            fn,
            _boxed,
            _boxed,
            partition_fn=_partition(partition),
            keep_inference_input_mutations=keep_mutations,
            dynamic=dynamic,
        )

    return Candidate(f"torch/{partition}{'/keep' if keep_mutations else ''}", compile, loose_tuple=True)


def torch_compile(backend: str = "aot_eager", **options: Any) -> Candidate:
    """torch.compile with a backend of torch's, or of ours, which takes options."""

    def compile(fn: Function, dynamic: bool) -> Function:
        if backend.startswith("aotviz"):
            import aotviz.frontends.backend  # noqa: F401 -- in a checkout that is not installed, this makes the name known
        return torch.compile(fn, backend=backend, dynamic=True if dynamic else None, options=options or None)

    name = "/".join(["torch.compile", backend, *map(str, options.values())])
    return Candidate(name, compile, reset=torch._dynamo.reset)


def ours_aot(partition: str = "min_cut", keep_mutations: bool = False) -> Candidate:
    def compile(fn: Function, dynamic: bool) -> Function:
        import aotviz

        return aotviz.aot_function(
            fn,
            _boxed,
            _boxed,
            partition_fn=_partition(partition),
            keep_inference_input_mutations=keep_mutations,
            dynamic=dynamic,
        )

    return Candidate(f"ours/{partition}{'/keep' if keep_mutations else ''}", compile)


def ours_compile(backend: str = "eager") -> Candidate:
    def compile(fn: Function, dynamic: bool) -> Function:
        import aotviz

        return aotviz.compile(fn, backend=backend, dynamic=True if dynamic else None)

    return Candidate(f"aotviz.compile/{backend}", compile)


def with_whole_backwards(candidate: Candidate) -> Candidate:
    """The same, with each of its backwards captured and replayed."""
    import aotviz

    def reset() -> None:
        candidate.reset()
        aotviz.compiled_autograd.reset()

    around = partial(aotviz.compiled_autograd, backend="eager")
    return replace(candidate, name=f"{candidate.name}, whole backwards", reset=reset, around=around)


def torchs_whole_backwards() -> Candidate:
    """The function as it is, under torch's own compiled autograd."""
    from torch._dynamo import compiled_autograd

    def reset() -> None:
        torch._dynamo.reset()
        torch._C._dynamo.compiled_autograd.clear_cache()

    def around() -> Any:
        return compiled_autograd._enable(torch.compile(backend="eager"))

    return Candidate("torch's compiled autograd", lambda fn, dynamic: fn, reset=reset, around=around)


def aot_module(whose: str, simplified: bool = False) -> Candidate:
    """aot_module or aot_module_simplified, of 'ours' or 'torch'; the function to compile is a module."""

    def compile(module: Function, dynamic: bool) -> Function:
        if whose == "ours":
            import aotviz as source
        else:
            from torch._functorch import aot_autograd as source  # type: ignore[no-redef]
        if not simplified:
            return source.aot_module(module, _boxed, _boxed, partition_fn=_partition("min_cut"))
        made: list[Function] = []

        def call(*args: Any) -> Any:
            if not made:
                made.append(source.aot_module_simplified(module, args, _boxed, _boxed))
            return made[0](*args)

        return call

    return Candidate(f"{whose}/{'simplified' if simplified else 'module'}", compile, loose_tuple=True)


def eager_itself() -> Candidate:
    """The identity: must be equal everywhere, else the harness is at fault."""
    return Candidate("eager", lambda fn, dynamic: fn)


CANDIDATES: dict[str, Callable[[], Candidate]] = {
    "ours": ours_aot,
    "ours-default": lambda: ours_aot("default"),
    "ours-keep": lambda: ours_aot(keep_mutations=True),
    "ours-compile": ours_compile,
    "ours-inductor": lambda: ours_compile("inductor"),
    "ours-backend": lambda: torch_compile("aotviz_eager"),
    "ours-backend-default": lambda: torch_compile("aotviz_eager", partition_fn="default_partition"),
    "torch": torch_aot,
    "torch-default": lambda: torch_aot("default"),
    "torch-keep": lambda: torch_aot(keep_mutations=True),
    "torch-compile": torch_compile,
    "dynamo-eager": lambda: torch_compile("eager"),
    "ours-module": lambda: aot_module("ours"),
    "torch-module": lambda: aot_module("torch"),
    "ours-simplified": lambda: aot_module("ours", simplified=True),
    "torch-simplified": lambda: aot_module("torch", simplified=True),
    "eager": eager_itself,
    "whole": lambda: with_whole_backwards(eager_itself()),
    "ours-whole": lambda: with_whole_backwards(ours_aot()),
    "ours-backend-whole": lambda: with_whole_backwards(torch_compile("aotviz_eager")),
    "torch-whole": torchs_whole_backwards,
}
