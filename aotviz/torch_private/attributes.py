"""What a module holds: its tensors, what else a program depends on, and what a call does to it.

A program is traced with the plain attributes, the hooks and the submodules that a module has at that time, so a later
call must find the same (`State`). To walk a module for them is dear, so the walk is done once and the places are kept.

A traced call that assigns a tensor to `self.x` leaves a tensor of the trace behind, which is good for nothing
afterwards. So attributes are noted before a trace, compared after it, and put back.
"""

from __future__ import annotations

from dataclasses import dataclass
from operator import itemgetter
from typing import Any

import torch
import torch.fx as fx
from torch.nn.modules import module as torchs

from aotviz.torch_private import script_objects

_TORCHS = frozenset(vars(torch.nn.Module())) | {"_initialize_hook", "_load_hook"}
_FXS = frozenset(vars(fx.GraphModule(torch.nn.Module(), fx.Graph())))  # some are made when its code is asked for
_ABSENT = object()  # an attribute that was not there: to give it a plain value once is no change
PLAIN = (bool, int, float, complex, str, type(None), torch.dtype, torch.device)


@dataclass(frozen=True)
class Change:
    """An attribute that a call assigned. `path` is as the user would write it: `self.encoder.state['h']`."""

    path: str
    is_tensor: bool
    before: Any
    now: Any


class Attributes:
    """The attributes of a module and its submodules, as they are now. `owner` is what the user calls the module."""

    def __init__(self, root: torch.nn.Module, owner: str = "self") -> None:
        self._modules = [(".".join(filter(None, (owner, path))), module) for path, module in root.named_modules()]
        self.mirrors = False
        self._before = [
            {name: (value, _copied(value)) for name, value in _own(module).items()} for _, module in self._modules
        ]

    def changes(self) -> list[Change]:
        """What was assigned since: every tensor, and every plain value that became another.

        An attribute that held a parameter follows it (`LSTM._flat_weights`), and so held its stand-in while a trace
        ran. That is no assignment, and neither is what weight_norm, pruning and the like assign before each call that
        then reads it; `mirrors` says that there was one to put back.
        """
        found: list[Change] = []
        mirrored: list[Change] = []
        for (path, module), before in zip(self._modules, self._before, strict=True):
            now = _own(module)
            hooks = module._forward_pre_hooks.values()
            hooked = {getattr(hook, kind, None) for hook in hooks for kind in ("name", "_tensor_name")}
            for name in {**before, **now}:
                changes = mirrored if name in hooked else found
                _compare(f"{path}.{name}", before.get(name, (None, _ABSENT))[1], now.get(name), changes)
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


class State:
    """The tensors of a module as they are now, and what else a program takes for granted of it, read at each call."""

    def __init__(self, root: torch.nn.Module) -> None:
        self._root = root
        self._walk()

    def _walk(self) -> None:
        seen: dict[int, tuple[dict[str, Any], str]] = {}
        self._tied = []  # (a place, the first one that holds the same tensor)
        self._absent = []  # places that hold None
        places: tuple[list[Any], list[Any]] = [], []
        self._rows = []
        self._counts = []  # attributes of each module: one that is added later may be read
        for module in self._root.modules():
            for found, holder in zip(places, (module._parameters, module._buffers), strict=True):
                for name, tensor in holder.items():
                    if tensor is None:
                        self._absent.append((holder, name))
                    elif id(tensor) not in seen:
                        seen[id(tensor)] = (holder, name)
                        found.append((holder, name))
                    else:
                        self._tied.append(((holder, name), seen[id(tensor)]))
            names = [name for name, value in _own(module).items() if _is_plain(value)]
            held = (module._modules, module._parameters, module._buffers)
            own = vars(module)
            self._rows.append((itemgetter("training", *names), own, held, hooks_of(module)))
            self._counts.append(len(own))
        self._places = [*places[0], *places[1]]
        numbers = {(id(holder), name): i for i, (holder, name) in enumerate(self._places)}
        self._ties = tuple((name, numbers[id(first), key]) for (_, name), (first, key) in self._tied)
        self._objects = list(script_objects.attributes(self._root))
        self._held = [tuple(tuple(part) for part in held) for _, _, held, _ in self._rows]
        self._submodules = [tuple(held[0].values()) for _, _, held, _ in self._rows]

    def read(self) -> tuple[list[torch.Tensor], tuple[Any, ...]]:
        """(parameters, buffers and script objects, each once; of each module, what a program depends on besides)."""
        if not self._is_current():
            self._walk()
        tensors = [holder[name] for holder, name in self._places]
        if any(tensor is None for tensor in tensors):
            self._walk()
            tensors = [holder[name] for holder, name in self._places]
        tensors += (value for _, value in self._objects)
        try:
            facts = self._facts()
        except KeyError:  # an attribute has gone, and another has come
            self._walk()
            facts = self._facts()
        return tensors, (facts, tuple(self._held), _global_hooks(), self._ties)

    def _facts(self) -> tuple[Any, ...]:
        return tuple((read(own), tuple(map(tuple, hooks)) if any(hooks) else ()) for read, own, _, hooks in self._rows)

    def _is_current(self) -> bool:
        """Whether modules, parameters and buffers are where the walk found them."""
        for (_, own, held, _), names, modules, count in zip(
            self._rows, self._held, self._submodules, self._counts, strict=True
        ):
            if tuple(held[0].values()) != modules or any(len(h) != len(n) for h, n in zip(held, names, strict=True)):
                return False
            if len(own) != count or "training" not in own:
                return False
        if any(holder[name] is not None for holder, name in self._absent):
            return False
        return all(holder[name] is first[key] for (holder, name), (first, key) in self._tied)


def difference(before: tuple[Any, ...], now: tuple[Any, ...]) -> str:
    """What changed between two readings of a State, in words."""

    def modes(state: tuple[Any, ...]) -> list[Any]:
        return [own[0] if isinstance(own, tuple) else own for own, *_ in state[0]] if state else []

    if modes(before) != modes(now) and len(modes(before)) == len(modes(now)):
        return "a module changed between train() and eval()"
    return "a plain attribute, a hook or a submodule of a module changed"


def tensors_of(module: torch.nn.Module) -> tuple[dict[str, Any], dict[str, Any]]:
    """The dicts that hold a module's parameters and its buffers, or None, by name."""
    return module._parameters, module._buffers


def hooks_of(module: torch.nn.Module) -> tuple[Any, ...]:
    """What a module runs at each call and its backward, as dicts by the hooks' numbers."""
    return (module._forward_pre_hooks, module._forward_hooks, module._backward_pre_hooks, module._backward_hooks)


def _global_hooks() -> tuple[Any, ...]:
    """The hooks that run at every module."""
    hooks = (
        torchs._global_forward_pre_hooks,
        torchs._global_forward_hooks,
        torchs._global_backward_pre_hooks,
        torchs._global_backward_hooks,
    )
    return tuple(map(tuple, hooks)) if any(hooks) else ()


def _is_plain(value: Any) -> bool:
    return isinstance(value, PLAIN) or (isinstance(value, tuple) and all(isinstance(item, PLAIN) for item in value))


def _own(module: torch.nn.Module) -> dict[str, Any]:
    others = _TORCHS | _FXS if isinstance(module, fx.GraphModule) else _TORCHS
    return {name: value for name, value in vars(module).items() if name not in others}


def _copied(value: Any) -> Any:
    """Containers copied, what they hold kept."""
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
