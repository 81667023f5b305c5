"""The key of a compiled program: everything that its compilation depends on, by name.

Two calls with equal keys can run the same program, if the guards over symbols hold that the program was stored with;
these guards are part of the look-up, not of the key. Each ingredient is text, so that a miss can say which one differs,
and how. What a program is called, and where its source is, is not in the key.

What cannot be described, such as a pass without a `uuid()`, raises `Uncacheable`.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from importlib import metadata
from pathlib import Path
from typing import Any

import torch
import torch.fx as fx

import aotviz
from aotviz.cache import bypasses, input_facts, settings_in_keys, traced
from aotviz.cache.canonical import Program, Symbols
from aotviz.cache.content import Content, Uncacheable, is_users, operator_signs
from aotviz.ir import dynamo_capture
from aotviz.ir.forms import TracedCall
from aotviz.ir.serializable import class_of_results
from aotviz.options import Options
from aotviz.torch_private import (
    context,
    distributed,
    dynamo,
    operators,
    pytree,
    registered_operators,
    saved_tensor_hooks,
)
from aotviz.torch_private import surroundings_of_a_key as torchs
from aotviz.torch_private.runtime import transforms_active
from aotviz.torch_private.what_follows import NOTHING, Follows

__all__ = ["Key", "Uncacheable", "inductors", "of_graph", "of_trace"]

NOT_IN_KEYS = {  # option -> why it is in no key
    "record": "it decides what is recorded",
    "on_stage": "it is told of the stages",
    "on_refusal": "a refused program is not stored",
    "cache": "it is about the cache",
}
_FOR_INDUCTOR = ("compile_with_inductor", "nested_region_config")  # marks of regions that go to Inductor in any case
_SOURCES = ("cache", "frontends", "ir", "runtime", "stages", "torch_private", "tracing")
_FILES = ("lowerings.py", "options.py", "pipeline.py")


@dataclass(frozen=True)
class Key:
    """`digest` is in hexadecimal. `ingredients` are name -> text, in the order in which they are told."""

    digest: str
    ingredients: Mapping[str, str]
    shared: tuple[Any, ...] = ()  # the meshes and process groups that it describes

    @classmethod
    def of(cls, ingredients: Mapping[str, str], program: Program) -> Key:
        hashed = hashlib.blake2b(digest_size=20)
        for name, text in ingredients.items():
            for part in (name, text):
                data = part.encode("utf-8", "surrogatepass")
                hashed.update(b"%d:" % len(data))
                hashed.update(data)
        return cls(hashed.hexdigest(), ingredients, tuple(program.shared.values()))


def of_graph(
    module: fx.GraphModule,
    inputs: Sequence[Any],
    options: Mapping[str, Any],
    lowering: Any,
    numbers: Sequence[tuple[int, ...]] | None = None,
    follows: Follows = NOTHING,
) -> Key:
    """The key of a graph from Dynamo, as the backend receives it.

    Args:
        module: the graph.
        inputs: its example inputs, fake or real.
        options: ours, as the user gave them.
        lowering: an `aotviz.lowerings.Lowering`.
        numbers: per input, the dimensions that become symbols although Dynamo has finished (`Request.symbols`, without
            lifted tensors).
        follows: what the code after the graph does with its tensors.

    Raises:
        Uncacheable: the program depends on something that has no description.
    """
    try:
        return _of_graph(module, inputs, options, lowering, numbers, follows)
    except Uncacheable as error:
        if error.where:
            raise
        raise error.about(error.reason, dynamo_capture.place(module)) from None


def _of_graph(
    module: fx.GraphModule,
    inputs: Sequence[Any],
    options: Mapping[str, Any],
    lowering: Any,
    numbers: Sequence[tuple[int, ...]] | None,
    follows: Follows,
) -> Key:
    if not isinstance(module, fx.GraphModule):
        raise bypasses.GRAPH(f"{bypasses.kind_of(module)} is not a graph of Dynamo")
    _refuse_surroundings()
    lifted = [*module.parameters(), *module.buffers()]
    symbols = Symbols()
    program = Program(symbols, lifted)
    given = [input_facts.Input(tensor, tensor, True) for tensor in lifted]
    given += _given(module, inputs, numbers)
    facts, relations = input_facts.texts(given, symbols, program)
    text = program.text(module)
    ingredients = {
        "program": f"{text}\n# {follows}" if follows != NOTHING else text,
        "inputs": facts,
        "symbols": symbols.ranges(),
        "memory layout": relations,
        "options": _options(options),
        **_backend(lowering, text),
        **_surroundings(one.value for one in given),
    }
    return Key.of(ingredients, program)


def of_trace(call: TracedCall) -> Key:
    """The key of a program that was traced by stage "metadata"."""
    _refuse_surroundings()
    options = _whole_options(call.options)  # first: with most compilers, nothing else need be described
    symbols = Symbols()
    program = Program(symbols)
    static = set(call.static_inputs)
    given = [input_facts.Input(value, value, i in static) for i, value in enumerate(call.args)]
    facts, relations = input_facts.texts(given, symbols, program)
    found = traced.texts(call, symbols)
    kinds = ", ".join(type(one).__name__ for one in call.descriptors)
    convention = f"{call.convention.kind} {call.convention.in_spec}"
    read = call.convention.parameters is not None
    ingredients = {
        **found,
        "inputs": f"{facts}\n{kinds}\n{convention}{', reads parameters' if read else ''}",
        "symbols": symbols.ranges(),
        "memory layout": relations,
        **options,
        **_surroundings(one.value for one in given),
    }
    return Key.of(ingredients, program)


def _whole_options(options: Options) -> dict[str, str]:
    """All options of a compilation, and Inductor's settings, of which its compilers know their own."""
    compilers = {compiler_of(options.fw_compiler), compiler_of(options.bw_compiler)}
    compilers.add(compiler_of(options.inference_compiler))
    patches = next((dict(one.patches) for one in (inductors(options.fw_compiler),) if one is not None), None)
    if None in compilers:
        raise bypasses.BACKEND(f"backend {options.backend!r} is a Python function whose result cannot be stored")
    reads_all = patches is not None or class_of_results(options.fw_compiler) is not None
    only = None if reads_all else settings_in_keys.READ_WITHOUT_INDUCTOR
    told = {}
    for field in fields(options):
        value = getattr(options, field.name)
        own = compiler_of(value) if callable(value) else None
        if field.name not in ("backend",):
            told[field.name] = own if own is not None else _option(field.name, value)
    return {
        "options": "\n".join(f"{name} = {text}" for name, text in told.items()),
        "backend": options.backend,
        "Inductor's settings": settings_in_keys.of(settings_in_keys.INDUCTOR, patches, only),
    }


def inductors(function: Any) -> Any:
    """The compilers of Inductor whose method a function is, or None."""
    owner = getattr(function, "__self__", None)
    return owner if type(owner).__module__ == "aotviz.torch_private.inductor" else None


def compiler_of(function: Any) -> str | None:
    """The name of a compiler, partitioner or pass of ours; None for another's."""
    owner = inductors(function)
    if owner is not None:
        return f"{type(owner).__name__}.{function.__name__}"
    if class_of_results(function) is not None:
        return _option("compiler", function)
    if str(getattr(function, "__module__", "")).startswith("aotviz."):
        return f"{function.__module__}.{function.__qualname__}"
    return None


def _given(
    module: fx.GraphModule, inputs: Sequence[Any], numbers: Sequence[tuple[int, ...]] | None
) -> list[input_facts.Input]:
    nodes = module.graph.find_nodes(op="placeholder")
    if len(nodes) != len(inputs):
        raise bypasses.GRAPH(f"the graph has {len(nodes)} inputs, and {len(inputs)} were given")
    found = []
    for position, (node, value) in enumerate(zip(nodes, inputs, strict=True)):
        if isinstance(value, dynamo.BackwardState):
            raise bypasses.HOOKS("the graph registers hooks that Dynamo sets after the forward")
        static = operators.is_static_input(value) or dynamo.is_static(node)
        symbolic = None if numbers is None else numbers[position]
        if isinstance(value, torch.Tensor):
            like = node.meta.get("example_value")
            fits = isinstance(like, torch.Tensor) and like.dim() == value.dim() and numbers is None
            found.append(input_facts.Input(value, like if fits else value, static, symbolic))
        elif isinstance(value, (list, tuple, dict)):
            leaves, spec = pytree.tree_flatten(value)
            alike, other = pytree.tree_flatten(node.meta.get("example_value"))
            alike = alike if other == spec else leaves
            found.append(input_facts.Input(f"{len(leaves)} leaves of {spec}", None, False))
            found += [input_facts.Input(*pair, False) for pair in zip(leaves, alike, strict=True)]
        else:
            found.append(input_facts.Input(value, value, static, symbolic))
    return found


def _refuse_surroundings() -> None:
    modes = torchs.active_modes()
    if modes:
        raise bypasses.MODE(f"a mode of class {modes[-1]} is active")
    if transforms_active():
        raise bypasses.MODE("a transform of torch.func is active")
    overridden = registered_operators.overridden()
    if overridden:
        raise bypasses.OVERRIDDEN(f"torch.library gave {overridden} a kernel whose source is not known")


def _options(options: Mapping[str, Any]) -> str:
    return "\n".join(
        f"{name} = {_option(name, value)}"
        for name, value in sorted(options.items())
        if name not in NOT_IN_KEYS and value is not None
    )


def _option(name: str, value: Any) -> str:
    content = Content()
    try:
        if name == "decompositions" and isinstance(value, Mapping):
            return "{" + ", ".join(sorted(f"{key}: {content.value(fn)}" for key, fn in value.items())) + "}"
        return content.value(value)
    except Uncacheable as error:
        raise bypasses.NO_VERSION(f"option {name!r}: {error.reason}", error.where) from None


def _backend(lowering: Any, program: str) -> dict[str, str]:
    """The backend, and those of Inductor's settings that it reads."""
    patches = getattr(lowering, "settings", None)
    if patches is not None:
        users = {
            f"decomposition of {op}": fn for op, fn in registered_operators.inductors_decompositions() if is_users(fn)
        }
        return {
            "backend": "\n".join(
                [lowering.name, *sorted(f"{what} = {_option(what, fn)}" for what, fn in users.items())]
            ),
            "Inductor's settings": settings_in_keys.of(settings_in_keys.INDUCTOR, patches),
        }
    compiler = getattr(lowering, "compiler", None)
    if class_of_results(compiler) is not None:
        partition = Content().value(lowering.partition_fn)
        return {
            "backend": f"{lowering.name}, {_option('backend', compiler)}, partitions with {partition}",
            "Inductor's settings": settings_in_keys.of(settings_in_keys.INDUCTOR),
        }
    if not str(getattr(compiler, "__module__", "")).startswith("aotviz."):
        raise bypasses.BACKEND(f"backend {lowering.name!r} is a Python function whose result cannot be stored")
    only = None if any(mark in program for mark in _FOR_INDUCTOR) else settings_in_keys.READ_WITHOUT_INDUCTOR
    return {
        "backend": f"{lowering.name}, partitions with {Content().value(lowering.partition_fn)}",
        "Inductor's settings": settings_in_keys.of(settings_in_keys.INDUCTOR, only=only),
    }


def _surroundings(inputs: Iterable[Any]) -> dict[str, str]:
    return {
        "AOTAutograd's settings": settings_in_keys.of(settings_in_keys.AOT),
        "Dynamo's settings": settings_in_keys.of(settings_in_keys.DYNAMO),
        "settings of symbols": settings_in_keys.of(settings_in_keys.SHAPES),
        "grad mode": torchs.grad_mode(),
        "autocast": torchs.autocast(),
        "determinism": torchs.deterministic(),
        "defaults": torchs.defaults(),
        "methods of tensors": operator_signs(),
        "precision": torchs.switches(),
        "saved tensor hooks": _saved_hooks(),
        "first call": "fake" if context.first_call_is_fake() else "real",
        "threads": torchs.threads(),
        "processes": distributed.state(),
        "environment": settings_in_keys.environment(),
        "devices": _devices(inputs),
        **of_process(),
    }


def _saved_hooks() -> str:
    pair = saved_tensor_hooks.inlineable()
    if pair is None:
        return "outside of the program" if saved_tensor_hooks.are_on() else "none"
    try:
        return "\n".join(
            f"{kind}:\n{Program(Symbols()).text(hook)}" for kind, hook in zip(("pack", "unpack"), pair, strict=True)
        )
    except Uncacheable as error:
        raise bypasses.SAVED_HOOK(f"a saved tensor hook: {error.reason}", error.where) from None


def _devices(inputs: Any) -> str:
    devices = {(v.device.type, v.device.index) for v in inputs if isinstance(v, torch.Tensor)}
    current = torch.accelerator.current_accelerator(check_available=True)
    if current is not None:
        devices.add((current.type, torch.accelerator.current_device_index()))
    found = (f"{kind}:{index} is {torchs.accelerator(kind, index)}" for kind, index in sorted(devices, key=str))
    return ", ".join(one for one in found if not one.endswith(" is "))


@functools.lru_cache(1)
def of_process() -> Mapping[str, str]:
    """The ingredients that are fixed for a process."""
    return {
        "processor": torchs.processor(),
        "torch": torchs.versions_of_torch(),
        "libraries": ", ".join(f"{name} {_version(name)}" for name in ("triton", "numpy", "sympy")),
        "Python": torchs.version_of_python(),
        "aotviz": f"{aotviz.__version__}, sources {sources()}",
    }


def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return "not installed"


def sources() -> str:
    """A digest of the sources of aotviz that compile."""
    home = Path(aotviz.__file__).parent
    files = [home / name for name in _FILES]
    for folder in _SOURCES:
        files += sorted((home / folder).glob("*.py"))
    hashed = hashlib.blake2b(digest_size=10)
    for file in files:
        hashed.update(f"{file.parent.name}/{file.name}\n".encode())
        hashed.update(file.read_bytes())
    return hashed.hexdigest()
