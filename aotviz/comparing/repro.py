"""A script that shows a fault again, for a bug report: the call, its inputs beside it, and what it was compiled with.

Functions are written down as imports where their module is a file, else as their source; tensors and modules go into a
file beside the script.
"""

from __future__ import annotations

import functools
import inspect
import sys
import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from aotviz.comparing import copies
from aotviz.torch_private import operators


def write(
    path: Path, fn: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], settings: Mapping[str, Any], told: str
) -> Path:
    """Write `path` and, beside it, a file of inputs. Returns the script's path."""
    spelled = _Spelled()
    function = spelled.function(fn, "fn")
    options = [f"    {name!r}: {spelled.option(value, name)}," for name, value in settings.items()]
    _, new_args, new_kwargs, _ = copies.fresh(fn, args, kwargs)
    inputs = path.with_suffix(".pt")
    path.parent.mkdir(parents=True, exist_ok=True)
    torch.save({"args": _savable(new_args), "kwargs": _savable(new_kwargs), "modules": spelled.modules}, inputs)
    told_lines = "\n".join(f"# {line}" for line in told.splitlines())
    text = "\n".join(
        [
            told_lines,
            "",
            "import sys",
            "from pathlib import Path",
            "",
            "import torch",
            "",
            *spelled.lines,
            "import aotviz",
            "",
            f"saved = torch.load(Path(__file__).with_name({inputs.name!r}), weights_only=False)",
            *spelled.definitions,
            f"fn = {function}",
            "options = {",
            *options,
            "}",
            'print(aotviz.bisect(fn, *saved["args"], options=options, repro=None, **saved["kwargs"]))',
            "",
        ]
    )
    path.write_text(text, encoding="utf-8")
    return path


def _savable(value: Any) -> Any:
    """Tensors with a history as leaves: a file keeps no history."""
    from aotviz.torch_private import pytree

    leaves, spec = pytree.tree_flatten(value)
    plain = [
        leaf.detach().requires_grad_() if isinstance(leaf, torch.Tensor) and leaf.grad_fn is not None else leaf
        for leaf in leaves
    ]
    return pytree.tree_unflatten(plain, spec)


class _Spelled:
    """How the things of a call are written in a script."""

    def __init__(self) -> None:
        self.lines: list[str] = []  # imports
        self.definitions: list[str] = []
        self.modules: dict[str, Any] = {}  # saved beside the script

    def function(self, fn: Any, name: str) -> str:
        if isinstance(fn, torch.nn.Module):
            self._path_of(type(fn))
            self.modules[name] = fn
            return f'saved["modules"][{name!r}]'
        if isinstance(fn, functools.partial):
            self.modules[name] = (fn.args, fn.keywords)
            inner = self.function(fn.func, name + "_func")
            self.lines.append("import functools")
            return f'functools.partial({inner}, *saved["modules"][{name!r}][0], **saved["modules"][{name!r}][1])'
        return self._callable(fn, name)

    def option(self, value: Any, name: str) -> str:
        if isinstance(value, Mapping):
            entries = (
                f"{self._operator(key)}: {self.option(item, f'{name}_{number}')}"
                for number, (key, item) in enumerate(value.items())
            )
            return "{" + ", ".join(entries) + "}"
        return self._callable(value, name) if callable(value) else repr(value)

    @staticmethod
    def _operator(key: Any) -> str:
        return f"torch.ops.{key}" if operators.is_operator(key) else repr(key)

    def _callable(self, fn: Any, name: str) -> str:
        module, qualified = getattr(fn, "__module__", ""), getattr(fn, "__qualname__", "")
        holder = sys.modules.get(module)
        if holder is not None and module != "__main__" and getattr(holder, qualified, None) is fn:
            self._path_of(fn)
            self.lines.append(f"from {module} import {qualified} as {name}")
            return name
        if operators.is_operator(fn):
            return self._operator(fn)
        try:
            source = textwrap.dedent(inspect.getsource(fn))
        except (OSError, TypeError):
            source = ""
        if source.startswith("def ") and not fn.__closure__:
            self.definitions += [source.rstrip(), f"{name} = {fn.__name__}"]
            return name
        what = f"put {qualified or fn!r} of {module} here: it has no name to import it by"
        self.definitions += [f"{name} = None  # {what}", f"if {name} is None: sys.exit({name + ': ' + what!r})"]
        return name

    def _path_of(self, thing: Any) -> None:
        """Make the module that holds `thing` importable from the script."""
        try:
            file = Path(inspect.getfile(thing)).resolve()
        except (OSError, TypeError):
            return
        root = file.parents[len(str(thing.__module__).split(".")) - 1]
        line = f"sys.path.insert(0, {str(root)!r})"
        if "site-packages" not in file.parts and line not in self.lines:
            self.lines.insert(0, line)
