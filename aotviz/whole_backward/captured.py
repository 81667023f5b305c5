"""What the stages of a captured backward hand on.

    BackwardCall    a call of `backward()` or `torch.autograd.grad`
    WholeBackward   one graph of the whole backward, in the order in which C++ told of it, then in eager's
    PartedBackward  its graph calls graphs that the compiler makes
    ReplayedBackward   the Python function that runs it

A node of the graph belongs to one *visit*: autograd's engine running one of its nodes. `node.meta["visit"]` is the
position of that visit in `WholeBackward.visits`; inputs have none.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch.fx as fx

from aotviz.ir.forms import Form, Note

Replay = Callable[[Sequence[Any], Sequence[int], Sequence[Any], Sequence[Any], Sequence[Any]], list[Any]]


@dataclass(frozen=True)
class Visit:
    """The engine runs one node of autograd's graph."""

    name: str  # "MulBackward0"
    subject: str  # of AccumulateGrad: the leaf, by the user's name; "" if unknown
    sequence: int  # larger runs earlier, among those whose gradients are complete; FIRST for AccumulateGrad
    number: int  # in the order in which C++ visits them

    def __str__(self) -> str:
        return f"{self.name} of {self.subject}" if self.subject else self.name


FIRST = 2**64 - 1


@dataclass(frozen=True)
class Lifted:
    """An input of the graph: a tensor, a size or a number that one of autograd's nodes keeps."""

    kind: str  # "tensor", "size" or "scalar"
    position: int  # in C++'s list of that kind
    visit: int  # the one that reads it first, -1 if none does
    name: str  # the user's name, or that of the node that reads it first and a number; no other input has it
    is_users: bool  # the name is the user's
    shape: tuple[int, ...]  # of a tensor
    dtype: str  # of a tensor, "" for others


@dataclass(frozen=True)
class BackwardCall(Form):
    """A backward that is to be captured."""

    name: str
    because: tuple[str, ...]  # how it differs from each backward that was captured before, the newest first


@dataclass(frozen=True)
class WholeBackward(Form):
    """The captured backward. The graph's placeholders are those of `inputs`, then `hooks` and `packed`."""

    name: str
    graph: fx.Graph
    visits: tuple[Visit, ...]  # in the order in which they run
    inputs: tuple[Lifted, ...]
    done: tuple[tuple[str, ...], ...]  # per visit, in the order of `visits`, what is done at it (reasons.py)
    elapsed_ns: int  # that capturing took
    number: int  # torch's, of captured backwards

    @property
    def graphs(self) -> Mapping[str, fx.Graph]:
        return {"backward": self.graph}


@dataclass(frozen=True)
class Account:
    """What became of one visit."""

    steps: tuple[str, ...]  # nodes of the graph before it was divided into parts
    hooks: tuple[str, ...]  # the kinds of the hooks that are called, in order
    waits_for: tuple[int, ...]  # visits whose results it reads
    frees: tuple[str, ...]  # inputs of the graph that nothing reads after it
    parts: tuple[int, ...]  # numbers of the parts that compute it
    copied: str  # the prefix of steps that come from a compiled backward


@dataclass(frozen=True)
class PartedBackward(WholeBackward):
    """A whole backward whose parts are nodes of its graph."""

    account: tuple[Account, ...]  # one per visit


@dataclass(frozen=True)
class ReplayedBackward(Form):
    """The Python that runs a captured backward."""

    name: str
    call: PartedBackward
    function: Replay
    filename: str
    source: str
    notes: tuple[Note, ...]

    @property
    def graphs(self) -> Mapping[str, fx.Graph]:
        return self.call.graphs

    @property
    def texts(self) -> Mapping[str, str]:
        return {"replay": self.source}
