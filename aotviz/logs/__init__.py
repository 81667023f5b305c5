"""Read the logs that `TORCH_TRACE=folder python train.py` writes, on any machine, without torch.

`read_trace.py` is the entry point. `log_files.py` finds the files, and `lines.py` splits them into records.
`assembler.py` turns the records into a recording, with the help of `rows.py`, `chromium_events.py` and `stages.py`;
`known.py` lists the record types. Long texts stay in the files and are read when they are needed (`texts.py`).
`index.py` caches what was read, so that the next time is quick.
"""
