"""What a user holds: a `Recording`, which can be asked, shown and saved. Needs no torch."""

from aotviz.explain.answers import plain_error
from aotviz.recording.compilation import Compilation

Compilation.in_words = staticmethod(plain_error)  # recording/ knows nothing of explain/
