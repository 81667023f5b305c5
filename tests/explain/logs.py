"""Recordings of logs: of the corpus, each read once for all tests, and of what a test compiles."""

from __future__ import annotations

import functools
import io
import logging
from collections.abc import Callable
from pathlib import Path

from torch._logging._internal import TorchLogsFormatter
from torch._logging.structured import INTERN_TABLE

import aotviz
from aotviz.reading.recording import Recording
from tests import corpus


@functools.cache
def recording(*names: str) -> Recording:
    files = [str(path) for name in names for path in sorted(corpus.folder(name).iterdir())]
    return aotviz.read_trace(files, index=False)


def logged(program: Callable[[], object], folder: Path) -> Recording:
    """What a file of TORCH_TRACE says of what `program` compiles; the file is `trace.log` in `folder`."""
    stream = io.StringIO()
    file = logging.StreamHandler(stream)
    file.setFormatter(TorchLogsFormatter(trace=True))
    logger = logging.getLogger("torch.__trace")
    logger.addHandler(file)
    INTERN_TABLE.clear()  # torch logs the name of a file once for each process
    try:
        program()
    finally:
        logger.removeHandler(file)
    (folder / "trace.log").write_text(stream.getvalue())
    return aotviz.read_trace(folder, index=False)
