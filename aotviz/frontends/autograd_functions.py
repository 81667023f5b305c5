"""Custom autograd Functions that Dynamo captured, with their saved tensors still part of autograd's graph.

Dynamo turns a call of a user's `autograd.Function` into one operator with two graphs. Run as torch runs it, what the
forward saved is held outside of autograd: a first gradient is right, but its own gradient leaves out whatever flows
through a saved tensor, silently. Here the same two graphs are run by a Function that saves as the user's did.
"""

from __future__ import annotations

import ast
import linecache
import re
import warnings
from typing import Any

import torch
import torch.fx as fx
from torch.autograd.function import once_differentiable

from aotviz.torch_private.autograd_nodes import autograd_function_apply
from aotviz.torch_private.runtime import set_grad_enabled


def connected(module: fx.GraphModule) -> fx.GraphModule:
    """`module` with each such operator replaced by `apply`; itself where it has none. Edits no argument."""
    parts = {name: part for name, part in module.named_children() if isinstance(part, fx.GraphModule)}
    changed = {name: made for name, part in parts.items() if (made := connected(part)) is not part}
    if not changed and not _calls(module):
        return module
    graph = fx.Graph()
    graph.output(graph.graph_copy(module.graph, {}))
    for node in graph.find_nodes(op="call_function", target=autograd_function_apply):
        node.target = apply
    copied = fx.GraphModule(module, graph)
    for name, part in changed.items():
        setattr(copied, name, part)
    copied.meta = dict(module.meta)
    return copied


def _calls(module: fx.GraphModule) -> list[fx.Node]:
    return list(module.graph.find_nodes(op="call_function", target=autograd_function_apply))


def apply(fwd: fx.GraphModule, bwd: fx.GraphModule, *args: Any, **facts: Any) -> Any:
    """Run `fwd`, which returns (outputs, what to save); its gradient is `bwd(*gradients, *what was saved)`.

    `facts` are Dynamo's: `saved_for_backward_idx` are the saved values that the user gave to `save_for_backward`, the
    others were kept on `ctx` by name; `non_differentiable_idx` and `dirty_idx` are outputs.
    """
    once, unmaterialized = _once_differentiable(bwd), _unmaterialized(bwd)
    fwd, bwd = _in_any_grad_mode(fwd), _in_any_grad_mode(bwd)
    guarded = set(facts.get("saved_for_backward_idx", ()))
    saved: list[Any] = []

    class Connected(torch.autograd.Function):
        @staticmethod
        def forward(*inputs: Any) -> Any:
            output, values = fx.Interpreter(fwd).run(*inputs)
            saved[:] = values
            return output

        @staticmethod
        def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
            outputs = output if isinstance(output, (tuple, list)) else (output,)
            dirty = [outputs[i] for i in facts.get("dirty_idx", ())]
            constant = [outputs[i] for i in facts.get("non_differentiable_idx", ())]
            if dirty:
                ctx.mark_dirty(*dirty)
            if constant:
                ctx.mark_non_differentiable(*constant)
            ctx.set_materialize_grads(not unmaterialized)
            ctx.layouts = [
                (one.shape, one.dtype, one.device) if isinstance(one, torch.Tensor) else None for one in outputs
            ]
            values = saved.copy()
            saved.clear()  # this class outlives the trace that it runs in, and must hold no tensor of it
            checked = [i for i, value in enumerate(values) if i in guarded and isinstance(value, torch.Tensor)]
            ctx.save_for_backward(*(values[i] for i in checked))
            ctx.checked = checked
            ctx.kept = [None if i in checked else value for i, value in enumerate(values)]

        @staticmethod
        def backward(ctx: Any, *gradients: Any) -> Any:
            if unmaterialized and any(gradient is None for gradient in gradients):
                warnings.warn(
                    f"{unmaterialized} calls ctx.set_materialize_grads(False). Dynamo traced its backward "
                    "with a gradient for each of its results, so it receives zeros where eager passes None. "
                    "If its backward checks for None, keep it out of torch.compile (torch.compiler.disable), "
                    "or use aotviz.compile.",
                    stacklevel=2,
                )
                pairs = zip(gradients, ctx.layouts, strict=True)
                gradients = tuple(g if g is not None or like is None else _zeros(*like) for g, like in pairs)
            values = list(ctx.kept)
            for position, value in zip(ctx.checked, ctx.saved_tensors, strict=True):
                values[position] = value
            return fx.Interpreter(bwd).run(*gradients, *values)

    if once:
        Connected.backward = staticmethod(once_differentiable(Connected.backward))  # type: ignore[method-assign]
    return Connected.apply(*args)


def _once_differentiable(bwd: fx.GraphModule) -> bool:
    """Whether the user's backward is decorated so. Dynamo inlines the decorator; the lines it came through remain."""
    frame = re.compile(rf'File "{re.escape(str(once_differentiable.__code__.co_filename))}", line \d+, in wrapper')
    traces = [
        node.meta.get("stack_trace") or "" for node in bwd.graph.nodes if node.op in ("call_function", "call_method")
    ]
    return any(map(frame.search, traces))


def _zeros(shape: torch.Size, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    return torch.zeros(shape, dtype=dtype, device=device)


def _unmaterialized(bwd: fx.GraphModule) -> str:
    """The name of the user's Function if its text says `set_materialize_grads(False)`, of which Dynamo's graphs know
    nothing; else nothing."""
    lines: dict[str, list[str]] = {}  # of each file, which is read once for all nodes
    for node in bwd.graph.nodes:
        for filename, line in re.findall(r'File "(.+)", line (\d+), in backward\b', node.meta.get("stack_trace") or ""):
            lines.setdefault(filename, []).append(line)
    for filename, found in lines.items():
        try:
            program = ast.parse("".join(linecache.getlines(filename)))
        except SyntaxError:
            continue
        kinds = [one for one in ast.walk(program) if isinstance(one, ast.ClassDef)]
        for line in dict.fromkeys(found):
            around = [kind for kind in kinds if kind.lineno <= int(line) <= (kind.end_lineno or 0)]
            if around and "set_materialize_grads(False)" in ast.unparse(around[-1]):
                return around[-1].name
    return ""


def _in_any_grad_mode(body: fx.GraphModule) -> fx.GraphModule:
    """`body` without the no_grad around the whole that Dynamo traced it under: autograd sets the mode, as in eager.

    An input that a forward returns as it is leaves as a view, which Dynamo takes behind that no_grad: with gradients
    recorded it would be a plain view of the input, and the backward of the Function forgotten.
    """
    modes = [node for node in body.graph.nodes if node.target is set_grad_enabled]
    if not modes or modes[0].args != (False,) or modes[-1].args != (True,):
        return body
    graph = fx.Graph()
    mapping: dict[fx.Node, fx.Node] = {}
    graph.output(graph.graph_copy(body.graph, mapping))
    for mode in (modes[0], modes[-1]):
        graph.erase_node(mapping[mode])
    return fx.GraphModule(body, graph)
