"""Errors that stop a call of a compiled function, and that no log of torch's has.

They are of two kinds: memory ran out while a program ran, or the call needed a new program where none may be made
(`torch.compiler.set_stance("fail_on_recompile")`). A block that watches or records notes the error that ends it, and a
function of `aotviz.compile` the one that it raises. Nothing is done for a call that raises none.
"""

from __future__ import annotations

import linecache
import re
import traceback

from aotviz.ir import user_warnings
from aotviz.recording import guard_texts
from aotviz.recording.events import CallError
from aotviz.recording.strings import clean

NO_MEMORY = re.compile(r"out of memory|can't allocate memory|not enough memory")
NO_RECOMPILE = re.compile(
    r"Detected recompile when torch\.compile stance is 'fail_on_recompile'\. filename: '(?P<file>.*)', "
    r"function name: '(?P<function>.*)', line number: (?P<line>\d{1,9})"
)


def noted(error: BaseException) -> CallError | None:
    """What a recording keeps of the error; None if it is of neither kind."""
    said = str(error)
    refused = NO_RECOMPILE.match(said)
    if not isinstance(error, RuntimeError) or not (refused or NO_MEMORY.search(said)):
        return None
    if refused is not None:
        function, file, line = refused["function"], refused["file"], int(refused["line"])
    else:
        frames = [one for one in traceback.extract_tb(error.__traceback__) if user_warnings.is_users(one.filename)]
        function, file, line = (frames[-1].name, frames[-1].filename, frames[-1].lineno or 0) if frames else ("", "", 0)
    code = linecache.getline(file, line).strip()
    return CallError(
        type(error).__name__,
        clean(said.partition("\n")[0]),
        [clean(guard) for guard in guard_texts.refused(said)] if refused else [],
        clean(function),
        clean(f"{file}:{line} {code}".rstrip()) if file else "",
    )
