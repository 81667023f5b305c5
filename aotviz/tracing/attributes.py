"""The attributes of a module, before and after a traced call.

A traced call that assigns a tensor to `self.x` leaves a FakeTensor there, which is useless afterwards. So attributes
are recorded before a trace, compared after it, and restored.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any

import torch
import torch.fx as fx

from aotviz.torch_private import modules

_TORCHS = frozenset(vars(torch.nn.Module())) | {"_initialize_hook", "_load_hook"}
_FXS = frozenset(vars(fx.GraphModule(torch.nn.Module(), fx.Graph())))  # some are created when its code is first read
PLAIN = (bool, int, float, complex, str, type(None), torch.dtype, torch.device)


class Absent(Enum):
    ABSENT = "there was no such attribute or item; giving an attribute a plain value once is not a change"


ABSENT = Absent.ABSENT


@dataclass(frozen=True)
class Change:
    """An attribute that a call assigned. `path` is in the user's spelling: `self.encoder.state['h']`."""

    path: str
    is_tensor: bool
    before: Any
    now: Any


class Attributes:
    """The current attributes of a module and its submodules. `owner` is the user's name for the module."""

    def __init__(self, root: torch.nn.Module, owner: str = "self") -> None:
        self._modules = [(".".join(filter(None, (owner, path))), module) for path, module in root.named_modules()]
        self.mirrors = False
        self._before = [
            {name: (value, _copied(value)) for name, value in _own(module).items()} for _, module in self._modules
        ]

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
                if isinstance(value, list):
                    value[:] = copied
                elif isinstance(value, dict):
                    value.clear()
                    value.update(copied)
                module.__dict__[name] = value


def _own(module: torch.nn.Module) -> dict[str, Any]:
    others = _TORCHS | _FXS if isinstance(module, fx.GraphModule) else _TORCHS
    return {name: value for name, value in vars(module).items() if name not in others}


def _copied(value: Any) -> Any:
    """Copy nested containers, but not what they hold."""
    if type(value) is dict:
        return {key: _copied(item) for key, item in value.items()}
    if type(value) in (list, tuple):
        return type(value)(map(_copied, value))
    return value


def _compare(path: str, before: Any, now: Any, found: list[Change]) -> None:
    if before is now:
        return
    if isinstance(now, torch.Tensor):
        found.append(Change(path, True, before, now))
    elif isinstance(now, dict):
        was = before if isinstance(before, dict) else {}
        for key, item in now.items():
            _compare(f"{path}[{key!r}]", was.get(key), item, found)
    elif isinstance(now, (list, tuple)):
        past = before if isinstance(before, (list, tuple)) else ()
        for index, item in enumerate(now):
            _compare(f"{path}[{index}]", past[index] if index < len(past) else None, item, found)
    elif isinstance(before, PLAIN) and isinstance(now, PLAIN) and before != now:
        found.append(Change(path, False, before, now))
