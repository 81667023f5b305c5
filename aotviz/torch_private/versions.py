"""The releases of torch that aotviz supports, a check of the private names that it uses, and a clear error for others.

Everything that differs by release depends on these tables. No other code reads torch's version.

Note [Private names are probed]
`Probe` reads the source of a file of this folder just before the file is imported, and so before anything is compiled,
and looks up every private name of torch in it. If a release lacks a name, `probe` raises an error that gives the
supported releases; otherwise there would be an AttributeError in the middle of a trace. Files that are imported late,
such as Inductor's, are probed late. A name that the source asks for with `hasattr`, or `getattr` and a default, may be
missing.
"""

from __future__ import annotations

import ast
import importlib
import re
from collections.abc import Iterator, Sequence
from importlib.abc import MetaPathFinder
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

SUPPORTED = {  # (major, minor): is it tested in CI
    (2, 11): False,
    (2, 12): False,
    (2, 13): True,
    (2, 14): False,
    (2, 15): False,
}

SINCE = {  # features that aotviz or its tests depend on, and the first release with each
    "CUDA graphs are decided by graph": (2, 12),
    "a trace takes generators": (2, 13),
    "a base may be made outside inference mode": (2, 13),
    "calls of regions are numbered": (2, 13),
    "a failing linear algebra is an effect": (2, 13),
    "a backward inside is found by itself": (2, 13),
    "a backward may empty its list of gradients": (2, 13),
    "the proxy mode holds the decompositions": (2, 13),
    "a mark of varying sizes has no guard": (2, 13),
    "a capture is told what a gradient is added to": (2, 13),
    "recompiles are counted by each compiled function": (2, 13),
    "an expression of a float becomes a tensor": (2, 13),
    "a hook on a tensor of the function is differentiated again": (2, 13),
    "its texts are those of the newer releases": (2, 13),
    "an operator without a result can be tied": (2, 13),
    "sizes of DTensors are found outside of a trace": (2, 13),
    "the gradient of a function that vjp returned breaks the graph": (2, 13),
    "a parameter's requires_grad is guarded": (2, 13),
    "a captured backward has torch's compiled ones inside": (2, 13),
    "Dynamo fails at a view whose history is lost": (2, 13),
    "an error of a fake kernel is not wrapped": (2, 13),
    "a DTensor is detached in place": (2, 13),
    "opaque types are symbolic": (2, 14),
    "the tracing flag is per thread": (2, 14),
    "an export of gradients is traced once more": (2, 14),
    "a float that is only returned is no part of a graph": (2, 14),
    "a logarithm of a symbolic float is traced": (2, 14),
    "a Hessian under vmap is traced": (2, 14),
    "an object is a key": (2, 14),
    "an attribute that apply lacks is read": (2, 14),
    "an operator that fails in a trace raises in the program": (2, 14),
    "a dropout that drops nothing returns its input": (2, 14),
    "attention on a CPU is recomputed without a state": (2, 14),
    "an input that grows is taken for a view": (2, 15),
    "an export is traced once more": (2, 15),
    "a trace has fewer nodes that compute sizes": (2, 15),
    "a gradient of an intermediate is traced": (2, 15),
    "a view outside of its storage fails in a trace": (2, 15),
    "a scatter by as_strided wants a contiguous input": (2, 15),
    "a write by as_strided may be outside of the argument": (2, 15),
}

# Whose attribute a private name is, where the sources do not say it: "()" is a call.
OWNERS = {
    "torch.Generator": "_cdata",
    "torch.ScriptObject": "_type",
    "torch.Tensor": "_backward_hooks _base _has_symbolic_sizes_strides _is_view _make_wrapper_subclass _use_count "
    "_version",
    "torch.UntypedStorage": "_cdata",
    "torch._dynamo.convert_frame": "_compile",
    "torch._dynamo.utils.get_metrics_context()": "_metrics",
    "torch._functorch.config": "_config",
    "torch._subclasses.functional_tensor.FunctionalTensor": "_inference_mode_base",
    "torch._subclasses.functional_tensor.FunctionalTensorMode()": "_storage_to_base _tokens",
    "torch.autograd.graph.Node": "_input_metadata _register_hook_dict _sequence_nr",
    "torch.compiler": "_is_compiling_flag",
    "torch.distributions.Distribution": "_validate_args",
    "torch.fx.Graph()": "_codegen _insert _target_to_str",
    "torch.fx.GraphModule": "_register_create_node_hook _unregister_create_node_hook",
    "torch.fx.Node": "_args _kwargs _rename",
    "torch.fx._symbolic_trace": "_is_fx_tracing_context _is_fx_tracing_flag",
    "torch.fx.experimental.symbolic_shapes.ShapeEnv": "_set_replacement",
    "torch.nn.Module()": "_backward_hooks _backward_pre_hooks _buffers _forward_hooks _forward_pre_hooks _parameters",
    "torch.nn.RNN()": "_flat_weights",
    "torch.nn.modules.module": "_global_backward_hooks _global_backward_pre_hooks _global_forward_hooks "
    "_global_forward_pre_hooks",
    "torch.ops.aten.add.Tensor": "_can_decompose _dispatch_cache _name _op _schema",
    "torch.utils.checkpoint.CheckpointFunction": "_backward_cls",
    "torch.utils.checkpoint.CheckpointFunction._backward_cls": "_autograd_function_id _forward_cls _raw_saved_tensors "
    "_get_compiled_autograd_symints",
}

RELEASES = {  # names that only some releases have: "2.14-" is since 2.14, "-2.13" until 2.13, "" at times
    "torch._dynamo.exc.FakeTensorObservedException": "2.14-",
    "torch._dynamo.utils._get_fake_value_impl": "2.14-",  # 2.13 has it, and it is not needed there
    "torch._dynamo.variables.misc.CallMethodVariable": "2.14-",
    "torch._inductor.virtualized.V.graph.never_reuse_buffers.update": "",  # while Inductor compiles
    "torch.fx._symbolic_trace._is_fx_tracing_context": "2.14-",
    "torch.fx._symbolic_trace._is_fx_tracing_flag": "-2.13",
    "torch.ops.aten._linalg_check_errors.default": "-2.12",
}

NOT_OF_TORCH = {  # marks that a tensor has or has not; beginnings of names
    *("_aotviz_replayed_ns", "_dynamo_dynamic_indices", "_dynamo_propagated_dynamic_indices"),
    *("_dynamo_weak_dynamic_indices", "_raw", "_raw_", "_raw_saved_"),
}


_GLOBALS = "functorch.compile.{}.__globals__.{}"
VARIABLES = {  # file -> what it reads from the globals of a function, as the module of that may not be imported
    "torchs_log": {
        _GLOBALS.format("get_aot_graph_name", "graph_being_compiled"),
        _GLOBALS.format("get_aot_graph_name", "nth_graph"),
        _GLOBALS.format("aot_function", "AOT_COUNTER"),
    }
}


class NameIsGone(ImportError):
    """The installed torch lacks a private name that this package uses."""


class Probe(MetaPathFinder):
    """Probes the names of a file of this folder when it is imported. Leaves finding the file to other finders."""

    def find_spec(self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None) -> None:
        package, _, file = fullname.rpartition(".")
        if package == __package__:
            probe(file)


def probe(file: str) -> None:
    """Raise NameIsGone unless torch has the private names that a file of this folder uses."""
    gone = [name for name in expected(file) if not _is_there(name)]
    if gone:
        names = gone[0] if len(gone) == 1 else f"{', '.join(gone[:-1])} and {gone[-1]}"
        raise NameIsGone(
            f"This is torch {torch.__version__}, which has no {names}; aotviz needs that, and supports torch "
            f"{_supported()}. Install a supported torch, or a newer aotviz."
        )


def expected(file: str, version: str = torch.__version__) -> Iterator[str]:
    """The dotted private names of torch that a file needs in a release."""
    for name in sorted(names(file)):
        first, dash, last = RELEASES.get(name, "-").partition("-")
        since = not first or release(version) >= release(first)
        if dash and since and (not last or release(version) <= release(last)):
            yield name


def names(file: str) -> set[str]:
    """The dotted private names of torch in the source of a file of this folder.

    >>> sorted(names("graph_nodes"))[:2]
    ['torch.fx.Graph()._insert', 'torch.fx.Node._args']
    """
    source = Path(__file__).with_name(f"{file}.py").read_text(encoding="utf-8")
    nodes = list(ast.walk(ast.parse(source)))
    imported: dict[str, str] = {}  # name in this file -> its full name
    for node in nodes:
        if isinstance(node, ast.Import):
            imported |= {one.asname: one.name for one in node.names if one.asname}
            imported |= {top: top for one in node.names if not one.asname for top in one.name.split(".")[:1]}
        elif isinstance(node, ast.ImportFrom):
            imported |= {one.asname or one.name: f"{node.module}.{one.name}" for one in node.names}
    dotted, attributes, spared = set(imported.values()), set(), set(NOT_OF_TORCH)
    for node in nodes:
        match node:
            case ast.Attribute(attr=attribute, ctx=context):
                root, *rest = _path(node)
                if root in imported:
                    dotted.add(re.sub(r"\.__\w+__$", "", ".".join((imported[root], *rest))))
                elif root not in ("self", "cls") and isinstance(context, ast.Load):
                    attributes.add(attribute)
            case ast.Constant(str(text)) | ast.keyword(str(text)) if re.fullmatch(r"_[a-z]\w*", text):
                attributes.add(text)
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                spared.add(name)
            case ast.Call(ast.Name("hasattr" | "getattr" as function), [_, ast.Constant(str(name)), *default]):
                spared |= {name} if default or function == "hasattr" else set()
            case ast.Call(ast.Attribute(attr="get"), [ast.Constant(str(name)), *_]):
                spared.add(name)
    dotted = {name for name in dotted if name.startswith("torch.") and _is_private(name)}
    found = {name for name in dotted if not any(other.startswith(f"{name}.") for other in dotted)}
    for attribute in filter(_is_private, attributes - spared - {name.rpartition(".")[2] for name in dotted}):
        owners = [owner for owner, held in OWNERS.items() if attribute in held.split()]
        found |= {f"{owner}.{attribute}" for owner in owners or ["?"]}
    return found | VARIABLES.get(file, set())


def _path(node: ast.expr) -> list[str]:
    """The parts of a dotted name. The first is "" if it is an attribute of another expression."""
    if isinstance(node, ast.Attribute):
        return [*_path(node.value), node.attr]
    return [node.id if isinstance(node, ast.Name) else ""]


def _is_private(name: str) -> bool:
    return any(part.startswith("_") and not part.startswith("__") for part in name.split("."))


def _is_there(name: str) -> bool:
    try:
        _resolved(name)
    except AttributeError:
        return False
    return True


def _resolved(name: str) -> Any:
    """The object that a dotted name stands for. Imports the modules on the way. Raises AttributeError."""
    path, *rest = name.split(".")
    found: Any = None if path == "?" else importlib.import_module(path)  # "?" if OWNERS lacks the name
    for part in rest:
        path = f"{path}.{part}"
        try:
            found = _part(found, part.removesuffix("()"))
        except AttributeError:
            if not isinstance(found, ModuleType):
                raise
            try:
                found = importlib.import_module(path)
            except ModuleNotFoundError as error:
                raise AttributeError(path) from error
        if part.endswith("()"):
            found = found(1, 1, device="meta") if part == "RNN()" else found()
    return found


def _part(found: Any, part: str) -> Any:
    if isinstance(found, dict) and "__name__" in found:  # a function's globals
        if part not in found:
            raise AttributeError(part)
        return found[part]
    return getattr(found, part)


def release(version: str) -> tuple[int, int]:
    """(major, minor) of a version string.

    >>> release("2.13.0+cpu")
    (2, 13)
    """
    major, minor = version.split("+")[0].split(".")[:2]
    return int(major), int(minor)


def has(feature: str) -> bool:
    """Whether the installed torch has a feature, by its name in `SINCE`."""
    return release(torch.__version__) >= SINCE[feature]


def check(version: str = torch.__version__) -> None:
    """Raise ImportError unless `version` is one that aotviz supports."""
    if release(version) not in SUPPORTED:
        raise ImportError(
            f"aotviz supports torch {_supported()}, and this is torch {version}. "
            "Install a supported torch, or a newer aotviz."
        )


def _supported() -> str:
    (first, last) = min(SUPPORTED), max(SUPPORTED)
    return f"{first[0]}.{first[1]} to {last[0]}.{last[1]}"


check()
