"""The special cases of a run: one list, and which of them the runs inside a block meet.

Each is there because some program needed it. `rules_met.py` counts how many random programs need it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from aotviz.ir import forms
from aotviz.ir.view_and_mutation import OutputType
from aotviz.torch_private.tracers import swapped
from aotviz.tracing import corrections, forward
from aotviz.tracing.argument_state import Kind
from aotviz.tracing.forward import Run


def _of_input(name: str) -> Callable[[Run], bool]:
    return lambda run: any(getattr(info, name) for info in run.input_info)


def _of_output(kind: OutputType) -> Callable[[Run], bool]:
    return lambda run: any(info.output_type is kind for info in run.output_facts.infos)


# name -> (what it is, whether a run meets it)
OF_A_RUN: dict[str, tuple[str, Callable[[Run], bool]]] = {
    "as_views": ("runs again: a metadata op moved an input", lambda run: bool(run.program.known.as_views)),
    "view of a no_grad base": (
        "runs again: an input is a view whose base does not require grad",
        lambda run: bool(run.program.known.no_grad_views) or run.program.made_no_grad_views is not None,
    ),
    "logs_views": ("runs again: it meets a subclass", lambda run: run.program.known.logs_views),
    "turns_grad_on": ("runs again: it turns requires_grad on", lambda run: run.program.known.turns_grad_on),
    "is_compiling": ("runs again: it asks for a value", lambda run: run.program.known.is_compiling),
    "retains_graph": ("runs again: it differentiates inside", lambda run: run.program.known.retains_graph),
    "deferred_hooks": ("runs again: a hook is on a result", lambda run: bool(run.program.known.deferred_hooks)),
    "unrepeatable": (
        "gradients of a moved view are refused",
        lambda run: (run.turned or run.ledger.unrepeatable) is not None,
    ),
    "orphan": (
        "an argument is a view without a root",
        lambda run: any(one.kind is Kind.ORPHAN for one in run.ledger.given.values()),
    ),
    "moved argument": (
        "an argument that requires grad is moved",
        lambda run: any(one.moved for one in run.ledger.given.values()),
    ),
    "reordered": (
        "its elements change their order",
        lambda run: any(one.reordered for one in run.ledger.given.values()),
    ),
    "placed": ("a chain of views has an `as_strided`", lambda run: bool(run.ledger.placed)),
    "left": ("a written storage is left", lambda run: any(run.ledger.left.values())),
    "parted": ("a tensor inside gets another storage", lambda run: bool(run.ledger.parted)),
    "resized storage": ("a storage is resized directly", lambda run: bool(run.ledger.resized_storages)),
    "assigned": ("`.data` is assigned", lambda run: bool(run.ledger.assigned)),
    "traced hook": ("a gradient hook is part of the graph", lambda run: bool(run.ledger.traced_hooks)),
    "turned_on": ("an input comes to require grad", _of_input("turned_on")),
    "turned_off": ("an input ceases to require grad", _of_input("turned_off")),
    "inference": ("an input is an inference tensor", _of_input("inference")),
    "used_before_moving": ("a leaf is used before it is reshaped", _of_input("used_before_moving")),
    "asks_for_root": ("gradients depend on an input's base", _of_input("asks_for_root")),
    "history_ends": ("an input loses its grad_fn", _of_input("history_ends")),
    "custom_function_view": ("a view that a custom Function returns", _of_output(OutputType.custom_function_view)),
    "unsafe_view_alias": ("a view that only the graph can take", _of_output(OutputType.unsafe_view_alias)),
}
OF_A_REWRITE = {
    "MergeDuplicates": "an argument is given twice and written: merged",
    "SyntheticBases": "inputs that overlap are written: one base",
    "PhiloxState": "random numbers of a GPU are a function of a seed",
    "members": "a graph input has members that are inputs",
}
OF_CORRECTIONS = {
    "changing_strides": "an in-place operator would change strides",
    "misfits": "an `out=` of another shape is resized",
}


@contextmanager
def noted() -> Iterator[set[str]]:
    """Yields a set to which the special cases that are met inside are added, by name."""
    met: set[str] = set()

    def run(program: Any) -> Run:
        found = plain_run(program)
        met.update(name for name, (_, holds) in OF_A_RUN.items() if holds(found))
        met.update(["members"] if found.members else [])
        return found

    def retraced(call: Any, traced: Any, rewrite: Any, *args: Any, **changes: Any) -> Any:
        met.add(type(rewrite).__name__)
        return plain_retraced(call, traced, rewrite, *args, **changes)

    def changing_strides(*args: Any) -> Any:
        found = plain_strides(*args)
        met.update(["changing_strides"] if found is not None else [])
        return found

    def misfits(*args: Any) -> Iterator[Any]:
        for one in plain_misfits(*args):
            met.add("misfits")
            yield one

    plain_run, plain_retraced = forward.run, forms.TracedCall.retraced
    plain_strides, plain_misfits = corrections.changing_strides, corrections.misfits
    with (
        swapped(forward, run=run),
        swapped(forms.TracedCall, retraced=retraced),
        swapped(corrections, changing_strides=changing_strides, misfits=misfits),
    ):
        yield met
