"""`aotviz.bisect`: the first stage, and then the first node, whose result differs from eager.

The call runs through a ladder of programs. The lowest only traces; each higher one adds one thing from the user or the
backend: decompositions, a joint pass, a partitioner, a compiler. Each program goes through the whole pipeline, and
everything that a caller can see is compared with eager, so the first wrong program gives the stage. The program below
it is right, and the values of all its nodes are recorded. Comparing with these values finds the node.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aotviz.comparing import errors, locating
from aotviz.comparing.given_call import in_eager, place, refuse_unsteady, trial_of
from aotviz.comparing.judging import judge
from aotviz.comparing.locating import Culprit, Watch
from aotviz.comparing.observed import Candidate, Verdict
from aotviz.comparing.repro import write as write_repro
from aotviz.frontends.cached import compile_traced
from aotviz.frontends.requests import request_for, root_of
from aotviz.lowerings import EAGER, Lowering, lowering_named, run_graph
from aotviz.options import Options, compilers
from aotviz.reading.recording import Recording
from aotviz.recorder.sessions import Session
from aotviz.torch_private.partitioners import default_partition

if TYPE_CHECKING:
    import pandas as pd

REPRO = "aotviz_repro.py"


@dataclass(frozen=True)
class Bisection:
    """What `aotviz.bisect` found. `bool()` of it is False if nothing differs."""

    name: str
    tried: tuple[tuple[str, str], ...]  # (rung of the ladder, "right" or what is wrong with it)
    stage: str = ""
    node: str = ""
    operator: str = ""
    place: str = ""  # the user's line: "model.py:12"
    code: str = ""  # the text of that line
    what: str = ""  # how the values differ
    repro: Path | None = None
    recording: Recording | None = field(default=None, repr=False, compare=False)  # the graph, painted with `errors`

    @property
    def errors(self) -> pd.Series[Any]:
        """How wrong the nodes are, by graph ("" means all of the stage's) and node; empty if that is unknown.

        It is the largest absolute difference of an element: NaN if only one is NaN, infinite if the dtypes, shapes or
        devices differ. If there is no right value to compare with, it is a text.
        """
        import pandas as pd  # imported here because it takes half a second

        if self.recording is None:
            return pd.Series(dtype=float)
        return self.recording.paintings.set_index(["graph", "node"]).value

    def __bool__(self) -> bool:
        return bool(self.stage)

    def __str__(self) -> str:
        if not self.stage:
            return f"{self.name}: nothing differs from eager ({', '.join(rung for rung, _ in self.tried)})"
        node = f", node {self.node!r}" if self.node else ""
        operator = f" ({self.operator})" if self.operator else ""
        where = f", from {self.place}" + (f" `{self.code}`" if self.code else "") if self.place else ""
        written = f"\nrun it again: python {self.repro}" if self.repro else ""
        return f"stage {self.stage!r}{node}{operator}{where}: {self.what}{written}"

    def _repr_html_(self) -> str:
        """The text of `str(self)`, escaped for HTML."""
        return f"<pre style='white-space:pre-wrap'>{escape(str(self))}</pre>"

    def _ipython_display_(self) -> None:
        """The text; and in a notebook, the graph after the stage at fault, painted with the error of each node."""
        errors.display(str(self), self._repr_html_(), self.recording)


@dataclass(frozen=True)
class Rung:
    """One program of the ladder: the stage that it adds, and the options that it is compiled with."""

    stage: str
    adds: str
    options: Options
    lowering: Lowering = EAGER  # whose context it is compiled in
    watch: Watch = field(default_factory=Watch)
    sessions: list[Session] = field(default_factory=list)  # with what was recorded, one for each compilation

    def candidate(self) -> Candidate:
        """A compiler with this rung's options that records the value of every node."""
        options = self.watch.watching(self.options)

        def compile(fn: Any, _dynamic: bool) -> Callable[..., Any]:
            known: list[Callable[..., Any]] = []

            def call(*args: Any, **kwargs: Any) -> Any:
                if not known:
                    request = request_for(fn, args, kwargs, options, root_module=root_of(fn))
                    self.sessions.append(Session(True, request.name))
                    with self.lowering.around():
                        program = compile_traced(request, self.sessions[-1], None)
                    known.append(program.function)
                return known[0](*args, **kwargs)

            return call

        return Candidate(self.adds, compile)


def bisect(
    fn: Callable[..., Any],
    *args: Any,
    options: Mapping[str, Any] | None = None,
    repro: str | Path | None = REPRO,
    **kwargs: Any,
) -> Bisection:
    """Find the first stage and node at which a compiled call differs from eager, and write a script to reproduce it.

    Only copies of `fn` and its arguments are used, so neither changes.

    Args:
        fn: a function or module.
        args, kwargs: the call that goes wrong.
        options: the arguments of `aotviz.compile`, e.g. {"backend": my_compiler}; without a backend, the graphs run
            uncompiled.
        repro: where to write the script and its inputs if something differs; None for no script.

    Raises:
        TypeError: `fn` or an argument cannot be copied.
        RuntimeError: the call fails in eager, or returns different results each time.

    >>> import torch, aotviz
    >>> wrong = {torch.ops.aten.sin.default: torch.cos}
    >>> found = aotviz.bisect(lambda x: x.sin() + 1, torch.zeros(2), options={"decompositions": wrong}, repro=None)
    >>> found.stage, found.node, found.operator
    ('trace', 'sin', 'aten.sin.default')
    """
    settings = dict(options or {})
    name, program, expected = in_eager(fn, args, kwargs)
    tried: list[tuple[str, str]] = []
    below: Rung | None = None
    for rung in _ladder(settings):
        verdict = judge(program, rung.candidate(), expected)
        right = verdict.status in ("equal", "details")
        lie = locating.fake_and_real(rung.watch) if below is None else None  # compilers rely on the fake result
        tried.append((rung.adds, "right" if right else verdict.status))
        if right and lie is None:
            below = rung
            continue
        if not right:
            refuse_unsteady(name, program, expected)
        culprit = lie or _culprit(fn, args, kwargs, rung, below)
        stage, culprit = (rung.stage, culprit) if culprit is not None else _without_node(rung, below, verdict)
        at, code = place(culprit.stack), locating.code_of(culprit.stack)
        found = Bisection(name, tuple(tried), stage, culprit.node, culprit.operator, at, code, culprit.what)
        if culprit.values:
            # A decomposition is judged by the graph without it.
            shown = below if below is not None and rung.stage == "trace" else rung
            recording = errors.painted(shown.sessions, stage, culprit.node, culprit.values, str(found))
            found = replace(found, recording=recording)
        written = None if repro is None else write_repro(Path(repro), fn, args, kwargs, settings, str(found))
        return replace(found, repro=written)
    return Bisection(name, tuple(tried))


def _ladder(settings: dict[str, Any]) -> list[Rung]:
    """The programs from a plain trace to the full settings, one for each thing that the settings add."""
    chosen = dict(settings)
    lowering = lowering_named(chosen.pop("backend", "eager"), chosen.pop("options", None))
    for name in ("record", "on_stage", "debug"):
        chosen.pop(name, None)
    full = lowering.options(**chosen)
    options = replace(
        full,
        **compilers(run_graph),
        partition_fn=default_partition,
        joint_custom_pass=None,
        joint_pass=None,
        decompositions=None,
        keep_inference_input_mutations=False,
        graph_counts_writes=True,
    )
    rungs = [Rung("trace", "traced", options)]
    if full.decompositions:
        options = replace(options, decompositions=full.decompositions)
        rungs.append(Rung("trace", "with decompositions", options))
    if full.joint_custom_pass is not None:
        options = replace(options, joint_custom_pass=full.joint_custom_pass)
        rungs.append(Rung("partition", "with your joint pass", options))
    if full.joint_pass is not None:
        options = replace(options, joint_pass=full.joint_pass)
        rungs.append(Rung("partition", "with the joint pass", options, lowering))
    if full.partition_fn is not default_partition:
        options = replace(options, partition_fn=full.partition_fn)
        rungs.append(Rung("partition", "partitioned", options, lowering))
    if any(c is not run_graph for c in (full.fw_compiler, full.bw_compiler, full.inference_compiler)):
        rungs.append(Rung("lower", f"compiled by {full.backend}", full, lowering))
    return rungs


def _without_node(rung: Rung, below: Rung | None, verdict: Verdict) -> tuple[str, Culprit]:
    """The stage to blame, and how the results differ, if no node is wrong."""
    problems = [str(d) for d in verdict.differences if not d.soft] + [str(failure) for _, failure in verdict.failures]
    only_raised = bool(verdict.failures) and not verdict.differences
    stage = rung.stage if only_raised or below is not None else "link"
    return stage, Culprit("", "", "", problems[0] if problems else verdict.status)


def _culprit(
    fn: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], rung: Rung, below: Rung | None
) -> Culprit | None:
    """The first node whose value differs between a wrong rung and the right one below it."""
    if below is None:
        return locating.against_eager(trial_of(fn, args, kwargs).builds[0](), rung.watch)
    if rung.stage == "trace":
        return locating.wrong_decomposition(below.watch, rung.options.decompositions or {})
    if rung.stage == "partition":
        return locating.by_name(below.watch, rung.watch)
    return locating.wrong_compilation(rung.watch)
