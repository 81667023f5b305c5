"""Operators that users define: the Python functions that torch keeps for each, which a trace runs."""

from __future__ import annotations

import functools
import hashlib
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from types import CodeType
from typing import Any

import torch
from torch._library import simple_registry
from torch._library.custom_ops import OPDEFS, CustomOpDef

# The namespaces of operators that come with torch. Their code is determined by torch's version.
TORCHS = frozenset(
    "aten prims prim quantized _quantized static_runtime symm_mem c10d onednn quantized_decomposed _c10d_functional "
    "mkldnn c10d_functional streams sparse inductor profiler fsdp _test _c10d_functional_autograd onnx_symbolic "
    "mkldnn_prepacked _dtensor mkl onnx quantization debugprims rngprims flex_lib _native inductor_prims export "
    "debug_mode_ops _native_aot _inductor_test higher_order prepacked".split()
)
_ROLES = (
    "_init_fn _abstract_fn _setup_context_fn _backward_fn _vmap_fn _autocast_dtype _backend_fns _torch_dispatch_fns"
).split()
_BACKENDS = tuple("CPU CUDA HIP XPU MPS MTIA HPU XLA IPU PrivateUse1 Sparse Quantized Nested Mkldnn Lazy".split())
_ANY = "quantized::linear"  # an operator without kernels for autograd and autocast: it has the fallbacks
_HOME = os.path.realpath(os.path.dirname(torch.__file__)) + os.sep  # an environment may be a link to another
_of_torch: set[str] = set()  # those of `torch.library._impls` that are no user's, or that no trace runs
_TRACED = ("CompositeImplicitAutograd", "Autograd", "Meta", "Autocast", "Functionalize", "Python", "ADInplaceOrView")


def is_operator(value: Any) -> bool:
    """Whether a value is an operator of the dispatcher, or a packet of its overloads."""
    return isinstance(value, (torch._ops.OpOverload, torch._ops.OpOverloadPacket))


def defined_by(value: Any) -> Any:
    """The operator of what `torch.library.custom_op` returns; None for any other value."""
    return getattr(value, "_opoverload", None) if isinstance(value, CustomOpDef) else None


def is_torchs(operator: Any) -> bool:
    """Whether an operator or a packet of overloads comes with torch."""
    return str(operator).partition(".")[0] in TORCHS


def has_kernel_in_python(overload: Any) -> bool:
    """Whether a Python function computes an operator's results on some device, not only for a trace."""
    name = overload._schema.name.replace("::", "/")
    name += f".{overload._schema.overload_name}" if overload._schema.overload_name else ""
    return any(f"{name}/{key}" in torch.library._impls for key in (*_BACKENDS, "CompositeExplicitAutograd"))


def overloads(operator: Any) -> list[Any]:
    """An overload itself, or all overloads of a packet."""
    if isinstance(operator, torch._ops.OpOverload):
        return [operator]
    return [getattr(operator, name) for name in operator.overloads()]


def named(names: Iterable[str]) -> Iterator[tuple[str, Any]]:
    """(name, operator) of each operator of a user's whose namespace and name are both in `names`."""
    for namespace in sorted(set(names) - TORCHS):
        for name in names:
            if torch._C._jit_get_schemas_for_operator(f"{namespace}::{name}"):
                yield f"{namespace}::{name}", getattr(getattr(torch.ops, namespace), name)


def fake_kernel(name: str) -> CodeType | None:
    """The code of the function that `register_fake` has of a user's operator ("my::op"); None if it has none."""
    defined: Any = OPDEFS.get(name)
    entries = simple_registry.singleton._data  # its `get` is of torch 2.13
    kernel = getattr(getattr(entries.get(name), "fake_impl", None), "kernel", None)
    function = getattr(defined, "_abstract_fn", None) or getattr(kernel, "func", None)
    code = getattr(function, "__code__", None)
    return code if isinstance(code, CodeType) else None


def schema(overload: Any) -> str:
    return f"{overload._schema} {sorted(map(str, overload.tags))}"


def functions(overload: Any) -> Iterator[tuple[str, Any]]:
    """(role, function or plain value) of what torch keeps for an operator."""
    name = overload._name.removesuffix(".default")
    defined: Any = OPDEFS.get(name)
    if defined is not None:
        for role in _ROLES:
            held = getattr(defined, role, None)
            yield role, dict(held) if isinstance(held, Mapping) else held
    entries = simple_registry.singleton._data  # its `get` is of torch 2.13
    entry = entries.get(overload._name) or entries.get(name)
    if entry is not None:
        kernel = getattr(entry.fake_impl, "kernel", None)
        if defined is None:  # else it calls the _abstract_fn
            yield "fake", _unwrapped(getattr(kernel, "func", None))
        for kind, rule in dict(getattr(entry.torch_dispatch_rules, "_data", None) or {}).items():
            yield f"rule for {kind.__qualname__}", rule
        yield "effect", str(getattr(getattr(entry, "effect", None), "effect", None))
    for key, kernel in overload.py_kernels.items():
        yield f"kernel for {key}", kernel
    if any(key.startswith(_TRACED) and _is_compiled(where) for key, where in _kernels(overload._name)):
        yield "libraries", libraries()


def _unwrapped(fake: Any) -> Any:
    """The user's function in torch's wrapper, which holds the name of a module, and whether it has looked for it."""
    if "check_pystubs" not in getattr(fake, "__qualname__", ""):
        return fake
    cells = zip(fake.__code__.co_freevars, fake.__closure__, strict=True)
    return dict(cells)["func"].cell_contents


def opaque_kernels(overload: Any) -> list[str]:
    """The dispatch keys with a kernel that a trace runs, but of which torch keeps no Python function."""
    is_defined = OPDEFS.get(overload._name.removesuffix(".default")) is not None
    found = []
    for key, where in _kernels(overload._name):
        known = is_defined and where.endswith("custom_ops.py")
        if key.startswith(_TRACED) and not known and not (_is_compiled(where) and torch.ops.loaded_libraries):
            found.append(key)
    return found


def overridden() -> str:
    """An operator of torch with a user's kernel that a trace runs: "aten::sin for AutogradCPU"; "" if there is none.

    Such a kernel was given by `torch.library.Library("aten", "IMPL").impl` or, for all operators, by its `fallback`.
    Torch keeps its name and not its function.
    """
    for line in torch._C._dispatch_dump_table(_ANY).splitlines():
        key, _, place = line.partition(": registered at ")
        if place.endswith("[backend fallback]") and key.startswith(_TRACED) and _is_users(_file(place)):
            return f"all operators for {key}"
    for registered in sorted(torch.library._impls - _of_torch):
        namespace, operator, key = registered.split("/")
        key = key or "CompositeImplicitAutograd"
        places = (where for name, where in _kernels(f"{namespace}::{operator}") if name == key)
        if namespace in TORCHS and not key.startswith(_BACKENDS) and any(map(_is_users, places)):
            return f"{namespace}::{operator} for {key}"
        _of_torch.add(registered)
    return ""


def inductors_decompositions() -> Iterator[tuple[str, Any]]:
    """(operator, function) of Inductor's table, to which users add their own."""
    from torch._inductor.decomposition import decompositions  # only programs for Inductor need it

    yield from ((str(operator), function) for operator, function in decompositions.items())


@functools.cache  # thousands of kernels are registered in some thirty files
def _is_users(where: str) -> bool:
    return where.endswith(".py") and not os.path.realpath(where).startswith(_HOME)


def _is_compiled(where: str) -> bool:
    return where.endswith((".cpp", ".cc", ".cu", ".cxx", ".h", ".hpp"))


def _kernels(operator: str) -> Iterator[tuple[str, str]]:
    """(dispatch key, file) of each kernel of an operator."""
    for line in torch._C._dispatch_dump(operator.removesuffix(".default")).splitlines():
        key, found, place = line.partition(": registered at ")
        if found and key not in ("debug", "name", "schema"):
            yield key.partition("[")[0], _file(place.partition(" :: ")[0])


def _file(place: str) -> str:
    """The file of "FILE:LINE", with anything after it."""
    return place.rpartition(":")[0]


def libraries() -> list[str]:
    """The content of each library that was loaded with `torch.ops.load_library`."""
    found = (Path(path) for path in torch.ops.loaded_libraries)
    return sorted(hashlib.blake2b(path.read_bytes(), digest_size=10).hexdigest() for path in found if path.is_file())


def triton_kernel(arguments: Mapping[str, Any]) -> tuple[str, Any]:
    """The source of the Triton kernel of a call, with all that it calls, and its constant arguments."""
    from torch._higher_order_ops.triton_kernel_wrap import kernel_side_table  # only such programs need Triton

    kernel = kernel_side_table.get_kernel(arguments["kernel_idx"])
    return triton_source(kernel), kernel_side_table.get_constant_args(arguments["constant_args_idx"])


def triton_source(kernel: Any) -> str:
    """The source of a Triton kernel, with all that it calls, and with its configurations."""
    from torch._inductor.codegen.wrapper import user_defined_triton_kernel_transitive_closure_source_code as source

    tuned = getattr(kernel, "configs", None)
    configs = [sorted(map(str, one.all_kwargs().items())) for one in tuned] if tuned else []
    while hasattr(kernel, "fn") and hasattr(kernel, "configs") | hasattr(kernel, "values"):
        kernel = kernel.fn
    return f"{source(kernel)}\n{configs}"
