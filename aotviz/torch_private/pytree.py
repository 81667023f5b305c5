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


def is_leaf_spec(spec: TreeSpec) -> bool:
    return bool(spec.is_leaf())


def kind(spec: TreeSpec) -> type | None:
    """The container's type, or None for a leaf."""
    return None if spec.is_leaf() else spec.type


def children(spec: TreeSpec) -> list[TreeSpec]:
    return list(spec.children())


def dict_keys(spec: TreeSpec) -> list[object]:
    """The keys of a dict's spec, in the order of its children."""
    return list(spec.context)


def taken_apart(spec: TreeSpec) -> tuple[type, object, list[TreeSpec]]:
    """The container's type, what it has beside its children (such as the keys of a dict), and the children."""
    return spec.type, spec.context, list(spec.children())


def put_together(kind: type, context: object, children: list[TreeSpec]) -> TreeSpec:
    """The inverse of `taken_apart`."""
    return TreeSpec(kind, context, children)


def like_keywords(keywords: dict[str, object], in_spec: TreeSpec) -> dict[str, object]:
    """Keyword arguments in the order of `in_spec`'s call; unchanged if the names differ."""
    known = dict_keys(children(in_spec)[1])
    return {str(key): keywords[str(key)] for key in known} if set(known) == set(keywords) else keywords
