"""What Inductor says of a graph that it compiled. Nothing of Inductor is imported to ask."""

from __future__ import annotations

import json
from typing import Any

REPLAYED = "_aotviz_replayed_ns"  # on a result of Inductor's


def generated_code(compiled: Any) -> str:
    """What Inductor wrote for a graph that it compiled; "" for a graph that another compiler took, or none.

    A result of Inductor's keeps its source as long as it lives, so to hand it on costs nothing.
    """
    text = getattr(compiled, "source_code", "")
    return text if isinstance(text, str) else ""


def kernel_nodes(compiled: Any) -> dict[str, list[str]]:
    """Which nodes each call of a kernel computes: "kernel:number" -> names; the generated code numbers its calls so.

    Names are those of the graph after Inductor's own passes. {} where Inductor did not compile it.
    """
    try:
        said = json.loads(getattr(compiled, "inductor_provenance_mapping_str", None) or "{}")["cppCodeToPost"]
        return {str(kernel): [str(name) for name in names] for kernel, names in said.items()}
    except (KeyError, TypeError, ValueError, AttributeError):
        return {}


def replayed_ns(compiled: Any) -> int | None:
    """What compiling had taken of a graph that Inductor found in its cache; None for one that it compiled now."""
    return getattr(compiled, REPLAYED, None)
