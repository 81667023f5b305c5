"""What Inductor reports about a graph that it compiled. Nothing of Inductor is imported for that."""

from __future__ import annotations

import json
import re
from typing import Any

KEY = r"^f[a-z2-7]{51}\Z"  # the form of a key of Inductor's: a letter, and a digest in base 32
REPLAYED = "_aotviz_replayed_ns"  # on a result of Inductor's


def generated_code(compiled: Any) -> str:
    """The source that Inductor generated for a graph; "" if another compiler compiled it.

    Inductor's result keeps its source anyway, so returning it costs nothing.
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


def stored_under(compiled: Any) -> tuple[str, str | None] | None:
    """The key of a compiled graph in Inductor's own cache, and the guards of that entry; None if it is not there."""
    key = str(getattr(compiled, "_fx_graph_cache_key", None))
    return (key, getattr(compiled, "guards_expr", None)) if re.match(KEY, key) else None


def replayed_ns(compiled: Any) -> int | None:
    """The original compile time of a graph that Inductor found in its cache; None if it was compiled now."""
    return getattr(compiled, REPLAYED, None)
