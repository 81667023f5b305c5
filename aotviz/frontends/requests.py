"""Make a Request from what a caller passes (docs/design/system.md B1).

A Python function takes any pytrees. The parameters and buffers of a module become inputs before the arguments. A graph
from Dynamo takes flat inputs, and may record what each of them is to the user: a local variable, a parameter, a closure
cell. The inputs then get those names.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
import torch.fx as fx
from torch.nn.parameter import is_lazy

from aotviz.frontends import dynamo_graphs
from aotviz.ir.forms import Convention, Request
from aotviz.ir.refusals import Refused
from aotviz.ir.spelling import called
from aotviz.ir.wrapper_subclasses import parts
from aotviz.options import Options
from aotviz.python_state.free_variables import Modules, modules, outside
from aotviz.torch_private import context, dynamo, operators, pytree, script_objects
from aotviz.tracing import fakes

_PARALLEL = ("torch.nn.parallel.distributed", "torch.nn.parallel.data_parallel", "torch.distributed.fsdp")


def root_of(fn: Any) -> torch.nn.Module | None:
    """The module whose tensors are lifted for `fn`: itself, or `Modules` that it refers to."""
    if isinstance(fn, torch.nn.Module):
        return fn
    found = modules(fn)
    return Modules(found) if found else None


def _refuse_modules(root: torch.nn.Module) -> None:
    """Refuse a module with uninitialized tensors, or one that prepares communication in Python before each call."""
    for path, module in root.named_modules():
        kind, name = type(module).__name__, path or "the module"
        if any(base.__module__.startswith(_PARALLEL) for base in type(module).__mro__):
            raise Refused("distributed module", name, kind)
        for tensor_name, tensor in (*module.named_parameters(recurse=False), *module.named_buffers(recurse=False)):
            if is_lazy(tensor):
                raise Refused("lazy module", repr(tensor_name), f"{name} ({kind})")


def lifted(module: Any) -> list[tuple[str, str, Any]]:
    """(kind, name, tensor) of the parameters and buffers of a module, which become inputs. Shared ones count once."""
    if not isinstance(module, torch.nn.Module):
        return []
    parameters = [("parameter", name, parameter) for name, parameter in module.named_parameters()]
    return [*parameters, *(("buffer", name, buffer) for name, buffer in module.named_buffers())]


def request_for(
    fn: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    options: Options,
    *,
    root_module: torch.nn.Module | None = None,
) -> Request:
    """A Request for one call of `fn`. The parameters, buffers and script objects of `root_module` are lifted to inputs.

    Raises:
        Refused: `root_module` contains a lazy module that was never called, or a distributed module.
    """
    named = lifted(root_module)
    parameters = None
    if root_module is not None:
        _refuse_modules(root_module)
        named += [("object", name, value) for name, value in script_objects.attributes(root_module)]
        parameters = reader(root_module, [name for _, name, _ in named])
    convention = Convention("python", pytree.tree_flatten((args, dict(kwargs)))[1], parameters)
    return Request(options, fn, args, kwargs, tuple(named), root_module, convention, called(fn), references=outside(fn))


def reader(root: torch.nn.Module, names: Sequence[str]) -> Callable[[], list[Any]]:
    """A function that reads the current tensors of a module by name."""
    places = operators.named_slots(root, names)

    def read() -> list[Any]:
        return [place[leaf] for place, leaf in places]

    return read


def graph_request(module: Any, args: tuple[Any, ...], options: Options, name: str | None) -> Request:
    """A Request whose flat inputs are the module's own tensors, then `args`."""
    named = lifted(module)
    is_graph = isinstance(module, fx.GraphModule)
    flat = [*(tensor for *_, tensor in named), *args]
    static = {i for i, value in enumerate(flat) if i < len(named) or operators.is_static_input(value)}
    if is_graph:
        marked = map(dynamo.is_static, module.graph.find_nodes(op="placeholder"))
        static |= {len(named) + i for i, holds in enumerate(marked) if holds}
    if named:
        context.tell_parameters([tensor for *_, tensor in named])
    return Request(
        options=options,
        fn=module,
        args=args,
        kwargs={},
        named=tuple(named),
        root_module=module if isinstance(module, torch.nn.Module) and (named or not is_graph) else None,
        convention=Convention("boxed", None, reader(module, [path for _, path, _ in named]) if named else None),
        name=name or "compiled",
        input_names=_names(module, len(args)) if is_graph else None,
        is_graph=is_graph and not named,
        static_inputs=tuple(sorted(static)),
        references=() if is_graph else outside(module),
    )


def refuse_mixed(request: Request) -> None:
    """Refuse a call with fake and real tensors: no operator takes both.

    Raises:
        ValueError: with the user's name of one fake and of one real tensor.
    """
    flat = ((f"args[{i}]", value) for i, value in enumerate(request.args))
    given = dict(flat) if request.is_graph else request.arguments()
    leaves = pytree.tree_flatten_with_path(given)[0]
    found = [(f"the {kind} {name!r}", value) for kind, name, value in request.named]
    found += [(f"the argument {_argument(path)!r}", value) for path, value in leaves]
    tensors = [(words, value) for words, value in found if isinstance(value, torch.Tensor)]
    kinds = [(words, any(map(fakes.is_fake, parts(value)))) for words, value in tensors]
    fake = next((words for words, is_fake in kinds if is_fake), None)
    real = next((words for words, is_fake in kinds if not is_fake), None)
    if fake is None or real is None or fakes.takes_real_tensors([value for _, value in tensors]):
        return
    module = (
        f" of {type(request.root_module).__name__}"
        if request.root_module is not None and "argument" not in fake
        else ""
    )
    advice = (
        "create the module outside of FakeTensorMode, or pass fake arguments" if module else "pass tensors of one kind"
    )
    raise ValueError(
        f"{fake}{module} is a fake tensor, and {real} is not, so the call cannot compute anything; {advice}"
    )


def _argument(path: Sequence[Any]) -> str:
    """The name of an argument, and the way into it."""
    return f"{path[0].key}{pytree.keystr(tuple(path[1:]))}"


def _names(module: fx.GraphModule, count: int) -> tuple[str, ...] | None:
    nodes = list(module.graph.find_nodes(op="placeholder"))
    return tuple(map(readable, nodes)) if len(nodes) == count else None


def readable(node: fx.Node) -> str:
    """The user's name for an input of a graph from Dynamo.

    "L['self']._modules['fc']._parameters['weight']" is `fc.weight`, "L['x']" is `x`.
    """
    whole, path = dynamo_graphs.part_of(node) or (None, "")
    if whole is not None:
        return readable(whole) + path
    source = dynamo.source_text(node)
    return spoken(source) if source else node.name


def spoken(source: str) -> str:
    """A source expression of Dynamo, spelled as in the user's program.

    >>> spoken("L['self']._modules['fc']._parameters['weight']")
    'fc.weight'
    >>> spoken("L['x']")
    'x'
    """
    text = re.sub(r"\._(?:modules|parameters|buffers)\['([^']*)'\]", r".\1", source)
    text = re.sub(r"^[LG]\['([^']*)'\]", r"\1", text)
    text = re.sub(r"\.__dict__\['([^']*)'\]", r".\1", text)
    return text.removeprefix("self.")
