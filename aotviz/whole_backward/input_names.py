"""Names the inputs of a captured backward that have no name of the user's: after the autograd node that reads them.

C++ says too of which node an input is, but not reliably: it counts the nodes in another order than it visits them. The
graph tells better, once it is complete: what `TanhBackward0` kept is what its visit reads first.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import torch.fx as fx

from aotviz.torch_private.graph_nodes import rename
from aotviz.whole_backward.captured import Lifted

_WORD = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")  # where one begins inside "TanhBackward0"


def named_by_use(graph: fx.Graph, inputs: Sequence[Lifted], visited: Sequence[str]) -> list[Lifted]:
    """The inputs, each with its visit and a name: `tanh_backward0_saved_0`. The placeholders get these names too.

    Args:
        graph: of the whole backward; `inputs` are its first placeholders.
        visited: the names of autograd's nodes, as C++ calls them.
    """
    count: Counter[str] = Counter()
    found: list[Lifted] = []
    for node, one in zip(graph.find_nodes(op="placeholder"), inputs, strict=False):
        visit = next((user.meta["visit"] for user in node.users if user.meta.get("visit", -1) >= 0), -1)
        name = one.name
        if not name:
            reader = _WORD.sub("_", visited[visit].rpartition("::")[2]).lower() if visit >= 0 else "unread"
            kind = f"{reader}_{'saved' if one.kind == 'tensor' else one.kind}"
            name = f"{kind}_{count[kind]}"
            count[kind] += 1
        rename(node, re.sub(r"\W", "_", name))
        found.append(replace(one, visit=visit, name=name))
    return found
