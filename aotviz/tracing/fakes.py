"""Fake tensors: a program is traced with these instead of its arguments (docs/design/system.md B2)."""

from __future__ import annotations

import contextlib
import traceback
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch.fx.experimental.symbolic_shapes import (
    DimDynamic,
    GuardOnDataDependentSymNode,
    ShapeEnv,
    StatelessSymbolicContext,
)

from aotviz.ir.storages import of_other_kind
from aotviz.ir.symbolic_sizes import all_concrete
from aotviz.ir.view_and_mutation import Layout
from aotviz.ir.wrapper_subclasses import has_ragged_sizes, is_subclass, parts, ragged
from aotviz.python_state import randomness
from aotviz.torch_private import context as contexts
from aotviz.torch_private import pytree, script_objects
from aotviz.torch_private.dispatch import no_python_dispatcher, without_modes
from aotviz.torch_private.fake_tensors import (
    ConstantSource,
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensor,
    FakeTensorMode,
    detect_fake_mode,
    shape_env,
)
from aotviz.torch_private.functional_tensors import FunctionalTensor
from aotviz.torch_private.runtime import as_inference_tensor
from aotviz.torch_private.tensors import base_of, mirror_autograd


def fake_mode_for(flat: Sequence[Any], dynamic: bool) -> FakeTensorMode:
    """Return the mode of arguments that are fake already, else the mode of Dynamo's context, else a new mode."""
    found = detect_fake_mode(list(flat))
    if found is not None:
        return found
    if any(map(has_ragged_sizes, flat)):  # a row may have the length of the batch by chance: no shared symbols
        return FakeTensorMode(shape_env=ShapeEnv(duck_shape=False))
    # Even if all sizes are known, the counters of loops are symbols.
    return FakeTensorMode(shape_env=ShapeEnv() if dynamic else ShapeEnv(allow_dynamic_output_shape_ops=False))


def symbolic(values: Sequence[Any]) -> bool:
    """Whether some value is fake and its mode has symbols."""
    mode = detect_fake_mode(list(values))
    return mode is not None and mode.shape_env is not None


def is_fake(value: Any) -> bool:
    return isinstance(value, FakeTensor)


def takes_real_tensors(values: Sequence[Any]) -> bool:
    """Whether the mode of the fakes among these values lets operators take real tensors beside them."""
    mode = detect_fake_mode(list(values))
    return mode is not None and bool(mode.allow_non_fake_inputs)


def fakes(
    flat: Sequence[Any],
    fake_mode: FakeTensorMode,
    dynamic: bool,
    static_count: int,
    names: Sequence[str],
    symbols: Sequence[tuple[int, ...]] | None = None,
    kind: Any = DimDynamic.DYNAMIC,
) -> list[Any]:
    """Return one fake per flat argument, with its shape, strides, aliasing, requires_grad and Python attributes.

    The first `static_count` arguments (parameters and buffers) keep concrete shapes even if `dynamic`. With `symbols`,
    only these dimensions of each argument are symbolic (`Request.symbols`), and of this `kind`. An argument that occurs
    twice gets two fakes over one storage: a later stage decides whether to merge them.
    """
    context = contexts.current().tracing
    made: list[Any] = []
    seen: set[int] = set()
    for index, value in enumerate(flat):
        own = None if symbols is None else symbols[index]
        varies = dynamic and index >= static_count if own is None else bool(own)
        fake = _fake(value, fake_mode, varies, names[index], context, own, kind)
        if isinstance(fake, torch.Tensor):
            if any(id(part) in seen for part in (fake, *parts(fake))):
                with torch.inference_mode(fake.is_inference()), fake_mode:
                    first, fake = fake, fake.detach()
                    if first.is_leaf:
                        fake.requires_grad_(first.requires_grad)
                    else:
                        mirror_autograd(first, fake)
            seen.update(id(part) for part in (fake, *parts(fake)))
            if context is None and fake is not value and not is_subclass(value):
                vars(fake).update({name: held for name, held in vars(value).items() if name not in vars(fake)})
        made.append(fake)
    return made


def as_captured(values: Sequence[Any], names: Sequence[str], symbols: Sequence[Sequence[tuple[int, int]]]) -> list[Any]:
    """Return fakes in a mode of their own, like those that Dynamo made of other values.

    Args:
        values: real tensors and numbers.
        names: one for each, for messages about sizes.
        symbols: for each value the dimensions that are symbols, with the number of the symbol. A number is dimension 0.
    """
    dynamic = any(symbols)
    mode = fake_mode_for(values, dynamic)
    tensors = [isinstance(value, torch.Tensor) for value in values]
    dims = [tuple(dim for dim, _ in own) if is_one else () for is_one, own in zip(tensors, symbols, strict=True)]
    made = fakes(values, mode, dynamic, 0, names, dims if dynamic else None, DimDynamic.DUCK)
    known: dict[int, int | torch.SymInt] = {
        number: one.shape[dim]
        for one, own in zip(made, symbols, strict=True)
        for dim, number in own
        if isinstance(one, torch.Tensor)
    }
    for i, own in enumerate(symbols):
        if own and not isinstance(values[i], torch.Tensor):
            ((_, number),) = own
            if number not in known:
                source = ConstantSource(names[i])
                known[number] = shape_env(mode).create_unspecified_symint_and_symbol(values[i], source, DimDynamic.DUCK)
            made[i] = known[number]
    return made


def _fake(
    value: Any,
    fake_mode: FakeTensorMode,
    dynamic: bool,
    name: str,
    context: Any,
    symbols: tuple[int, ...] | None = None,
    kind: Any = DimDynamic.DYNAMIC,
) -> Any:
    shape_env = fake_mode.shape_env
    if _changes_kind(value):
        base = _fake(base_of(value), fake_mode, dynamic, name, context)
        with fake_mode, torch.set_grad_enabled(value.requires_grad):
            return of_other_kind(base, value)
    if dynamic and type(value) is int and shape_env is not None and context is None:
        # Unlike a size, a number that is 0 or 1 now is no constant: nothing would check that it stays so.
        return shape_env.create_unspecified_symint_and_symbol(value, ConstantSource(name), DimDynamic.DYNAMIC)
    if script_objects.is_object(value):
        return script_objects.stand_in(value, fake_mode, name)
    if not isinstance(value, torch.Tensor):
        return value
    if isinstance(value, FakeTensor):
        return value if value.fake_mode is fake_mode else fake_mode.from_tensor(value)
    if context is not None and value in context.tensor_to_context:
        symbolic = context.tensor_to_context[value]
        source = getattr(symbolic, "tensor_source", None)
        fake = fake_mode.from_tensor(value, static_shapes=False, symbolic_context=symbolic, source=source)
        if value.is_inference() and not fake.is_inference() and not is_subclass(value):  # Dynamo made it
            with fake_mode:
                return as_inference_tensor(fake)
        return fake
    if shape_env is None or not (dynamic or has_ragged_sizes(value)):
        return fake_mode.from_tensor(value, static_shapes=True)
    symbolic = None
    if symbols is not None and not is_subclass(value):
        sizes = [kind if i in symbols else DimDynamic.STATIC for i in range(value.dim())]
        symbolic = StatelessSymbolicContext(sizes)
    return fake_mode.from_tensor(value, static_shapes=False, symbolic_context=symbolic, source=ConstantSource(name))


def _changes_kind(value: Any) -> bool:
    """Whether a real tensor is a real view of a complex tensor, or the reverse: torch's converter fails on these."""
    base = base_of(value) if type(value) is torch.Tensor else None
    return base is not None and base.is_complex() != value.is_complex()


def empty_like_layout(fake_mode: FakeTensorMode, size: Any, stride: Any, dtype: Any, device: Any) -> torch.Tensor:
    """Create a fake tensor of a given layout without tracing it."""
    with without_modes(), fake_mode:
        return torch.empty_strided(size, stride, dtype=dtype, device=device)


def shell(fake_mode: FakeTensorMode, value: torch.Tensor) -> torch.Tensor:
    """Create a fake of `value`'s shape whose elements share one place in memory; see `runtime/edges.py`."""
    with without_modes(), fake_mode:
        made = torch.empty((), dtype=value.dtype, device=value.device)
        return made if is_subclass(value) else made.expand(value.shape)


def of_history(value: Any, requires_grad: bool) -> Any:
    """Return a detached fake with the given `requires_grad`. A value that is not a tensor is returned unchanged."""
    if not isinstance(value, torch.Tensor):
        return value
    fake: Any = next(parts(value))
    with fake.fake_mode:
        return value.detach().requires_grad_(requires_grad)


def symbols_of(stand_ins: Sequence[Any]) -> tuple[tuple[int, ...], ...] | None:
    """Return which sizes of the arguments are symbols, as in `Request.symbols`, or None if none is."""

    def of(value: Any) -> tuple[int, ...]:
        if isinstance(value, torch.Tensor):
            return tuple(i for i, size in enumerate(value.shape) if not isinstance(size, int))
        return (0,) if isinstance(value, torch.SymInt) else ()

    found = tuple(map(of, stand_ins))
    return found if any(found) else None


def geometry(operator: Any, dtype: torch.dtype, where: Layout, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Return (size, stride, offset) of the result of a view operator on a tensor at `where`, or a list of those.

    None if they are symbolic, if the result has another dtype, or if there is no such view.
    """
    size, stride, offset = where.size, where.stride, where.offset
    if not all_concrete((*size, *stride, offset)):
        return None
    # torch's Python decompositions accept some views that the operators themselves refuse.
    with without_modes(), no_python_dispatcher(), torch.no_grad():
        extent = 1 + sum((n - 1) * s for n, s in zip(size, stride, strict=True) if n)
        memory = torch.empty(offset + extent, dtype=dtype, device="meta")
        try:
            result = operator(memory.as_strided(size, stride, offset), *args, **kwargs)
        except (RuntimeError, IndexError, ValueError):
            return None
    several = isinstance(result, (list, tuple))
    results = result if several else [result]
    if any(r.dtype != dtype for r in results):
        return None
    found = [(tuple(r.shape), r.stride(), r.storage_offset()) for r in results]
    return found if several else found[0]


@contextlib.contextmanager
def rng_preserved() -> Iterator[None]:
    """Restore the random state afterwards: tracing runs user code, and the caller must not notice.

    If another thread may have drawn meanwhile, the state is left as it is.
    """
    state = torch.get_rng_state()
    try:
        yield
    finally:
        if not randomness.others_run():
            torch.set_rng_state(state)


class SymbolGuards:
    """The conditions on sizes that a symbolic trace depends on, as one expression over the flat inputs."""

    def __init__(self, fake_mode: FakeTensorMode, fakes: Sequence[Any]) -> None:
        self._shape_env = shape_env(fake_mode)
        self._positions = [i for i, fake in enumerate(fakes) if isinstance(fake, (torch.Tensor, torch.SymInt))]
        placeholders = self._leaves(fakes)
        rows = {n.node.expr for fake in fakes if is_subclass(fake) for n in fake.size() if ragged(n)}
        # A jagged dimension is a name, not a number. No guard can compare it; the arguments themselves can.
        guards = [guard for guard in self._shape_env.guards if not guard.expr.free_symbols & rows]
        self.text = (
            self._shape_env.produce_guards_expression(placeholders, guards=guards, ignore_static=False) or "True"
        )
        self._code: Any = compile(self.text, "<sizes>", "eval")

    def hold(self, flat: Sequence[Any]) -> bool:
        """Whether real inputs satisfy the guards."""
        return bool(self._shape_env.evaluate_guards_expression(self._code, self._leaves(flat)))

    def _leaves(self, flat: Sequence[Any]) -> list[Any]:
        """The inputs; for a subclass, its parts and its own sizes."""
        found: list[Any] = []
        for value in (flat[i] for i in self._positions):
            found += parts(value)
            if is_subclass(value):
                found += (size for size in value.size() if not ragged(size))
        return found


class StrayTensor(AssertionError):
    """A trace is about to write a real tensor, or a mode passed one on. FakeTensor's own check would come too late."""

    def __init__(self, tensor: torch.Tensor) -> None:
        super().__init__("a trace meets a tensor that is no input of it")
        self.tensor = tensor


def strays(error: BaseException) -> list[torch.Tensor]:
    """Return the real tensors that an operator received together with fakes, if that is what `error` is about."""
    if isinstance(error, StrayTensor):
        return [error.tensor]
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    told = isinstance(error, AssertionError) and "convert all Tensors to FakeTensors" in str(error)
    # Within forward-mode AD, torch fails to print the tensor that it complains of.
    if not told and all(frame.f_code.co_name != "render_call" for frame in frames):
        return []
    found: dict[int, torch.Tensor] = {}
    for frame in frames:
        if frame.f_code.co_name in ("dispatch", "_dispatch_impl", "validate_and_convert_non_fake_tensors"):
            for value in pytree.tree_leaves([frame.f_locals.get(name) for name in ("args", "kwargs", "flat_args")]):
                if isinstance(value, torch.Tensor) and not isinstance(value, (FakeTensor, FunctionalTensor)):
                    found[id(value)] = value
    return list(found.values())


COMPLEX_ITEM = "local_scalar_dense/item NYI"  # torch has symbols for integers, floats and booleans only


def asks_for_values(error: BaseException) -> bool:
    """Whether the program read the value of a tensor, or used a shape that depends on one."""
    kinds = (DataDependentOutputException, DynamicOutputShapeException, GuardOnDataDependentSymNode)
    return isinstance(error, kinds) or (isinstance(error, NotImplementedError) and str(error).startswith(COMPLEX_ITEM))
