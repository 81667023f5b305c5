"""With `debug=True`: does each call match what the program was compiled for? (SYSTEM.md E4)

A compiled program trusts its caller: `aotviz.compile` and Dynamo guard their calls, `aot_function` leaves that to its
user. A call that does not match gives wrong numbers, or an error from inside a kernel. In debug mode the wrapper first
compares each argument with the traced one, and says which differs, and how.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from aotviz.ir.forms import GraphCall
from aotviz.ir.spelling import literal
from aotviz.ir.symbolic_sizes import SYMBOLIC, all_concrete
from aotviz.runtime.codegen import Source


def write(source: Source, call: GraphCall, variables: list[str]) -> None:
    """Write one check per flat input. `variables` are their expressions."""
    fact = "debug: compare the arguments with the traced ones"
    for variable, descriptor, example in zip(variables, call.descriptors, call.args, strict=True):
        check = source.bind("expect", expect)
        expected = source.bind(f"expected_{descriptor.name}", expectation(example))
        source.line(
            f"{check}({variable}, {expected}, {literal(descriptor.name)}, {literal(call.name)})", fact, descriptor.name
        )


def expectation(example: Any) -> dict[str, Any]:
    """The fixed facts about an input: for a tensor also sizes and strides, unless symbolic; for other values
    the type."""
    if not isinstance(example, torch.Tensor):
        return {} if isinstance(example, SYMBOLIC) else {"type": type(example)}
    facts: dict[str, Any] = {
        "dtype": example.dtype,
        "device": example.device,
        "requires_grad": example.requires_grad,
        "rank": example.dim(),
    }
    if example.layout is torch.strided and all_concrete((*example.size(), *example.stride())):
        facts["size"] = tuple(example.size())
        facts["stride"] = tuple(example.stride())
    return facts


def expect(value: Any, facts: dict[str, Any], name: str, program: str) -> None:
    """Raise AssertionError, with the name of the input, if `value` differs from `facts`."""
    if not facts:
        return
    if "type" in facts:
        if isinstance(value, torch.Tensor):
            raise AssertionError(
                f"{program}: {name} was {facts['type'].__name__} when compiled; this call has a tensor"
            )
        return
    if not isinstance(value, torch.Tensor):
        raise AssertionError(f"{program}: {name} was a tensor when compiled; this call has {type(value).__name__}")
    for fact, expected in facts.items():
        found = _READ[fact](value)
        if found == expected or (fact == "requires_grad" and not torch.is_grad_enabled()):
            continue
        if fact == "stride" and _same_order_of_elements(value, found, expected):
            continue
        raise AssertionError(
            f"{program}: {name} was compiled with {fact} {expected}; this call has {found}. Compile again "
            "for such calls, or let aotviz.compile guard them"
        )


def _same_order_of_elements(value: torch.Tensor, found: tuple[int, ...], expected: tuple[int, ...]) -> bool:
    """Whether strides differ only in dimensions of size one."""
    pairs = zip(value.size(), found, expected, strict=True)
    return value.numel() == 0 or all(size == 1 or one == other for size, one, other in pairs)


_READ: dict[str, Callable[[torch.Tensor], Any]] = {
    "dtype": lambda value: value.dtype,
    "device": lambda value: value.device,
    "requires_grad": lambda value: value.requires_grad,
    "rank": lambda value: value.dim(),
    "size": lambda value: tuple(value.size()),
    "stride": lambda value: tuple(value.stride()),
}
