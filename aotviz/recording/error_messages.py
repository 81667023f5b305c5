"""Messages of torch's that the recorder looks for when an error is raised, and `explain` when it is told."""

from __future__ import annotations

import re

# Autograd's, and that of a check in Inductor's program.
INFERENCE = re.compile(r"Inference tensors cannot be saved for backward")
OF_OPERATOR = re.compile(r"(?:for|in) op: (?:torch\.ops\.)?(?P<name>\w+)\.(?P<op>\w+)")
