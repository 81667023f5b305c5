"""Who holds a tensor that a trace left behind, found with Python's garbage collector and described in the user's names.

The search goes from the tensor to its holders, to their holders, and ends at something of the user's: the globals of a
module, a class, a function, an object. Objects of the trace do not count. Then the container nearest to the tensor is
changed: a variable gets its previous value, an entry of a dict is deleted, a cache behind `lru_cache` is cleared.
"""

from __future__ import annotations

import contextlib
import dis
import functools
import gc
import sys
import sysconfig
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextvars import copy_context
from types import CellType, FrameType, FunctionType, GeneratorType, MethodType, ModuleType
from typing import Any

import torch

from aotviz.ir.user_code import is_library
from aotviz.python_state.free_variables import plain_function
from aotviz.torch_private.functional_tensors import FunctionalTensor

MOST_STEPS = 12  # from a tensor to its holders
MOST_ITEMS = 1000  # in a container that is copied before a trace
_LIBRARIES = (sysconfig.get_paths()["stdlib"], "site-packages", "dist-packages")
_TRACES_OWN = ("aotviz.", "torch.fx", "torch._", "torch.utils._", "torch.overrides", "torch.autograd.")
_PYTHONS_OWN = ("builtins", "collections", "functools", "itertools", "types", "weakref")
_Memo = type(functools.lru_cache(lambda: None))
_CHANGED = (dict, list, set, deque, CellType, _Memo)  # containers that a tensor can be removed from


class Before:
    """What the variables of a function, the globals of the user's modules and containers among them held before a
    trace."""

    EMPTY = object()  # what a variable holds that has no value yet

    def __init__(self, fn: object) -> None:
        self.context = copy_context()
        self.copies: dict[int, Any] = {}
        plain = plain_function(getattr(fn, "forward", fn))
        if plain is not None:
            self._note(plain.__globals__)
            for cell in plain.__closure__ or ():
                self.copies[id(cell)] = self.EMPTY
                with contextlib.suppress(ValueError):
                    self.copies[id(cell)] = cell.cell_contents
        for module in _users_modules(len(sys.modules)):
            self._note(vars(module))
            for value in list(vars(module).values()):
                if type(value) in (dict, list) and len(value) <= MOST_ITEMS:
                    self._note(value)

    def _note(self, container: Any) -> None:
        self.copies[id(container)] = container.copy()


@functools.lru_cache(1)
def _users_modules(loaded: int) -> tuple[ModuleType, ...]:
    """The user's modules, of so many: neither Python's own nor from an installed package."""
    return tuple(module for module in list(sys.modules.values()) if _is_users(module))


def _is_users(module: Any) -> bool:
    if not isinstance(module, ModuleType):
        return False
    file = getattr(module, "__file__", None)
    if not isinstance(file, str):
        return module.__name__ == "__main__"
    return not is_library(file) and not any(part in file for part in _LIBRARIES)


def taken_out(tensors: list[FunctionalTensor], before: Before, roots: Sequence[object]) -> tuple[str, ...]:
    """Remove tensors from the user's objects; return descriptions of their places.

    Args:
        tensors: what may be held. This list and the running frames are not holders.
        before: the state before the trace.
        roots: objects of the user's, at which the search ends.
    """
    found = list(_variables_of_context(tensors, before))
    search = _Search(tensors, roots)
    places = list(search.places())
    found += [search.spelled(holder, held) for holder, held in places]
    for holder, held in places:
        above = [search.objects[key] for key in search.holders(holder)]
        _take(search.objects[holder], search.objects[held], above, before)
    return tuple(dict.fromkeys(found))


def _variables_of_context(tensors: Sequence[FunctionalTensor], before: Before) -> Iterator[str]:
    for variable, value in list(copy_context().items()):
        if any(value is tensor for tensor in tensors):
            variable.set(before.context.get(variable))
            yield f"the context variable {variable.name!r}"


class _Search:
    """The objects above some tensors, with what refers to each, as far as they are the user's."""

    def __init__(self, tensors: list[FunctionalTensor], roots: Sequence[object]) -> None:
        self.objects: dict[int, object] = {id(tensor): tensor for tensor in tensors}
        self.above: dict[int, list[int]] = {}
        self.users: set[int] = set()  # ids of objects that are reachable from the user's
        self._tensors = tuple(self.objects)
        self._roots = set(map(id, roots))
        self._globals = {id(vars(m)): m.__name__ for m in list(sys.modules.values()) if isinstance(m, ModuleType)}
        self._own: list[object] = []  # the search's own references, which do not count
        self._in_use: set[int] = set()  # ids of objects that the trace refers to
        self._look(tensors)
        self._sort_out()

    def _look(self, tensors: list[FunctionalTensor]) -> None:
        level: list[object] = list(tensors)
        self._own += [level, tensors, self.objects, vars(self)]
        for _ in range(MOST_STEPS):
            children = {id(item) for item in level} - self.above.keys()
            asked = tuple(level)  # Python 3.13 counts the tuple of arguments among the referrers
            self._own.append(asked)
            own = {id(one) for one in self._own}
            referrers = gc.get_referrers(*asked) if level else []
            self._own.append(referrers)
            level.clear()
            for holder in referrers:
                if id(holder) in own:
                    continue
                held = children & {id(item) for item in gc.get_referents(holder)}
                if _is_the_traces(holder):
                    self._in_use |= held
                    continue
                for child in held:
                    self.above.setdefault(child, []).append(id(holder))
                if id(holder) not in self.objects:
                    self.objects[id(holder)] = holder
                    if not self._ends(id(holder)):
                        level.append(holder)

    def _ends(self, key: int) -> bool:
        return key in self._roots or key in self._globals or not _passes_on(self.objects[key])

    def _sort_out(self) -> None:
        """Mark what is reachable from something with a name, or held only by a variable of a running function.

        A tensor without referrers is kept by autograd.
        """
        for key, found in self.objects.items():
            nameless = key not in self.above and key not in self._in_use and not isinstance(found, torch.Tensor)
            if self._ends(key) or nameless:
                self.users.add(key)
        count = 0
        while count != len(self.users):
            count = len(self.users)
            self.users.update(key for key, holders in self.above.items() if not self.users.isdisjoint(holders))

    def holders(self, key: int) -> list[int]:
        """The user's objects that refer to an object, those with a name first."""
        return sorted(self.users.intersection(self.above.get(key, ())), key=lambda holder: not self._ends(holder))

    def places(self) -> Iterator[tuple[int, int]]:
        """(holder, held object), by id, to be changed so that nothing leads to the tensors."""
        seen = set(self._tensors)
        queue = list(self._tensors)
        while queue:
            held = queue.pop()
            for holder in self.holders(held):
                changed = isinstance(self.objects[holder], _CHANGED) and not self._is_of_a_tensor(holder)
                if self._ends(holder) or changed:
                    yield holder, held
                elif holder not in seen:
                    seen.add(holder)
                    queue.append(holder)

    def _is_of_a_tensor(self, key: int) -> bool:
        """Whether a dict holds the attributes of a tensor: without its parts, a subclass is of no use."""
        above = [self.objects[holder] for holder in self.holders(key)]
        found = self.objects[key]
        return isinstance(found, dict) and isinstance(_owner_of(found, above), torch.Tensor)

    def spelled(self, holder: int, held: int) -> str:
        """The place of an object, in the user's spelling."""
        path = [held, holder]
        while not self._ends(path[-1]):
            further = [key for key in self.holders(path[-1]) if key not in path]
            if not further:
                break
            path.append(further[0])
        objects = [self.objects[key] for key in reversed(path)]
        module = self._globals.get(path[-1])
        text = "" if module else _called(objects[0])
        for above, inner, below in zip([None, *objects], objects, objects[1:], strict=False):
            if above is None and isinstance(inner, dict) and module:
                text += str(next((name for name, value in inner.items() if value is below), ""))
            else:
                text += _step(above, inner, below)
        return f"{text} of the module {module}" if module not in (None, "__main__") else text


def _is_the_traces(holder: object) -> bool:
    if isinstance(holder, GeneratorType):
        return is_library(holder.gi_code.co_filename)
    if isinstance(holder, (FrameType, BaseException, ModuleType)):
        return True
    return not isinstance(holder, type) and f"{type(holder).__module__}.".startswith(_TRACES_OWN)


def _passes_on(holder: object) -> bool:
    """Whether an object has no name of its own, so the user knows it by its holder."""
    if isinstance(holder, (type, GeneratorType, _Memo)):
        return False
    return isinstance(holder, torch.Tensor) or type(holder).__module__ in _PYTHONS_OWN


def _called(end: object) -> str:
    """The user's name for the object at which the search ended."""
    if isinstance(end, _Memo):
        return f"the cache of {end.__qualname__}()"
    if isinstance(end, (FunctionType, MethodType, GeneratorType)):
        return f"{end.__qualname__}()"
    if isinstance(end, type):
        return end.__qualname__
    return f"a {type(end).__qualname__}"


def _step(above: object, holder: object, held: object) -> str:
    """The user's spelling of the step from `holder`, which is held by `above`, to `held`."""
    if isinstance(holder, dict):
        keys = [key for key, value in holder.items() if value is held]
        if isinstance(above, _Memo) or not keys:
            return ""
        key = keys[0]
        if _owner_of(holder, [above]) is not None:
            return "" if key in _OF_MODULES else f".{key}"
        # From Python 3.13 on, the object itself holds its attributes, not its dict.
        attributes = above if isinstance(above, dict) else getattr(above, "__dict__", {})
        if any(attributes.get(name) is holder for name in _OF_MODULES):
            return f".{key}"
        return f"[{key!r}]" if isinstance(key, _PLAIN) else f"[a {type(key).__qualname__}]"
    if isinstance(holder, (list, tuple, deque)):
        if isinstance(above, FunctionType):
            names = above.__code__.co_freevars if holder is above.__closure__ else ()
            return next((f".{name}" for name, cell in zip(names, holder, strict=False) if cell is held), "")
        return next((f"[{index}]" for index, item in enumerate(holder) if item is held), "")
    return next((f".{name}" for name in _attributes(holder, held) if name not in _OF_MODULES), "")


def _owner_of(holder: dict[Any, Any], above: Iterable[object]) -> Any:
    """The object among `above` whose attributes a dict holds."""
    for owner in above:
        own = getattr(owner, "__dict__", None)
        if own is holder or (isinstance(owner, type) and own == holder):
            return owner
    return None


def _attributes(owner: object, value: object) -> list[str]:
    """The names of attributes, slots included, that hold a value."""
    if type(owner).__module__ in _PYTHONS_OWN:
        return []
    names = [name for name, held in getattr(owner, "__dict__", {}).items() if held is value]
    for kind in type(owner).__mro__:
        slots = vars(kind).get("__slots__", ())
        slots = (slots,) if isinstance(slots, str) else slots
        names += [name for name in slots if getattr(owner, name, None) is value]
    return names


def _take(holder: object, held: object, above: Sequence[object], before: Before) -> None:
    """Remove `held` from `holder`. `above` are the holders of `holder`."""
    memo = next((one for one in (holder, *above) if isinstance(one, _Memo)), None)
    known = before.copies.get(id(holder))
    if memo is not None:
        memo.cache_clear()
    elif isinstance(holder, dict):
        owner = _owner_of(holder, above)
        for key in [key for key, value in holder.items() if value is held or key is held]:
            if known is not None and key in known:
                holder[key] = known[key]
            elif owner is not None and known is None:
                _forget(owner, key)
            else:
                del holder[key]
    elif isinstance(holder, list) and known is not None:
        holder[:] = known
    elif isinstance(holder, (list, deque)):
        kept = [item for item in holder if item is not held]
        holder.clear()
        holder.extend(kept)
    elif isinstance(holder, set):
        holder.discard(held)
    elif isinstance(holder, CellType) and known is before.EMPTY:
        del holder.cell_contents
    elif isinstance(holder, CellType):
        holder.cell_contents = known  # None if what it was before can't be known
    else:
        for name in _attributes(holder, held):
            _forget(holder, name)


def _forget(owner: object, name: str) -> None:
    """Set an attribute to None if `__init__` assigns it, else delete it."""
    kind: Any = owner if isinstance(owner, type) else type(owner)
    code = getattr(kind.__init__, "__code__", None)
    stored = code is not None and any(i.opname == "STORE_ATTR" and i.argval == name for i in dis.get_instructions(code))
    if stored and owner is not kind and not hasattr(kind, name):
        setattr(owner, name, None)
    else:
        delattr(owner, name)


_OF_MODULES = ("_parameters", "_buffers", "_modules")
_PLAIN = (str, int, float, bool, type(None))
