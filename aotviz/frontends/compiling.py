"""The only entrance to the pipeline, and what all of its callers have in common.

Only one compilation runs at a time. If the traced function calls a compiled function, the original is traced. Errors
are reported in the user's names, to the caller and to the recording. Whatever the traced function leaves in Python
objects is undone afterwards, whether the compilation succeeds or fails: tensors of the trace in attributes, variables,
containers and elsewhere, and the states of random generators.

Only `entered` gives access to the pipeline. A contract in pyproject.toml forbids other modules here to import it.
"""

from __future__ import annotations

import contextlib
import functools
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import torch.fx as fx

from aotviz import pipeline
from aotviz.frontends import strays
from aotviz.ir.forms import Exported, Form, GraphCall, Request
from aotviz.ir.refusals import executed, in_words
from aotviz.pipeline import Observer, Role
from aotviz.pipeline import Stage as Stage
from aotviz.python_state import put_back
from aotviz.recorder import sessions
from aotviz.recorder.sessions import Session
from aotviz.runtime.lowered import Program
from aotviz.stages import scalars
from aotviz.stages.dedupe import MergeDuplicates
from aotviz.torch_private import context, dynamo

lock = pipeline.lock
STAGE_NAMES = tuple(dict.fromkeys(stage.name for stage in (*pipeline.TRAINING, *pipeline.INFERENCE)))
first_stages = pipeline.prepare  # of every compilation


def graph_finished() -> str:
    """The stage that finishes a graph, before it is edited or split."""
    return pipeline.part(pipeline.TRAINING, Role.FINISH, Role.FINISH)[-1].name


def is_any(error: Exception) -> bool:
    return True


def is_refusal(error: Exception) -> bool:
    return isinstance(error, NotImplementedError)


def runs_in_eager(error: Exception) -> bool:
    """Whether a graph runs in eager instead: it was refused, or raises the same there."""
    return is_refusal(error) or pipeline.is_of_the_program(error)


def why_in_eager(error: Exception) -> tuple[str, str]:
    """As `in_words`; of an error that is no refusal with its type."""
    reason, where = in_words(error)
    what = "an operator" if executed(error) else "tracing its backward"
    return reason if is_refusal(error) else f"{what} raised {type(error).__name__}: {reason}", where


class Pipeline:
    """The pipeline for one program, inside of `entered`."""

    def __init__(self, request: Request, observer: Observer) -> None:
        self.request, self.observer = repeatable(request), observer

    def program(self) -> Program:
        """Run all stages. The program's late work has the same observer."""
        return pipeline.compile_request(self.request, self.observer)

    def export(self) -> Exported:
        exported: Exported = pipeline.run(pipeline.EXPORT, self.request, self.observer)
        return exported

    def graph_for_export(self) -> GraphCall:
        """The finished graph of a call that passes the stage "export rules"."""
        rules = pipeline.part(pipeline.EXPORT, Role.FLATTEN, Role.CONVENTION)
        call = pipeline.run(rules, self.request, self.observer)
        graph: GraphCall = pipeline.run(pipeline.tail_for(call, Role.FINISH), call, self.observer)
        return graph

    def finished(self, program: Program) -> Program:
        """The result of the last stage. Its backward may be compiled now, or at its first call."""
        return pipeline.with_backward(program)

    def step(self, form: Form, stages: Sequence[Stage]) -> tuple[Form, tuple[Stage, ...]]:
        """Run one stage. Returns its result, and the stages that follow."""
        form = self.request if isinstance(form, Request) else form
        (stage, *remaining) = stages
        result = pipeline.run((stage,), form, self.observer)
        if not remaining and stage.role is Role.CONVENTION:
            return result, pipeline.tail_for(result)
        return result, tuple(remaining)


@contextlib.contextmanager
def entered(
    request: Request,
    session: Session,
    observer: Observer | None = None,
    in_eager: str | None = None,
    eager_after: Callable[[Exception], bool] = is_refusal,
    explained: Callable[[Exception], Exception] | None = None,
) -> Iterator[Pipeline]:
    """The context in which the program of `request` is compiled.

    Args:
        request: changes to its Python objects are undone.
        session: the compilation is added to its recording.
        observer: the one of an earlier part of the same compilation; a new one of the session if None.
        in_eager: the place of the user's code, if the caller will run it in eager after an error of which `eager_after`
            is true. The recording then says that it ran in eager.
        explained: makes of an error the one that is recorded and raised.

    Raises:
        Refused: the function does something that can't be compiled; the message names it.
    """
    observer = observer or session.observer()
    try:
        with lock, sessions.tracing(), put_back.kept(request):
            yield Pipeline(request, observer)
    except Exception as error:
        if scalars.asks_for_restart(error):
            observer.withdraw()
            raise
        told = strays.in_words(error, request) if explained is None else explained(error)
        if told is not None:
            observer.explained(told)
        if in_eager is not None and eager_after(told or error):
            reason, where = why_in_eager(error) if told is None else in_words(told)
            observer.ran_in_eager(reason, where or in_eager)
        if told is None:
            raise
        raise told from error


def guard_duplicates(graph_module: Any, request: Request, program: Program) -> None:
    """Tell Dynamo's running compilation which inputs were merged into one: a guard checks that they are still the same
    tensor. Dynamo has no guard that checks whether different tensors share memory: see memory_patterns.py.
    """
    if not isinstance(graph_module, fx.GraphModule) or not dynamo.compiling():
        return
    own = map(dynamo.source, graph_module.graph.find_nodes(op="placeholder"))
    sources = [*(None for _ in request.named), *own]
    for rewrite in program.call.rewrites:
        if isinstance(rewrite, MergeDuplicates):
            for index, place in enumerate(rewrite.position):
                if rewrite.kept[place] != index:
                    dynamo.guard_same(sources[rewrite.kept[place]], sources[index])


def ran_in_eager(request: Request, session: Session, error: Exception, place: str) -> None:
    """Record a request that is not compiled: the call runs in eager because of `error`."""
    observer, stage = session.observer(), pipeline.prepare()[0].name
    observer.before(stage, request)
    observer.failed(stage, request, error)
    observer.ran_in_eager(str(error), place)


def repeatable(request: Request) -> Request:
    """A request that can still be traced again when the call is over and its arguments are freed."""
    bare = replace(request, args=(), kwargs={}, named=(), captured=None, evidence=())
    return replace(request, surroundings=functools.partial(_again, bare, context.Surroundings()))


@contextlib.contextmanager
def _again(request: Request, modes: context.Surroundings) -> Iterator[None]:
    """Restore the surroundings of a request, which has no arguments here."""
    with modes.again(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the first trace has already shown the warnings
        with lock, sessions.tracing(), put_back.kept(request):
            yield
