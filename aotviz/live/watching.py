"""`with aotviz.watch() as recording:` records what `torch.compile` does in this process, with any backend.

Torch writes a structured trace of everything that its compilers do. A watch listens to the trace, in addition to a
`TORCH_TRACE` file if there is one, and stores the lines (live/watched.py). When the recording is read, the reader of
such files reads these lines. aotviz's own recorder records what aotviz compiles meanwhile, and the same recording shows
it.

A watch is for the whole process, not for a thread, because backwards are compiled on autograd's threads. Watches may be
nested or overlap; each sees what happens while it is on. Calls of a compiled function write no trace, so a watch does
not slow them.
"""

from __future__ import annotations

import contextlib

from aotviz.live import structured_trace
from aotviz.live.watched import Watched, WatchedLog
from aotviz.reading.recording import Recording
from aotviz.recorder import call_errors, late_hooks, sessions
from aotviz.recording.store import Store
from aotviz.torch_private import dynamo


class watch:
    """Records what `torch.compile` does, in any thread, with any backend, between `start` and `stop`.

    Usually `with aotviz.watch() as recording:`, which calls both, is enough. The recording is live: you can look at it
    inside the block. It keeps about `max_bytes` bytes of torch's trace, and as many for what aotviz compiles; beyond
    that the oldest compilations are dropped. If a function was compiled before the watch began, the recording shows why
    it is compiled again, but not its earlier graphs; `recording.notes` says so. If it saw nothing because all had been
    compiled before, `explain` and the notes say that.

    >>> import torch, aotviz
    >>> f = torch.compile(lambda x, n: x * n, backend="eager")
    >>> with aotviz.watch() as recording:
    ...     for n in (2, 3):
    ...         _ = f(torch.ones(3), n)
    >>> len(recording), recording.recompiles().subject.tolist(), recording[0].graph("dynamo").nodes.target.tolist()
    (2, ['n'], ['L_x_', 'operator.mul', 'output'])
    """

    def __init__(self, max_bytes: int = 64_000_000) -> None:
        self._log = WatchedLog(max_bytes)
        self._store = Store(max_bytes=max_bytes)
        self.on = False
        self._content = Watched(self._log, self._store, sessions.producer())
        self.recording = Recording(self._content)

    def start(self) -> Recording:
        """Start the watch, or continue it after `stop`. Raises RuntimeError if it is already on."""
        if self.on:
            raise RuntimeError("this watch is already on; for one inside it, use a second aotviz.watch()")
        self.on = True
        self._content.compiled_before = dynamo.functions_compiled()
        sessions.watch(self._store)
        structured_trace.attach(self._log)
        return self.recording

    def stop(self) -> Recording:
        """Stop the watch and restore torch's trace. The recording remains. Does nothing if the watch is off."""
        if self.on:
            structured_trace.detach(self._log)
            with contextlib.suppress(Exception):  # a module may be of a class of the user's
                for hook in late_hooks.found(self._log.calls().items()):
                    self._store.raised(hook)
            sessions.unwatch(self._store)
            self.on = False
        return self.recording

    def __enter__(self) -> Recording:
        return self.start()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, *_: object) -> None:
        if error is not None and (found := call_errors.noted(error, is_of_block=True)) is not None:
            self._store.raised(found)
        self.stop()

    def __repr__(self) -> str:
        return f"<aotviz Watch, {'on' if self.on else 'off'}: {self.recording!r}>"
