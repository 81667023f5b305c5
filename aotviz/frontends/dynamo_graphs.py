"""Graphs from Dynamo, made into graphs that the pipeline takes and differentiates as eager does.

Dynamo turns a call of a user's `autograd.Function` into one operator, `autograd_function_apply`, with two graphs.
torch's implementation of this operator keeps what the forward saved outside of the autograd graph. The first gradient
is then right, but the gradient of that gradient silently omits whatever flows through a saved tensor. Here a Function
runs the same two graphs, and saves its tensors as the user's Function did (`connected`).

Compiled autograd passes the saved tensors to its backward in one list, so that the callee can free them. Dynamo keeps
that list as one input of the graph. The pipeline takes flat inputs only: each nested input is replaced by its leaves
(`flattened`).

While torch's compiled autograd is switched on, Dynamo does not stop at a gradient hook on an intermediate tensor. The
graph has a call that registers the hook, and an input, a `BackwardState`, where Dynamo puts the hook after each
forward. For a backward hook of a module, it also has calls of the `BackwardHook` that such a call returns. When the
backward is captured, the backward of a compiled graph is one node, and no hook can be called in the middle of it. So
the graph is split at these calls, as Dynamo does otherwise (`compiled_in_pieces`).
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
import torch.fx as fx
from torch.autograd.function import once_differentiable
from torch.fx.passes.split_module import split_module
from torch.utils.hooks import BackwardHook

from aotviz.ir import backward_bodies
from aotviz.torch_private import dynamo, graph_modes, operators, pytree, runtime
from aotviz.torch_private.autograd_nodes import autograd_function_apply
from aotviz.torch_private.tensors import belongs_to_a_transform, has_no_memory
from aotviz.tracing import functional

OF_HOOKS = (dynamo.BackwardState, BackwardHook)  # neither is a value that a compiled graph can take
Compile = Callable[[fx.GraphModule, Sequence[Any]], Callable[..., Any]]
_PART = "aotviz_part_of"
_REASON = "compile_subgraph_reason"  # Dynamo's attribute of the graph module


def flattened(module: Any, inputs: Sequence[Any]) -> tuple[Any, list[Any], Callable[[Sequence[Any]], list[Any]] | None]:
    """The graph with flat inputs, these inputs, and a function that flattens a call's inputs (None if they are flat
    already)."""
    nested = {i for i, value in enumerate(inputs) if not pytree.tree_structure(value).is_leaf()}
    if not nested or not isinstance(module, fx.GraphModule):
        return module, list(inputs), None
    graph = fx.Graph()
    graph.output(graph.graph_copy(module.graph, {}))
    nodes = list(graph.find_nodes(op="placeholder"))
    freed = [i for i in nested if nodes[i].meta.get("steal_arg", False)]
    for i in sorted(nested):
        _take_apart(graph, nodes[i], inputs[i])
    flat = fx.GraphModule(module, graph)
    describe(flat, module)

    def leaves(passed: Sequence[Any]) -> list[Any]:
        found = pytree.tree_leaves(list(passed))
        for i in freed:
            passed[i].clear()
        return found

    return flat, pytree.tree_leaves(list(inputs)), leaves


def zeros_without_memory(module: Any) -> tuple[int, ...]:
    """The inputs that are zeros without memory, as a gradient through `sgn` is. Dynamo guards this.

    Their fakes have memory, so compiled code reads it: each is copied before the graph is called.
    """
    inputs = module.graph.find_nodes(op="placeholder") if isinstance(module, fx.GraphModule) else ()
    examples = enumerate(map(dynamo.example, inputs))
    return tuple(i for i, one in examples if isinstance(one, torch.Tensor) and has_no_memory(one))


def left_by_transforms(inputs: Sequence[Any]) -> tuple[int, ...]:
    """The inputs that a transform of torch.func made which has ended: what a Function saved in it. Dynamo guards this.

    Operators take the tensor inside; a trace and compiled code need its memory.
    """
    return tuple(i for i, one in enumerate(inputs) if isinstance(one, torch.Tensor) and belongs_to_a_transform(one))


def describe(made: fx.GraphModule, module: fx.GraphModule) -> None:
    """Keep what Dynamo tells of `module` in a graph that was made from it."""
    made.meta = dict(module.meta)
    if hasattr(module, _REASON):
        setattr(made, _REASON, getattr(module, _REASON))


def part_of(node: fx.Node) -> tuple[fx.Node, str] | None:
    """For a leaf of a nested input: the input, and the position of the leaf in it, e.g. "[0]"."""
    found: tuple[fx.Node, str] | None = node.meta.get(_PART)
    return found


def _take_apart(graph: fx.Graph, node: fx.Node, value: Any) -> None:
    paths, spec = pytree.tree_flatten_with_path(value)
    made = []
    with graph.inserting_before(node):
        for path, leaf in paths:
            part = graph.placeholder(node.name + "".join(f"_{_key(entry)}" for entry in path))
            part.meta[_PART] = (node, pytree.keystr(path))
            if isinstance(leaf, torch.Tensor):
                part.meta["example_value"] = leaf
            made.append(part)
    _replace(graph, node, pytree.tree_unflatten(made, spec))


def _key(entry: Any) -> Any:
    return getattr(entry, "idx", getattr(entry, "key", "part"))


def _replace(graph: fx.Graph, node: fx.Node, parts: Any) -> None:
    """Let the users of the nested `node` read its parts."""
    for user in list(node.users):
        if _is_item(user, node, parts):
            part = parts[user.args[1]]
            if isinstance(part, fx.Node):
                user.replace_all_uses_with(part)
                graph.erase_node(user)
            else:
                _replace(graph, user, part)
        else:
            user.args = fx.node.map_arg(user.args, lambda n: parts if n is node else n)
            user.kwargs = fx.node.map_arg(user.kwargs, lambda n: parts if n is node else n)
    graph.erase_node(node)


def _is_item(user: fx.Node, node: fx.Node, parts: Any) -> bool:
    takes = user.op == "call_function" and getattr(user.target, "__name__", "") == "getitem" and user.args[0] is node
    key = user.args[1] if takes else None
    return takes and (isinstance(key, int) or (isinstance(parts, Mapping) and isinstance(key, str)))


def connected(module: fx.GraphModule) -> fx.GraphModule:
    """A copy of `module` with `apply` for each `autograd_function_apply`, `assign_data` for each operator that assigns
    `x.data`, and modes that `graph_modes.put_back` can leave. `module` itself if nothing changes."""
    parts = {name: part for name, part in module.named_children() if isinstance(part, fx.GraphModule)}
    changed = {name: made for name, part in parts.items() if (made := connected(part)) is not part}
    applies = module.graph.find_nodes(op="call_function", target=autograd_function_apply)
    assigns = operators.assignments_of_data(module.graph)
    if not changed and not applies and not assigns and not graph_modes.has_modes(module.graph):
        return module
    graph = fx.Graph()
    graph.output(graph.graph_copy(module.graph, {}))
    for node in graph.find_nodes(op="call_function", target=autograd_function_apply):
        node.target = apply
    for node in operators.assignments_of_data(graph):
        node.target = assign_data
    graph_modes.follow(graph)
    copied = fx.GraphModule(module, graph)
    for name, part in changed.items():
        setattr(copied, name, part)
    copied.meta = dict(module.meta)
    return copied


def assign_data(tensor: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    """`tensor.data = value`."""
    functional.point_to(tensor, value)
    return tensor


def apply(fwd: fx.GraphModule, bwd: fx.GraphModule, *args: Any, **facts: Any) -> Any:
    """Run `fwd`, which returns (outputs, saved values). The gradient is `bwd(*gradients, *saved values)`.

    `facts` come from Dynamo. `saved_for_backward_idx` are positions of the saved values that the user passed to
    `save_for_backward`; the user stored the others as attributes of `ctx`. `non_differentiable_idx` and `dirty_idx`
    are positions of outputs.
    """
    once, unmaterialized = backward_bodies.is_once_differentiable(bwd), backward_bodies.unmaterialized(bwd)
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
            ctx.mark_dirty(*dirty)
            ctx.mark_non_differentiable(*constant)
            ctx.set_materialize_grads(not unmaterialized)
            ctx.layouts = [_layout(one) for one in outputs]
            values = saved.copy()
            saved.clear()  # this class outlives the trace, and must hold none of its tensors
            ctx.checked = [i for i, value in enumerate(values) if i in guarded and isinstance(value, torch.Tensor)]
            ctx.save_for_backward(*(values[i] for i in ctx.checked))
            ctx.kept = [None if i in ctx.checked else value for i, value in enumerate(values)]

        @staticmethod
        def backward(ctx: Any, *gradients: Any) -> Any:
            if unmaterialized and any(gradient is None for gradient in gradients):
                warnings.warn(
                    f"{unmaterialized} calls ctx.set_materialize_grads(False). Dynamo traced its backward "
                    "with a gradient for each of its results, so it receives zeros where eager passes None. "
                    "If its backward checks for None, keep it out of torch.compile (torch.compiler.disable), "
                    "or compile the function with aotviz.aot_function.",
                    stacklevel=2,
                )
                pairs = zip(gradients, ctx.layouts, strict=True)
                gradients = tuple(g if g is not None or like is None else torch.zeros(**like) for g, like in pairs)
            values = list(ctx.kept)
            for position, value in zip(ctx.checked, ctx.saved_tensors, strict=True):
                values[position] = value
            return fx.Interpreter(bwd).run(*gradients, *values)

    if once:
        Connected.backward = staticmethod(once_differentiable(Connected.backward))  # type: ignore[method-assign, assignment]
    return Connected.apply(*args)


def _layout(value: Any) -> dict[str, Any] | None:
    return {"size": value.shape, "dtype": value.dtype, "device": value.device} if torch.is_tensor(value) else None


def _in_any_grad_mode(body: fx.GraphModule) -> fx.GraphModule:
    """`body` without the no_grad in which Dynamo traced all of it. Autograd sets the grad mode instead, as in eager.

    If a forward returns an input unchanged, Dynamo returns a view of it and takes this view after that no_grad. With
    grad mode on, autograd would record a plain view of the input and never call the Function's backward.
    """
    modes = [node for node in body.graph.nodes if node.target is runtime.set_grad_enabled]
    if not modes or modes[0].args != (False,) or modes[-1].args != (True,):
        return body
    graph = fx.Graph()
    mapping: dict[fx.Node, fx.Node] = {}
    graph.output(graph.graph_copy(body.graph, mapping))
    for mode in (modes[0], modes[-1]):
        graph.erase_node(mapping[mode])
    return fx.GraphModule(body, graph)


def compiled_in_pieces(module: Any, inputs: Sequence[Any], compile_piece: Compile) -> Callable[..., Any] | None:
    """The graph, with what lies between two such calls compiled; None if it has no such call."""
    if not isinstance(module, fx.GraphModule):
        return None
    holders = [node for node in module.graph.nodes if isinstance(node.meta.get("example_value"), OF_HOOKS)]
    registering = {user for node in holders for user in node.users}
    if not registering:
        return None
    whole, pieces = _split(module, holders, registering)
    given = dict(zip(whole.graph.find_nodes(op="placeholder"), inputs, strict=True))
    for call in pieces:
        piece = getattr(whole, str(call.target))
        describe(piece, module)
        places = piece.graph.find_nodes(op="placeholder")
        pairs = zip(call.args, places, strict=True)
        examples = [given.get(outer, inner.meta.get("example_value")) for outer, inner in pairs]
        call.op, call.target = "call_function", _of_tuple(piece, compile_piece, examples)
    whole.recompile()

    def in_pieces(*inputs: Any) -> Any:
        return whole(*inputs)

    return runtime.skipped(in_pieces)


def _split(
    module: fx.GraphModule, holders: Sequence[fx.Node], registering: set[fx.Node]
) -> tuple[fx.GraphModule, list[fx.Node]]:
    """The graph as calls of pieces, and those calls that do not register hooks."""
    number, numbers = 0, {}
    before: fx.Node | None = None
    for node in module.graph.nodes:
        number += node in registering or before in registering
        numbers[node], before = number, node
    held = [node.meta.pop("example_value") for node in holders]  # split_module() looks for symbols in it
    try:
        whole = split_module(module, module, numbers.__getitem__, keep_original_order=True)
    finally:
        for node, value in zip(holders, held, strict=True):
            node.meta["example_value"] = value
    as_they_are = {f"submod_{numbers[node]}" for node in registering}
    return whole, [node for node in whole.graph.find_nodes(op="call_module") if node.target not in as_they_are]


def _of_tuple(piece: fx.GraphModule, compile_piece: Compile, examples: Sequence[Any]) -> Callable[..., Any]:
    """A compiled piece. A graph for a compiler returns a tuple; a piece with one result returns it alone."""
    output = piece.graph.output_node()
    if isinstance(output.args[0], tuple):
        return compile_piece(piece, examples)
    output.args = ((output.args[0],),)
    piece.recompile()
    compiled = compile_piece(piece, examples)

    def alone(*inputs: Any) -> Any:
        return compiled(*inputs)[0]

    return alone
