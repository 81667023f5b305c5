"""`%load_ext aotviz`, then `%%aotviz watch` above a cell, or `%aotviz watch on` and `off` around several.

A cell under `%%aotviz watch` runs as usual. Its recording is shown below it and assigned to `recording`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from IPython.core.error import UsageError
from IPython.core.magic import Magics, line_cell_magic, magics_class
from IPython.display import display

if TYPE_CHECKING:
    from aotviz.live.watching import watch
    from aotviz.reading.recording import Recording

USAGE = "use `%%aotviz watch [NAME]` as the first line of a cell, or `%aotviz watch on [NAME]` and `%aotviz watch off`"


@magics_class
class AotvizMagics(Magics):
    """The `aotviz` magic of one shell."""

    watching: watch | None = None  # between `on` and `off`
    name = "recording"

    @line_cell_magic
    def aotviz(self, line: str, cell: str | None = None) -> Recording | None:
        """Watch torch.compile: a cell (`%%aotviz watch [NAME]`), or from `%aotviz watch on [NAME]` to `off`.

        The recording becomes the variable NAME ("recording" if none is given).
        """
        command, *words = line.split() or [""]
        if command != "watch":
            raise UsageError(f"%aotviz {line}: there is no command {command!r}; {USAGE}" if command else USAGE)
        if cell is None and words == ["off"]:
            return self._off()
        if cell is not None:
            self._cell(words, cell)
        elif words[:1] == ["on"]:
            self._on(words[1:])
        else:
            raise UsageError(f"%aotviz {line}: on or off is missing; {USAGE}")
        return None

    def _cell(self, words: list[str], cell: str) -> None:
        name = self._named(words)
        from aotviz.live.watching import watch  # imports torch, which only a watch needs

        with watch() as recording:
            self._shell.user_ns[name] = recording
            done = self._shell.run_cell(cell)
        show: Any = display
        show(recording)  # also if the cell failed: the compiler may be the cause
        done.raise_error()

    def _on(self, words: list[str]) -> None:
        name = self._named(words)
        if self.watching is not None:
            raise UsageError(f"a watch is already on, as {self.name!r}; end it with `%aotviz watch off`")
        from aotviz.live.watching import watch  # imports torch, which only a watch needs

        self.watching, self.name = watch(), name
        self._shell.user_ns[name] = self.watching.start()

    def _off(self) -> Recording:
        if self.watching is None:
            raise UsageError("no watch is on; start one with `%aotviz watch on`")
        ended, self.watching = self.watching, None
        return ended.stop()

    def _named(self, words: list[str]) -> str:
        name = words[0] if words else "recording"
        if len(words) > 1 or not name.isidentifier():
            raise UsageError(f"{' '.join(words)!r} is not a variable name; {USAGE}")
        return name

    @property
    def _shell(self) -> Any:
        assert self.shell is not None
        return self.shell


def load(shell: Any) -> None:
    """What `%load_ext aotviz` does."""
    shell.register_magics(AotvizMagics)


def unload(shell: Any) -> None:
    """What `%unload_ext aotviz` does. It ends a watch that is still on."""
    found = shell.magics_manager.registry.pop("AotvizMagics", None)
    if found is not None and found.watching is not None:
        found.watching.stop()
    for kind in ("line", "cell"):
        shell.magics_manager.magics[kind].pop("aotviz", None)
