"""Records what Dynamo leaves to eager because it would be wrong, or because Dynamo fails at it.

Dynamo loses the backward of a custom `autograd.Function` inside a transform of torch.func, and fails at some nested
transforms, such as `vmap(hessian(f))`. For aotviz's backends it breaks the graph there (torch_private/
dynamo_in_transforms.py). If nothing of the function is left to compile, no compilation would say so: this does.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from aotviz.ir.forms import Form
from aotviz.options import Options
from aotviz.recorder.sessions import Session
from aotviz.recording import dynamo_stage

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


def tell(why: str, name: str, options: Options, session: Session, place: str) -> None:
    """Record that a call in the function `name` runs in eager; `place` is "file:line in function"."""
    call, observer = _Call(options, name), session.observer()
    observer.before(dynamo_stage.NAME, call)
    observer.failed(dynamo_stage.NAME, call, NotTraced(why))
    observer.ran_in_eager(why, place)


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
