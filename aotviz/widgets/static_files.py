"""The built front end, in the folder `static/`.

`extensions/` is built into `static/` when the wheel is made, so an installed aotviz always has it and needs no Node.
A checkout has it after `python hatch_build.py npm run build`. Until then every use raises an error that says so.
"""

from __future__ import annotations

from importlib.resources import files


class FrontEndMissing(RuntimeError):
    """The front end has not been built in this checkout."""


def read(name: str) -> bytes:
    """The bytes of one built file, e.g. "page.js". Raises FrontEndMissing."""
    path = files(__package__) / "static" / name
    try:
        return path.read_bytes()
    except FileNotFoundError:
        raise FrontEndMissing(
            f"aotviz/widgets/static/{name} is missing: the front end is not built in this checkout. "
            "Run `python hatch_build.py npm run build` in the checkout's folder."
        ) from None
