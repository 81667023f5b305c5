"""Why each call of aotviz that could run code, open a file, resolve a name or join a path is safe.

`REASONS` is compared with the calls that what_is_called.py finds: see test_what_is_loaded.py.
"""

from __future__ import annotations

OWN = "names of this package, or of its own tables"
FIELDS = "the field names of a record's class"
CHOSEN = "a path that the caller chose"
PROGRAM = "the user's own program, in its own process"
LIVE = "Dynamo's guards in this process, which torch evaluates too"
CACHE = "a folder or file of the cache: tests/cache attacks it"
SEAM = "names of torch and its sources, from this package's own text"

REASONS: dict[tuple[str, str], str] = {  # (file, calls) -> why they are safe; the calls of a file, sorted
    ("recorder/naming.py", ": join"): "a folder of the torch that is installed",
    ("recorder/call_errors.py", "_statement: getline"): "a line of the file that an error of this process names",
    ("ir/user_warnings.py", "callers: extract"): "a traceback of this process's own calls",
    (
        "torch_private/inductor_code.py",
        "_libraries: glob; _libraries: read_bytes; _libraries: with_suffix; put_in: /; taken_out: iterdir; "
        "taken_out: read_bytes",
    ): "a key and a library have the form of Inductor's names: test_left_out_of_inductors_key.py",
    ("torch_private/inductor_code.py", "_write: mkdir; _write: mkstemp; _write: unlink"): "where `put_in` says",
    (
        "__init__.py",
        ": import_module; _keep_dynamo_out: import_module; "
        "load_ipython_extension: import_module; unload_ipython_extension: import_module",
    ): OWN,
    ("__main__.py", ": import webbrowser"): "opens the address that the viewer made",
    ("__main__.py", "_open: open"): "the address that the viewer made",
    ("__main__.py", "_target: with_suffix"): CHOSEN,
    ("__main__.py", "main: open"): "os.devnull",
    (
        "cache/database.py",
        "Database.__init__: /; Database._create: open; Database._set_aside: rename; "
        "Database._set_aside: unlink; folder_lock: open",
    ): CACHE,
    ("cache/key.py", "sources: /; sources: glob; sources: read_bytes"): CACHE,
    ("cache/names.py", "_ours: import_module"): CACHE,
    ("cache/path_checks.py", "make_folder: mkdir"): CACHE,
    ("cache/store.py", "Store.export: mkstemp; Store.export: unlink"): CACHE,
    (
        "comparing/command.py",
        "_attribute: getattr; _module: exec_module; _module: import_module",
    ): "the program that the user names, to run it",
    ("comparing/compared_inputs.py", "Comparison._table: getattr"): PROGRAM,
    ("comparing/locating.py", "_differs: getattr"): PROGRAM,
    ("comparing/main_program.py", "_literal: literal_eval"): PROGRAM,
    (
        "comparing/repro.py",
        ": import pickle; _Spelled._importable: getattr; _attribute: getattr; write: mkdir; "
        "write: with_suffix; write: write_bytes; write: write_text",
    ): PROGRAM,
    ("comparing/same_graph.py", "_constant: getattr"): PROGRAM,
    ("comparing/verifying.py", "verify: compile"): PROGRAM,
    ("explain/terms.py", "terms: joinpath; terms: read_text"): SEAM,
    ("frontends/compile.py", "_again: compile"): PROGRAM,
    ("frontends/demo.py", "run: /; run: mkdir"): CHOSEN,
    ("frontends/measured_memory.py", "_runs: getlines"): PROGRAM,
    (
        "frontends/stored_results.py",
        ": import pickle; put_in: pickle.loads",
    ): "code, only from who is trusted with code: tests/cache/test_stored_results.py",
    ("frontends/strays.py", "_by_its_variables: getline"): PROGRAM,
    ("ir/backward_bodies.py", "unmaterialized: getlines"): PROGRAM,
    ("live/failed_guards.py", "_Trial._of_conditions: eval; _Trial._value: eval; _tensor_facts: getattr"): LIVE,
    ("live/watched.py", "read_lines: read_bytes"): "the reader of logs, which reads bytes of this process",
    ("logs/assembler.py", "Assembler.finish: getattr"): FIELDS,
    ("logs/chromium_events.py", "Timeline.add: getattr; in_order: getattr"): FIELDS,
    (
        "logs/finding.py",
        "_in_folder: walk; _matches: glob",
    ): "the folder or pattern that the user named; links out of it are left out",
    (
        "logs/index.py",
        "_path: /; _prune: glob; _prune: unlink; _reader: /; _reader: read_bytes; _reader: rglob; folder: /; "
        "load: read_bytes; save: mkdir; save: mkstemp; save: open; save: unlink",
    ): "the user's own folder; a file's name is a digest, and its content is data",
    (
        "logs/log_files.py",
        "LogFile._open: open; LogFile.kept_pieces: TemporaryFile",
    ): "a path that finding.py found; a temporary file without a name",
    ("logs/parts.py", "Merger._add_events: getattr; Merger.add: getattr"): FIELDS,
    ("logs/printed/statements.py", "_complex: literal_eval"): "makes data only; RecursionError and others are caught",
    (
        "logs/processes.py",
        ": import pickle; : import subprocess; Processes._run: pickle.loads; Processes._start: Popen; "
        "serve: pickle.loads",
    ): "pipes to processes that this one started, and this Python",
    (
        "logs/remote_files.py",
        "RemoteFile._file: open; _listed: glob; _listed: import fsspec.core; _listed: url_to_fs",
    ): "the URL that the user named, without file systems that follow names in files",
    ("logs/texts.py", "Texts.__getitem__: zlib.decompress"): "what this process, or a worker of it, compressed",
    ("recording/compilation.py", "Compilation.row_counts: getattr"): FIELDS,
    ("recording/dynamo_stage.py", "unpacked: zlib.decompress"): "what this process, or a worker of it, compressed",
    ("recording/files.py", "_check_graph: getattr; _check_logged: getattr"): FIELDS,
    ("recording/files.py", "read: open; replace_file: mkstemp; replace_file: open; replace_file: unlink"): CHOSEN,
    ("recording/log_tables.py", "_read: getattr; rows: getattr"): FIELDS,
    ("recording/redacting.py", "_Redactor._record: getattr"): FIELDS,
    ("recording/redacting.py", "_vocabulary: read_text; _vocabulary: rglob"): "aotviz's own sources",
    ("recording/needs_torch.py", "loaded: import_module"): "names that are written where it is called",
    ("recording/merging.py", "_rows_of: getattr; with_rows: getattr"): FIELDS,
    ("recording/numbers.py", "changed: getattr; of: getattr"): FIELDS,
    ("recording/replaying.py", "_told: getattr"): FIELDS,
    ("recording/spans.py", "restarts: getattr"): FIELDS,
    ("recording/strings.py", "cleaned: getattr"): FIELDS,
    ("recording/tables.py", "_fields.reader: getattr; _in_storages: getattr; attributes: attrgetter"): FIELDS,
    ("recording/user_folder.py", "folder: /"): "the user's environment",
    ("runtime/codegen.py", "Source.build: compile; Source.build: exec"): PROGRAM,
    ("teaching/papers.py", "read: read_text; write: write_text"): CHOSEN,
    (
        "teaching/playing.py",
        "Stage._value: eval; Stage._value: getattr",
    ): "questions of the teacher's or student's own notebook, never of a paper",
    ("torch_private/registered_operators.py", "libraries: read_bytes"): SEAM,
    ("torch_private/stored_values.py", "expression_of: sympify; number_of: sympify"): CACHE,
    ("torch_private/untraced.py", "_files: glob; _files: iterdir"): SEAM,
    ("torch_private/versions.py", "_resolved: import_module; names: read_text; names: with_name"): SEAM,
    ("tracing/fakes.py", "SymbolGuards.__init__: compile"): PROGRAM,
    ("tracing/open_trace.py", "_Tracer._line: getline"): PROGRAM,
    ("whole_backward/capturing.py", "Capture.copied: attrgetter"): PROGRAM,
    ("whole_backward/engine.py", "_Run.replay: open; _Run.result: open"): PROGRAM,
    ("widgets/html.py", "write_html: write_text"): CHOSEN,
    ("widgets/packing.py", "_encoded.smaller: getattr; _fields: getattr"): FIELDS,
    ("widgets/parts.py", "_counts: getattr; rows: getattr"): "a kind of rows that is in LISTS",
    ("widgets/replies.py", "answer_where_asked: setattr"): OWN,
    ("widgets/static_files.py", "read: /; read: read_bytes"): OWN,
}
