"""The seam: the only folder that names torch's private modules and attributes."""

from __future__ import annotations

from aotviz.torch_private import versions as versions
