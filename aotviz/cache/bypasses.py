"""Why a program cannot be cached: all reasons. docs/cache.md has them as a table, which a test compares.

A reason is raised by calling it: `raise bypasses.CONSTANT(f"a constant of the graph is a {kind}")`. What is raised
names the thing and, where it is known, the user's line; the entry says why in general, and what a user can do.

Each entry says what torch's AOT cache does with such a program. `torchs` are words of torch's source where it bypasses
for this reason. Where torch has no such bypass, or not for all such programs, `beyond` says what it does with them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


class Uncacheable(Exception):
    """A program cannot be cached: its key cannot say what it depends on, or it cannot be stored.

    `reason` is a sentence that names the cause. `where` is the user's line, "file:line in function", or "" if unknown.
    """

    def __init__(self, bypass: Bypass, reason: str, where: str = "") -> None:
        super().__init__(reason)
        self.bypass, self.reason, self.where = bypass, reason, where

    @property
    def told(self) -> str:
        """The reason, and what to do."""
        cure = self.bypass.cure
        return f"{self.reason}; {cure}" if cure and cure not in self.reason else self.reason

    def about(self, reason: str, where: str = "") -> Uncacheable:
        """The same bypass, with a reason that says more."""
        return Uncacheable(self.bypass, reason, self.where or where)


@dataclass(frozen=True)
class Bypass:
    """One kind of reason. `program` and `why` are the columns of the table in docs/cache.md."""

    program: str
    why: str
    cure: str = ""  # what a user can do
    torchs: str = ""  # words of torch's source
    beyond: str = ""  # what torch's cache does where it has no such bypass

    def __call__(self, reason: str, where: str = "") -> Uncacheable:
        return Uncacheable(self, reason, where)


_OF_OPERATORS = (
    "the same; but of the functions of an operator, torch finds a program that was compiled with earlier ones"
)
_NEEDS_INDUCTOR = "isinstance(fw_compiler, SerializableAOTDispatchCompiler)"

BACKEND = Bypass(
    "a compiler of your own as `backend` or `fw_compiler`, unless it is torch's `SerializableAOTDispatchCompiler`",
    "its result is a Python function, which cannot be stored",
    cure="wrap it in a SerializableAOTDispatchCompiler, which says of which class its results are",
    torchs=_NEEDS_INDUCTOR,
)
NO_VERSION = Bypass(
    "a pass, a partitioner, a decomposition or a solver whose code is not known",
    "the key could not say what it does",
    cure="give it a method uuid() that returns its version",
    torchs="is a raw callable without uuid() method",
)
CODE = Bypass(
    "a function that a trace runs, if it is written in another language, or reads objects whose content is not known",
    "the key could not say what it depends on",
    cure="give the function an attribute cache_hash that changes with what it does",
    torchs="Unsupported call_function target",
    beyond=_OF_OPERATORS,
)
BY_NAME = Bypass(
    "a function that a trace runs, if it looks up by name (`globals()`, `eval`, `getattr` of a module)",
    "the key could not say what it depends on",
    cure="read the variable by its own name",
    torchs="Unsupported call_function target",
    beyond=_OF_OPERATORS,
)
OUTSIDE = Bypass(
    "a function that a trace runs, if it reads files, the time, chance, the environment or the process "
    "(`open`, `os`, `time`, `random`)",
    "the key could not say what it reads",
    cure="read it outside of the function, and pass the value",
    torchs="Unsupported call_function target",
    beyond=_OF_OPERATORS,
)
POLICY = Bypass(
    "a checkpoint whose `context_fn` reads what has no description",
    "the key could not say which values it saves",
    cure="give context_fn an attribute cache_hash that changes with what it does",
    torchs="SAC context_fn does not have a cache_hash attribute",
)
SAVED_HOOK = Bypass(
    "a saved tensor hook that reads what has no description",
    "the key could not say what it does",
    torchs="check_cacheable(gm.saved_tensors_hooks_pack_0)",
)
KERNEL = Bypass(
    "an operator with a kernel of `torch.library.Library.impl` that a trace runs",
    "torch keeps no function of it, so its code is not known",
    cure="define it with torch.library.custom_op",
    beyond="torch finds the program that was compiled with the old kernel",
)
OVERRIDDEN = Bypass(
    'any program, while `Library("aten", "IMPL").impl` or `Library("_", "IMPL").fallback` overrides an operator of '
    "torch that a trace runs",
    "torch keeps the kernel's name and not its function, so its code is not known",
    beyond="torch finds the program that was compiled without the override",
)
MODE = Bypass(
    "a call inside a `TorchDispatchMode` or a transform of `torch.func`",
    "what they do is not in the key",
    cure="enter them inside of the compiled function",
    beyond="Dynamo compiles nothing there; this is for graphs that come from elsewhere",
)
OBJECT = Bypass(
    "script objects, generators and other objects in the graph or as inputs, and functions of `nonstrict_trace`",
    "their content is not known",
    torchs="Cannot produce stable cache key for unpicklable type",
)
MODULE = Bypass(
    "a module that the graph calls, if it is not torch's or has hooks",
    "its content is not known",
    torchs="Unsupported call_method target",
)
HOOKS = Bypass(
    "a graph that registers gradient hooks which Dynamo sets later, and with `aot_function` any gradient hook",
    "the hooks are not in the graph",
    beyond="torch has such graphs only under compiled autograd, and finds them",
)
GRAPH = Bypass(
    "what is not a graph of Dynamo, or was given other inputs than it has",
    "there is nothing that a key could describe",
    torchs="Unsupported node op",
)
RETRACED = Bypass(
    "with `aot_function` and its family: arguments that share memory, and tensor subclasses",
    "later stages trace the function again",
    torchs=_NEEDS_INDUCTOR,
)
CONSTANT = Bypass(
    "a constant that requires grad, or that is sparse, quantized or a tensor subclass",
    "such constants cannot be stored",
    cure="pass it as an argument",
    torchs="mkldnn tensors unpickleable",
)
VALUE = Bypass(
    "a program that would have to store a Python function or another object, or a sparse tensor in the middle",
    "an entry holds data only",
    torchs="Unable to serialize",
)
OPERATOR = Bypass(
    "a higher-order operator that is not registered under its name",
    "another process could not find it",
    torchs="Can't cache HigherOrderOperator",
)
STORE = Bypass(
    "any program, if the cache's folder cannot be read or written",
    "there is nowhere to keep it; a warning says so once",
    torchs="Unable to serialize",
)
FAULT = Bypass(
    "any program, if describing or saving it fails",
    "the recording has the error; please report it",
    torchs="cache_bypass_hard_exception",
)


def kind_of(value: Any) -> str:
    """What a value is, in words. No reader knows the classes of aotviz."""
    kind = type(value)
    ours = f"{kind.__module__}.".startswith("aotviz.")
    return "an object of aotviz's own" if ours else f"an object of class {kind.__qualname__}"


def unstorable(value: Any) -> Uncacheable:
    """A value that an entry cannot hold, as it has no name in a table, and is no data."""
    home, name = getattr(value, "__module__", None), getattr(value, "__qualname__", None)
    if name is None or f"{home}.".startswith("aotviz."):
        return VALUE(f"{kind_of(value) if name is None else 'a function of aotviz itself'} cannot be stored")
    return VALUE(f"{home or 'builtins'}.{name} cannot be stored: it is a function of Python")
