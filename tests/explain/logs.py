"""Recordings of the corpus, each read once for all tests."""

from __future__ import annotations

import functools

import aotviz
from aotviz.recorder.recording import Recording
from tests import corpus


@functools.cache
def recording(*names: str) -> Recording:
    files = [str(path) for name in names for path in sorted(corpus.folder(name).iterdir())]
    return aotviz.read_trace(files, index=False)
