"""Keeps Dynamo out of aotviz: importing this file does it, once per process.

Note [No code of aotviz is traced]
While a function runs that `torch.compile` could not capture as a whole, Dynamo looks at every Python frame that begins
in its thread, to compile it. So it may look at a log handler, a hook or an observer of aotviz, and compiling one of
those writes log records, which call that handler again. Dynamo decides by the name of the file in which code was
written, for frames that begin and for calls in what it traces, so its list of skipped files has:

- all files and folders of this package, except `aotviz/traced.py`: code that is there to be traced in place of ours;
- the code that aotviz generates (runtime/codegen.py).

What a skipped function calls is looked at again. `runtime.skipped` is for functions of ours below which Dynamo must
compile nothing, no matter who wrote it: the compiled programs, and what hears torch's log.

`aotviz/__init__.py` imports this file as soon as both aotviz and Dynamo are loaded, in either order.
"""

from __future__ import annotations

from pathlib import Path

from torch._dynamo import trace_rules

PACKAGE = Path(__file__).parent.parent
TRACED = "traced.py"
GENERATED = "<aotviz "  # how the file names of generated code begin


def _files() -> list[str]:
    folders = [f"{path.as_posix()}/" for path in PACKAGE.iterdir() if path.is_dir()]
    return sorted(folders) + sorted(path.as_posix() for path in PACKAGE.glob("*.py") if path.name != TRACED)


trace_rules.SKIP_DIRS += [*_files(), GENERATED]
trace_rules._recompile_re()
