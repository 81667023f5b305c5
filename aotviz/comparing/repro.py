"""Write a script that reproduces a difference, for a bug report: the call, its inputs, and its compile options.

The script runs alone, in any folder. Functions and classes are imported if their module is a file. Otherwise their
source is copied with everything that it needs (main_program.py). Tensors, modules and other values are saved in a file
next to the script.
"""

from __future__ import annotations

import ast
import functools
import inspect
import io
import pickle
import sys
import sysconfig
import textwrap
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch

from aotviz.comparing.given_call import fresh
from aotviz.comparing.main_program import MainProgram
from aotviz.ir.spelling import is_identifier, literal, spoken
from aotviz.torch_private import operators, pytree

IMPORTS = ("import sys", "from pathlib import Path", "import torch", "import aotviz")  # of every script


def write(
    path: Path, fn: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], settings: Mapping[str, Any], told: str
) -> Path:
    """Write the script to `path`, and the inputs to a file next to it. Returns the script's path."""
    spelled = _Spelled()
    function = spelled.function(fn, "repro_fn")
    numbered = enumerate(settings.items())
    options = [f"    {literal(name)}: {spelled.option(value, f'repro_option_{i}')}," for i, (name, value) in numbered]
    _, new_args, new_kwargs, _ = fresh(fn, args, kwargs)
    saved = {"args": _savable(new_args), "kwargs": _savable(new_kwargs), "modules": spelled.modules}
    content = spelled.saved(saved)
    inputs = path.with_suffix(".pt")
    path.parent.mkdir(parents=True, exist_ok=True)
    if content is not None:
        inputs.write_bytes(content)
    main = spelled.main
    imports = main.imports() if spelled.uses_main else []
    future = [line for line in imports if line.startswith("from __future__ ")]
    imports = [line for line in imports if line not in future]
    text = "\n".join(
        [
            *(f"# {spoken(line)}" for line in told.splitlines()),
            "",
            *future,
            *IMPORTS,
            "",
            *spelled.paths,
            *dict.fromkeys([*spelled.lines, *(line for line in imports if line not in IMPORTS)]),
            "",
            *main.constants(),
            *(f"\n{definition}\n" for definition in main.definitions()),
            *spelled.gaps,
            f"repro_saved = torch.load(Path(__file__).with_name({inputs.name!r}), weights_only=False)",
            *(f'{name} = repro_saved["globals"][{name!r}]' for name in main.data if name not in spelled.missing),
            *spelled.definitions,
            f"repro_fn = {function}",
            "repro_options = {",
            *options,
            "}",
            'args, kwargs = repro_saved["args"], repro_saved["kwargs"]',
            "print(aotviz.bisect(repro_fn, *args, options=repro_options, repro=None, **kwargs))",
            "",
        ]
    )
    path.write_text(text, encoding="utf-8")
    return path


def _savable(value: Any) -> Any:
    """The value with leaves in place of tensors that have a `grad_fn`, because a file cannot keep one."""
    leaves, spec = pytree.tree_flatten(value)
    plain = [
        leaf.detach().requires_grad_() if isinstance(leaf, torch.Tensor) and leaf.grad_fn is not None else leaf
        for leaf in leaves
    ]
    return pytree.tree_unflatten(plain, spec)


def _pickled(value: Any) -> tuple[bytes, list[Any]]:
    """The bytes that `torch.save` writes, and the functions and classes that they refer to. Raises pickle's errors."""
    named: list[Any] = []

    class Pickler(pickle.Pickler):
        def reducer_override(self, thing: Any) -> Any:
            named.append(thing if isinstance(thing, type) or inspect.isroutine(thing) else type(thing))
            return NotImplemented

    file = io.BytesIO()
    torch.save(value, file, pickle_module=SimpleNamespace(**{**vars(pickle), "Pickler": Pickler}))
    return file.getvalue(), named


class _Spelled:
    """Collects the parts of the script: how each function, option and value is written."""

    def __init__(self) -> None:
        self.main = MainProgram.running()
        self.uses_main = False
        self.paths: list[str] = []  # folders to import from
        self.lines: list[str] = []  # imports
        self.definitions: list[str] = []
        self.modules: dict[str, Any] = {}  # saved in the file of inputs
        self.gaps: list[str] = []  # lines that the user must replace, before the inputs are read
        self.missing: list[str] = []  # globals that cannot be saved

    def saved(self, values: dict[str, Any]) -> bytes | None:
        """The content of the file of inputs, which also contains the globals that are data.

        If it cannot be made, the result is None, and the script gets a line that says so. The pickled values may refer
        to classes of the program, which may need more of its globals, so this repeats until there are no new ones.
        """
        while True:
            self.missing += [name for name, value in self.main.data.items() if not self._is_savable(name, value)]
            kept = {name: value for name, value in self.main.data.items() if name not in self.missing}
            try:
                content, named = _pickled({**values, "globals": kept})
            except Exception as error:
                self._fill_in(
                    "repro_saved", f"the call's inputs and modules here, because they cannot be saved: {error}"
                )
                return None
            known = len(self.main.data)
            for thing in named:
                self._importable(thing)
            if len(self.main.data) == known:
                return content

    def _is_savable(self, name: str, value: Any) -> bool:
        if name in self.missing:
            return True
        try:
            _pickled(value)
        except Exception as error:
            self._fill_in(name, f"this global of the program here, because it cannot be saved: {error}")
            return False
        return True

    def _fill_in(self, name: str, what: str) -> None:
        line = f"sys.exit({f'{name}: put ' + what!r})"
        if line not in self.gaps:
            self.gaps.append(line)

    def _importable(self, thing: Any) -> bool:
        """Whether the script can refer to a function or class by name. If so, add what that needs to the script."""
        module, qualified = getattr(thing, "__module__", None) or "", getattr(thing, "__qualname__", "")
        holder = sys.modules.get(module)
        if holder is None or functools.reduce(_attribute, qualified.split("."), holder) is not thing:
            return False
        if module != "__main__":
            self._path_of(thing)
            return True
        top = qualified.partition(".")[0]
        if not self.main.has(getattr(holder, top)):
            return False
        self.uses_main = True
        self._main_path()
        self.main.need(top)
        return True

    def function(self, fn: Any, name: str) -> str:
        if isinstance(fn, torch.nn.Module):
            self._importable(type(fn))
            self.modules[name] = fn
            return f'repro_saved["modules"][{name!r}]'
        if isinstance(fn, functools.partial):
            self.modules[name] = (fn.args, fn.keywords)
            inner = self.function(fn.func, name + "_func")
            self.lines.append("import functools")
            held = f'repro_saved["modules"][{name!r}]'
            return f"functools.partial({inner}, *{held}[0], **{held}[1])"
        return self._callable(fn, name)

    def option(self, value: Any, name: str) -> str:
        if isinstance(value, Mapping):
            entries = (
                f"{self._operator(key)}: {self.option(item, f'{name}_{number}')}"
                for number, (key, item) in enumerate(value.items())
            )
            return "{" + ", ".join(entries) + "}"
        return self._callable(value, name) if callable(value) else self._value(value, name)

    def _value(self, value: Any, name: str) -> str:
        if isinstance(value, torch.dtype):
            return repr(value)
        try:
            return literal(value)
        except TypeError:
            self._fill_in(name, f"this option here, a {type(value).__name__}: it has no literal")
            return "None"

    def _operator(self, key: Any) -> str:
        if not operators.is_operator(key):
            return self._value(key, "repro_options")
        self.main.need_operator(key.name().partition(".")[0])
        self.uses_main = True
        parts = str(key).split(".")
        if all(map(is_identifier, parts)):
            return f"torch.ops.{key}"
        return functools.reduce(lambda inner, part: f"getattr({inner}, {literal(part)})", parts, "torch.ops")

    def _callable(self, fn: Any, name: str) -> str:
        module, qualified = getattr(fn, "__module__", ""), getattr(fn, "__qualname__", "")
        if operators.is_operator(fn):
            return self._operator(fn)
        if is_identifier(qualified) and all(map(is_identifier, module.split("."))) and self._importable(fn):
            if module != "__main__":
                self.lines.append(f"from {module} import {qualified} as {name}")
                return name
            return str(qualified)
        try:
            source = textwrap.dedent(inspect.getsource(fn))
        except (OSError, TypeError):
            source = ""
        if source.startswith("def ") and not fn.__closure__:
            if module == "__main__":
                self.uses_main = True
                self.main.need_of(source)
            self.definitions += [source.rstrip(), f"{name} = {ast.parse(source).body[0].name}"]  # type: ignore[attr-defined]
            return name
        what = f"put {qualified or fn!r} of {module} here: it cannot be imported by name"
        self.definitions += [f"{name} = None  # {spoken(what)}", f"if {name} is None: sys.exit({name + ': ' + what!r})"]
        return name

    def _path_of(self, thing: Any) -> None:
        """Make the module that holds `thing` importable from the script."""
        try:
            file = Path(inspect.getfile(thing)).resolve()
        except (OSError, TypeError):
            return
        packages = len(str(thing.__module__).split(".")) - (file.name != "__init__.py")
        if packages < len(file.parents):
            self._add_path(file.parents[packages])

    def _main_path(self) -> None:
        """Make modules that are next to the main program importable from the script."""
        file = getattr(sys.modules["__main__"], "__file__", None)
        self._add_path(Path(file).resolve().parent if file else Path.cwd())

    def _add_path(self, folder: Path) -> None:
        line = f"sys.path.insert(0, {str(folder)!r})"
        installed = "site-packages" in folder.parts or folder == Path(sysconfig.get_path("stdlib")).resolve()
        if not installed and line not in self.paths:
            self.paths.append(line)


def _attribute(holder: Any, name: str) -> Any:
    return getattr(holder, name, None)
