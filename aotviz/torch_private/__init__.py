"""The seam: the only folder that names torch's private modules and attributes."""

from __future__ import annotations

import sys

from aotviz.torch_private import versions as versions

sys.meta_path.insert(0, versions.Probe())  # see Note [Private names are probed]
