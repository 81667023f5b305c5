"""Read the logs that `TORCH_TRACE=folder python train.py` writes, on any machine, without torch.

`read_trace.py` is the entry point. `finding.py` and `remote_files.py` find the logs, `log_files.py` opens them, and
`lines.py` splits them into records. `assembler.py` turns the records of a log into a part of a recording, with the help
of `rows.py` and `chromium_events.py`; `known.py` lists the record types. `parts.py` merges parts, and `outlines.py`
makes a recording of the whole. `in_parallel.py` does this by the tasks (`tasks.py`) of an executor: the user's, or that
of `processes.py`. Long texts stay in local files and are read when they are needed (`texts.py`), and so are graphs
(`contents.py`, `stages.py`). `index.py` caches what was read, so that the next time is quick.
"""
