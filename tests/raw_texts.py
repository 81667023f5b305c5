"""What nobody would write to a reader: texts of torch that belong under "as torch wrote it" and nowhere else."""

from __future__ import annotations

import re

from aotviz.recording.spoken import HASH

RAW = re.compile(
    r"___|<class '|\b[LG]\['|0x[0-9a-f]{6}|guard of |\[\d{9,}\]|(?<![.\w])\d{14,}(?![.\w])|torch_dynamo_resume_in"
    r"|FakeTensor\(|9223372036854775807"
)


def raw(text: object) -> list[str]:
    """The lines of a text that have such a text of torch, or a bare hash."""
    return [line for line in str(text).splitlines() if RAW.search(line) or HASH.search(line)]
