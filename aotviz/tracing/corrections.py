"""Operators that torch traces as something that differs from eager, and how they are traced here instead.

Under the Python dispatcher torch replaces some operators by Python code before autograd sees them. For most of them the
result is the same. For these a compiled call would silently differ from eager:

    dropout                          that drops nothing returns its argument; torch's code returns a copy. Of jagged
                                     tensors it is native_dropout, which copies
    multi_margin_loss                of one sample returns a scalar; torch's code returns a vector of one element
    multilabel_margin_loss_forward   ignores the labels after the first -1; torch's code counts them as class 0, and
                                     for one sample returns a vector as above
    upsample_bilinear2d, _bicubic2d  of bytes round as integers; torch's code rounds as floating-point numbers
    lstm, gru, rnn_tanh, rnn_relu    apply dropout between their layers; torch's code does not

For a few operators on a non-contiguous argument, the strides of eager's result differ from those of the fake. Code
traced after such an operator could fail: a `reshape` becomes a `view` that is valid for the fake only. A copy makes the
strides agree:

    native_batch_norm                on the CPU; its variants and its backward
    mse_loss, smooth_l1_loss         their backward; also of huber_loss and binary_cross_entropy (strides of the input)
    log_sigmoid, log_softmax         the forward of the first, the backward of the second
    pow                              of a number

The backward of native_dropout on the CPU is traced as the operators that it computes, whose fakes have eager's strides.

A tensor that is written in place keeps its strides. A functional trace replaces it by a new tensor, whose strides may
differ: those of `tril` are always contiguous. Then the new value is copied into a tensor with the strides.

`x.bernoulli_(p)` draws its numbers in the order of memory, and the operator that computes its result in the order of
the dimensions. So a permuted tensor is written through a view whose dimensions have the order of memory.

An `out=` tensor whose shape differs from the result is resized in place by eager before it is written. A functional
trace would write a result of one shape to a tensor of another. So such an operator first runs on fake tensors with an
empty `out=`, which shows the shape of the result, and the trace resizes the `out=` tensors.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType, SimpleNamespace
from typing import Any

import torch

from aotviz.ir.wrapper_subclasses import is_subclass
from aotviz.torch_private import decompositions, dispatch, operators, pytree
from aotviz.torch_private.decompositions import Reduction
from aotviz.torch_private.operators import Operator
from aotviz.torch_private.tensors import is_dense
from aotviz.torch_private.tracers import swapped
from aotviz.tracing import functional
from aotviz.tracing.overlap import hinted
from aotviz.tracing.views import contiguous, layout, order_of

aten = torch.ops.aten


def _dropout(tensor: torch.Tensor, p: float, train: bool) -> torch.Tensor:
    if tensor.is_nested:
        return aten.native_dropout.default(tensor, p, train)[0]
    if p == 0 or not train or tensor.numel() == 0:
        return tensor
    return decompositions.dropout(tensor, p, train)


def _multilabel_margin_loss(tensor: torch.Tensor, target: Any, reduction: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The targets of a sample are its labels up to the first -1; every other class must stay a margin of 1 below each
    target."""
    torch._check(tensor.dim() <= 2 and target.shape == tensor.shape, lambda: "target and input differ in shape")
    rows: torch.Tensor = torch.atleast_2d(tensor)
    labels: torch.Tensor = torch.atleast_2d(target)
    classes = torch.arange(rows.shape[1], device=rows.device)
    labelled = (labels != -1).cumprod(1).bool().unsqueeze(-1)
    chosen = labels.where(labelled.squeeze(-1), 0)
    is_target = ((chosen.unsqueeze(-1) == classes) & labelled).any(1)
    above = torch.relu(1 - rows.gather(1, chosen).unsqueeze(-1) + rows.unsqueeze(1))  # [sample, label, class]
    counted = above.masked_fill(is_target.unsqueeze(1) | ~labelled, 0)
    losses = counted.sum((1, 2)) / rows.shape[1]
    reduced = {Reduction.NONE.value: lambda: losses if tensor.dim() == 2 else losses.squeeze(0)}
    reduced |= {Reduction.MEAN.value: losses.mean, Reduction.SUM.value: losses.sum}
    return reduced[reduction](), is_target.to(tensor.dtype).reshape(tensor.shape)


def _multi_margin_loss(tensor: torch.Tensor, target: Any, *others: Any, **named: Any) -> torch.Tensor:
    loss: torch.Tensor = decompositions.multi_margin_loss(tensor, target, *others, **named)
    return loss.squeeze(0) if target.dim() == 0 and loss.dim() == 1 else loss


def _for_bytes(own: Callable[..., Any], otherwise: Callable[..., Any]) -> Callable[..., Any]:
    """`own` for bytes, which have no gradient; else `otherwise`, which is torch's."""

    def traced(tensor: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        return (own if tensor.dtype is torch.uint8 else otherwise)(tensor, *args, **kwargs)

    return traced


def _below_autograd(operator: Operator) -> Callable[..., Any]:
    def traced(*args: Any, **kwargs: Any) -> Any:
        with decompositions.below_autograd():
            return operator(*args, **kwargs)

    return traced


def _by_size_or_factor(operator: Operator) -> Callable[..., Any]:
    def traced(tensor: torch.Tensor, size: Any, align_corners: bool, factors: Any = None) -> Any:
        size = decompositions.upsample_compute_output_size(tensor.size(), size, factors)
        return operator(tensor, size, align_corners, *(factors or (None, None)))

    return traced


def _contiguous(result: torch.Tensor, *args: Any) -> torch.Tensor:
    return result.clone(memory_format=torch.contiguous_format)


def _settled(
    operator: Operator, is_certain: Callable[..., bool], as_in_eager: Callable[..., torch.Tensor] = _contiguous
) -> Callable[..., Any]:
    """The operator, followed by a copy of its first result if eager's strides may differ from the fake's."""
    running = SimpleNamespace(inside=False)

    def traced(*args: Any, **kwargs: Any) -> Any:
        if running.inside or is_certain(*args):
            return NotImplemented
        with swapped(running, inside=True):
            result = operator(*args, **kwargs)
        if not isinstance(result, tuple):
            return as_in_eager(result, *args)
        first, *others = result
        return (None if first is None else as_in_eager(first, *args), *others)  # None: a gradient that is not needed

    return traced


def _all_contiguous(*args: Any) -> bool:
    return all(value.is_contiguous() for value in args if isinstance(value, torch.Tensor))


def _dropout_backward(gradient: torch.Tensor, mask: torch.Tensor, scale: float) -> Any:
    if gradient.device.type != "cpu" or _all_contiguous(gradient, mask):
        return NotImplemented
    return gradient * mask * scale


def _normalizes(position: int) -> Callable[..., bool]:
    """For batch norm: whether the argument at `position` has the strides that the result will have."""

    def is_certain(*args: Any) -> bool:
        tensor: torch.Tensor = args[position]
        formats = {4: torch.channels_last, 5: torch.channels_last_3d}
        other = formats.get(tensor.dim(), torch.contiguous_format)
        return tensor.device.type != "cpu" or tensor.is_contiguous() or tensor.is_contiguous(memory_format=other)

    return is_certain


def _layers(
    tensor: torch.Tensor,
    hidden: Sequence[Any],
    params: Sequence[Any],
    has_biases: bool,
    num_layers: int,
    dropout: float,
    train: bool,
    bidirectional: bool,
    batch_first: bool,
    layer_fn: Callable[..., Any],
) -> tuple[Any, list[Any]]:
    """Run the layers of a recurrent network one by one, with a dropout after each but the last."""
    tensor = tensor.transpose(0, 1) if batch_first else tensor
    ways = 2 if bidirectional else 1
    finals: list[Any] = []
    for layer in range(num_layers):
        own = slice(layer * ways, (layer + 1) * ways)
        tensor, final = decompositions.recurrent_layers(
            tensor, hidden[own], params[own], has_biases, 1, 0.0, train, bidirectional, False, layer_fn
        )
        finals += final
        if train and dropout and layer < num_layers - 1:
            tensor = torch.dropout(tensor, dropout, train=True)
    return tensor.transpose(0, 1) if batch_first else tensor, finals


_BCE_BACKWARD = aten.binary_cross_entropy_backward.default
_BILINEAR, _BICUBIC = aten.upsample_bilinear2d, aten.upsample_bicubic2d
LEFT_WHOLE = (_BILINEAR.default, _BICUBIC.default)  # for bytes, though a decomposition exists
_LOSSES: dict[Operator, Callable[..., Any]] = {
    aten.multi_margin_loss.default: _multi_margin_loss,
    aten.multilabel_margin_loss_forward.default: _multilabel_margin_loss,
}
_IS_CERTAIN = {  # operator -> whether, given the arguments, its first result is sure to have the strides of its fake
    aten.native_batch_norm.default: _normalizes(0),
    decompositions.BATCH_NORM_FUNCTIONAL: _normalizes(0),
    decompositions.BATCH_NORM.no_stats: _normalizes(0),
    decompositions.BATCH_NORM_NO_TRAINING: _normalizes(0),
    aten.native_batch_norm_backward.default: _normalizes(1),
    aten.mse_loss_backward.default: _all_contiguous,
    aten.smooth_l1_loss_backward.default: _all_contiguous,
    aten.huber_loss_backward.default: _all_contiguous,
    aten.log_sigmoid_forward.default: _all_contiguous,
    decompositions.LOG_SOFTMAX_BACKWARD: _all_contiguous,
    aten.pow.Scalar: _all_contiguous,
}
_SETTLED = {
    **{op: _settled(op, is_certain) for op, is_certain in _IS_CERTAIN.items()},
    _BCE_BACKWARD: _settled(
        _BCE_BACKWARD, _all_contiguous, lambda made, _, like, *__: aten.copy(torch.empty_like(like), made)
    ),
    aten.native_dropout_backward.default: _dropout_backward,
}
_TRACED_AS: dict[Operator, Callable[..., Any]] = {
    **_LOSSES,
    aten.dropout.default: _dropout,
    _BILINEAR.default: _for_bytes(_below_autograd(_BILINEAR.default), decompositions.upsample_bilinear2d),
    _BICUBIC.default: _for_bytes(_below_autograd(_BICUBIC.default), decompositions.upsample_bicubic2d_default),
    _BILINEAR.vec: _for_bytes(_by_size_or_factor(_BILINEAR.default), decompositions.upsample_linear_vec),
    _BICUBIC.vec: _for_bytes(_by_size_or_factor(_BICUBIC.default), decompositions.upsample_bicubic2d_vec),
}


def corrected(table: Mapping[Any, Any]) -> dict[Any, Any]:
    """Return a table of decompositions without torch's own for these operators, where those differ from eager.

    In inference mode the dispatcher skips autograd, and with it torch's replacements; only the table is consulted then.
    """
    own = {op for op, found in table.items() if decompositions.is_torchs(found)}
    resizing = {
        op: _for_bytes(lambda *_, **__: NotImplemented, table[op]) for op in own & {_BILINEAR.default, _BICUBIC.default}
    }
    losses = {op: found for op, found in _LOSSES.items() if op in own or op not in table}
    return {**_SETTLED, **table, **resizing, **losses}


@contextlib.contextmanager
def as_eager() -> Iterator[None]:
    """Trace these operators as eager computes them."""
    with decompositions.traced_as(_TRACED_AS), decompositions.layers_run_by(_layers):
        yield


def changing_strides(operator: Operator, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Operator | None:
    """The functional operator that an in-place one is traced as, if its result has other strides than what is written;
    else None. Only a permuted tensor is looked at, because the result has no gaps."""
    written = args[0] if args else None
    if not functional.is_functional(written) or is_subclass(written) or not is_dense(written):
        return None
    computes = operators.without_write(operator)
    if computes is None or contiguous(before := hinted(layout(written))):
        return None
    value = _on_stand_ins(computes, args, kwargs)
    if value is None:
        return None
    after = hinted(layout(value))
    return computes if before.size == after.size and before.order[:-1] != after.order[:-1] else None


def order_in_memory(tensor: torch.Tensor) -> list[int] | None:
    """The dimensions of a plain tensor from the outermost in memory to the innermost; None if that is their order."""
    if is_subclass(tensor):
        return None
    order = [*order_of(tensor.stride())]
    return order if order != sorted(order) else None


def _on_stand_ins(
    operator: Operator, args: Sequence[Any], kwargs: Mapping[str, Any], outs: Mapping[str, Any] = MappingProxyType({})
) -> Any:
    """What an operator gives on untraced fakes like its arguments. None for subclasses, and if it raises: the trace
    raises the same."""
    flat, spec = pytree.tree_flatten((tuple(args), dict(kwargs)))
    if any(map(is_subclass, flat)):
        return None
    with dispatch.without_modes():
        fake_args, fake_kwargs = pytree.tree_unflatten(list(map(functional.stand_in, flat)), spec)
        try:
            return operator(*fake_args, **fake_kwargs, **outs)
        except (RuntimeError, ValueError, IndexError, TypeError, AssertionError):
            return None


def misfits(
    operator: Operator, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> Iterator[tuple[torch.Tensor, tuple[int, ...]]]:
    """Each `out=` tensor whose shape differs from that of its result, and the result's shape."""
    names = operators.names_of_outs(operator)
    outs = {name: kwargs[name] for name in names if functional.is_functional(kwargs.get(name))}
    if not outs or len(outs) < len(names):
        return
    empty = {name: functional.stand_in(out, empty=True) for name, out in outs.items()}
    others = {name: value for name, value in kwargs.items() if name not in outs}
    if any(map(is_subclass, outs.values())) or _on_stand_ins(operator, args, others, empty) is None:
        return
    for name, out in outs.items():
        if tuple(empty[name].shape) != tuple(out.shape):
            yield out, tuple(map(int, empty[name].shape))  # a traced `resize_` does not accept symbols
