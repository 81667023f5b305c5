"""What Inductor reports about a graph that it compiled. Nothing of Inductor is imported for that."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Sequence
from typing import Any

import torch

KEY = r"^f[a-z2-7]{51}\Z"  # the form of a key of Inductor's: a letter, and a digest in base 32
_ARGUMENTS = re.compile(r"^ +([\w, ]+?) = args$", re.MULTILINE)
_CHECKED = re.compile(r"^ +assert_size_stride\((\w+), \(([^()]*)\), \(([^()]*)\)", re.MULTILINE)
REPLAYED = "_aotviz_replayed_ns"  # on a result of Inductor's


def generated_code(compiled: Any) -> str:
    """The source that Inductor generated for a graph; "" if another compiler compiled it.

    Inductor's result keeps its source anyway, so returning it costs nothing.
    """
    text = getattr(compiled, "source_code", "")
    return text if isinstance(text, str) else ""


def fits(compiled: Any, inputs: Sequence[Any]) -> bool:
    """Whether code of Inductor's takes these inputs, as far as its source says: their count, sizes and strides.

    An entry of the cache names its code by a key, which may be that of another graph.
    """
    source = generated_code(compiled)
    source = source[max(source.rfind("def call("), 0) :]
    taken = _ARGUMENTS.search(source)
    names = [name.strip() for name in taken[1].split(",") if name.strip()] if taken else []
    if not source or (taken is None and not inputs):
        return True
    given = dict(zip(names, inputs, strict=False))
    if len(names) != len(inputs):
        return False
    for name, size, stride in _CHECKED.findall(source):
        value = given.get(name)
        if isinstance(value, torch.Tensor):
            found = [*_numbers(size), *_numbers(stride)]
            known = [*value.size(), *value.stride()]
            if len(found) != len(known) or any(
                type(b) is int and a not in (b, None) for a, b in zip(found, known, strict=True)
            ):
                return False
    return True


def _numbers(text: str) -> list[int | None]:
    """The numbers of a tuple in source code; None for a symbol."""
    parts = [part.strip() for part in text.split(",") if part.strip()]
    return [int(part) if part.isdigit() else None for part in parts]


def kernel_nodes(compiled: Any) -> dict[str, list[str]]:
    """Which nodes each call of a kernel computes: "kernel:number" -> names; the generated code numbers its calls so.

    Names are those of the graph after Inductor's own passes. {} where Inductor did not compile it.
    """
    try:
        said = json.loads(getattr(compiled, "inductor_provenance_mapping_str", None) or "{}")["cppCodeToPost"]
        return {str(kernel): [str(name) for name in names] for kernel, names in said.items()}
    except (KeyError, TypeError, ValueError, AttributeError):
        return {}


def stored_under(compiled: Any) -> tuple[str, str | None] | None:
    """The key of a compiled graph in Inductor's own cache, and the guards of that entry; None if it is not there."""
    key = str(getattr(compiled, "_fx_graph_cache_key", None))
    return (key, getattr(compiled, "guards_expr", None)) if re.match(KEY, key) else None


def kernels_generated() -> int:
    """How many kernels Inductor has generated in this process. 0 until something has loaded it: that takes a second."""
    return int(getattr(sys.modules.get("torch._inductor.metrics"), "generated_kernel_count", 0))


def replayed_ns(compiled: Any) -> int | None:
    """The original compile time of a graph that Inductor found in its cache; None if it was compiled now."""
    return getattr(compiled, REPLAYED, None)
