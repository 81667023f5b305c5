"""What a function reaches without taking it: tensors and plain values in its closure, in globals, in what these hold.

A program is traced with stand-ins, and a later call must find what the trace found. So each tensor that a function
reaches has a place: who holds it, and how it is read and replaced there. A trace that meets such a tensor starts again
with it as an input (`Reached.lift`), which is read at its place at every call and holds a stand-in while a program is
traced. A plain value (`lr = 0.1`) that the function's own code reads by name is compared at each call.
"""

from __future__ import annotations

import dis
import functools
import inspect
import operator
import sysconfig
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from types import CodeType, MappingProxyType
from typing import Any

import torch

from aotviz.torch_private.attributes import PLAIN, State, tensors_of
from aotviz.torch_private.open_trace import is_library
from aotviz.tracing.places import Place

DEPTH = 6  # steps from the function: its closure, an object there, an attribute of it, an item of that ...
MOST_ALIKE = 1000  # tensors of one container that are lifted together


class Reached:
    """The tensors that a function was found to reach, and the plain values that its code reads."""

    def __init__(self, fn: Any) -> None:
        self._fn = fn
        self.places: tuple[Place, ...] = ()
        self._settings: tuple[Place, ...] | None = None  # looked for at the first call
        self._counters: tuple[Place, ...] = ()
        self._modules: list[State] = []
        self.iterators: tuple[str, ...] = ()  # the paths of those that the code reads
        self.read_of_arguments: frozenset[Any] = frozenset()  # names of attributes

    def tensors(self) -> list[Any]:
        return [place.value() for place in self.places]

    def look(self) -> None:
        """Look for the plain values again: a name may have got its value, or a function another one, since."""
        reads = _Reads()
        reads.of_value(self._fn, "", CALLS)
        self._settings = reads.places()
        self._counters = reads.places(assigned=True)
        self.iterators = tuple(dict.fromkeys(reads.iterators))
        self._modules = [State(module) for module in dict.fromkeys(reads.modules)]
        self.read_of_arguments = frozenset(reads.attributes - reads.assigned)

    def settings(self) -> tuple[Any, ...]:
        """The plain values as they are now."""
        if self._settings is None:
            self.look()
        if not self._settings:
            return ()
        values = [(place.path, _frozen(place.value())) for place in self._settings]
        return (*values, *(("a module", state.read()[1]) for state in self._modules))

    def counters(self) -> dict[str, Any]:
        """By their paths, the plain values that the code reads and assigns, as they are now. No call compares them."""
        return {place.path: place.value() for place in self._counters}

    def lift(self, met: Sequence[torch.Tensor]) -> bool:
        """Make inputs of the tensors that a trace met, and of their neighbours. False if one can't be."""
        found = list(reachable(self._fn))
        known = {place.path for place in self.places}
        wanted = {id(tensor) for tensor in met}
        here = [place for place in found if id(place.value()) in wanted]
        if not wanted.issubset(id(place.value()) for place in here) or any(place.write is None for place in here):
            return False
        fresh = [place for place in here if place.path not in known]
        if not fresh:
            return False  # the trace met it although it is an input: in another way than by its place
        holders = {id(place.holder) for place in fresh}
        near = [place for place in found if id(place.holder) in holders and place.path not in known]
        near = [place for place in near if place.write and _is_dense(place.value())]
        self.places += tuple(near if len(near) <= MOST_ALIKE else fresh)
        return True


def _is_dense(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.layout is torch.strided


def difference(before: Sequence[Any], now: Sequence[Any]) -> str:
    """What changed between two readings of the settings, in words."""
    for (path, was), (_, value) in zip(before, now, strict=False):
        if was != value:
            plain = path != "a module" and all(fact and fact[0] is not _Same for fact in (was, value))
            return f"{path} changed" + (f" from {was[1]!r} to {value[1]!r}" if plain else "")
    return "other values are read from outside"


# --- tensors --------------------------------------------------------------------------------------------------------


def reachable(fn: Any, arguments: Mapping[str, Any] = MappingProxyType({})) -> Iterator[Place]:
    """The places of the tensors that a call leads to, each container once."""
    for place in _places(fn, arguments):
        if isinstance(place.value(), torch.Tensor):
            yield place


def generators(fn: Any, arguments: Mapping[str, Any]) -> Iterator[Place]:
    """The places of the random generators that a call leads to, also those in the user's modules and classes."""
    for place in _places(fn, arguments):
        value = place.value()
        if isinstance(value, torch.Generator):
            yield place
        elif inspect.ismodule(value) or isinstance(value, type):
            own = [name for name, held in vars(value).items() if isinstance(held, torch.Generator)]
            yield from (_attribute(f"{place.path}.{name}", place, name, value) for name in own)


def _places(fn: Any, arguments: Mapping[str, Any]) -> Iterator[Place]:
    seen: set[int] = set()
    for place in (*starts(fn), *(_fixed(path, value) for path, value in arguments.items())):
        yield from _walk(place, seen, DEPTH)


def starts(fn: Any) -> list[Place]:
    """Closure cells, globals, default arguments and the bound object of a function; of another callable, itself."""
    return _of_function(fn, "") if inspect.isroutine(fn) or isinstance(fn, functools.partial) else [_fixed("self", fn)]


def _fixed(path: str, value: Any) -> Place:
    return Place(path, lambda: value, None, None)


def _item(path: str, holder: Any, key: Any, kind: str = "") -> Place:
    """A place in a dict or list that itself stays where it is."""
    return Place(path, lambda: holder[key], functools.partial(operator.setitem, holder, key), holder, kind)


def _of_function(fn: Any, path: str) -> list[Place]:
    if isinstance(fn, functools.partial):
        held = [_fixed(f"{path}args[{i}]", value) for i, value in enumerate(fn.args)]
        held += [_item(f"{path}{name}", fn.keywords, name) for name in fn.keywords]
        return [*held, *_of_function(fn.func, path)]
    found: list[Place] = []
    if inspect.ismethod(fn):
        found.append(_fixed(f"{path}self", fn.__self__))
        fn = fn.__func__
    fn = inspect.unwrap(fn) if callable(fn) else fn
    code = getattr(fn, "__code__", None)
    if code is None:
        return found
    for name, cell in zip(code.co_freevars, fn.__closure__ or (), strict=False):
        found.append(Place(path + name, functools.partial(_cell, cell), functools.partial(setattr, cell, _CELL), cell))
    names = dict.fromkeys(step.argval for step in steps(code) if step.opname == "LOAD_GLOBAL")
    found += [_item(path + name, fn.__globals__, name) for name in names if name in fn.__globals__]
    arguments = code.co_varnames[: code.co_argcount]
    for index, name in enumerate(arguments[len(arguments) - len(fn.__defaults__ or ()) :]):
        found.append(_default(path + name, fn, index))
    return [*found, *(_item(path + name, fn.__kwdefaults__, name) for name in fn.__kwdefaults__ or ())]


_CELL = "cell_contents"


def _cell(cell: Any) -> Any:
    return cell.cell_contents  # ValueError for a variable that is assigned later


def _default(path: str, fn: Any, index: int) -> Place:
    whole = Place(path, lambda: fn.__defaults__, functools.partial(setattr, fn, "__defaults__"), fn)
    return _of_tuple(path, whole, index)


def _of_tuple(path: str, whole: Place, index: int) -> Place:
    """A place in a tuple: to put something there is to put another tuple where that one is."""

    def write(value: Any) -> None:
        was = whole.read()
        items = [*was[:index], value, *was[index + 1 :]]
        assert whole.write is not None
        whole.write(was._make(items) if hasattr(was, "_make") else type(was)(items))

    put = write if whole.write else None
    return Place(path, lambda: whole.read()[index], put, whole.read(), "", whole.outer or whole)


def _walk(place: Place, seen: set[int], depth: int) -> Iterator[Place]:
    value = place.value()
    if isinstance(value, (torch.Tensor, torch.Generator, type)) or inspect.ismodule(value):
        yield place
        return
    if depth == 0 or id(value) in seen or isinstance(value, (*PLAIN, bytes)):
        return
    seen.add(id(value))
    for part in _parts(place, value):
        yield from _walk(part, seen, depth - 1)


def _parts(place: Place, value: Any) -> Iterator[Place]:
    path = place.path
    if isinstance(value, dict):
        yield from (_item(f"{path}[{key!r}]", value, key) for key in list(value))
    elif isinstance(value, list):
        yield from (_item(f"{path}[{index}]", value, index) for index in range(len(value)))
    elif isinstance(value, tuple):
        yield from (_of_tuple(f"{path}[{index}]", place, index) for index in range(len(value)))
    elif isinstance(value, (set, frozenset)):
        yield from (_fixed(f"{path}[{index}]", item) for index, item in enumerate(value))
    elif inspect.isroutine(value) or isinstance(value, functools.partial):
        yield from _of_function(value, f"{path}.")
    elif isinstance(value, torch.nn.Module):
        yield from _of_module(path, value)
    else:
        own = getattr(value, "__dict__", {})
        yield from (_item(f"{path}.{name}", own, name) for name in list(own))
        if callable(value):
            yield from _of_function(type(value).__call__, f"{path}.__call__.")


def _of_module(path: str, root: torch.nn.Module) -> Iterator[Place]:
    for name, module in root.named_modules():
        prefix = f"{path}.{name}" if name else path
        for holder in tensors_of(module):
            held = [key for key, tensor in holder.items() if tensor is not None]
            yield from (_item(f"{prefix}.{key}", holder, key, "held") for key in held)
        own = vars(module)
        yield from (_item(f"{prefix}.{key}", own, key) for key in list(own) if not key.startswith("_"))


# --- plain values ---------------------------------------------------------------------------------------------------


def steps(code: CodeType) -> Iterator[dis.Instruction]:
    """The instructions of a function, and of the lambdas, comprehensions and functions written in it."""
    yield from dis.get_instructions(code)
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from steps(constant)


CALLS = 4  # from function to function
LONGEST_CHAIN = 20  # instructions
MOST_ITEMS = 32  # of a container that is compared
_LIBRARIES = (sysconfig.get_paths()["stdlib"], "site-packages", "dist-packages")


class _Reads:
    """What the user's code reads from outside by a chain of names: `lr`, `config.width`, `sizes[0]`, `self.scale`."""

    def __init__(self) -> None:
        self.found: dict[str, tuple[Place, Any]] = {}  # with the last name of the chain
        self.assigned: set[Any] = set()  # names, attributes and keys that the code assigns
        self.attributes: set[Any] = set()  # that the code reads, of whatever
        self.iterators: list[str] = []
        self.modules: list[torch.nn.Module] = []  # that lie in containers and objects
        self._seen: set[tuple[int, int]] = set()

    def places(self, assigned: bool = False) -> tuple[Place, ...]:
        """All but what the code assigns itself, which would never be what it was: a counter. Or only that."""
        return tuple(place for place, last in self.found.values() if (last in self.assigned) is assigned)

    def of_value(self, value: Any, path: str, depth: int) -> None:
        """Read the code that a call of `value` runs, where it is the user's."""
        if isinstance(value, torch.nn.Module):
            for name, module in value.named_modules():
                self._of_function(type(module).forward, f"{path}{name}." if name else path, module, depth)
        elif isinstance(value, functools.partial):
            self.of_value(value.func, path, depth)
        elif inspect.ismethod(value):
            self._of_function(value.__func__, path, value.__self__, depth)
        elif inspect.isfunction(value):
            self._of_function(value, path, None, depth)
        elif callable(value) and not isinstance(value, type):
            self._of_function(type(value).__call__, path, value, depth)

    def _of_function(self, fn: Any, path: str, bound: Any, depth: int) -> None:
        fn = inspect.unwrap(fn)
        code = getattr(fn, "__code__", None)
        if code is None or not depth or (id(fn), id(bound)) in self._seen or _is_librarys(code.co_filename):
            return
        self._seen.add((id(fn), id(bound)))
        names = {place.path: place for place in _of_function(fn, "")}
        own = code.co_varnames[:1] if bound is not None else ()
        names.update((name, _fixed("self", bound)) for name in own)
        instructions = list(steps(code))
        for i, step in enumerate(instructions):
            name = step.argval[-1] if isinstance(step.argval, tuple) and step.argval else step.argval
            if step.opname in ("LOAD_ATTR", "LOAD_METHOD"):
                self.attributes.add(name)
            if step.opname in ("STORE_GLOBAL", "STORE_DEREF", "STORE_ATTR"):
                self.assigned.add(name)
            elif step.opname == "STORE_SUBSCR" and i and instructions[i - 1].opname in _CONSTANTS:
                self.assigned.add(instructions[i - 1].argval)
            elif (name in names and step.opname in _LOADS) or (name in own and step.opname.startswith("LOAD_FAST")):
                self._follow(names[name], name, instructions[i + 1 : i + 1 + LONGEST_CHAIN], path, depth)

    def _follow(self, place: Place, last: Any, rest: Sequence[dis.Instruction], path: str, depth: int) -> None:
        position = 0
        while True:
            value = place.value()
            at = f"{path}{place.path}".replace(".self.", ".")
            key, length = _step(rest[position : position + 2])
            inner = None
            is_own = position == 0 and place.write is None and place.path == "self"
            is_functions = length == 1 and inspect.isfunction(value) and key in vars(value)
            if length and (_frozen(value) is None or is_own or is_functions):
                inner = _inner(place, value, key, length == 1)
            if isinstance(inner, Place):
                place, last, position = inner, key, position + length
            elif inner is not None:
                return self._of_function(inner, f"{at}.{key}.", value, depth - 1)
            else:
                return self._of_end(Place(at, place.read, None, place.holder), value, last, position > 0, depth)

    def _of_end(self, place: Place, value: Any, last: Any, is_inside: bool, depth: int) -> None:
        in_sight = isinstance(place.holder, torch.nn.Module) and isinstance(value, PLAIN)  # State reads those
        if _frozen(value) is not None and (is_inside or not _is_librarys_routine(value)) and not in_sight:
            self.found.setdefault(place.path, (place, last))
        if isinstance(value, Iterator):
            self.iterators.append(place.path)
        if isinstance(value, torch.nn.Module) and is_inside:  # others are submodules of the program's root
            self.modules.append(value)
        if isinstance(value, (list, tuple)) and len(value) <= MOST_ITEMS:
            for index, item in enumerate(value):
                if isinstance(item, torch.nn.Module):
                    self._of_end(_item(f"{place.path}[{index}]", value, index), item, last, True, depth)
        self.of_value(value, f"{place.path}.", depth - 1)


_LOADS = ("LOAD_GLOBAL", "LOAD_DEREF", "LOAD_CLASSDEREF", "LOAD_FROM_DICT_OR_DEREF")
_CONSTANTS = ("LOAD_CONST", "LOAD_SMALL_INT")


def _step(coming: Sequence[dis.Instruction]) -> tuple[Any, int]:
    """(name or key, instructions) of an attribute (one) or a constant subscript (two); (None, 0) for anything else."""
    if coming and coming[0].opname in ("LOAD_ATTR", "LOAD_METHOD"):
        return coming[0].argval, 1
    if len(coming) < 2 or coming[0].opname not in _CONSTANTS:
        return None, 0
    taken = coming[1].opname == "BINARY_SUBSCR" or (coming[1].opname == "BINARY_OP" and coming[1].argrepr == "[]")
    return (coming[0].argval, 2) if taken else (None, 0)


def _inner(place: Place, value: Any, key: Any, is_attribute: bool) -> Any:
    """The place of an attribute or item; a function of the object's class; None for what code would compute."""
    if not is_attribute:
        if isinstance(value, (list, tuple, dict)) and not isinstance(value, PLAIN):
            return Place(f"{place.path}[{key!r}]", lambda: place.read()[key], None, value)
        return None
    path = f"{place.path}.{key}"
    if inspect.ismodule(value) and _is_librarys(getattr(value, "__file__", None) or "<frozen"):
        return None
    if isinstance(value, type) and _is_librarys(getattr(inspect.getmodule(value), "__file__", None) or "<frozen"):
        return None
    if key in getattr(value, "__dict__", {}):
        found = vars(value)[key]
        return found if isinstance(value, type) and inspect.isfunction(found) else _attribute(path, place, key, value)
    found = inspect.getattr_static(type(value), key, None)
    if inspect.isfunction(found):
        return found
    return None if found is None or hasattr(type(found), "__get__") else _attribute(path, place, key, value)


def _attribute(path: str, place: Place, key: str, holder: Any) -> Place:
    return Place(path, lambda: getattr(place.read(), key), None, holder)


def _is_librarys(filename: str) -> bool:
    return is_library(filename) or any(part in filename for part in _LIBRARIES)


def _is_librarys_routine(value: Any) -> bool:
    if not inspect.isroutine(value):
        return False
    code = getattr(value, "__code__", None)
    return code is None or _is_librarys(code.co_filename)


def contents(value: Any, names: frozenset[Any], depth: int = 3) -> Any:
    """What a trace may have read of an argument that is an object: its plain attributes of these names, and a set's
    items. Attributes that are objects are looked into."""
    plain = _frozen(value)
    if plain is not None or not depth:
        return plain
    own = getattr(value, "__dict__", None)
    if not isinstance(own, dict) or isinstance(value, torch.Tensor):
        return None
    return tuple((name, contents(item, names, depth - 1)) for name, item in own.items() if name in names)


class _Same:
    """Marks what is compared by identity: modules and functions are equal to themselves alone."""


def _frozen(value: Any) -> Any:
    """What two readings of a plain value, or of a small container of such, are compared by. None for anything else.

    1, 1.0 and True are equal, and make different programs. A module or function is to be the same one.
    """
    if isinstance(value, PLAIN):
        return type(value), value
    if isinstance(value, torch.nn.Module) or inspect.isroutine(value):
        return _Same, value
    if isinstance(value, (list, tuple, deque, set, frozenset)) and len(value) <= MOST_ITEMS:
        if all(isinstance(item, PLAIN) for item in value):
            items = ((type(item), item) for item in value)
            return type(value), frozenset(items) if isinstance(value, (set, frozenset)) else tuple(items)
    elif isinstance(value, dict) and len(value) <= MOST_ITEMS and all(isinstance(v, PLAIN) for v in value.values()):
        return dict, tuple((key, type(item), item) for key, item in value.items())
    return None
