"""Facts about a user's `autograd.Function` that Dynamo's graph of its backward does not contain.

Dynamo inlines the decorator `once_differentiable`, and drops a call of `ctx.set_materialize_grads(False)`. Both change
what the gradient is. Stack traces of the graph show the first, and lead to the source that has the second.
"""

from __future__ import annotations

import ast
import functools
import linecache
import re

import torch.fx as fx
from torch.autograd.function import once_differentiable

_DECORATED = re.compile(rf'File "{re.escape(str(once_differentiable.__code__.co_filename))}", line \d+, in wrapper')
_IN_BACKWARD = re.compile(r'File "(.+)", line (\d+), in backward\b')


def is_once_differentiable(bwd: fx.GraphModule) -> bool:
    """Whether the user's backward is `once_differentiable`."""
    calls = [node for node in bwd.graph.nodes if node.op in ("call_function", "call_method")]
    return any(_DECORATED.search(node.meta.get("stack_trace") or "") for node in calls)


def unmaterialized(bwd: fx.GraphModule) -> str:
    """The name of the user's Function if its source calls `set_materialize_grads(False)`, else ""."""
    lines: dict[str, list[int]] = {}
    for node in bwd.graph.nodes:
        for filename, line in _IN_BACKWARD.findall(node.meta.get("stack_trace") or ""):
            lines.setdefault(filename, []).append(int(line))
    for filename, found in lines.items():
        source = "".join(linecache.getlines(filename))
        if "set_materialize_grads(False)" not in source:
            continue
        for line in dict.fromkeys(found):
            around = [(name, has_call) for first, last, name, has_call in _classes(source) if first <= line <= last]
            if around and around[-1][1]:
                return around[-1][0]
    return ""


@functools.lru_cache(16)
def _classes(source: str) -> tuple[tuple[int, int, str, bool], ...]:
    """(first line, last line, name, whether it has the call) of each class of a file, outer ones first. The tree itself
    is not kept: it takes a hundred times the memory of the file."""
    try:
        kinds = [one for one in ast.walk(ast.parse(source)) if isinstance(one, ast.ClassDef)]
    except SyntaxError:
        return ()
    call = "set_materialize_grads(False)"
    return tuple((one.lineno, one.end_lineno or 0, one.name, call in ast.unparse(one)) for one in kinds)
