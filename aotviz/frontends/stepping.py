"""Run up to a stage, look at the graph, change it, and continue (docs/design/architecture.md, "The idea").

The pipeline is a list of stages, so it can stop after any of them. A `Stopped` holds the frozen form that the last
stage returned. `with_graph` makes another form from it, and `resume` runs the remaining stages on it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch.fx as fx

from aotviz.frontends.compiling import STAGE_NAMES, Stage, entered, first_stages
from aotviz.frontends.requests import request_for, root_of
from aotviz.ir import graphs, verify
from aotviz.ir.forms import Form, GraphCall, JointCall, Request, Split
from aotviz.lowerings import Lowering, lowering_named
from aotviz.recorder.sessions import CompiledCallable, Session
from aotviz.recording import terminal
from aotviz.runtime.lowered import LoweredGraph, LoweredSplit, Program


def trace_stages(
    fn: Callable[..., Any],
    *args: Any,
    until: str = "link",
    backend: str | Callable[..., Any] = "eager",
    kwargs: Mapping[str, Any] | None = None,
    **options: Any,
) -> Stopped:
    """Compile `fn` for one call, up to and including the stage named `until`.

    Args:
        fn: a function or module.
        args: the call's arguments; `kwargs` its keyword arguments.
        until: a stage's name, e.g. "metadata", "joint", "partition".
        backend: as for `aotviz.compile`.
        options: fields of `Options`, e.g. `partition_fn`, `decompositions`, `dynamic`.

    Raises:
        ValueError: there is no stage of that name, or this call doesn't pass through it.

    >>> import torch, aotviz
    >>> stopped = aotviz.trace_stages(lambda x: (x * 2).sum(), torch.ones(3, requires_grad=True), until="joint")
    >>> stopped.stage
    'joint'
    >>> f = stopped.resume()
    >>> f(torch.ones(3, requires_grad=True)).item()
    6.0
    """
    if until not in STAGE_NAMES:
        raise ValueError(f"until={until!r} is not a stage; the stages are {', '.join(sorted(STAGE_NAMES))}")
    lowering = lowering_named(backend)
    root = root_of(fn)
    request = request_for(fn, args, kwargs or {}, lowering.options(**options), root_module=root)
    return started(request, lowering).resume_until(until)


def started(request: Request, lowering: Lowering) -> Stopped:
    """A compilation that has not run any stage yet."""
    session = Session(True, request.name)
    return Stopped(request, request, "", first_stages(), session, lowering, session.observer())


@dataclass(frozen=True, repr=False)
class Stopped:
    """A compilation that stopped after `stage`. `form` is what that stage returned. It prints the stages so far."""

    request: Request
    form: Form
    stage: str
    remaining: tuple[Stage, ...]
    session: Session
    lowering: Lowering
    observer: Any

    def __repr__(self) -> str:
        data = self.recording.data.compilations
        done = f"\n{terminal.stages(data[-1])}" if data else ""
        next_ones = ", ".join(stage.name for stage in self.remaining)
        stopped = f"stopped after {self.stage!r}" if self.stage else "not begun"
        to_come = f"\nto come: {next_ones}; resume() runs them" if next_ones else "\nresume() returns the function"
        return f"<aotviz {self.request.name}, {stopped}>{done}{to_come}"

    @property
    def graphs(self) -> dict[str, fx.GraphModule]:
        """Editable copies of the form's graphs by role ("joint", "forward", ...)."""
        form = self.form.call if isinstance(self.form, (LoweredSplit, LoweredGraph)) else self.form
        if isinstance(form, Split):
            found = {"forward": form.forward_module, "backward": form.backward_module}
        elif isinstance(form, GraphCall):
            found = {form.role: form.graph_module}
        else:
            return {}
        return {role: graphs.copy(module) for role, module in found.items()}

    @property
    def graph(self) -> fx.GraphModule:
        """The form's only graph, or its first."""
        for module in self.graphs.values():
            return module
        raise ValueError(f"after stage {self.stage!r} there is no complete graph yet; stop at a later stage")

    @property
    def recording(self) -> Any:
        """The recording so far."""
        return CompiledCallable(lambda: None, self.session).recording

    def with_graph(self, module: fx.GraphModule, role: str | None = None) -> Stopped:
        """The same compilation with another graph, which must keep the inputs and outputs of the old one.

        Raises:
            ValueError: there is no graph of that role, its inputs or outputs differ, or the graphs are compiled.
        """
        if isinstance(self.form, (LoweredSplit, LoweredGraph)):
            raise ValueError(
                f"after stage {self.stage!r} the graphs are compiled: stop at an earlier one to change them"
            )
        roles = list(self.graphs)
        role = role or (roles[0] if roles else "graph")
        if role not in roles:
            raise ValueError(f"after stage {self.stage!r} there is no {role!r} graph; there are {roles or 'none'}")
        form: Any = self.form
        name = f"{role}_module" if isinstance(form, Split) else "graph_module"
        _same_convention(getattr(form, name), module, role)
        changed = replace(form, **{name: module})
        verify.verify(changed, f"{self.stage} (graph replaced)")
        return replace(self, form=changed)

    def resume_until(self, until: str) -> Stopped:
        """Run up to and including the stage named `until`."""
        form, remaining = self.form, self.remaining
        passed: list[str] = []
        with self.lowering.around(), entered(self.request, self.session, self.observer) as stages:
            while remaining:
                passed.append(remaining[0].name)
                form, remaining = stages.step(form, remaining)
                if passed[-1] == until:
                    return replace(self, form=form, stage=until, remaining=remaining)
        last = form.call if isinstance(form, Program) else form
        kind = "training" if isinstance(last, JointCall) else "inference"
        raise ValueError(f"this {kind} call does not run stage {until!r}; its stages are {', '.join(passed)}")

    def resume(self) -> CompiledCallable:
        """Run the remaining stages, and return the compiled function."""
        with self.lowering.around(), entered(self.request, self.session, self.observer) as stages:
            form, remaining = self.form, self.remaining
            while not isinstance(form, Program):
                form, remaining = stages.step(form, remaining)
            program = stages.finished(form)
        self.session.keep(program)
        return CompiledCallable(program.function, self.session)


def _same_convention(old: fx.GraphModule, new: fx.GraphModule, role: str) -> None:
    for what, nodes in (("inputs", graphs.placeholders), ("outputs", graphs.outputs)):
        count, replaced = len(nodes(old.graph)), len(nodes(new.graph))
        if count != replaced:
            raise ValueError(f"the {role} graph has {count} {what}, and its replacement {replaced}")
    for before, after in zip(graphs.placeholders(old.graph), graphs.placeholders(new.graph), strict=True):
        for field in ("val", "desc"):
            if field in before.meta:
                after.meta.setdefault(field, before.meta[field])
