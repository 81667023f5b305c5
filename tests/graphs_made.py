"""Which graphs a compilation makes, for tests that it is freed: a kept graph keeps its nodes and their fake tensors."""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Iterator
from typing import Any

import pytest
from torch import fx


@contextlib.contextmanager
def graphs_made() -> Iterator[weakref.WeakSet[fx.Graph]]:
    """The graphs that are made inside of the context, as long as they are alive."""
    made: weakref.WeakSet[fx.Graph] = weakref.WeakSet()
    original = fx.Graph.__init__

    def counted(self: fx.Graph, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        made.add(self)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fx.Graph, "__init__", counted)
        yield made
