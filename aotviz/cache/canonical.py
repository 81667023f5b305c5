"""A graph as text that knows nothing of names: two graphs with the same text compute the same in the same order.

Nodes, placeholders, submodules and tensor constants are numbered in order of their first occurrence; symbols of sizes
too, over the inputs. Stack traces, module paths and Dynamo's sources are left out. The submodules that an operator
takes are part of the text, a shared one once. A tensor constant is described by its data, unless it is lifted to an
input.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import torch
import torch.fx as fx

from aotviz.cache import bypasses, content
from aotviz.cache.content import Content, Uncacheable, digest
from aotviz.ir import backward_bodies, symbolic_sizes
from aotviz.torch_private import autograd_nodes, dispatch, distributed, registered_operators, script_objects
from aotviz.torch_private.fake_tensors import FakeTensor

# What else Dynamo and aotviz write into the meta of a graph module, and why it does not matter.
LEFT_OUT_OF_MODULES = {
    "aotviz_part_of": "the name of an input",
    "backend_id": "a number of this process",
    "dynamo_compile_id": "a number of this process",
    "dynamo_flat_name_to_original_fqn": "names of parameters",
    "locals_to_steal": "the meta of the inputs says it too",
}
# What the pipeline and Inductor read from the meta of a node in Dynamo's graph.
_READ_OF_NODES = (
    *("custom", "recompute", "ac_graph_id", "is_wrapped", "user_cache_hash", "steal_arg"),
    "under_no_grad",  # of a trace
)


class Symbols:
    """The symbols of sizes, named s0, s1, ... (u0, ... without a hint) in order of their first occurrence."""

    def __init__(self) -> None:
        self.names: dict[Any, Any] = {}  # a symbol of sympy -> one with our name
        self._texts: dict[Any, str] = {}
        self._shape_env: Any = None

    def text(self, number: Any) -> str:
        """A size, stride, offset or symbolic number. Its symbols get names."""
        if not symbolic_sizes.is_symbolic(number):
            return repr(number)
        self._shape_env = self._shape_env or number.node.shape_env
        return self.expression(symbolic_sizes.expression(number))

    def expression(self, found: Any) -> str:
        known = self._texts.get(found)
        if known is None:
            for symbol in sorted(found.free_symbols - self.names.keys(), key=str):
                kind = "u" if self._is_unbacked(symbol) else "s"
                self.names[symbol] = type(symbol)(f"{kind}{len(self.names)}", **symbol.assumptions0)
            known = self._texts[found] = str(found.xreplace(self.names)) if self.names else str(found)
        return known

    def knows(self, found: Any) -> bool:
        """Whether all symbols of an expression have names."""
        return bool(found.free_symbols) and found.free_symbols <= self.names.keys()

    def ranges(self) -> str:
        """What is known of each named symbol, and of their combinations."""
        return "" if self._shape_env is None else "\n".join(_facts(self, self._shape_env))

    def _is_unbacked(self, symbol: Any) -> bool:
        return self._shape_env is not None and bool(self._shape_env.is_unbacked_symint(symbol))


def _facts(symbols: Symbols, shape_env: Any) -> list[str]:
    lines = []
    for symbol, name in list(symbols.names.items()):
        between = shape_env.var_to_range.get(symbol)
        replaced = shape_env.replacements.get(symbol)
        told = f" = {symbols.expression(replaced)}" if replaced is not None else ""
        size_like = " like a size" if symbol in shape_env.size_like else ""
        bounds = f" in [{between.lower}, {between.upper}]" if between is not None else ""
        lines.append(f"{name}{bounds}{size_like}{told}")
    guarded = (guard.expr for guard in shape_env.guards)
    divisible = shape_env.divisible if hasattr(shape_env, "divisible") else ()
    for title, found in (("holds", guarded), ("divides", divisible)):
        known = {f"{title} {symbols.expression(one)}" for one in found if symbols.knows(one)}
        lines += sorted(known)
    asserted = shape_env.deferred_runtime_asserts.values()
    checks = (one.expr for several in asserted for one in several)
    lines += sorted({f"asserts {symbols.expression(one)}" for one in checks if symbols.knows(one)})
    return lines


class Program(Content):
    """Describes a graph module.

    Args:
        symbols: those of the inputs.
        lifted: the tensors that are inputs before the placeholders, by identity.
    """

    def __init__(self, symbols: Symbols, lifted: Sequence[torch.Tensor] = ()) -> None:
        super().__init__()
        self._symbols = symbols
        self._lifted = {id(tensor): position for position, tensor in enumerate(lifted)}
        self._nodes: dict[fx.Node, str] = {}
        self._modules: dict[int, int] = {}
        self._texts: list[str] = []  # of the modules inside
        self._targets: dict[Any, str] = {}
        self.shared: dict[int, Any] = {}  # id -> each mesh and process group that is described
        self._tensors: dict[int, int] = {}

    def text(self, module: fx.GraphModule) -> str:
        """The whole text.

        Raises:
            Uncacheable: the graph has something that has no description.
        """
        return self.whole(module.graph, module, module.meta)

    def whole(self, graph: fx.Graph, root: Any, meta: Mapping[str, Any] = MappingProxyType({})) -> str:
        """The text of a graph whose attributes are those of `root`."""
        main = self._graph(graph, root, meta)
        return "\n".join([main, *self._texts])

    def other(self, value: Any) -> str:
        if isinstance(value, fx.Node):
            return self._nodes[value]
        if isinstance(value, fx.GraphModule):
            return self._inside(value)
        if symbolic_sizes.is_symbolic(value):
            return self._symbols.text(value)
        real = script_objects.real(value)
        if distributed.is_shared(real):
            self.shared[id(real)] = real
            return distributed.described(real)
        placement = distributed.taken_apart(value)
        if placement is not None:  # not all attributes: a spec may know its hash already, or not yet
            return f"{{{'; '.join(map(self.value, placement))}}}"
        if script_objects.is_object(value) or script_objects.is_stand_in(value):
            raise bypasses.OBJECT(f"{bypasses.kind_of(value)} is part of the graph")
        if isinstance(value, torch.nn.Module):
            return self._plain_module(value)
        return super().other(value)

    def tensor(self, value: torch.Tensor) -> str:
        position = self._lifted.get(id(value))
        if position is not None:
            return f"lifted {position}"
        known = self._tensors.setdefault(id(value), len(self._tensors))
        return f"tensor {known} {_of_tensor(value)}"

    def _graph(self, graph: fx.Graph, root: Any, about: Mapping[str, Any]) -> str:
        lines = self._about(about)
        for node in graph.nodes:
            self._nodes[node] = f"%{len(self._nodes)}"
        nodes, value = self._nodes, self.value
        for node in graph.nodes:
            try:
                line = f"{nodes[node]} = {self._call(root, node)}" if node.op != "placeholder" else "input"
                meta = node.meta
                for name in _READ_OF_NODES:
                    if meta.get(name):
                        line += f" {name}: {value(meta[name])}"
            except Uncacheable as error:
                raise error.about(error.reason, line_of(node)) from None
            lines.append(line)
        return "\n".join(lines)

    def _call(self, root: Any, node: fx.Node) -> str:
        op, target = node.op, node.target
        if op == "get_attr":
            return self.value(_attribute(root, str(target)))
        if op == "call_function":
            called = self._target(target)
            special = _SPECIAL.get(called)
            if special is not None:
                called += special(self, root, node)
        elif op == "call_method":
            called = f".{target}"
            method = content.method_of_tensors(str(target))
            if method is not None:
                called += f" {self.value(method)}"
        elif op == "call_module":
            called = self.value(root.get_submodule(target))
        else:
            called = op
        text = ", ".join([self.value(one) for one in node.args])
        if node.kwargs:
            named = [f"{name}={self.value(one)}" for name, one in sorted(node.kwargs.items())]
            text = ", ".join([text, *named]) if text else ", ".join(named)
        return f"{called}({text})"

    def _about(self, about: Mapping[str, Any]) -> list[str]:
        names = sorted(name for name, value in about.items() if name not in LEFT_OUT_OF_MODULES and value is not None)
        return [f"{name}: {self._of_meta(name, about[name])}" for name in names]

    def _of_meta(self, name: str, value: Any) -> str:
        try:
            return self.value(value)
        except Uncacheable as error:
            what = "the context_fn of a checkpoint" if name == "_checkpoint_context_fn" else f"{name} of a graph"
            bypass = bypasses.POLICY if name == "_checkpoint_context_fn" else error.bypass
            raise bypass(f"{what} is not plain: {error.reason}", error.where) from None

    def _inside(self, module: fx.GraphModule) -> str:
        known = self._modules.get(id(module))
        if known is None:
            known = self._modules[id(module)] = len(self._modules)
            place = len(self._texts)
            self._texts.append("")
            self._texts[place] = f"graph {known}:\n{self._graph(module.graph, module, module.meta)}"
        return f"graph {known}"

    def _target(self, target: Any) -> str:
        try:
            known = self._targets.get(target)
        except TypeError:
            return self.value(target)
        if known is None:
            known = self._targets[target] = self.value(target)
        return known

    def _plain_module(self, module: torch.nn.Module) -> str:
        """A module that the graph calls: torch's own, by its class and plain attributes."""
        kind = type(module)
        if not content.is_versioned(kind.__module__) or any(vars(module).get(name) for name in _HOOKS):
            raise bypasses.MODULE(f"the graph calls a module of class {kind.__qualname__}, whose content is not known")
        held = {k: v for k, v in vars(module).items() if k not in _OF_MODULES and k not in _HOOKS}
        tensors = [*module.named_parameters(recurse=False), *module.named_buffers(recurse=False)]
        held |= dict(tensors) | dict(module.named_children())
        return f"{kind.__module__}.{kind.__qualname__} {', '.join(f'{k}={self.value(v)}' for k, v in held.items())}"


_OF_MODULES = ("_parameters", "_buffers", "_modules", "_non_persistent_buffers_set", "_is_full_backward_hook")
_HOOKS = tuple(
    "_backward_pre_hooks _backward_hooks _forward_hooks _forward_hooks_with_kwargs _forward_hooks_always_called "
    "_forward_pre_hooks _forward_pre_hooks_with_kwargs _state_dict_hooks _state_dict_pre_hooks "
    "_load_state_dict_pre_hooks _load_state_dict_post_hooks".split()
)


def _attribute(module: Any, path: str) -> Any:
    for part in path.split("."):
        module = getattr(module, part)
    return module


def _custom_function(program: Program, root: Any, node: fx.Node) -> str:
    """What aotviz reads from the source of a user's autograd.Function."""
    backward: Any = node.args[1]
    body = _attribute(root, str(backward.target)) if isinstance(backward, fx.Node) else backward
    once = "once " if backward_bodies.is_once_differentiable(body) else ""
    return f" {once}{'unmaterialized ' if backward_bodies.unmaterialized(body) else ''}"


def _triton_kernel(program: Program, root: Any, node: fx.Node) -> str:
    """The source of a Triton kernel, and its constants: the graph has numbers for both."""
    try:
        source, constants = registered_operators.triton_kernel(node.kwargs)
    except Exception as error:
        raise bypasses.CODE(f"the source of a Triton kernel is not known: {error}") from error
    return f" {digest(source)} {program.value(constants)} "


def _by_name(operator: Any) -> str:
    return Content().value(operator)


_SPECIAL: Mapping[str, Callable[[Program, Any, fx.Node], str]] = {
    _by_name(autograd_nodes.autograd_function_apply): _custom_function,
    "torch.ops.higher_order.triton_kernel_wrapper_mutation": _triton_kernel,
    "torch.ops.higher_order.triton_kernel_wrapper_functional": _triton_kernel,
}


def _of_tensor(value: torch.Tensor) -> str:
    """A constant by its data."""
    if type(value) not in (torch.Tensor, torch.nn.Parameter) or isinstance(value, FakeTensor):
        raise bypasses.CONSTANT(f"a constant of the graph is {bypasses.kind_of(value)}")
    if value.layout is not torch.strided or value.is_meta or value.is_quantized:
        raise bypasses.CONSTANT(f"a constant of the graph has the layout {value.layout}")
    with dispatch.without_modes(), torch.no_grad():
        plain = value.detach().resolve_conj().resolve_neg().cpu().contiguous()
        data = plain.flatten().view(torch.uint8).numpy().tobytes() if plain.numel() else b""
    about = (value.dtype, tuple(value.shape), value.stride(), value.storage_offset(), str(value.device))
    grad = (type(value).__name__, value.requires_grad, value.is_conj(), value.is_neg())
    return f"{about} {grad} {hashlib.blake2b(data, digest_size=16).hexdigest()}"


def line_of(node: fx.Node) -> str:
    """The user's line of a node: "file:line in function"; "" if unknown."""
    frames = re.findall(r'File "(.+)", line (\d+), in (\S+)', str(node.meta.get("stack_trace") or ""))
    return "{}:{} in {}".format(*frames[-1]) if frames else ""
