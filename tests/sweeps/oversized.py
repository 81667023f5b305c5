"""The operators whose results keep more memory than their sizes say, found over torch's op_db.

    python -m tests.sweeps.oversized                  # prints each, with the rule that says how much, or none
    python -m tests.sweeps.oversized --op mse_loss

A plan of memory takes a storage to end where the last tensor in it ends. A kernel may leave a larger one behind, for
example that of the values which it summed up. Here each sample of each operator runs forward and backward under a mode
that compares the two for every storage that an ATen operator makes. Half-precision samples also
run with float32 vectors, as the weights of a norm often are. `aotviz/recording/oversized.py` is the table of
what was found; `tests/test_oversized.py` compares it with a part of this sweep.
"""

from __future__ import annotations

import argparse
import contextlib
import re
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from aotviz.recording.oversized import has_statistics_of_weights, kept_elements
from tests.oracle.samples import samples_of

DTYPES = (torch.float32, torch.bfloat16)
SAMPLES = 6  # of an operator and a dtype
LEFT_OUT = ("empty", "new_empty", "to_sparse", "sparse.", "resize", "as_strided", "uninitialized")


def reach(tensor: torch.Tensor) -> int:
    """Elements from the beginning of a storage to the end of a tensor in it."""
    if not tensor.numel():
        return 0
    return tensor.storage_offset() + 1 + sum((n - 1) * s for n, s in zip(tensor.shape, tensor.stride(), strict=True))


class Compared(TorchDispatchMode):
    """Notes each storage that is larger than what lies in it, beside what the table says."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[str, int, int, int]] = []  # operator, bytes of the tensors, real, of the table

    def _fake(self, func: Any, args: Any, kwargs: Any) -> list[Any]:
        """What a plan knows of the results; nothing where the sizes depend on data."""
        with contextlib.suppress(Exception), FakeTensorMode(allow_non_fake_inputs=True) as mode:
            fakes = pytree.tree_map_only(torch.Tensor, mode.from_tensor, (args, kwargs))
            return pytree.tree_leaves(func(*fakes[0], **fakes[1]))
        return []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = [one for one in pytree.tree_leaves((args, kwargs)) if isinstance(one, torch.Tensor)]
        known = {one.untyped_storage().data_ptr() for one in given if one.layout is torch.strided}
        planned = self._fake(func, args, kwargs or {})
        result = func(*args, **(kwargs or {}))
        made: dict[int, tuple[int, int, int]] = {}  # bytes that a plan knows, real ones, and those of an element
        for number, one in enumerate(pytree.tree_leaves(result)):
            if isinstance(one, torch.Tensor) and one.layout is torch.strided and one.device.type == "cpu":
                place = one.untyped_storage().data_ptr()
                if place not in known:
                    fake = planned[number] if number < len(planned) else one
                    ends = max(made.get(place, (0,))[0], reach(fake) * fake.element_size())
                    made[place] = ends, one.untyped_storage().nbytes(), fake.element_size()
        elements = kept_elements(str(func), [tuple(one.shape) for one in given])
        first = True
        for ends, real, itemsize in made.values():
            said = max(ends, elements * itemsize)
            if has_statistics_of_weights(str(func)) and not first and len(given) > 1:
                said = ends // itemsize * given[1].element_size()
            if real != ends or said != real:
                self.found.append((str(func), ends, real, said))
            first = False
        return result


def samples(op: Any, dtype: torch.dtype) -> Iterator[Any]:
    torch.manual_seed(0)
    with contextlib.suppress(Exception):  # a sample that cannot be made here is left out
        for number, sample in enumerate(samples_of(op, dtype, op.supports_autograd)):
            if number == SAMPLES:
                return
            yield sample


def with_vectors(sample: Any) -> Any:
    """The sample with its weights in float32, as those of half-precision inputs often are: vectors, for a matrix."""

    def wide(one: torch.Tensor) -> torch.Tensor:
        is_vector = one.dim() == 1 and sample.input.dim() > 1 and one.dtype is torch.bfloat16
        return one.detach().float().requires_grad_(one.requires_grad) if is_vector else one

    args, kwargs = pytree.tree_map_only(torch.Tensor, wide, (sample.args, sample.kwargs))
    return type(sample)(sample.input, args=tuple(args), kwargs=kwargs)


def run(op: Any, sample: Any) -> list[tuple[str, int, int, int]]:
    with Compared() as mode, contextlib.suppress(Exception), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = op(sample.input, *sample.args, **sample.kwargs)
        roots = [
            one
            for one in pytree.tree_leaves(found)
            if isinstance(one, torch.Tensor) and one.requires_grad and one.layout is torch.strided
        ]
        if roots:
            torch.autograd.backward(roots, [torch.ones_like(one) for one in roots])
    return mode.found


def sweep(
    pattern: str = "", every: int = 1, dtypes: Sequence[torch.dtype] = DTYPES
) -> tuple[Counter[str], Counter[str]]:
    """How often each operator kept more than its sizes say: as the table says, and otherwise."""
    known, unknown = Counter[str](), Counter[str]()
    ops = [op for op in op_db if re.search(pattern, op.name) and not op.name.startswith(LEFT_OUT)]
    for op in ops[::every]:
        for dtype in dtypes:
            if dtype not in op.supported_dtypes("cpu"):
                continue
            for sample in samples(op, dtype):
                for one in (sample, with_vectors(sample)) if dtype is torch.bfloat16 else (sample,):
                    for operator, _, real, said in run(op, one):
                        (known if said == real else unknown)[operator] += 1
    return known, unknown


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--op", default="", help="a pattern for the names of op_db's entries")
    parser.add_argument("--every", type=int, default=1)
    chosen = parser.parse_args()
    known, unknown = sweep(chosen.op, chosen.every)
    print("as the table says:", *(f"{name} ({count})" for name, count in known.most_common()))
    print("not in the table, or wrong there:", *(f"{name} ({count})" for name, count in unknown.most_common()))


if __name__ == "__main__":
    main()
