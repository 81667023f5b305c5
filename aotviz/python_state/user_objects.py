"""Changes that a function makes to Python objects: attributes of modules, and lists, dicts and objects that it reaches.

A trace follows tensors only. If the function assigns a tensor to `self.x`, or appends to a list, the compiled call
would not repeat that, and the trace itself would leave a FakeTensor there, which is useless afterwards. So attributes
and contents are recorded before the function runs, compared after it, and restored. A change of a container is refused
by name. Objects in the closure or the globals may change as long as no tensor gets there: a counter, a log.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import torch
import torch.fx as fx

from aotviz.ir.refusals import Refused
from aotviz.torch_private import modules, script_objects

_TORCHS = frozenset(vars(torch.nn.Module())) | {"_initialize_hook", "_load_hook"}
_FXS = frozenset(vars(fx.GraphModule(torch.nn.Module(), fx.Graph())))  # some are created when its code is first read
DEPTH = 5  # steps from an argument: its list, an object there, an attribute of that ...
DEPTH_OUTSIDE = 3  # steps from what a function refers to
PLAIN = (bool, int, float, complex, str, type(None), torch.dtype, torch.device)

_Container = list[object] | dict[object, object]
_Noted = tuple[str, _Container, bool, _Container]  # (where, container, whether it may change without tensors, a copy)


ABSENT = object()  # there was no such attribute or item; giving an attribute a plain value once is not a change


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


@dataclass(frozen=True)
class Change:
    """An attribute that a call assigned. `path` is in the user's spelling: `self.encoder.state['h']`."""

    path: str
    is_tensor: bool
    before: object
    now: object


class Attributes:
    """The current attributes of a module and its submodules. `owner` is the user's name for the module."""

    def __init__(self, root: torch.nn.Module, owner: str = "self") -> None:
        self._modules = [(".".join(filter(None, (owner, path))), module) for path, module in root.named_modules()]
        self.mirrors = False
        own = (_own(module) for _, module in self._modules)
        self._before = [{name: (value, _copied(value)) for name, value in one.items()} for one in own]

    def changes(self) -> list[Change]:
        """Return the tensors that were assigned since, and the plain values that changed.

        Two kinds of assignment are not changes: an attribute that follows a parameter (`LSTM._flat_weights`) and held
        its fake during the trace, and what the pre-hooks of weight_norm or pruning assign before each call. `mirrors`
        says whether there was one of these to restore.
        """
        found: list[Change] = []
        mirrored: list[Change] = []
        for (path, module), before in zip(self._modules, self._before, strict=True):
            now = _own(module)
            hooks = modules.pre_hooks(module).values()
            hooked = {getattr(hook, kind, None) for hook in hooks for kind in ("name", "_tensor_name")}
            for name in {**before, **now}:
                changes = mirrored if name in hooked else found
                _compare(f"{path}.{name}", before.get(name, (None, ABSENT))[1], now.get(name), changes)
        held = {id(tensor) for _, module in self._modules for tensor in (*module.parameters(), *module.buffers())}
        self.mirrors = bool(mirrored) or any(id(change.before) in held for change in found)
        return [change for change in found if id(change.before) not in held]

    def restore(self) -> None:
        for (_, module), before in zip(self._modules, self._before, strict=True):
            for name in _own(module).keys() - before.keys():
                del module.__dict__[name]
            for name, (value, copied) in before.items():
                if isinstance(value, (list, dict)):
                    _put_back(value, copied)
                module.__dict__[name] = value


def _own(module: torch.nn.Module) -> dict[str, Any]:
    others = _TORCHS | _FXS if isinstance(module, fx.GraphModule) else _TORCHS
    return {name: value for name, value in vars(module).items() if name not in others}


def _put_back(container: _Container, before: Any) -> None:
    container.clear()
    container.extend(before) if isinstance(container, list) else container.update(before)


def _copied(value: Any) -> Any:
    """Copy nested containers, but not what they hold."""
    if type(value) is dict:
        return {key: _copied(item) for key, item in value.items()}
    if type(value) in (list, tuple):
        return type(value)(map(_copied, value))
    return value


def _compare(path: str, before: object, now: object, found: list[Change]) -> None:
    if before is now:
        return
    if isinstance(now, torch.Tensor):
        found.append(Change(path, True, before, now))
    elif isinstance(now, (dict, list, tuple)):
        was = dict(contents(before)) if isinstance(before, dict if isinstance(now, dict) else (list, tuple)) else {}
        for step, item in contents(now):
            _compare(path + step, was.get(step), item, found)
    elif isinstance(before, PLAIN) and isinstance(now, PLAIN) and before != now:
        found.append(Change(path, False, before, now))


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
                _put_back(container, before)
    if changed:
        raise Refused("argument is changed", repr(changed[0]), name)


def _note(where: str, value: object, noted: list[_Noted], seen: set[int], depth: int, owned: bool) -> None:
    """Copy each container reachable from `value`. `owned`: the container belongs to an object or an outside scope, so
    plain values in it may change."""
    if depth == 0 or id(value) in seen or isinstance(value, (torch.Tensor, torch.nn.Module, type, ModuleType)):
        return
    if script_objects.is_object(value) or script_objects.is_stand_in(value):  # traces follow script objects
        return
    seen.add(id(value))
    is_plain, held = isinstance(value, (list, tuple, dict)), contents(value)
    if not is_plain and (callable(value) or not isinstance(getattr(value, "__dict__", None), dict)):
        return
    if not is_plain:
        value, owned = vars(value), True
    if isinstance(value, (list, dict)):
        noted.append((where, value, owned, value.copy()))
    for step, item in held:
        _note(where + step, item, noted, seen, depth - 1, owned)


def _is_changed(container: _Container, owned: bool, before: _Container) -> bool:
    now, was = _items(container), _items(before)
    pairs = ((was.get(key, ABSENT), now.get(key, ABSENT)) for key in {**was, **now})
    return any(one is not other and (not owned or _holds_tensors(other, DEPTH)) for one, other in pairs)


def _items(container: _Container) -> dict[object, object]:
    return container if isinstance(container, dict) else dict(enumerate(container))


def _holds_tensors(value: object, depth: int) -> bool:
    if isinstance(value, torch.Tensor) or depth == 0 or isinstance(value, (torch.nn.Module, type)):
        return isinstance(value, torch.Tensor)
    return any(_holds_tensors(item, depth - 1) for _, item in contents(value))
