"""Export: a graph without a program around it (docs/design/system.md B4, A7).

`aot_export_module` and `aot_export_joint_simple` return a graph that runs without our wrapper. They refuse whatever a
wrapper would have to do at run time, and name it. `aot_export_joint_with_descriptors` has no such rules: it stops the
ordinary list of stages at the finished graph. `aot_compile_joint_with_descriptors` then runs the rest of the list on
that graph, which may have been edited in between.
"""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
import torch.fx as fx

from aotviz.frontends import compiling
from aotviz.frontends.requests import lifted
from aotviz.frontends.stepping import Stopped, started
from aotviz.ir import torchs_settings, verify
from aotviz.ir.descriptors import BufferInput, ParameterInput
from aotviz.ir.forms import Convention, GraphCall, JointCall, Request
from aotviz.ir.graphs import copy, nested, outputs, placeholders
from aotviz.ir.partition_functions import named
from aotviz.ir.refusals import Refused
from aotviz.ir.signature import BackwardSignature, ExportRefused, GraphSignature
from aotviz.ir.spelling import called
from aotviz.lowerings import EAGER, run_graph
from aotviz.options import Export, Options, compilers
from aotviz.python_state.free_variables import outside
from aotviz.python_state.user_objects import Attributes
from aotviz.recorder.sessions import CompiledCallable, Session
from aotviz.torch_private import operators, pytree
from aotviz.torch_private.partitioners import default_partition
from aotviz.tracing import fakes

__all__ = [
    "BackwardSignature",
    "ExportRefused",
    "GraphSignature",
    "JointWithDescriptors",
    "aot_compile_joint_with_descriptors",
    "aot_export_joint_simple",
    "aot_export_joint_with_descriptors",
    "aot_export_module",
]


def aot_export_module(
    mod: torch.nn.Module,
    args: Sequence[Any],
    *,
    decompositions: Mapping[Any, Any] | None = None,
    trace_joint: bool,
    output_loss_index: int | None = None,
    pre_dispatch: bool = False,
    dynamic_shapes: bool | None = None,
    kwargs: Mapping[str, Any] | None = None,
) -> tuple[fx.GraphModule, GraphSignature]:
    """torch's `aot_export_module`: a module as one functional graph of flat inputs, and its signature.

    The graph takes `(*parameters, *buffers, *user inputs)`, and returns `(*mutated inputs, *user outputs, *gradients)`.
    If the module calls operators with side effects, the graph also takes and returns tokens, before the others.
    If the module assigns a tensor to an attribute while it runs, the assignment is undone, with a warning. If it
    assigns a buffer, the new value is an output of the graph, as if the module had written to the buffer.

    Args:
        mod: the module. A parameter or buffer with several names is one input, under its first name.
        args, kwargs: one call; pytrees of tensors, real or fake.
        decompositions: operator -> function that it is traced as.
        trace_joint: also trace the gradients of a loss with respect to everything that requires grad.
        output_loss_index: which flat output is the loss; it must have one element.
        pre_dispatch: a graph from above autograd and autocast: composite operators such as `linear` stay whole, and
            the grad modes and autocast regions that the module enters are nodes. Not with `trace_joint`.
        dynamic_shapes: symbolic sizes for user inputs; if None, only if they already contain symbols.

    Raises:
        ExportRefused: the graph alone can't do what the call does; the message names the input or output.

    >>> import torch
    >>> from aotviz.frontends.export import aot_export_module
    >>> class Loss(torch.nn.Linear):
    ...     def forward(self, x):
    ...         return (super().forward(x).sum(),)
    >>> graph, signature = aot_export_module(Loss(2, 1), (torch.ones(3, 2),), trace_joint=True, output_loss_index=0)
    >>> sorted(signature.backward_signature.gradients_to_parameters.values())
    ['bias', 'weight']
    """
    if not isinstance(mod, torch.nn.Module):
        raise TypeError(f"aot_export_module takes an nn.Module, not {mod!r}")
    if pre_dispatch and trace_joint:
        raise ExportRefused(
            "pre_dispatch=True traces above autograd, so the graph has no backward: use trace_joint=False"
        )
    args, kwargs = _arguments(args), dict(kwargs or {})
    if trace_joint and output_loss_index is None:
        raise ExportRefused("trace_joint=True needs output_loss_index: the output that is the loss")
    options = _options(decompositions, _dynamic(mod, args, kwargs) if dynamic_shapes is None else dynamic_shapes)
    options = _as_export(options, Export("module", trace_joint, output_loss_index, pre_dispatch))
    named = lifted(mod)
    request = _request(_Watched(mod), args, kwargs, options, named, mod)
    with_gradients = torch.is_grad_enabled() if pre_dispatch else trace_joint  # the nodes say where this mode changes
    with torch.set_grad_enabled(with_gradients), compiling.entered(request, Session(False, request.name)) as stages:
        exported = stages.export()
    return exported.graph_module, exported.signature


def aot_export_joint_simple(
    func: Callable[..., Any],
    args: Sequence[Any],
    *,
    trace_joint: bool,
    num_params_buffers: int = 0,
    decompositions: Mapping[Any, Any] | None = None,
) -> fx.GraphModule:
    """torch's `aot_export_joint_simple`: a function of flat tensors as a graph with the same calling convention.

    With `trace_joint`, the graph takes `(primals, tangents)`, two lists, and returns `(outputs, gradients)`; without,
    it takes what `func` takes. `func` must not write to an input, and each of its outputs must be a tensor of its own.

    Raises:
        ExportRefused: an argument or result is nested, an input is written, or an output is an alias;
            the message names it.

    >>> import torch
    >>> from aotviz.frontends.export import aot_export_joint_simple
    >>> x, y = torch.ones(2, requires_grad=True), torch.full((2,), 3.0)
    >>> joint = aot_export_joint_simple(lambda x, y: (x * y,), (x, y), trace_joint=True)
    >>> joint([x.detach(), y], [torch.ones(2)])
    ((tensor([3., 3.]),), (tensor([3., 3.]), None))
    """
    if not callable(func):
        raise TypeError(f"aot_export_joint_simple takes a function, not {func!r}")
    args = _arguments(args)
    options = _options(decompositions, _dynamic(func, args, {}))
    options = replace(_as_export(options, Export("simple", trace_joint)), static_parameters=num_params_buffers)
    request = _request(func, args, {}, options, (), None)
    with torch.set_grad_enabled(trace_joint), compiling.entered(request, Session(False, request.name)) as stages:
        traced = stages.graph_for_export()
    module = traced.graph_module
    if traced.role == "joint":
        assert isinstance(traced, JointCall)
        inputs = [0] * len(traced.graph_inputs), [0] * len(traced.tangents)
        return nested(module, inputs, ((0,) * len(traced.slots), (0,) * len(traced.graph_inputs)))
    module.recompile()
    return module


def _arguments(args: Any) -> tuple[Any, ...]:
    if isinstance(args, torch.Tensor):
        raise TypeError("args is a tensor; it must be a tuple of arguments, for example (x,)")
    return tuple(args)


class JointWithDescriptors:
    """A compilation that stopped at its finished graph. `graph_module` may be edited or replaced.

    Every graph input and output says what it is in `meta["desc"]`: a parameter, a buffer, a tangent, the gradient of
    something. An edited graph must keep its inputs and outputs; `aot_compile_joint_with_descriptors` checks that.

    Attributes:
        params_spec: names of the parameters, in the order in which the compiled function takes them.
        buffers_spec: names of the buffers, which come after the parameters.
        in_spec: the structure of `((*parameters, *buffers, *args), kwargs)`.
        out_spec: the structure of what the module returns.
    """

    def __init__(self, stopped: Stopped) -> None:
        assert isinstance(stopped.form, GraphCall)
        self.stopped, form = stopped, stopped.form
        self.form = form
        self.graph_module = copy(form.graph_module)
        self.params_spec = [d.name for d in form.descriptors if isinstance(d, ParameterInput)]
        self.buffers_spec = [d.name for d in form.descriptors if isinstance(d, BufferInput)]
        self.in_spec, self.out_spec = form.convention.in_spec, form.out_spec

    @property
    def fake_mode(self) -> Any:
        """The FakeTensorMode of the values in the graph."""
        return self.form.fake_mode

    @property
    def recording(self) -> Any:
        """The recording so far."""
        return self.stopped.recording


def aot_export_joint_with_descriptors(
    stack: Any,
    mod: torch.nn.Module,
    args: Sequence[Any],
    kwargs: Mapping[str, Any] | None = None,
    *,
    decompositions: Mapping[Any, Any] | None = None,
    keep_inference_input_mutations: bool = False,
    ignore_shape_env: bool = False,
    disable_functionalization: bool = False,
) -> JointWithDescriptors:
    """torch's `aot_export_joint_with_descriptors`: compile up to the finished graph, and stop there.

    Args:
        stack: an ExitStack for contexts that torch keeps open in between. aotviz has none, so this may be None.
        mod: its parameters and buffers become inputs, before `args`.
        args, kwargs: one call.
        ignore_shape_env: make sizes static even if the arguments contain symbols.

    >>> import torch
    >>> from aotviz.frontends.export import aot_compile_joint_with_descriptors, aot_export_joint_with_descriptors
    >>> layer = torch.nn.Linear(2, 2)
    >>> joint = aot_export_joint_with_descriptors(None, layer, (torch.ones(1, 2),))
    >>> joint.params_spec
    ['weight', 'bias']
    >>> f = aot_compile_joint_with_descriptors(joint)
    >>> f(layer.weight, layer.bias, torch.ones(1, 2)).shape
    torch.Size([1, 2])
    """
    if disable_functionalization:
        raise Refused("functionalization is switched off")
    args, kwargs = _arguments(args), dict(kwargs or {})
    options = _options(decompositions, not ignore_shape_env and _dynamic(mod, args, kwargs))
    options = replace(options, keep_inference_input_mutations=keep_inference_input_mutations)
    request = _request(_Watched(mod), args, kwargs, options, lifted(mod), mod)
    return JointWithDescriptors(started(request, EAGER).resume_until(compiling.graph_finished()))


def aot_compile_joint_with_descriptors(
    jd: JointWithDescriptors,
    *,
    partition_fn: str | Callable[..., Any] = default_partition,
    fw_compiler: Callable[..., Any] = run_graph,
    bw_compiler: Callable[..., Any] | None = None,
) -> Any:
    """Compile what `aot_export_joint_with_descriptors` returned; gives `f(*parameters, *buffers, *args, **kwargs)`.

    Can be called several times, with other compilers or another graph.

    Raises:
        ValueError: the graph has more or fewer inputs or outputs than the one that was exported.
    """
    form = jd.form
    for what, nodes in (("inputs", placeholders), ("outputs", outputs)):
        was, now = len(nodes(form.graph_module.graph)), len(nodes(jd.graph_module.graph))
        if was != now:
            raise ValueError(
                f"the exported graph had {was} {what} and now has {now}. An edited graph must keep its inputs and "
                "outputs"
            )
    options = replace(
        form.options,
        **compilers(fw_compiler, bw_compiler),
        partition_fn=named(partition_fn),
        backend=str(getattr(fw_compiler, "__name__", "custom")),
    )
    changed = replace(form, options=options, graph_module=jd.graph_module)
    verify.verify(changed, "export (current graph)")
    flat, in_spec, out_spec = replace(jd.stopped, form=changed).resume(), jd.in_spec, jd.out_spec

    def call(*args: Any, **kwargs: Any) -> Any:
        leaves, spec = pytree.tree_flatten((args, pytree.like_keywords(kwargs, in_spec)))
        if spec != in_spec:
            raise TypeError(
                f"{form.name} takes {len(jd.params_spec)} parameters, {len(jd.buffers_spec)} buffers and then the "
                f"arguments that it was exported with, {in_spec}; this call has the structure {spec}"
            )
        return pytree.tree_unflatten(flat(leaves), out_spec)

    return CompiledCallable(call, jd.stopped.session)


class _Watched:
    """Calls a module. Undoes its assignments to attributes; copies an assigned buffer into the original one."""

    def __init__(self, mod: torch.nn.Module) -> None:
        self.mod = mod
        self.warned: set[tuple[str, ...]] = set()
        self.__signature__ = inspect.signature(mod.forward)  # for the names of arguments
        self.__name__ = type(mod).__name__

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        attributes = Attributes(self.mod)
        slots = operators.named_slots(self.mod, [name for name, _ in self.mod.named_buffers()])
        before = [place[leaf] for place, leaf in slots]
        result = self.mod(*args, **kwargs)
        for (place, leaf), buffer in zip(slots, before, strict=True):
            assigned = place[leaf]
            if assigned is not buffer:
                place[leaf] = buffer
                buffer.copy_(assigned)
        paths = tuple(change.path for change in attributes.changes() if change.is_tensor)
        attributes.restore()
        if paths and paths not in self.warned:
            self.warned.add(paths)
            warnings.warn(
                f"the call assigns a tensor to {', '.join(paths)}. The assignment is undone and is not part "
                "of the exported graph. To carry state from call to call, register a buffer.",
                stacklevel=2,
            )
        return result


def _as_export(options: Options, export: Export) -> Options:
    if options.functionalize_rng_ops:
        raise ExportRefused(
            "torch._functorch.config.functionalize_rng_ops is on, so the exported graph would take and "
            "return the state of the random generator, with no wrapper to advance the generator. Switch the "
            "setting off for an export."
        )
    return replace(options, export=export)


def _options(decompositions: Mapping[Any, Any] | None, dynamic: bool) -> Options:
    return Options(
        **torchs_settings.current(),
        **compilers(run_graph),
        partition_fn=default_partition,
        decompositions=decompositions,
        dynamic=dynamic,
        backend="none",
    )


def _request(
    fn: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], options: Options, named: Any, root: Any
) -> Request:
    """A Request for a program that takes one flat list: lifted tensors, then the leaves of the arguments."""
    spec = pytree.tree_flatten(((*(tensor for *_, tensor in named), *args), dict(kwargs)))[1]
    how = Convention("boxed", spec)
    return Request(options, fn, args, kwargs, tuple(named), root, how, called(fn), references=outside(fn))


def _dynamic(fn: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> bool:
    """Whether the arguments, or the values of a graph module's nodes, contain symbols."""
    values = pytree.tree_flatten((args, dict(kwargs)))[0]
    if isinstance(fn, fx.GraphModule):
        values += [node.meta["val"] for node in fn.graph.nodes if "val" in node.meta]
    return fakes.symbolic(values)
