"""Which releases of torch this package knows, and one clear sentence for any other.

Everything that differs by release hangs on this table; nothing else asks for torch's version.
"""

from __future__ import annotations

import torch

SUPPORTED = {  # (major, minor): is it tested in CI
    (2, 11): False,
    (2, 12): False,
    (2, 13): True,
    (2, 14): False,
    (2, 15): False,
}

SINCE = {  # what a release brought that our doors to torch, or our tests, ask for
    "CUDA graphs are decided by graph": (2, 12),
    "a trace takes generators": (2, 13),
    "calls of regions are numbered": (2, 13),
    "a failing linear algebra is an effect": (2, 13),
    "a backward inside is found by itself": (2, 13),
    "a backward may empty its list of gradients": (2, 13),
    "the proxy mode holds the decompositions": (2, 13),
    "the tracing flag is per thread": (2, 14),
    "an input that grows is taken for a view": (2, 15),
    "an export is traced once more": (2, 15),
}


def release(version: str) -> tuple[int, int]:
    """(major, minor) of a version string.

    >>> release("2.13.0+cpu")
    (2, 13)
    """
    major, minor = version.split("+")[0].split(".")[:2]
    return int(major), int(minor)


def has(feature: str) -> bool:
    """Whether the installed torch has a feature of `SINCE`."""
    return release(torch.__version__) >= SINCE[feature]


def check(version: str = torch.__version__) -> None:
    """Raise ImportError unless `version` is one that aotviz supports."""
    if release(version) not in SUPPORTED:
        first, last = min(SUPPORTED), max(SUPPORTED)
        raise ImportError(
            f"aotviz supports torch {first[0]}.{first[1]} to {last[0]}.{last[1]}, and this is torch {version}. "
            "Install a supported torch, or a newer aotviz."
        )


check()
