"""Records what Dynamo leaves to eager because it would be wrong, or because Dynamo fails at it.

Dynamo loses the backward of a custom `autograd.Function` inside a transform of torch.func, and fails at some programs.
For aotviz's backends that part runs in eager (torch_private/dynamo_failures.py). Where a graph breaks and cannot be
resumed, as inside of `with torch.autograd.graph.save_on_cpu()`, Dynamo runs all of the function in eager. If nothing of
it is left to compile, no compilation would say so: this does.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import NamedTuple

from aotviz.ir.forms import Form
from aotviz.options import Options
from aotviz.recorder.sessions import Session
from aotviz.recording import dynamo_stage
from aotviz.torch_private import dynamo_failures

_SAID = (
    re.compile(r"\bgot (\w+)\((?:'|\")(.*?)(?:\\n.*?)?(?:'|\")\)", re.DOTALL),
    re.compile(r"()Explanation: (.*?)(?:\. Please|\n|$)"),
)
_IN_TORCH = re.compile(r' at "[^"]*":\d+, please report a bug to PyTorch')


class NotTraced(RuntimeError):
    """Dynamo leaves a call to eager."""


@dataclass(frozen=True)
class _Call(Form):
    name: str


class Said(NamedTuple):
    """What is told of a part that runs in eager."""

    sentence: str
    reason: str  # beside the function's name
    place: str  # "file:line in function"


def said(left: dynamo_failures.Left) -> Said:
    place = dynamo_stage.plain_name(left.place)
    if left.part == "frame":
        from aotviz.explain import graph_breaks  # a compilation that nothing ends needs no sentences

        why, raises = graph_breaks.meaning(left.why)[0], left.why.startswith("Observed exception")
        why += ", and Dynamo does not try again" if raises else ", and Dynamo cannot resume the graph there"
        return Said(f"{dynamo_stage.rests_named(f'`{left.function}`')} runs in eager: {why}", why, place)
    if left.lost:
        why = f"Dynamo would lose the backward of {left.why} inside it"
    else:
        why = f"Dynamo fails {'inside' if left.part == 'transform' else 'at'} it: {failure(left.why)}"
    function = f"`{left.function}`"
    if left.part == "function":
        return Said(f"{dynamo_stage.rests_named(function)} runs in eager because {why}", why, place)
    part = "a transform of torch.func" if left.part == "transform" else "a call"
    return Said(f"{part} in {function} runs in eager because {why}", f"{part} runs in eager: {why}", place)


def tell(said: Said, name: str, options: Options, session: Session) -> None:
    """Record that a part of the function `name` runs in eager."""
    call, observer = _Call(options, name), session.observer()
    observer.before(dynamo_stage.NAME, call)
    observer.failed(dynamo_stage.NAME, call, NotTraced(said.reason))
    observer.ran_in_eager(said.reason, said.place)


def failure(message: str) -> str:
    """What failed, of the message of a graph break.

    >>> failure("RuntimeError when making fake tensor call\\n  Explanation: Dynamo failed: got RuntimeError('no grad')")
    'RuntimeError: no grad'
    """
    for pattern in _SAID:
        if found := pattern.search(message):
            said = ": ".join(part.strip().partition(". ")[0] for part in found.groups() if part)
            return _IN_TORCH.sub("", said)
    return message.strip().partition("\n")[0]
