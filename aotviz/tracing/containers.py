"""Changes that a function makes to the lists, dicts and objects that it takes or refers to.

A trace follows tensors only. If the function appends to a list, or assigns an attribute of an object, the compiled call
would not repeat that, and the trace itself would leave a fake there. So the contents of these objects are recorded
before the function runs and restored after it, and a change is refused by name. Objects in the closure or the globals
may change as long as no tensor gets there: a counter, a log.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from types import ModuleType
from typing import Any

import torch

from aotviz.ir.refusals import Refused
from aotviz.torch_private import script_objects
from aotviz.tracing.attributes import ABSENT
from aotviz.tracing.registered_hooks import Handle

DEPTH = 5  # steps from an argument: its list, an object there, an attribute of that ...
DEPTH_OUTSIDE = 3  # steps from what a function refers to

_Noted = tuple[str, Any, bool, Any]  # (where, container, whether it may change without tensors, a copy)


@contextlib.contextmanager
def unchanged(name: str, arguments: Iterable[tuple[str, Any]], outside: Iterable[tuple[str, Any]]) -> Iterator[None]:
    """Refuse that the function `name` changes a list or dict among `arguments`, or puts a tensor into an object.

    Containers and objects `outside` may change otherwise. Both are (name, value) pairs.

    Raises:
        Refused: "argument is changed".
    """
    noted: list[_Noted] = []
    seen: set[int] = set()
    for where, value in arguments:
        _note(where, value, noted, seen, DEPTH, owned=False)
    for where, value in outside:
        _note(where, value, noted, seen, DEPTH_OUTSIDE, owned=True)
    try:
        yield
    finally:
        changed = [where for where, container, owned, before in noted if _is_changed(container, owned, before)]
        for _, container, _, before in noted if changed else ():
            if _is_changed(container, False, before):
                container.clear()
                container.extend(before) if isinstance(container, list) else container.update(before)
    if changed:
        raise Refused("argument is changed", repr(changed[0]), name)


def _note(where: str, value: Any, noted: list[_Noted], seen: set[int], depth: int, owned: bool) -> None:
    """Copy each container reachable from `value`. `owned`: the container belongs to an object or an outside scope, so
    plain values in it may change."""
    if depth == 0 or id(value) in seen or isinstance(value, (torch.Tensor, torch.nn.Module, type, ModuleType)):
        return
    if script_objects.is_object(value) or script_objects.is_stand_in(value):  # traces follow script objects
        return
    seen.add(id(value))
    if isinstance(value, (list, tuple)):
        items = [(f"{where}[{k}]", item) for k, item in enumerate(value)]
    elif isinstance(value, dict):
        items = [(f"{where}[{key!r}]", item) for key, item in value.items()]
    elif isinstance(getattr(value, "__dict__", None), dict) and not callable(value):
        items = [(f"{where}.{key}", item) for key, item in vars(value).items()]
        value, owned = vars(value), True
    else:
        return
    if isinstance(value, (list, dict)):
        noted.append((where, value, owned, value.copy()))
    for place, item in items:
        _note(place, item, noted, seen, depth - 1, owned)


def _is_changed(container: Any, owned: bool, before: Any) -> bool:
    keys = range(max(len(container), len(before))) if isinstance(container, list) else {**before, **container}
    for key in keys:
        one, other = _at(before, key), _at(container, key)
        if one is not other and (not owned or _holds_tensors(other, DEPTH)):
            return True
    return False


def _at(container: Any, key: Any) -> Any:
    if isinstance(container, list):
        return container[key] if key < len(container) else ABSENT
    return container.get(key, ABSENT)


def _holds_tensors(value: Any, depth: int) -> bool:
    if isinstance(value, torch.Tensor):
        return True
    if depth == 0 or isinstance(value, (torch.nn.Module, type, Handle)):  # using a handle after the trace is refused
        return False
    held = value.values() if isinstance(value, dict) else value if isinstance(value, (list, tuple)) else None
    if held is None:
        held = list((getattr(value, "__dict__", None) or {}).values())
    return any(_holds_tensors(item, depth - 1) for item in held)
