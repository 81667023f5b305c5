"""The backward, compiled when first needed.

There can be two: one may overwrite the saved tensors that were donated to it, the other keeps them, for
`retain_graph=True`. If nothing is donated, one serves both purposes.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from aotviz.ir.forms import BackwardRequest
from aotviz.runtime.late import Late

Compiled = Callable[[list[Any]], Any]


class LazyBackward:
    """`discarding` and `keeping` are the compiled backwards, None until first used; `plain` runs the graph uncompiled.
    `compiled` is called after each compilation."""

    def __init__(
        self,
        request: Callable[[bool], BackwardRequest],
        late: Late,
        donates: bool,
        plain: Compiled,
        compiled: Callable[[], None],
    ) -> None:
        self._request, self._late, self._compiled = request, late, compiled
        self.plain = plain
        self.donates = donates
        self.discarding: Compiled | None = None
        self.keeping: Compiled | None = None
        self._lock = threading.Lock()

    def __call__(self, keep: bool) -> Compiled:
        with self._lock:
            known = self.keeping if keep else self.discarding
            if known is not None:
                return known
            compiled = self._late.backward(self._request(keep)).compiled
            self._compiled()
            if keep or not self.donates:
                self.keeping = compiled
            if not keep or not self.donates:
                self.discarding = compiled
            return compiled
