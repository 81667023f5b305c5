"""torch's pytrees, as the rest of the package uses them."""

from __future__ import annotations

from torch.utils._pytree import SUPPORTED_NODES
from torch.utils._pytree import TreeSpec as TreeSpec
from torch.utils._pytree import arg_tree_leaves as arg_tree_leaves
from torch.utils._pytree import keystr as keystr
from torch.utils._pytree import tree_flatten as tree_flatten
from torch.utils._pytree import tree_flatten_with_path as tree_flatten_with_path
from torch.utils._pytree import tree_leaves as tree_leaves
from torch.utils._pytree import tree_structure as tree_structure
from torch.utils._pytree import tree_unflatten as tree_unflatten


def registration(kind: type) -> tuple[object, ...] | None:
    """The functions by which a class is taken apart and put together; None if it is not a pytree."""
    node = SUPPORTED_NODES.get(kind)
    return None if node is None else (node.flatten_fn, node.unflatten_fn, node.flatten_with_keys_fn)


def like_keywords(keywords: dict[str, object], in_spec: TreeSpec) -> dict[str, object]:
    """Keyword arguments in the order of `in_spec`'s call; unchanged if the names differ."""
    known = in_spec.children()[1].context
    return {str(key): keywords[str(key)] for key in known} if set(known) == set(keywords) else keywords
