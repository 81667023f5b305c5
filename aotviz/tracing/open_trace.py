"""A trace that can be interrupted and continued.

torch's `make_fx` traces one function from beginning to end. This pipeline runs the forward in one stage, reads the
facts, and continues with the backward in a later stage, in the same graph. So an `OpenTrace` holds the modes that
make_fx would push (functionalization, proxies, fake tensors) and pushes them again whenever a stage traces more.
`graph_module` then makes the graph module.
"""

from __future__ import annotations

import contextlib
import itertools
import linecache
import sys
import types
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import torch
import torch.fx as fx
import torch.fx.traceback as fx_traceback
from torch.autograd.graph import Node
from torch.fx.experimental import proxy_tensor

from aotviz.ir import autograd_graph, effects, graphs, user_code
from aotviz.ir.subclass_meta import plan
from aotviz.ir.symbolic_sizes import SYMBOLIC
from aotviz.ir.wrapper_subclasses import is_subclass, ragged
from aotviz.python_state import leaks, randomness
from aotviz.python_state.garbage import counted_as_old
from aotviz.torch_private import (
    autograd_nodes,
    collectives,
    decompositions,
    distributed,
    functional_tensors,
    graph_nodes,
    operators,
    ordinary_proxies,
    saved_tensor_hooks,
    script_objects,
    tracers,
    versions,
)
from aotviz.torch_private.cannot_trace import CannotTrace
from aotviz.torch_private.dispatch import (
    TorchDispatchMode,
    enable_python_dispatcher,
    leaving_inference_mode,
    prints_ended,
    without_modes,
)
from aotviz.torch_private.fake_tensors import FakeTensorMode
from aotviz.torch_private.functional_tensors import FunctionalTensorMode
from aotviz.torch_private.modules import graph_module
from aotviz.torch_private.operators import Operator
from aotviz.torch_private.tensors import has_no_memory
from aotviz.torch_private.tracers import items_kept, swapped
from aotviz.tracing import corrections, fakes, functional, overlap
from aotviz.tracing.ledger import Ledger

_BETWEEN = {__file__, ordinary_proxies.__file__}  # the modes: they are between an operator and who called it
_STAND_FOR_THEMSELVES = {*ordinary_proxies.CONSTANTS, fx.Node}


class _Tracer(proxy_tensor.PythonKeyTracer):
    """A proxy tracer that records the line of the user's program for each node."""

    def __init__(self, keeps_stacks: bool) -> None:
        super().__init__()
        self.root = torch.nn.Module()
        self.graph = fx.Graph(tracer_cls=proxy_tensor.PythonKeyTracer)
        self.tensor_attrs: dict[Any, str] = {}
        self.keeps_stacks = keeps_stacks
        self.half = ""  # "is_forward" or "is_backward", the partitioners' tags
        self._lines: dict[tuple[Any, int], str] = {}  # (code, instruction) -> line
        self._stacks: dict[str, str] = {}  # nodes of one place share one string, which is hashed and kept once

    def create_node(self, *args: Any, **kwargs: Any) -> fx.Node:
        node = super().create_node(*args, **kwargs)
        if self.half:  # when a graph is interpreted, its nodes' meta replaces the current one
            node.meta["partitioner_tag"] = self.half
        if not torch.is_grad_enabled():
            node.meta["under_no_grad"] = True
        if "autograd_backward" in fx_traceback.current_meta or autograd_nodes.current_backward() >= 0:
            node.meta["autograd_backward"] = True
            running = autograd_nodes.current_node()
            if running is not None:  # `seq_nr` is lost if that node interprets a graph
                node.meta["autograd_number"] = autograd_nodes.number(running)
        if self.keeps_stacks and node.op != "placeholder" and "stack_trace" not in node.meta:
            stack = self._user_stack()
            if stack:
                node.meta["stack_trace"] = stack
        return node

    def create_arg(self, a: Any) -> Any:
        kind = type(a)
        if kind is fx.Proxy:  # nearly all arguments are of the kinds that are asked about here, and by torch last
            return a.node
        if kind in _STAND_FOR_THEMSELVES:
            return a
        if kind is tuple or kind is list:
            return kind(map(self.create_arg, a))
        if isinstance(a, torch.Generator):
            randomness.note(a)
            if not versions.has("a trace takes generators"):
                raise CannotTrace("generator before torch 2.13", torch.__version__)
        return super().create_arg(a)

    def _user_stack(self) -> str:
        """The frames that belong neither to torch nor to aotviz, outermost first, in the format of a traceback."""
        lines: list[str] = []
        frame = sys._getframe(2)
        while frame is not None:
            name = frame.f_code.co_filename
            if not user_code.is_library(name):
                if "weakref" not in name:
                    lines.append(self._line(frame))
            elif name.startswith(user_code.HOUSE) and name not in _BETWEEN:
                break  # the frames that called the compiler are not part of the program
            frame = frame.f_back  # type: ignore[assignment]
        text = "".join(reversed(lines))
        return self._stacks.setdefault(text, text)

    def _line(self, frame: types.FrameType) -> str:
        key = (frame.f_code, frame.f_lasti)  # Python has to compute `f_lineno`
        text = self._lines.get(key)
        if text is None:
            code = frame.f_code
            source = linecache.getline(code.co_filename, frame.f_lineno, frame.f_globals).strip()
            text = f'  File "{code.co_filename}", line {frame.f_lineno}, in {code.co_name}\n    {source}\n'
            if code.co_filename.startswith("<eval_with_key>"):  # the code of a graph, whose nodes have stacks
                text = _stack_of_node(frame) or text
            self._lines[key] = text
        return text


def _stack_of_node(frame: types.FrameType) -> str:
    """The stack of the node that a frame of a graph's generated code runs, or ""."""
    module = user_code.variables(frame).get("self")
    if not isinstance(module, fx.GraphModule):
        return ""
    stack = graph_nodes.stack_at(module, frame.f_lineno - frame.f_code.co_firstlineno)
    return stack and stack.rstrip("\n") + "\n"


class OpenTrace:
    """A graph under construction, with the modes that trace into it.

    `keeps_stacks` puts the user's stack on each node; if the function is itself a graph, its nodes already have one.
    While `ledger.open`, `ledger.note` is called with each operator and the tensors that the user holds; `logs_views`:
    with those on subclasses, too.
    """

    def __init__(
        self, fake_mode: FakeTensorMode, table: Mapping[Any, Any] | None, keeps_stacks: bool,
        ledger: Ledger | None = None, logs_views: bool = False,
    ) -> None:  # fmt: skip
        self.fake_mode = fake_mode
        self.functional_mode = FunctionalTensorMode(_allow_token_discovery=True)
        leaks.exclude_from_search(functional_tensors.bases(self.functional_mode))
        self.tracer = _Tracer(keeps_stacks)
        if ledger is not None:
            leaks.exclude_from_search(ledger)
            _watch(self.functional_mode, ledger, self.tracer)
        functional_tensors.keep_tokens(self.functional_mode, effects.Tokens(self.tracer))
        self._make_fx = tracers.MakeFx(corrections.corrected(table or {}))
        self._proxies = self._make_fx.proxies(proxy_tensor.ProxyTorchDispatchMode, self.tracer)
        leaks.exclude_from_search(ordinary_proxies.record_ordinary(self._proxies))
        _trace_sizes_lazily(self._proxies, self.tracer)
        self._last_placeholder: fx.Node | None = None
        self.ledger = ledger or Ledger()
        self.logs_views = logs_views
        self._taken = False
        self._closed: Callable[[], fx.GraphModule | None] = lambda: None  # what `graph_module` made of the whole graph

    @property
    def graph(self) -> fx.Graph:
        return self.tracer.graph

    @contextlib.contextmanager
    def active(self, tag: str) -> Iterator[None]:
        """Trace what runs inside. `tag` ("is_forward", "is_backward") tells partitioners which half it belongs to."""
        with contextlib.ExitStack() as stack:
            enter = stack.enter_context
            enter(counted_as_old())
            enter(prints_ended())  # before the others, so that it ends when they have
            enter(torch.autograd.set_multithreading_enabled(False))
            enter(saved_tensor_hooks.set_aside())
            if torch.is_anomaly_check_nan_enabled():  # a trace has no values that could be NaN
                enter(torch.autograd.set_detect_anomaly(True, check_nan=False))
            enter(self.fake_mode)
            enter(enable_python_dispatcher())
            enter(functional_tensors.without_bases())
            enter(self.functional_mode)
            enter(self._make_fx.decomposing())
            enter(self._proxies)
            if self.logs_views:
                enter(_SubclassLog(self.ledger))
            enter(proxy_tensor.disable_autocast_cache())
            enter(self._make_fx.current())
            enter(fx_traceback.preserve_node_meta())
            meta = fx_traceback.current_meta
            enter(items_kept(meta, "partitioner_tag"))
            meta["partitioner_tag"] = tag  # for the nodes of torch's tracers, which trace subgraphs
            enter(swapped(self.tracer, half=tag))
            if self.tracer.keeps_stacks:  # Python code is traced, and may ask whether it is traced
                enter(tracers.tracing_flag())
            enter(distributed.sizes_found_untraced())
            enter(decompositions.lstm_chosen_by(_chosen_lstm))
            enter(corrections.as_eager())
            yield

    def take(self) -> bool:
        """Called by who continues the trace. Returns whether it was not continued before."""
        first, self._taken = not self._taken, True
        return first

    @contextlib.contextmanager
    def untraced(self) -> Iterator[None]:
        """Compute with fake tensors inside an active trace without creating nodes."""
        with without_modes(), self.fake_mode:
            yield

    def placeholder(self, name: str, value: Any) -> fx.Node:
        """Add a graph input that holds `value`, after the existing inputs."""
        with self.graph.inserting_after(self._last_placeholder):
            proxy = self.tracer.create_proxy("placeholder", name, (), {})
        node: fx.Node = proxy.node
        self._last_placeholder = node
        if isinstance(value, (torch.Tensor, *SYMBOLIC)):
            with proxy_tensor.disable_proxy_modes_tracing():
                proxy_tensor.track_tensor_tree(value, proxy, constant=None, tracer=self.tracer)
            return node
        if script_objects.is_stand_in(value):
            proxy_tensor.set_proxy_slot(value, self.tracer, proxy)
        node.meta["val"] = value
        return node

    def node_of(self, value: Any) -> Any:
        """The node that computes `value`. A constant is returned as itself; a subclass gives the nodes of its
        flat values."""
        if is_subclass(value):
            nodes: list[Any] = []
            plan(value, lambda part: nodes.append(self.node_of(part)))
            return tuple(nodes)
        if isinstance(value, torch.Tensor):
            slot = proxy_tensor.get_proxy_slot(value, self.tracer, None)
            if slot is not None:
                return slot.proxy.node
            return self.tracer.create_arg(value)
        if isinstance(value, SYMBOLIC):
            if value.node.constant is not None:
                return value.node.constant
            return proxy_tensor.get_proxy_slot(value, self.tracer).force().node
        return value

    def nodes_of(self, values: Sequence[Any]) -> list[Any]:
        """The nodes of the current values, all writes applied, in the forward. A constant is returned as itself."""
        with self.active("is_forward"):
            now = (functional.inner(value) if functional.is_functional(value) else value for value in values)
            return list(map(self.node_of, now))

    def close_effects(self) -> None:
        """Order the side effects traced so far before those that follow; see `effects.py`. Call it inside `active`."""
        tokens = functional_tensors.tokens(self.functional_mode)
        last = [self.node_of(functional_tensors.held(token)) for token in tokens.values()]
        effects.close(self.graph, last)
        tokens.clear()

    def knows(self, symbol: Any) -> bool:
        """Whether a symbolic number can be computed from values that are already in the graph."""
        return proxy_tensor.get_proxy_slot(symbol, self.tracer, None) is not None

    def graph_module(self, graph: fx.Graph) -> fx.GraphModule:
        """A graph module over this trace's root (its constants), whose Python code is not generated yet."""
        module = graph_module(self.tracer.root, graph)
        if graph is self.graph:
            self._closed = weakref.ref(module)
        return module

    def reopen(self) -> None:
        """Continue a graph that was closed. The graph module that was returned then keeps a copy of its graph."""
        output = next(iter(reversed(self.graph.nodes)))
        if output.op != "output":
            return
        if (module := self._closed()) is not None:
            module.graph = graphs.copied(self.graph)
        self.graph.erase_node(output)

    def without_history(self, value: torch.Tensor) -> Any:
        """A functional tensor that does not require grad, around the fake of a placeholder."""
        with self.untraced():
            bare = value.detach()
        proxy = proxy_tensor.get_proxy_slot(value, self.tracer).proxy
        shown = proxy.node.meta["val"]
        with proxy_tensor.disable_proxy_modes_tracing():
            proxy_tensor.track_tensor_tree(bare, proxy, constant=None, tracer=self.tracer)
        proxy.node.meta["val"] = shown
        return functional.wrapped(bare)


_RESIZE, _SET = torch.ops.aten.resize_.default, torch.ops.aten.set_.source_Tensor
_COPY, _PERMUTE = torch.ops.aten.copy_.default, torch.ops.aten.permute.default
_BERNOULLI = torch.ops.aten.bernoulli_.float


def _as_outside(func: Operator, args: tuple[Any, ...]) -> bool:
    """Whether an operator that is called in inference mode may give a view of a tensor from outside of it, which is no
    inference tensor. Some, such as `reshape`, give a view or a copy."""
    outside = torch.is_inference_mode_enabled() and operators.is_view(func) and not args[0].is_inference()
    return outside and func is not torch.ops.aten.view.dtype  # of which autograd makes no view


def _watch(mode: FunctionalTensorMode, ledger: Ledger, tracer: _Tracer) -> None:
    """Tell `ledger` of the operators that reach `mode`, with their nodes. Of nested operators, only the innermost
    counts.

    A separate mode would see them too, but higher-order operators refuse to run under modes that they do not know.
    """
    dispatch = mode.__torch_dispatch__
    noted = 0

    def watched(
        self: FunctionalTensorMode, func: Operator, kinds: Sequence[type], args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:  # fmt: skip
        nonlocal noted
        if any(map(_is_without_memory, args)):
            with self:
                args = tuple(_zeros_like(one) if _is_without_memory(one) else one for one in args)
        if func is operators.RESIZE_STORAGE and ledger.open:
            tensor, size = args
            ledger.resize_storage(tensor, size, next(iter(reversed(tracer.graph.nodes))))
            return None
        if collectives.is_one(func):
            write = partial(dispatch, _COPY, kinds)
            return _waited_for(self, write, ledger, tracer.graph, func, args, kwargs or {})
        if operators.writes(func):
            for written in operators.written(func, args, kwargs or {}):
                if type(written) is torch.Tensor or type(written) is torch.nn.Parameter:
                    raise fakes.StrayTensor(written)
            if func is _BERNOULLI and (order := corrections.order_in_memory(args[0])) is not None:
                permuted = watched(self, _PERMUTE, kinds, (args[0], order), {})
                watched(self, func, kinds, (permuted, *args[1:]), kwargs)
                return args[0]
            if ledger.open:
                overlap.refuse_write(func, args, kwargs or {}, ledger.owner, ledger.callers_layout)
                computes = corrections.changing_strides(func, args, kwargs or {})
                if computes is not None:
                    length = len(tracer.graph.nodes)
                    dispatch(_COPY, kinds, (args[0], watched(self, computes, kinds, args, kwargs)), {})
                    noted += ledger.note(func, args, kwargs or {}, args[0], _computing(tracer.graph, length))
                    return args[0]
                for out, shape in list(corrections.misfits(func, args, kwargs)) if kwargs else ():
                    watched(self, _RESIZE, kinds, (out, shape), {})
            if operators.name(func) == "aten::set_":
                if func is _SET and ledger.open and ledger.is_itself(*args):
                    return args[0]
                ledger.leave(args[0])
        if func is _RESIZE and ledger.open and not kwargs and tuple(args[1]) == tuple(args[0].shape):
            return args[0]
        before = noted
        length = len(tracer.graph.nodes) if ledger.open else 0
        placed = ledger.in_storage(func, args, kwargs or {}) if ledger.open else None
        if placed is None:
            if func is _RESIZE:
                ledger.note_resize(*args)
                functional.make_room(*args)
            result: Any = NotImplemented
            if _as_outside(func, args):
                of_others = operators.is_composite(func) and not operators.makes_views(func)
                with leaving_inference_mode(of_others), self if of_others else contextlib.nullcontext():
                    if of_others:  # each of them comes here
                        result = func.decompose(*args, **(kwargs or {}))
                    else:
                        result = dispatch(func, kinds, args, kwargs)
                if isinstance(result, torch.Tensor) and functional.storage(result) != functional.storage(args[0]):
                    result = NotImplemented  # a copy, which is an inference tensor
            if result is NotImplemented:
                result = dispatch(func, kinds, args, kwargs)
            if result is NotImplemented:
                ledger.meets_subclass = True
                for stray in (value for value in args if type(value) is torch.nn.Parameter):  # as `.data` of one
                    raise fakes.StrayTensor(stray)
        else:
            root, layouts, several = placed
            strided = torch.ops.aten.as_strided.default
            made = [dispatch(strided, kinds, (root, *where), {}) for where in layouts]
            result = made if several else made[0]
        if ledger.open and isinstance(result, torch.Tensor) and result.layout is not torch.strided:
            raise CannotTrace("sparse tensor inside")
        if ledger.open and noted == before and result is not NotImplemented:
            unsafe = decompositions.UNSAFE_VIEWS.get(sys._getframe(1).f_code)
            if unsafe is None or operators.name(func) not in unsafe:
                noted += ledger.note(func, args, kwargs or {}, result, _computing(tracer.graph, length))
                ledger.note_hidden(func, args, kwargs or {}, result)
        return result

    mode.__torch_dispatch__ = method = types.MethodType(watched, mode)  # type: ignore[method-assign]
    leaks.exclude_from_search(method)


def _is_without_memory(value: Any) -> bool:
    """Whether it is the zeros that autograd's forward mode makes below the modes. Given to a FakeTensorMode, they end
    the process."""
    return type(value) is torch.Tensor and has_no_memory(value)


def _zeros_like(value: torch.Tensor) -> torch.Tensor:
    return torch.zeros(value.shape, dtype=value.dtype, device=value.device)


def _waited_for(
    mode: FunctionalTensorMode, write: Callable[..., Any], ledger: Ledger, graph: fx.Graph, func: Operator,
    args: tuple[Any, ...], kwargs: dict[str, Any],
) -> Any:  # fmt: skip
    """Put a collective into the graph, with the wait for it, and write what it gives. Autograd sees none of it."""
    with mode, torch.no_grad():
        pairs = collectives.written(func, args, kwargs)
    if pairs is None:
        raise CannotTrace("collective inside", collectives.word(func))
    for tensor, value in pairs:
        if not functional.is_functional(tensor):
            raise fakes.StrayTensor(tensor)
        with torch.no_grad():
            length = len(graph.nodes)
            write((tensor, value), {})
            if ledger.open:
                ledger.note_write(func, tensor, _computing(graph, length))
    return collectives.answer(func, args)


def _computing(graph: fx.Graph, length: int) -> fx.Node | None:
    """The last operator behind the first `length` nodes. Behind it come the items of its result, and their sizes."""
    for node in itertools.islice(reversed(graph.nodes), len(graph.nodes) - length):
        is_operator = operators.is_operator(node.target) or operators.is_higher_order(node.target)
        if is_operator and not isinstance(node.meta.get("val"), SYMBOLIC):
            return node
    return None


def _trace_sizes_lazily(mode: proxy_tensor.ProxyTorchDispatchMode, tracer: _Tracer) -> None:
    """Trace arithmetic on ragged sizes only if the graph uses its result. Such a size is a name, not a number, and if
    the function itself makes the jagged tensor, nothing in the graph computes it. The same holds for the bytes of a
    storage, which torch 2.15 compares with what a metadata op needs."""
    dispatch = mode.__sym_dispatch__

    def named(
        self: proxy_tensor.ProxyTorchDispatchMode, func: Operator, kinds: tuple[type[torch.Tensor], ...],
        args: tuple[Any, ...], kwargs: dict[str, Any],
    ) -> Any:  # fmt: skip
        with swapped(tracer, enable_thunkify=tracer.enable_thunkify or any(map(ragged, args))):
            try:
                return dispatch(func, kinds, args, kwargs)
            except RuntimeError as error:
                if tracer.enable_thunkify or "is not tracked with proxy" not in str(error):
                    raise
            tracer.enable_thunkify = True
            return dispatch(func, kinds, args, kwargs)

    mode.__sym_dispatch__ = method = types.MethodType(named, mode)  # type: ignore[method-assign]
    leaks.exclude_from_search(method)


class _SubclassLog(TorchDispatchMode):
    """Tells a ledger of the operators on subclasses. The graph shows the views of the parts, but the caller gets a view
    of the whole. So the wrapper must know that view, and only a mode above all others sees it."""

    supports_higher_order_operators = True

    def __init__(self, ledger: Ledger) -> None:
        super().__init__()
        self.ledger = ledger

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        first = len(self.ledger.events)
        result = func(*args, **(kwargs or {}))
        if self.ledger.open and args and is_subclass(args[0]):
            self.ledger.note_of_subclass(func, args, kwargs or {}, result, first)
        return result


def _one_layer_lstm(*args: Any, **kwargs: Any) -> Any:
    """Torch 2.11 and 2.12 keep an extra dimension of size 1 at the front of the final states."""
    output, states = decompositions.one_layer_lstm(*args, **kwargs)
    return output, tuple(state.squeeze(0) if state.dim() == 3 else state for state in states)


def _chosen_lstm(inputs: Any, hidden: Any, parameters: Any) -> Any:
    """Trace an LSTM that needs gradients as its single steps.

    Torch traces an LSTM whose input needs no gradient as a oneDNN operator, even if its parameters need gradients. That
    operator keeps what its backward reads only in grad mode, and a compiled forward does not run in grad mode.
    """
    tensors = (*hidden, *(p for layer in parameters for p in layer))
    if torch.is_grad_enabled() and any(t.requires_grad for t in tensors):
        return _one_layer_lstm
    return decompositions.select_one_layer_lstm(inputs, hidden, parameters)


@contextlib.contextmanager
def module_stack(root: torch.nn.Module | None) -> Iterator[None]:
    """Put the module path (`nn_module_stack`) on each node while modules of `root` run."""
    if root is None:
        yield
        return
    paths = {id(module): path for path, module in root.named_modules()}
    left: list[contextlib.ExitStack] = []  # one per module that runs

    def enter(module: torch.nn.Module, _args: Any) -> None:
        meta = fx_traceback.current_meta
        left.append(contextlib.ExitStack())
        left[-1].enter_context(items_kept(meta, "nn_module_stack"))
        path = paths.get(id(module))
        if path is not None:
            entry = (path or type(root).__name__, type(module))
            meta["nn_module_stack"] = {**(meta.get("nn_module_stack") or {}), path: entry}

    def leave(_module: torch.nn.Module, _args: Any, _result: Any) -> None:
        if left:
            left.pop().close()

    modules = torch.nn.modules.module
    entering = modules.register_module_forward_pre_hook(enter)
    with entering, modules.register_module_forward_hook(leave, always_call=True):
        yield


def link_backward_to_forward(graph: fx.Graph) -> None:
    """Give each backward node the source line and module path of the forward node that it differentiates.

    Both carry the sequence number of the autograd node between them. The first forward node with a number created it.
    """
    forward: dict[int, fx.Node] = {}
    for node in graph.nodes:
        number = node.meta.get("seq_nr")
        if number is None or node.op == "placeholder":
            continue
        if not node.meta.get("autograd_backward"):
            forward.setdefault(number, node)
            continue
        origin = forward.get(number)
        if origin is None or node.meta.get("is_gradient_acc"):
            continue
        for field in ("nn_module_stack", "source_fn_stack"):
            node.meta["fwd_" + field] = origin.meta.get(field)
        if "stack_trace" in origin.meta:
            node.meta["stack_trace"] = origin.meta["stack_trace"]
        if "custom" in origin.meta:
            node.meta["custom"] = {**node.meta.get("custom", {}), **origin.meta["custom"]}


def mark_backward(roots: Sequence[Any]) -> None:
    """Hook the autograd graph of `roots`, so that nodes traced while it runs carry the autograd sequence numbers."""
    for node in autograd_graph.nodes_behind(roots):
        _hook(node)


def _hook(node: Node) -> None:
    number = autograd_nodes.number(node)

    def before(_gradients: Any) -> None:
        fx_traceback.set_grad_fn_seq_nr(number)
        fx_traceback.current_meta["autograd_backward"] = True

    def after(_inputs: Any, _outputs: Any) -> None:
        fx_traceback.reset_grad_fn_seq_nr()
        fx_traceback.current_meta.pop("autograd_backward", None)

    node.register_prehook(before)
    node.register_hook(after)
