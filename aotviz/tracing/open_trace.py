"""A trace that can be put down and taken up again.

torch's `make_fx` traces one function from beginning to end. This pipeline wants to run the forward in one stage,
read the facts, and go on with the backward in a later one, in the same graph: one trace does the work of two.
So an `OpenTrace` holds the modes that make_fx would push (functionalisation, proxies, fake tensors) and pushes
them again whenever a stage has more to trace. `close` makes the graph module.
"""

from __future__ import annotations

import contextlib
import gc
import linecache
import sys
import types
import weakref
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
import torch.fx as fx
import torch.fx.traceback as fx_traceback
from torch.fx.experimental.proxy_tensor import (
    ProxyTorchDispatchMode,
    PythonKeyTracer,
    disable_autocast_cache,
    disable_proxy_modes_tracing,
    get_proxy_slot,
    set_proxy_slot,
    track_tensor_tree,
)

from aotviz.ir import effects, user_code
from aotviz.ir.wrapper_subclasses import is_subclass, leaves
from aotviz.torch_private import (
    autograd_nodes,
    decompositions,
    functional_tensors,
    operators,
    saved_tensor_hooks,
    script_objects,
    tracers,
    versions,
)
from aotviz.torch_private.cannot_trace import CannotTrace
from aotviz.torch_private.dispatch import enable_python_dispatcher, functionalize_excluded, without_modes
from aotviz.torch_private.functional_tensors import FunctionalTensorMode
from aotviz.torch_private.modules import lazy_graph_module
from aotviz.tracing import corrections, fakes, functional, seeding
from aotviz.tracing.subclass_log import SubclassLog

_SYMBOLIC = (torch.SymInt, torch.SymFloat, torch.SymBool)


class _Tracer(PythonKeyTracer):
    """A proxy tracer that knows which line of the user's program it is on."""

    def __init__(self, keeps_stacks: bool) -> None:
        super().__init__()
        self.root = torch.nn.Module()
        self.graph = fx.Graph(tracer_cls=PythonKeyTracer)
        self.tensor_attrs: dict[Any, str] = {}
        self.keeps_stacks = keeps_stacks
        self.half = ""  # "is_forward" or "is_backward", as partitioners say it
        self._lines: dict[tuple[Any, int], str] = {}
        self._stacks: dict[str, str] = {}  # one object for all nodes of one place: it is hashed and kept once

    def create_node(self, *args: Any, **kwargs: Any) -> fx.Node:
        node = super().create_node(*args, **kwargs)
        if self.half:  # a program that is a graph is interpreted, with its own nodes' meta and not `_current_half`'s
            node.meta["partitioner_tag"] = self.half
        if not torch.is_grad_enabled():
            node.meta["under_no_grad"] = True
        if "autograd_backward" in fx_traceback.current_meta or autograd_nodes.current_backward() >= 0:
            node.meta["autograd_backward"] = True
            running = autograd_nodes.current_node()
            if running is not None:  # `seq_nr` is lost where that interprets a graph
                node.meta["autograd_number"] = autograd_nodes.number(running)
        if self.keeps_stacks and node.op != "placeholder" and "stack_trace" not in node.meta:
            stack = self._user_stack()
            if stack:
                node.meta["stack_trace"] = stack
        return node

    def create_arg(self, a: Any) -> Any:
        if isinstance(a, torch.Generator):
            seeding.note(a)
            if not versions.has("a trace takes generators"):
                raise CannotTrace("generator before torch 2.13", torch.__version__)
        return super().create_arg(a)

    def _user_stack(self) -> str:
        """The frames that are neither torch's nor ours, outermost first, as Python prints a traceback."""
        lines: list[str] = []
        frame = sys._getframe(2)
        while frame is not None:
            code = frame.f_code
            name = code.co_filename
            if name == __file__:  # `watched` stands between an operator and whoever called it
                frame = frame.f_back  # type: ignore[assignment]
                continue
            if name.startswith(user_code.HOUSE):
                break  # what called the compiler is not the program
            if not name.startswith((user_code.TORCH, "<frozen")) and "weakref" not in name:
                lines.append(self._line(frame))
            frame = frame.f_back  # type: ignore[assignment]
        text = "".join(reversed(lines))
        return self._stacks.setdefault(text, text)

    def _line(self, frame: Any) -> str:
        key = (frame.f_code, frame.f_lineno)
        text = self._lines.get(key)
        if text is None:
            code = frame.f_code
            source = linecache.getline(code.co_filename, frame.f_lineno, frame.f_globals).strip()
            text = f'  File "{code.co_filename}", line {frame.f_lineno}, in {code.co_name}\n    {source}\n'
            self._lines[key] = text
        return text


class OpenTrace:
    """A graph under construction, with the modes that trace into it.

    `keeps_stacks` asks for the user's stack on each node; a function that is itself a graph brings its own.
    While `ledger.open`, `ledger.note` is told of each operator, with the tensors that the user holds.
    """

    def __init__(
        self,
        fake_mode: Any,
        table: Mapping[Any, Any] | None,
        keeps_stacks: bool,
        ledger: Any = None,
    ) -> None:
        self.fake_mode = fake_mode
        self.functional_mode = FunctionalTensorMode(_allow_token_discovery=True)
        self.tracer = _Tracer(keeps_stacks)
        if ledger is not None:
            _watch(self.functional_mode, ledger, self.tracer)
        functional_tensors.keep_tokens(self.functional_mode, effects.Tokens(self.tracer))
        self._make_fx = tracers.MakeFx(corrections.corrected(table or {}))
        self._proxies = self._make_fx.proxies(ProxyTorchDispatchMode, self.tracer)
        self._last_placeholder: fx.Node | None = None
        self.ledger = ledger
        self.logs_views = False  # of subclasses
        self._closed: weakref.ref[fx.GraphModule] | None = None

    @property
    def graph(self) -> fx.Graph:
        return self.tracer.graph

    @contextlib.contextmanager
    def active(self, tag: str) -> Iterator[None]:
        """Trace what runs inside. `tag` ("is_forward", "is_backward") tells partitioners which half it is."""
        collects = gc.isenabled()
        gc.disable()  # a trace allocates much and frees little
        try:
            with contextlib.ExitStack() as stack:
                enter = stack.enter_context
                enter(torch.autograd.set_multithreading_enabled(False))
                enter(saved_tensor_hooks.set_aside())
                if torch.is_anomaly_check_nan_enabled():  # a trace has no values that could be NaN
                    enter(torch.autograd.set_detect_anomaly(True, check_nan=False))
                enter(self.fake_mode)
                enter(enable_python_dispatcher())
                enter(self.functional_mode)
                enter(self._make_fx.decomposing())
                enter(self._proxies)
                if self.logs_views:
                    enter(SubclassLog(self.ledger))
                enter(disable_autocast_cache())
                enter(self._make_fx.current())
                enter(fx_traceback.preserve_node_meta())
                enter(_current_half(self.tracer, tag))
                if self.tracer.keeps_stacks:  # Python is traced, not a graph, and may ask
                    enter(tracers.tracing_flag())
                enter(_lstm_in_steps())
                enter(corrections.as_eager())
                enter(functionalize_excluded())
                yield
        finally:
            if collects:
                gc.enable()

    @contextlib.contextmanager
    def untraced(self) -> Iterator[None]:
        """Compute with fake tensors inside an active trace, and leave no node behind."""
        with without_modes(), self.fake_mode:
            yield

    def placeholder(self, name: str, value: Any) -> fx.Node:
        """Add a graph input that holds `value`, after the inputs that are there."""
        if self._last_placeholder is None:
            proxy = self.tracer.create_proxy("placeholder", name, (), {})
        else:
            with self.graph.inserting_after(self._last_placeholder):
                proxy = self.tracer.create_proxy("placeholder", name, (), {})
        node: fx.Node = proxy.node
        self._last_placeholder = node
        if isinstance(value, (torch.Tensor, *_SYMBOLIC)):
            with disable_proxy_modes_tracing():
                track_tensor_tree(value, proxy, constant=None, tracer=self.tracer)
            return node
        if script_objects.is_stand_in(value):
            set_proxy_slot(value, self.tracer, proxy)
        node.meta["val"] = value
        return node

    def node_of(self, value: Any) -> Any:
        """The node whose result `value` is; a constant as itself; of a subclass, those of its leaves."""
        if is_subclass(value):
            return tuple(map(self.node_of, leaves(value)))
        if isinstance(value, torch.Tensor):
            slot = get_proxy_slot(value, self.tracer, None)
            if slot is not None:
                return slot.proxy.node
            return self.tracer.create_arg(value)
        if isinstance(value, _SYMBOLIC):
            if value.node.constant is not None:
                return value.node.constant
            return get_proxy_slot(value, self.tracer).force().node
        return value

    def close_effects(self) -> None:
        """Side effects traced so far come before those that follow; see `effects.py`. Call it inside `active`."""
        tokens = functional_tensors.tokens(self.functional_mode)
        last = [self.node_of(functional_tensors.held(token)) for token in tokens.values()]
        effects.close(self.graph, last)
        tokens.clear()

    def knows(self, symbol: Any) -> bool:
        """Whether a symbolic number can be computed from what is in the graph already."""
        return get_proxy_slot(symbol, self.tracer, None) is not None

    def graph_module(self, graph: fx.Graph) -> fx.GraphModule:
        """A graph module over this trace's root (its constants), not yet compiled to Python."""
        module = lazy_graph_module(self.tracer.root, graph)
        if graph is self.graph:
            self._closed = weakref.ref(module)
        return module

    def reopen(self) -> None:
        """Go on behind a graph that was closed. Whoever holds its module keeps a copy as it was."""
        output = next(iter(reversed(self.graph.nodes)))
        if output.op != "output":
            return
        module = self._closed() if self._closed is not None else None
        if module is not None:
            copied = operators.empty_copy(self.graph)
            result = copied.graph_copy(self.graph, {})
            copied.output(result).meta = dict(output.meta)
            module.graph = copied
        self.graph.erase_node(output)

    def without_history(self, value: torch.Tensor) -> Any:
        """A functional tensor that does not require grad, around the fake of a placeholder."""
        with self.untraced():
            bare = value.detach()
        proxy = get_proxy_slot(value, self.tracer).proxy
        shown = proxy.node.meta["val"]
        with disable_proxy_modes_tracing():
            track_tensor_tree(bare, proxy, constant=None, tracer=self.tracer)
        proxy.node.meta["val"] = shown
        return functional.wrapped(bare)

    def functional(self, value: Any) -> Any:
        """A functional tensor around a fake one; anything else as it is."""
        return functional.wrapped(value) if isinstance(value, torch.Tensor) else value


_RESIZE, _SET = torch.ops.aten.resize_.default, torch.ops.aten.set_.source_Tensor


def _watch(mode: FunctionalTensorMode, ledger: Any, tracer: _Tracer) -> None:
    """Tell `ledger` of the operators that reach `mode`, innermost only where one is made of others, and their nodes.

    A mode of its own would see them too, but higher-order operators refuse to run under one that they don't know.
    """
    dispatch = mode.__torch_dispatch__
    noted = 0

    def watched(self: Any, func: Any, kinds: Any, args: Any = (), kwargs: Any = None) -> Any:
        nonlocal noted
        if operators.writes(func):
            for written in operators.written(func, args, kwargs or {}):
                if type(written) is torch.Tensor or type(written) is torch.nn.Parameter:
                    raise fakes.StrayIsWritten(written)
            if ledger.open:
                ledger.refuse_overlapping_write(func, args, kwargs or {})
                for out, shape in ledger.misfits(func, args, kwargs):
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
            result = dispatch(func, kinds, args, kwargs)
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
                nodes = tracer.graph.nodes
                node = next(iter(reversed(nodes))) if len(nodes) > length else None
                noted += ledger.note(func, args, kwargs or {}, result, node)
        return result

    mode.__torch_dispatch__ = types.MethodType(watched, mode)


@contextlib.contextmanager
def _current_half(tracer: _Tracer, tag: str) -> Iterator[None]:
    """Tag the nodes of `tracer`, and by what is current those of torch's tracers, which trace subgraphs."""
    meta = fx_traceback.current_meta
    before, tracer.half = tracer.half, tag
    outside = meta.get("partitioner_tag")
    meta["partitioner_tag"] = tag
    try:
        yield
    finally:
        tracer.half = before
        if outside is None:
            meta.pop("partitioner_tag", None)
        else:
            meta["partitioner_tag"] = outside


def _one_layer_lstm(*args: Any, **kwargs: Any) -> Any:
    """Torch 2.11 and 2.12 leave a dimension of size 1 before the last states."""
    output, states = decompositions.one_layer_lstm(*args, **kwargs)
    return output, tuple(state.squeeze(0) if state.dim() == 3 else state for state in states)


@contextlib.contextmanager
def _lstm_in_steps() -> Iterator[None]:
    """Trace an LSTM with anything to differentiate as its single steps.

    Torch traces one whose input needs no gradient as an operator of oneDNN, even if its parameters need gradients. The
    operator keeps what its backward reads in grad mode only, and a compiled forward does not run in that mode.
    """

    def chosen(inputs: Any, hidden: Any, parameters: Any) -> Any:
        tensors = (*hidden, *(p for layer in parameters for p in layer))
        if torch.is_grad_enabled() and any(t.requires_grad for t in tensors):
            return _one_layer_lstm
        return decompositions.select_one_layer_lstm(inputs, hidden, parameters)

    with decompositions.lstm_chosen_by(chosen):
        yield


@contextlib.contextmanager
def module_stack(root: torch.nn.Module | None) -> Iterator[None]:
    """Put each node's module path (`nn_module_stack`) on it while modules of `root` run."""
    if root is None:
        yield
        return
    paths = {id(module): path for path, module in root.named_modules()}
    saved: list[Any] = []

    def enter(module: torch.nn.Module, _args: Any) -> None:
        meta = fx_traceback.current_meta
        before = meta.get("nn_module_stack")
        saved.append(before)
        path = paths.get(id(module))
        if path is not None:
            entry = (path or type(root).__name__, type(module))
            meta["nn_module_stack"] = {**(before or {}), path: entry}

    def leave(_module: torch.nn.Module, _args: Any, _result: Any) -> None:
        if not saved:
            return
        before = saved.pop()
        if before is None:
            fx_traceback.current_meta.pop("nn_module_stack", None)
        else:
            fx_traceback.current_meta["nn_module_stack"] = before

    modules = torch.nn.modules.module
    handles = [
        modules.register_module_forward_pre_hook(enter),
        modules.register_module_forward_hook(leave, always_call=True),
    ]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def link_backward_to_forward(graph: fx.Graph) -> None:
    """Give each backward node the source line and module path of the forward node that it differentiates.

    Both carry the sequence number of the autograd node between them; the first forward node with a number made it.
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
    """Hook the autograd graph behind `roots` so that nodes traced while it runs carry their sequence numbers."""
    seen: set[Any] = set()
    queue = [root for root in roots if root is not None]
    while queue:
        node = queue.pop()
        if node in seen:
            continue
        seen.add(node)
        _hook(node)
        queue.extend(following for following, _ in node.next_functions if following is not None)


def _hook(node: Any) -> None:
    number = autograd_nodes.number(node)

    def before(_gradients: Any) -> None:
        fx_traceback.set_grad_fn_seq_nr(number)
        fx_traceback.current_meta["autograd_backward"] = True

    def after(_inputs: Any, _outputs: Any) -> None:
        fx_traceback.reset_grad_fn_seq_nr()
        fx_traceback.current_meta.pop("autograd_backward", None)

    node.register_prehook(before)
    node.register_hook(after)
