"""Each text of a recording is stored once, and everything else refers to it by number.

A joint graph and its forward and backward have the same node names, source lines and operators. If each text were
stored in every place, texts would be nine tenths of a recording. This module does not import torch.
"""

from __future__ import annotations

from aotviz.recording.events import NONE


def clean(text: str) -> str:
    """The text as a plain `str`. A lone surrogate, which UTF-8 cannot encode, becomes "?"."""
    return text if type(text) is str and text.isascii() else text.encode("utf-8", "replace").decode("utf-8")


class StringTable:
    """Texts in the order of their first use.

    >>> table = StringTable()
    >>> table.add("add"), table.add("mul"), table.add("add"), table.add(None)
    (0, 1, 0, -1)
    >>> table.texts
    ['add', 'mul']
    """

    def __init__(self, texts: list[str] | None = None) -> None:
        self.texts: list[str] = [] if texts is None else list(texts)
        self.numbers: dict[str, int] = {text: number for number, text in enumerate(self.texts)}
        self.characters = sum(map(len, self.texts))

    def add(self, text: str | None) -> int:
        """The text's number, which is new if the text is new; NONE if `text` is None."""
        if text is None:
            return NONE
        number = self.numbers.get(text)
        if number is None:
            number = self.numbers[text] = len(self.texts)
            self.texts.append(clean(text))
            self.characters += len(text)
        return number
