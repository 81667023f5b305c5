"""The operators whose results have other memory than the traced sizes say, most of them more on a CPU.

`tests/sweeps/oversized.py` found them over torch's op_db: a loss that sums up its values keeps the storage of all of
them, and a norm of half-precision values with float32 weights has statistics in float32, where the trace says half.
Also, an operator that writes to a copy of its first argument copies that argument's whole storage, on every device.
One kind of result has less: the trace of the backward of a batch norm has a gradient of the input although
`output_mask` does not ask for one, and no kernel makes it. The backward of a convolution makes a gradient of the weight
where only that of the bias is asked for.
`extensions/core/src/views/memory/oversized.ts` has the same rules.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from itertools import zip_longest
from math import prod

_LOSSES = re.compile(r"aten\.(?:mse_loss|smooth_l1_loss|soft_margin_loss|binary_cross_entropy)\.default")
_NORMS = re.compile(
    r"aten\.(?:native_layer_norm|native_group_norm|native_batch_norm|_native_batch_norm_legit|_batch_norm_with_update)"
    r"\.default"
)
_COPIES = re.compile(r"aten\.(?:copy|(?:slice|select|diagonal|as_strided)_scatter)\.default")
_MASKED = re.compile(r"aten\.(?:native_)?batch_norm_backward\.default")
_CONVOLUTION = "aten.convolution_backward.default"
_MASK = re.compile(r"\[((?:True|False)(?:, (?:True|False)){2})\]")


@lru_cache(4096)  # a graph has few different operators
def has_rule(target: str) -> bool:
    """Whether one of the rules below is about this operator."""
    return keeps_more(target) or target == _CONVOLUTION or _MASKED.fullmatch(target) is not None


def keeps_more(target: str) -> bool:
    """Whether its results may keep more memory than their sizes say."""
    return any(rule.fullmatch(target) for rule in (_LOSSES, _NORMS, _COPIES))


def kept_elements(target: str, shapes: Sequence[Sequence[int]]) -> int:
    """How many elements the result's storage has at least; `shapes` are those of the tensors that are read.

    >>> kept_elements("aten.mse_loss.default", [(3, 4), (4,)]), kept_elements("aten.sin.default", [(3, 4)])
    (12, 0)
    """
    if not _LOSSES.fullmatch(target):
        return 0
    backwards = (reversed(shape) for shape in shapes[:2])
    return prod(max(sizes) if min(sizes) else 0 for sizes in zip_longest(*backwards, fillvalue=1))


def copies_a_storage(target: str) -> bool:
    """Whether the result lies in a copy of the storage of the first tensor that is read.

    >>> copies_a_storage("aten.slice_scatter.default"), copies_a_storage("aten.copy_.default")
    (True, False)
    """
    return _COPIES.fullmatch(target) is not None


def has_statistics_of_weights(target: str) -> bool:
    """Whether all results but the first have the dtype of the second tensor that is read: the weight, or what is in
    its place."""
    return _NORMS.fullmatch(target) is not None


def not_made(target: str, args: str) -> tuple[int, ...]:
    """The items of the result that are traced and never made; `args` is the text of the arguments.

    >>> not_made("aten.native_batch_norm_backward.default", "t, x, w, m, v, a, b, False, 1e-05, [False, True, True]")
    (0,)
    """
    mask = _MASK.search(args) if _MASKED.fullmatch(target) else None
    return tuple(i for i, asked in enumerate(mask[1].split(", ")) if asked == "False") if mask else ()


def makes_a_weight(target: str, args: str) -> bool:
    """Whether a kernel for a CPU makes a gradient of its third tensor, a weight, that is not in the trace.

    >>> makes_a_weight("aten.convolution_backward.default", "t, x, w, [6], [1], [0], 1, [True, False, True]")
    True
    """
    mask = _MASK.search(args) if target == _CONVOLUTION else None
    return mask is not None and mask[1].endswith("False, True")
