"""What nobody would write to a reader: texts of torch that belong under "as torch wrote it" and nowhere else."""

from __future__ import annotations

import re

RAW = re.compile(
    r"___|<class '|\b[LG]\['|0x[0-9a-f]{6}|guard of |\[\d{9,}\]|(?<![.\d])\d{14,}(?![.\d])|torch_dynamo_resume_in"
    r"|FakeTensor\(|9223372036854775807"
    r"|(?<![\w./-])(?=[a-z]*\d)(?=\d*[a-z])(?:[0-9a-f]{12,}|[a-z2-7]{30,})(?!\w)"  # a bare hash
)


def raw(text: object) -> list[str]:
    """The lines of a text that have such a text of torch."""
    return [line for line in str(text).splitlines() if RAW.search(line)]
