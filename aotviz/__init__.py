"""aotviz: watch AOTAutograd compile your program, stage by stage, and keep the compiled result.

The public names are imported on first use, so that `import aotviz` costs nothing and reading a recording
does not need torch. Where torch is not installed, a name that needs it raises ImportError.
"""

from __future__ import annotations

import contextlib
import sys
from importlib import import_module
from importlib.machinery import ModuleSpec, PathFinder
from typing import Any

__version__ = "0.1.0"

_NAMES = {  # module -> the public names that it holds
    "aotviz.frontends.compile": "compile",
    "aotviz.frontends.plans": "plans",
    "aotviz.frontends.measured_memory": "measured_memory",
    "aotviz.frontends.policies": "policy",
    "aotviz.frontends.backwards": "compiled_autograd",
    "aotviz.frontends.stepping": "trace_stages",
    "aotviz.frontends.functions": "aot_function aot_module aot_module_simplified aot_autograd_decompositions "
    "compiled_function compiled_module make_boxed_compiler make_boxed_func",
    "aotviz.frontends.export": "aot_export_module aot_export_joint_simple aot_export_joint_with_descriptors "
    "aot_compile_joint_with_descriptors",
    "aotviz.ir.refusals": "Refused RanInEager",
    "aotviz.recorder.sessions": "record",
    "aotviz.stages.saved_hooks": "saved_hook_context",
    "aotviz.comparing.verifying": "verify",
    "aotviz.comparing.bisecting": "bisect",
    "aotviz.comparing.compared_inputs": "compare_inputs",
    "aotviz.comparing.exploring": "explore_inputs",
    "aotviz.live.watching": "watch",
    "aotviz.reading.recording": "load Recording RecordingError",
    "aotviz.logs.read_trace": "read_trace",
    "aotviz.explain.terms": "what_is",
}
_HOMES = {name: module for module, names in _NAMES.items() for name in names.split()}
__all__ = sorted(_HOMES)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'aotviz' has no attribute {name!r}")
    from aotviz.python_state.garbage import counted_as_old
    from aotviz.recording.needs_torch import loaded

    with counted_as_old():  # collections, which find nothing to free, would take a fifth of the time
        return getattr(loaded(_HOMES[name], f"aotviz.{name}"), name)


def load_ipython_extension(shell: Any) -> None:
    """For `%load_ext aotviz`: the magic `%%aotviz watch`."""
    import_module("aotviz.frontends.magics").load(shell)


def unload_ipython_extension(shell: Any) -> None:
    import_module("aotviz.frontends.magics").unload(shell)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]


_TRACE_RULES = "torch._dynamo.trace_rules"


def _keep_dynamo_out() -> None:
    with contextlib.suppress(ImportError):  # a torch that aotviz does not support: whatever needs torch will say so
        import_module("aotviz.torch_private.untraced")


class _WaitsForDynamo:
    """A finder that calls `_keep_dynamo_out` when Dynamo's rules have been loaded."""

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        if fullname != _TRACE_RULES:
            return None
        sys.meta_path.remove(self)
        found = PathFinder.find_spec(fullname, path)
        if found is not None and found.loader is not None:
            loader, load = found.loader, found.loader.exec_module

            def exec_module(module: Any) -> None:
                load(module)
                _keep_dynamo_out()

            loader.exec_module = exec_module  # type: ignore[method-assign]
        return found


if _TRACE_RULES in sys.modules:
    _keep_dynamo_out()
else:
    sys.meta_path.insert(0, _WaitsForDynamo())

if "ipykernel" in sys.modules:  # lets JupyterLab's panel of live compilations find this kernel
    import_module("aotviz.live.panel").announce()
