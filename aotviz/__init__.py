"""aotviz: watch AOTAutograd compile your program, stage by stage, and keep the compiled result.

The public names are imported on first use, so that `import aotviz` costs nothing and reading a recording
does not need torch.
"""

from __future__ import annotations

__version__ = "0.1.0"
