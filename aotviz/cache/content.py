"""What a Python value does, as text: equal texts stand for values that a compilation cannot tell apart.

A user's function is described by its bytecode, its constants, its defaults, and the values of the variables that it
reads, recursively. So a change of a line, of a default or of a global changes the text, and a new name or place of the
function does not. What belongs to an installed package whose version is in the key is described by its name alone.

A value that cannot be described raises `Uncacheable`, which names it. Nothing here compares by identity or by hash, so
the text is the same in every process.
"""

from __future__ import annotations

import builtins
import dataclasses
import enum
import functools
import hashlib
import inspect
import math
import types
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch.autograd.function import BackwardCFunction
from torch.fx.immutable_collections import immutable_dict, immutable_list

from aotviz.cache import bypasses
from aotviz.cache.bypasses import Uncacheable as Uncacheable
from aotviz.cache.code_reads import attributes, global_names, is_outside, reads_elsewhere, used_whole
from aotviz.cache.code_reads import is_versioned as is_versioned
from aotviz.torch_private import autograd_nodes, operators, pytree, registered_operators

_BUILTIN = (types.BuiltinFunctionType, types.MethodDescriptorType, types.WrapperDescriptorType)
_CODE = (types.FunctionType, types.MethodType)
_OF_A_CLASS = frozenset(
    "__module__ __qualname__ __doc__ __dict__ __weakref__ __firstlineno__ __static_attributes__ __annotations__ "
    "__annotate__ __annotate_func__ __annotations_cache__ __abstractmethods__ _abc_impl __parameters__ "
    "__orig_bases__ __hash__ __dataclass_params__ __dataclass_fields__ __slotnames__".split()
)  # names, places and caches; or they follow from the rest


_HEAP = 1 << 9  # CPython's mark of a class that a class statement made


def digest(text: str | bytes) -> str:
    """20 hexadecimal digits."""
    data = text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text
    return hashlib.blake2b(data, digest_size=10).hexdigest()


def of_function(fn: Callable[..., Any]) -> str:
    """The content of a function.

    >>> of_function(lambda x: x + 1) == of_function(lambda x: x + 1) != of_function(lambda x: x + 2)
    True

    Raises:
        Uncacheable: it reads a value that has no description.
    """
    return Content().value(fn)


class Content:
    """Describes values. A function or object that was met before is described by a number, so there may be cycles."""

    def __init__(self) -> None:
        self._met: dict[int, int] = {}
        self.kept: list[Any] = []  # what `_met` has the ids of

    def value(self, value: Any) -> str:
        """The text of a value.

        Raises:
            Uncacheable: there is no text for it.
        """
        how = _HOW.get(type(value))
        if how is not None:
            return how(self, value)
        return self.other(value)

    def other(self, value: Any) -> str:
        """The text of a value whose type is not in the table."""
        if isinstance(value, enum.Enum):
            return f"{self.kind(type(value))}.{value.name}"
        if isinstance(value, type):
            return self.kind(value)
        if isinstance(value, torch.Tensor):
            return self.tensor(value)
        if registered_operators.is_operator(value):
            return self._operator(value)
        if (defined := registered_operators.defined_by(value)) is not None:
            return self._operator(defined)
        if operators.is_higher_order(value) and is_versioned(type(value).__module__):
            return f"torch.ops.higher_order.{value}"
        if type(value).__module__ == "numpy":
            return _of_numpy(value)
        if type(value).__module__.startswith("triton."):
            return self._triton(value)
        backward = autograd_nodes.backward_of_torchs(value)
        if backward:
            return backward
        own = _uuid(value)
        if own is not None:
            return f"uuid {self.value(own)}"
        if isinstance(value, tuple) and hasattr(value, "_fields"):
            return f"{self.kind(type(value))}({', '.join(map(self.value, value))})"
        return self._object(value)

    def tensor(self, value: torch.Tensor) -> str:
        raise bypasses.CODE(f"a tensor of shape {tuple(value.shape)} is read as a constant")

    def function(self, fn: Any) -> str:
        """The text of a Python function."""
        home = str(fn.__globals__.get("__name__", ""))
        code = fn.__code__
        _refuse_outside(home, fn.__qualname__)
        if is_versioned(home):
            content = digest(repr((code.co_code, code.co_consts))) if "<lambda>" in fn.__qualname__ else ""
            line = f":{code.co_firstlineno} {content}".rstrip() if "<" in fn.__qualname__ else ""
            name = f"{home}.{fn.__qualname__}{line}"
            return f"{name} with {self._closure(fn)}" if fn.__closure__ else name
        own = getattr(fn, "cache_hash", None)
        if own is not None:
            return f"cache_hash {self.value(own)}"
        return self._once(fn, lambda: self._function(fn), "function")

    def kind(self, kind: type) -> str:
        """The text of a class: the name of an installed one, the functions and values of a user's."""
        _refuse_outside(kind.__module__, kind.__qualname__)
        if is_versioned(kind.__module__) and not _is_local(kind):
            return f"{kind.__module__}.{kind.__qualname__}{self._pytree(kind) if is_users_pytree(kind) else ''}"
        return self._once(kind, lambda: self._class(kind), "class")

    def _operator(self, operator: Any) -> str:
        """An operator, with the Python functions that a trace runs for it."""
        name = str(operator)
        if registered_operators.is_torchs(operator):
            return name
        return self._once(operator, lambda: self._functions(operator, name), name)

    def _functions(self, operator: Any, name: str) -> str:
        parts = [name]
        for overload in registered_operators.overloads(operator):
            parts.append(registered_operators.schema(overload))
            opaque = registered_operators.opaque_kernels(overload)
            if opaque:
                raise bypasses.KERNEL(f"operator {name} has a kernel for {opaque[0]} whose source is not known")
            for role, function in registered_operators.functions(overload):
                try:
                    parts.append(f"{role}: {self.value(function)}")
                except Uncacheable as error:
                    raise error.about(f"operator {name}: {error.reason}") from None
        return "\n".join(parts)

    def _triton(self, kernel: Any) -> str:
        try:
            return f"Triton kernel {digest(registered_operators.triton_source(kernel))}"
        except Exception as error:
            raise bypasses.CODE(f"the source of {_called(kernel)} is not known: {error}") from error

    def _once(self, value: Any, describe: Callable[[], str], what: str) -> str:
        known = self._met.get(id(value))
        if known is not None:
            return f"{what} #{known}"
        self._met[id(value)] = len(self._met)
        self.kept.append(value)
        try:
            return f"{what} {digest(describe())}"
        except RecursionError:
            raise bypasses.CODE(f"{_called(value)} refers to too many other functions") from None

    def _function(self, fn: Any) -> str:
        for bypass, what in reads_elsewhere(fn.__code__):
            raise bypass(f"{_called(fn)} {what}, which no key contains", place(fn))
        defaults = [*(fn.__defaults__ or ()), *sorted((fn.__kwdefaults__ or {}).items())]
        parts = [self._code(fn.__code__), f"defaults {self._parts(fn, defaults)}", self._closure(fn)]
        for name, value in (*_read_globals(fn), *_added(fn)):
            parts.append(f"{name} = {self._named(fn, name, value)}")
        parts += [f".{name} = {self._named(fn, name, value, False)}" for name, value in sorted(vars(fn).items())]
        return "\n".join(parts)

    def _closure(self, fn: Any) -> str:
        found = []
        for name, cell in zip(fn.__code__.co_freevars, fn.__closure__ or (), strict=False):
            try:
                held = cell.cell_contents
            except ValueError:  # not assigned yet
                found.append("nothing")
                continue
            found.append("itself" if held is fn else self._named(fn, name, held))
            if isinstance(held, types.ModuleType):
                found += [f"{path} = {self._named(fn, path, value)}" for path, value in _of_module(fn, name, held)]
        return f"closure [{', '.join(found)}]"

    def _parts(self, fn: Any, values: list[Any]) -> str:
        return ", ".join(self._named(fn, "a default", value, False) for value in values)

    def _named(self, fn: Any, name: str, value: Any, is_variable: bool = True) -> str:
        if isinstance(value, types.ModuleType) and is_variable:
            return f"module {value.__name__}"  # _of_module has what is read from it
        try:
            return self.value(value)
        except Uncacheable as error:
            if "which it reads" in error.reason:
                raise
            raise error.bypass(f"{_called(fn)} depends on {name}, which it reads: {error.reason}", place(fn)) from None

    def _code(self, code: types.CodeType) -> str:
        counts = (code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, code.co_flags)
        arguments = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
        consts = ", ".join(self._code(c) if isinstance(c, types.CodeType) else self.value(c) for c in code.co_consts)
        jumps = getattr(code, "co_exceptiontable", b"")
        names = (code.co_names, arguments, code.co_nlocals, len(code.co_cellvars), code.co_freevars)
        return f"code {counts} {names} {code.co_code.hex()} {jumps.hex()} [{consts}]"

    def _class(self, kind: type) -> str:
        bases = [self.kind(base) for base in kind.__bases__]
        maker = type(kind)
        parts = [f"class of {self.kind(maker) if maker is not type else 'type'} with {', '.join(bases)}"]
        for name, value in vars(kind).items():
            # torch makes a BackwardCFunction for each autograd.Function, with a number of this process
            if name not in _OF_A_CLASS and not (isinstance(value, type) and issubclass(value, BackwardCFunction)):
                parts.append(f"{name} = {self._of_class(kind, name, value)}")
        return "\n".join([*parts, self._pytree(kind)])

    def _pytree(self, kind: type) -> str:
        """How torch takes an instance apart, if it does."""
        functions = pytree.registration(kind)
        return "" if functions is None else f" is a pytree by {self.value(functions)}"

    def _of_class(self, kind: type, name: str, value: Any) -> str:
        if isinstance(value, (staticmethod, classmethod)):
            return f"{type(value).__name__} {self.value(value.__func__)}"
        if isinstance(value, property):
            return f"property {self.value((value.fget, value.fset, value.fdel))}"
        if isinstance(value, functools.cached_property):
            return f"cached_property {self.value(value.func)}"
        if isinstance(value, (types.GetSetDescriptorType, types.MemberDescriptorType)):
            return str(type(value).__name__)
        try:
            return self.value(value)
        except Uncacheable as error:
            raise error.about(f"class {kind.__qualname__} has {name}: {error.reason}") from None

    def _object(self, value: Any) -> str:
        """The text of an instance: its class, and its attributes."""
        kind = type(value)
        plain = all(_may_be_base(base) for base in kind.__mro__)
        is_dataclass = dataclasses.is_dataclass(value)
        if not plain and not is_dataclass:
            raise bypasses.CODE(f"{_called(value)} is a Python object whose content is not known")
        held = {name: getattr(value, name) for name in _slots(kind) if hasattr(value, name)}
        held |= vars(value) if hasattr(value, "__dict__") else {}
        if is_dataclass:
            held |= {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
        elif not hasattr(value, "__dict__"):
            raise bypasses.CODE(f"{_called(value)} is a Python object whose content is not known")

        def described() -> str:
            return f"{self.kind(kind)} {', '.join(f'{k}={self.value(v)}' for k, v in sorted(held.items()))}"

        return self._once(value, described, "object")


def _slots(kind: type) -> list[str]:
    """The attributes of an instance that are not in its __dict__."""
    found = (vars(base).items() for base in kind.__mro__)
    return [name for items in found for name, held in items if isinstance(held, types.MemberDescriptorType)]


def _items(content: Content, value: Any) -> Iterator[str]:
    return map(content.value, value)


def _sequence(opening: str, closing: str) -> Callable[[Content, Any], str]:
    return lambda content, value: f"{opening}{', '.join(_items(content, value))}{closing}"


def _mapping(content: Content, value: Mapping[Any, Any]) -> str:
    return "{" + ", ".join(f"{content.value(k)}: {content.value(v)}" for k, v in value.items()) + "}"


def _unordered(content: Content, value: Any) -> str:
    return f"{type(value).__name__}({', '.join(sorted(_items(content, value)))})"


def _slice(content: Content, value: slice) -> str:
    return f"slice({content.value(value.start)}, {content.value(value.stop)}, {content.value(value.step)})"


def _number(content: Content, value: float) -> str:
    return repr(value) if not math.isnan(value) else "nan"


def _partial(content: Content, value: Any) -> str:
    return f"partial({content.value(value.func)}, {content.value(value.args)}, {content.value(value.keywords)})"


def _signature(content: Content, value: inspect.Signature) -> str:
    found = [(one.name, int(one.kind), one.default) for one in value.parameters.values()]
    return f"signature {content.value(found)}"


def _method(content: Content, value: types.MethodType) -> str:
    return f"method {content.value(value.__func__)} of {content.value(value.__self__)}"


def _builtin(content: Content, value: Any) -> str:
    owner = getattr(value, "__self__", None)
    module = getattr(value, "__module__", None) or getattr(getattr(value, "__objclass__", None), "__module__", "")
    if owner is not None and not isinstance(owner, (types.ModuleType, type)):
        if type(owner).__module__.startswith("pybind11_builtins"):
            owner = None
        else:
            return f"{content.value(owner)}.{value.__name__}"
    if isinstance(owner, type):
        module = owner.__module__
    elif isinstance(owner, types.ModuleType):
        module = module or owner.__name__
    _refuse_outside(module or "", value.__qualname__)
    if not is_versioned(module or ""):
        raise bypasses.CODE(f"{_called(value)} is written in another language, so its content is not known")
    return f"{module}.{value.__qualname__}"


def _code_of(content: Content, value: Any) -> str:
    return content._code(value)


def _module(content: Content, value: types.ModuleType) -> str:
    if not is_versioned(value.__name__):
        raise bypasses.BY_NAME(f"the module {value.__name__} is held as a value, so what is read from it is not known")
    return f"module {value.__name__}"


_HOW: dict[type, Callable[[Content, Any], str]] = {
    **dict.fromkeys((int, bool, str, bytes, type(None), type(...), type(NotImplemented), range), lambda _, v: repr(v)),
    **dict.fromkeys((torch.dtype, torch.layout, torch.memory_format), lambda _, v: str(v)),
    torch.Size: _sequence("Size[", "]"),
    torch.device: lambda _, v: f"device({v})",
    float: _number,
    complex: lambda content, v: f"complex({_number(content, v.real)}, {_number(content, v.imag)})",
    tuple: _sequence("(", ")"),
    **dict.fromkeys((list, immutable_list), _sequence("[", "]")),
    deque: _sequence("deque[", "]"),
    **dict.fromkeys((dict, immutable_dict, OrderedDict, types.MappingProxyType), _mapping),
    **dict.fromkeys((set, frozenset), _unordered),
    slice: _slice,
    inspect.Signature: _signature,
    functools.partial: _partial,
    type(functools.lru_cache(id)): lambda content, v: f"cached {content.value(v.__wrapped__)}",
    types.FunctionType: lambda content, v: content.function(v),
    types.MethodType: _method,
    types.CodeType: _code_of,
    types.ModuleType: _module,
    **dict.fromkeys(_BUILTIN, _builtin),
}


def _of_numpy(value: Any) -> str:
    """A function of numpy by its name, a number by its bytes."""
    name = getattr(value, "__name__", None)
    if name:
        return f"numpy.{name}"
    if hasattr(value, "dtype") and getattr(value, "ndim", 1) == 0 and not value.dtype.hasobject:
        return f"numpy {value.dtype} {value.tobytes().hex()}"
    raise bypasses.CODE(f"{_called(value)} is a constant")


def _uuid(value: Any) -> Any:
    """What `uuid()` of a pass or solver returns, or None."""
    asked = getattr(type(value), "uuid", None)
    if not callable(asked):
        return None
    found = value.uuid()
    if found is None:
        raise bypasses.NO_VERSION(f"uuid() of {_called(value)} is None, by which it asks not to be cached")
    return found


def _is_local(kind: type) -> bool:
    """Whether no module has a class by its name. One that was made in globals without `__name__` says "builtins"."""
    is_made = kind.__module__ == "builtins" and vars(builtins).get(kind.__qualname__) is not kind
    return "<locals>" in kind.__qualname__ or (is_made and bool(kind.__flags__ & _HEAP))


def _may_be_base(base: type) -> bool:
    """Whether an instance's state is in its attributes, as far as this base class is concerned."""
    if base is object or base.__module__ in ("abc", "typing", "typing_extensions"):
        return True
    if issubclass(base, (torch.nn.Module, torch.Tensor, torch.Generator)):
        return False
    return base.__module__.startswith("torch.") or not is_versioned(base.__module__)


def _called(value: Any) -> str:
    """A value as a user calls it."""
    name = getattr(value, "__qualname__", None) or getattr(value, "__name__", None)
    if name and isinstance(value, (*_CODE, *_BUILTIN, type)):
        return str(name).replace("<locals>.", "")
    return bypasses.kind_of(value)


def place(fn: Any) -> str:
    """Where a function is defined: "file:line in function"."""
    code = getattr(getattr(fn, "__func__", fn), "__code__", None)
    return f"{code.co_filename}:{code.co_firstlineno} in {code.co_name}" if code is not None else ""


def _refuse_outside(module: str, name: str) -> None:
    """Raise Uncacheable for something whose result depends on more than its arguments."""
    if is_outside(module):
        raise bypasses.OUTSIDE(f"{module}.{name} depends on what is outside of the program")


def _read_globals(fn: Any) -> Iterator[tuple[str, Any]]:
    """(name, value) of the globals that a function reads, and of what it may read from a user's module."""
    builtins = fn.__globals__.get("__builtins__", {})
    builtins = builtins if isinstance(builtins, dict) else vars(builtins)
    for name in global_names(fn.__code__):
        if name in fn.__globals__:
            value = fn.__globals__[name]
            yield name, value
            if isinstance(value, types.ModuleType):
                yield from _of_module(fn, name, value)
        elif name in builtins:
            yield name, builtins[name]
        else:
            yield name, "nothing"


def _of_module(fn: Any, name: str, module: types.ModuleType, seen: set[int] | None = None) -> Iterator[tuple[str, Any]]:
    """What a function may read from a module. Of a module with a version, this finds what the user has put there."""
    has_version = is_versioned(module.__name__)
    if is_outside(module.__name__):
        raise bypasses.OUTSIDE(f"{_called(fn)} reads the module {module.__name__}, which no key has", place(fn))
    if not has_version and name in used_whole(fn.__code__):
        raise bypasses.BY_NAME(
            f"{_called(fn)} uses the module {name} as a value, so what it reads is not known", place(fn)
        )
    seen = {id(module)} if seen is None else seen
    held = vars(module)
    for attribute in attributes(fn.__code__):
        if attribute not in held and "__getattr__" in held and not has_version:
            yield f"{name}.{attribute}", held["__getattr__"]
        if attribute not in held or attribute.startswith("__"):
            continue
        value, path = held[attribute], f"{name}.{attribute}"
        if isinstance(value, types.ModuleType):
            yield path, value
            if id(value) not in seen:
                seen.add(id(value))
                yield from _of_module(fn, path, value, seen)
        elif not has_version:
            yield path, value
        elif isinstance(value, _BUILTIN):
            yield path, value.__qualname__
        elif type(value) in _HOW or isinstance(value, (type, torch.Tensor)) or not is_versioned(type(value).__module__):
            yield path, value


def _added(fn: Any) -> Iterator[tuple[str, Any]]:
    """Methods that a user has added to tensors, and a user's operators, that a function may call."""
    names = attributes(fn.__code__)
    yield from ((f"Tensor.{name}", method) for name in names if (method := method_of_tensors(name)) is not None)
    if "ops" in names:
        yield from registered_operators.named(names)


def method_of_tensors(name: str) -> Any:
    """A method that a user has added to `torch.Tensor`, or put in the place of torch's; None for torch's own."""
    method = getattr(torch.Tensor, name, None)
    return method if is_users(method) else None


def operator_signs() -> str:
    """The methods of tensors for Python's operators, such as `__mul__`, that a user has put in the place of torch's."""
    found = {name: method for name, method in vars(torch.Tensor).items() if name.startswith("__") and is_users(method)}
    return "\n".join(f"{name} = {Content().value(method)}" for name, method in sorted(found.items()))


def is_users_pytree(kind: type) -> bool:
    return any(map(is_users, pytree.registration(kind) or ()))


def is_users(fn: Any) -> bool:
    """Whether a value is a Python function of a module that has no version in the key."""
    plain = getattr(fn, "__func__", fn)
    return isinstance(plain, types.FunctionType) and not is_versioned(str(plain.__globals__.get("__name__", "")))
