"""aotviz: watch AOTAutograd compile your program, stage by stage, and keep the compiled result.

The public names are imported on first use, so that `import aotviz` costs nothing and reading a recording
does not need torch.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Any

__version__ = "0.1.0"

_HOMES = {
    "compile": "aotviz.frontends.compile",
    "compiled_autograd": "aotviz.frontends.backwards",
    "trace_stages": "aotviz.frontends.stepping",
    "aot_function": "aotviz.frontends.functions",
    "aot_module": "aotviz.frontends.functions",
    "aot_module_simplified": "aotviz.frontends.functions",
    "aot_autograd_decompositions": "aotviz.frontends.functions",
    "compiled_function": "aotviz.frontends.functions",
    "compiled_module": "aotviz.frontends.functions",
    "make_boxed_compiler": "aotviz.frontends.functions",
    "make_boxed_func": "aotviz.frontends.functions",
    "aot_export_module": "aotviz.frontends.export",
    "aot_export_joint_simple": "aotviz.frontends.export",
    "aot_export_joint_with_descriptors": "aotviz.frontends.export",
    "aot_compile_joint_with_descriptors": "aotviz.frontends.export",
    "Refused": "aotviz.ir.refusals",
    "RanInEager": "aotviz.ir.refusals",
    "record": "aotviz.recorder.sessions",
    "saved_hook_context": "aotviz.stages.saved_hooks",
    "verify": "aotviz.comparing.verifying",
    "bisect": "aotviz.comparing.bisecting",
    "watch": "aotviz.live.watching",
    "load": "aotviz.reading.recording",
    "read_trace": "aotviz.logs.read_trace",
    "Recording": "aotviz.reading.recording",
    "RecordingError": "aotviz.reading.recording",
}
__all__ = sorted(_HOMES)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'aotviz' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def load_ipython_extension(shell: Any) -> None:
    """For `%load_ext aotviz`: the magic `%%aotviz watch`."""
    import_module("aotviz.frontends.magics").load(shell)


def unload_ipython_extension(shell: Any) -> None:
    import_module("aotviz.frontends.magics").unload(shell)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]


if "ipykernel" in sys.modules:  # lets JupyterLab's panel of live compilations find this kernel
    import_module("aotviz.live.panel").announce()
