"""`aotviz.verify`: does aotviz compile a call correctly, and as torch does?

The call runs in eager, through aotviz and through torch's own AOTAutograd, each time on fresh copies of its inputs.
`verify` compares outputs, gradients (also missing ones), mutations, aliasing and version counters, and the joint,
forward and backward graphs up to renaming. Eager decides what is right; torch is shown for comparison.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from html import escape
from typing import Any

import torch

from aotviz.comparing import caught_graphs, errors
from aotviz.comparing.bisecting import Bisection, bisect
from aotviz.comparing.given_call import fresh, in_eager, place, refuse_unsteady
from aotviz.comparing.judging import judge
from aotviz.comparing.observed import Candidate, Failure, Verdict
from aotviz.comparing.same_graph import GraphDifference, difference
from aotviz.frontends.compile import compile
from aotviz.torch_private.partitioners import min_cut_rematerialization_partition

STAGE_OF = {"joint": "trace", "inference": "trace", "forward": "partition", "backward": "partition"}


@dataclass(frozen=True)
class GraphCheck:
    """One of our graphs compared with torch's. `difference` is None if they are the same up to renaming."""

    role: str
    nodes: int
    torch_nodes: int
    difference: GraphDifference | None

    @property
    def stage(self) -> str:
        return STAGE_OF[self.role]

    def __str__(self) -> str:
        if self.difference is None:
            return f"{self.role}: the same {self.nodes} nodes"
        return f"{self.role}: {self.nodes} nodes against torch's {self.torch_nodes}; {self.difference}"


@dataclass(frozen=True)
class Verification:
    """What `aotviz.verify` found. `bool()` of it is True if aotviz is right. Print it, or let a notebook show it."""

    name: str
    ours: Verdict
    torchs: Verdict
    graphs: tuple[GraphCheck, ...]
    graphs_missing: str  # why the graphs could not be compared; "" if they were
    cause: Bisection | None  # what `bisect` found, if ours is wrong

    @property
    def equal(self) -> bool:
        """Whether aotviz gives the same as eager, except for details that cannot cause a wrong number."""
        return self.ours.status in ("equal", "details")

    def __bool__(self) -> bool:
        return self.equal

    @property
    def verdict(self) -> str:
        """In one word: "right", "wrong", or "raises" if aotviz raised an error and no result is wrong."""
        return "right" if self.equal else "raises" if self.ours.status == "raised" else "wrong"

    @property
    def same_graphs(self) -> bool:
        """Whether all graphs are the same as torch's up to renaming."""
        return bool(self.graphs) and all(check.difference is None for check in self.graphs)

    @property
    def first_difference(self) -> str:
        """A sentence on the first difference, with its stage and node, or ""."""
        if self.cause is not None and not self.equal:
            return str(self.cause)
        for check in self.graphs:
            if check.difference is not None:
                where = place(check.difference.stack)
                at = f" ({where})" if where else ""
                return f"stage {check.stage!r}, node {check.difference.node!r}{at}: {check.difference}"
        return ""

    @property
    def _about_first(self) -> str:
        """What to call the first difference: it is nothing to worry about if only the graphs have one."""
        return "the results are right, by other nodes than torch's" if self.equal else "first difference"

    def rows(self) -> list[tuple[str, str, str]]:
        """(what was compared, the finding, details) of each comparison."""
        found = [("aotviz and eager", *_spoken(self.ours)), ("torch and eager", *_spoken(self.torchs))]
        found += [("in part", "ran in eager", text) for text in self.ours.in_eager]
        for check in self.graphs:
            same = check.difference is None
            text = f"{check.nodes} nodes" if same else str(check.difference)
            found.append((f"{check.role} graph and torch's", "same" if same else "other nodes", text))
        if self.graphs_missing:
            found.append(("graphs and torch's", "not compared", self.graphs_missing))
        return found

    def __str__(self) -> str:
        rows = self.rows()
        width = max(len(what) for what, _, _ in rows)
        lines = [f"{self.name}: {self.verdict}"]
        for what, finding, more in rows:
            head, *rest = more.splitlines() or [""]
            lines.append(f"  {what:{width}}  {finding:12}  {head}".rstrip())
            lines += [f"  {'':{width}}  {'':12}  {line}" for line in rest]
        if self.first_difference:
            lines.append(f"{self._about_first}: {self.first_difference}")
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        """The rows as an HTML table, with every text escaped."""
        body = "".join(
            f"<tr><td>{escape(what)}</td><td>{escape(finding)}</td>"
            f"<td style='text-align:left'><pre style='margin:0'>{escape(more)}</pre></td></tr>"
            for what, finding, more in self.rows()
        )
        said = f"{self._about_first[0].upper()}{self._about_first[1:]}: {self.first_difference}"
        first = f"<p>{escape(said)}</p>" if self.first_difference else ""
        verdict = self.verdict if self.equal else f"<strong>{self.verdict}</strong>"
        head = "<tr><th>compared</th><th>finding</th><th>more</th></tr>"
        return (
            f"<table><caption>{escape(self.name)}: {verdict}</caption>"
            f"<thead>{head}</thead><tbody>{body}</tbody></table>{first}"
        )

    def _ipython_display_(self) -> None:
        """The table; and in a notebook, if aotviz is wrong, the graph painted with the error of each node."""
        errors.display(str(self), self._repr_html_(), self.cause.recording if self.cause is not None else None)


def verify(fn: Callable[..., Any], *args: Any, options: Mapping[str, Any] | None = None, **kwargs: Any) -> Verification:
    """Compare aotviz with eager and with torch's own AOTAutograd on one call.

    Only copies of `fn` and its arguments are used, so neither changes.

    Args:
        fn: a function or module.
        args, kwargs: the call.
        options: arguments of `aotviz.compile`, e.g. {"backend": "inductor"}; without a backend, the graphs run
            uncompiled.

    Raises:
        TypeError: `fn` or an argument cannot be copied, or `torch.compile` returned `fn`.
        RuntimeError: the call fails in eager, or returns different results each time.

    >>> import torch, aotviz
    >>> found = aotviz.verify(lambda x, y: (x * y).sin(), torch.ones(3, requires_grad=True), torch.ones(3))
    >>> found.equal, found.same_graphs
    (True, True)
    """
    settings: dict[str, Any] = {"backend": "eager", "record": False, "cache": False, **(options or {})}
    # Without "raise", a refused graph would run in eager, and eager always equals eager.
    settings["options"] = {"on_refusal": "raise", **(settings.get("options") or {})}
    name, program, expected = in_eager(fn, args, kwargs)
    ours = Candidate("aotviz", lambda f, _: compile(f, **settings))
    traced: dict[str, Any] = {
        "partition_fn": settings.get("partition_fn") or min_cut_rematerialization_partition,
        "decompositions": settings.get("decompositions"),
        "dynamic": bool(settings.get("dynamic")),
    }
    theirs = Candidate("torch", lambda f, _: caught_graphs.torchs(f, **traced), loose_tuple=True)
    verdict = judge(program, ours, expected)
    graphs, missing = _graphs(fn, args, kwargs, traced)
    cause = None
    if verdict.status not in ("equal", "details"):
        refuse_unsteady(name, program, expected)
        cause = bisect(fn, *args, options=options, repro=None, **kwargs)
    return Verification(name, verdict, judge(program, theirs, expected), graphs, missing, cause)


def _graphs(
    fn: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], settings: Mapping[str, Any]
) -> tuple[tuple[GraphCheck, ...], str]:
    """The comparison of each of our graphs with torch's, and why they cannot be compared ("" if they can)."""
    found = []
    for whose, door in (("aotviz", caught_graphs.ours), ("torch", caught_graphs.torchs)):
        new_fn, new_args, new_kwargs, _ = fresh(fn, args, kwargs)
        try:
            found.append(caught_graphs.graphs_of(door, new_fn, new_args, new_kwargs, settings))
        except Exception as error:
            return (), f"{whose} raised {Failure.of(error, 'compile')}"
        finally:
            torch.set_grad_enabled(True)
    mine, theirs = found
    if mine.keys() != theirs.keys():
        return (), f"aotviz produced {' and '.join(mine)}, torch produced {' and '.join(theirs)}"
    pairs = [(role, mine[role], theirs[role]) for role in mine]
    return tuple(GraphCheck(role, len(a.graph.nodes), len(b.graph.nodes), difference(a, b)) for role, a, b in pairs), ""


def _spoken(verdict: Verdict) -> tuple[str, str]:
    lines = [str(d) for d in (*verdict.differences[:8], *(f"{run}: {failure}" for run, failure in verdict.failures))]
    more = len(verdict.differences) - 8
    rest = [f"and {more} more differences"] if more > 0 else []
    return verdict.status, "\n".join([*lines, *rest, *verdict.alike])
