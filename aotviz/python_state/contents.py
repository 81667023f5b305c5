"""What a Python object holds, and what a user writes to get it."""

from __future__ import annotations


def contents(value: object) -> list[tuple[str, object]]:
    """(Step, item) of each item of a list, tuple or dict, or of each attribute of another object.

    >>> contents({"a": 1}), contents([2]), contents("text")
    ([("['a']", 1)], [('[0]', 2)], [])
    """
    if isinstance(value, dict):
        return [(f"[{key!r}]", item) for key, item in value.items()]
    if isinstance(value, (list, tuple)):
        return [(f"[{index}]", item) for index, item in enumerate(value)]
    own = getattr(value, "__dict__", None)
    return [(f".{name}", item) for name, item in own.items()] if isinstance(own, dict) else []
