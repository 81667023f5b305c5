"""Whether a gradient hook can become part of a graph: it must compute with its gradient and do nothing else.

Eager calls a hook in each backward; a traced hook is called once. One that appends to a list would do so at compile
time only, and one that reads `config["scale"]` would always use the value of that time. So a hook is traced only if its
code shows that all calls are alike: it reads constants, tensors of the trace, and variables that cannot be assigned any
more, and it calls only functions known to be pure. In doubt, a hook is not traced: Python calls it in each backward, at
the price of a graph cut there.
"""

from __future__ import annotations

import builtins
import dis
import functools
import gc
import itertools
import math
import operator
import sys
import traceback
import types
from collections.abc import Iterator, Mapping
from typing import Any

import torch

from aotviz.ir.user_code import variables
from aotviz.python_state.free_variables import steps
from aotviz.torch_private import operators
from aotviz.tracing.functional import is_functional

_PLAIN = (bool, int, float, complex, str, bytes, type(None), type(...), torch.dtype, torch.device, torch.layout)
_COMPUTING = frozenset(
    getattr(builtins, name)
    for name in "abs divmod enumerate isinstance len list max min pow range reversed round slice sorted sum tuple zip"
    " dict set map filter all any".split()
)
_ASKS_FOR_VALUES = frozenset("item tolist numpy __float__ __int__ __bool__ __index__ data_ptr".split())
_ASSIGNS = ("STORE_GLOBAL", "DELETE_GLOBAL", "STORE_ATTR", "DELETE_ATTR", "IMPORT_NAME")
_MODULES_OF_TORCH = ("torch", "torch.nn.functional", "torch.linalg", "torch.fft", "torch.special")
_GRAD_MODES = (torch.no_grad, torch.enable_grad)
_PIPELINE = "aotviz.pipeline"  # the frames above are those of the trace and of the traced function


def why_not(*hooks: Any, of_a_module: bool = False) -> str:
    """Why one of these hooks cannot become part of a graph, in words for the user; "" if all can.

    `of_a_module` is whether a hook's first argument is a module, not a gradient.

    >>> why_not(lambda g: g * 2)
    ''
    >>> heard = []
    >>> why_not(lambda g: heard.append(g))
    "it reads the global 'heard'"
    """
    for code in (hook.__code__ for hook in hooks if of_a_module and hasattr(hook, "__code__")):
        module = next(iter(code.co_varnames[: code.co_argcount]), None)
        if module and any(one.argval == module and "LOAD" in one.opname for one in dis.get_instructions(code)):
            return f"it reads {module!r}, which may change"
    return next(filter(None, map(_Looking().function, hooks)), "")


def frames_of_the_trace() -> Iterator[types.FrameType]:
    """The frames of the trace and of the traced function."""
    return itertools.takewhile(_is_of_the_trace, _running())


def _running() -> Iterator[types.FrameType]:
    return (frame for frame, _ in traceback.walk_stack(sys._getframe(1)))


def _is_of_the_trace(frame: types.FrameType) -> bool:
    return frame.f_globals.get("__name__") != _PIPELINE


class _Looking:
    def __init__(self) -> None:
        self.seen: set[int] = set()

    def function(self, hook: Any) -> str:
        """Why a callable is not known to be pure."""
        if id(hook) in self.seen or _of_torch(hook) or _of_python(hook):
            return ""
        self.seen.add(id(hook))
        if isinstance(hook, functools.partial):
            held = (*hook.args, *hook.keywords.values())
            return self.function(hook.func) or next(filter(None, map(self.value, held)), "")
        methods = (types.BuiltinMethodType, types.MethodWrapperType, types.MethodType)
        if isinstance(hook, methods) and is_functional(hook.__self__):
            return ""
        if not isinstance(hook, types.FunctionType):
            return f"it is a {type(hook).__name__}, which may have state that changes from call to call"
        defaults = (*(hook.__defaults__ or ()), *(hook.__kwdefaults__ or {}).values())
        cells = dict(zip(hook.__code__.co_freevars, hook.__closure__ or (), strict=True))
        return next(filter(None, map(self.value, defaults)), "") or self._code(hook.__code__, hook.__globals__, cells)

    def value(self, value: Any) -> str:
        """Why a value, held by a variable that cannot be assigned, may still change between calls."""
        if isinstance(value, _PLAIN) or is_functional(value):
            return ""
        if isinstance(value, tuple | frozenset):
            return next(filter(None, map(self.value, value)), "")
        if callable(value) and not isinstance(value, torch.nn.Module):
            return self.function(value)
        return f"it uses a {type(value).__name__}, which may change"

    def _code(self, code: types.CodeType, globals_: Mapping[str, Any], cells: Mapping[str, Any]) -> str:
        instructions = [one for one in steps(code) if one.opname not in ("CACHE", "EXTENDED_ARG")]
        pairs = zip(instructions, [*instructions[1:], None], strict=True)
        return next(filter(None, (self._instruction(*pair, globals_, cells) for pair in pairs)), "")

    def _instruction(self, one: Any, following: Any, globals_: Mapping[str, Any], cells: Mapping[str, Any]) -> str:
        name, argument = one.opname, one.argval
        if name in _ASSIGNS or (name in ("STORE_DEREF", "DELETE_DEREF") and argument in cells):
            return f"it assigns to {argument!r}"
        if name.startswith(("POP_JUMP", "JUMP_IF")):
            return "it contains a branch"
        if name in ("LOAD_ATTR", "LOAD_METHOD") and argument in _ASKS_FOR_VALUES:
            return f"it asks for the value of a tensor, by {argument}()"
        if name in ("LOAD_GLOBAL", "LOAD_NAME"):
            return self._global(argument, following, globals_)
        if name in ("LOAD_DEREF", "LOAD_CLASSDEREF", "LOAD_FROM_DICT_OR_DEREF") and argument in cells:
            return self._cell(argument, cells[argument])
        return ""

    def _global(self, name: str, following: Any, globals_: Mapping[str, Any]) -> str:
        value = globals_.get(name, getattr(builtins, name, None))
        if isinstance(value, types.ModuleType) and following is not None and following.opname.startswith("LOAD_"):
            if value in (math, operator):
                return ""
            held = getattr(value, str(following.argval), None)
            submodule = isinstance(held, types.ModuleType) and held.__name__ in (*_MODULES_OF_TORCH, "torch.nn")
            if value.__name__ in _MODULES_OF_TORCH and (submodule or isinstance(held, _PLAIN) or _of_torch(held)):
                return ""
            return f"it uses {name}.{following.argval}"
        if _of_torch(value) or _of_python(value):
            return ""
        if isinstance(value, types.FunctionType):
            return self.function(value)
        return f"it reads the global {name!r}"

    def _cell(self, name: str, cell: Any) -> str:
        try:
            value = cell.cell_contents
        except ValueError:
            return f"it reads {name!r}, which has no value yet"
        why = self.value(value)
        if why or is_functional(value):
            return why
        return f"it reads {name!r}, which is assigned elsewhere" if self._is_assigned(name, cell, value) else ""

    @staticmethod
    def _is_assigned(name: str, cell: Any, value: Any) -> bool:
        """Whether a variable can get another value: from a function that shares it, or from its own function if that
        still runs."""
        closures = [one for one in gc.get_referrers(cell) if type(one) is tuple]
        holders = gc.get_referrers(*closures) if closures else []
        sharing = [one for one in holders if isinstance(one, types.FunctionType)]
        if any(_assignments(one.__code__, name) for one in sharing):
            return True
        # The traced function itself assigns the same in each call.
        for frame in itertools.dropwhile(_is_of_the_trace, _running()):
            code = frame.f_code
            if name in code.co_cellvars and variables(frame).get(name) is value:
                found = _assignments(code, name)
                if len(found) > 1 or any(_in_loop(code, offset) for offset in found):
                    return True
        return False


def _assignments(code: types.CodeType, name: str) -> list[int]:
    """The offsets at which code assigns to a variable that it shares with inner code; -1 for each assignment there."""
    stores = (one for one in dis.get_instructions(code) if one.opname in ("STORE_DEREF", "DELETE_DEREF"))
    found = [one.offset for one in stores if one.argval == name]
    inner = (constant for constant in code.co_consts if isinstance(constant, types.CodeType))
    found += [-1 for one in inner if name in one.co_freevars for _ in _assignments(one, name)]
    return found


def _in_loop(code: types.CodeType, offset: int) -> bool:
    """Whether the instruction at an offset can run again: a later jump leads back to or before it."""
    jumps = (one for one in dis.get_instructions(code) if one.opcode in dis.hasjrel and isinstance(one.argval, int))
    return offset < 0 or any(one.offset > offset >= one.argval for one in jumps)


def _of_python(value: Any) -> bool:
    try:
        return value in _COMPUTING or getattr(value, "__module__", None) in ("math", "_operator")
    except TypeError:  # not hashable
        return False


def _of_torch(value: Any) -> bool:
    """Whether a value is a torch function that computes with tensors, or switches grad mode."""
    if operators.is_operator(value) or any(value is one for one in _GRAD_MODES):
        return True
    functions = (types.BuiltinFunctionType, types.FunctionType, types.MethodDescriptorType)
    return isinstance(value, functions) and value.__name__ not in _ASKS_FOR_VALUES and value in _computing()


@functools.cache
def _computing() -> frozenset[Any]:
    """torch's functions and methods that compute with tensors: those that a subclass can override."""
    return frozenset(one for some in torch.overrides.get_overridable_functions().values() for one in some)
