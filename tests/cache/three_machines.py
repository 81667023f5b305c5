"""Three machines that share a cache, by a Redis server and by files: `python -m tests.cache.three_machines`.

Each machine is a pair of folders, for aotviz's cache and for Inductor's. Prints a table in Markdown: what the first
call found, how long it took, and how many graphs came from Inductor's cache.
"""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path
from typing import Any

from tests import processes
from tests.cache.redis_server import Server


class Machine:
    """Folders that no other machine has. Its processes are `forked` from one, or each has its own seed of hashes."""

    def __init__(self, folder: Path, forked: bool = True, **environment: str) -> None:
        self.forked = forked
        self.folder = folder
        own = {"AOTVIZ_CACHE_DIR": str(folder / "aotviz"), "TORCHINDUCTOR_CACHE_DIR": str(folder / "inductor")}
        self.environment = {**os.environ, "OMP_NUM_THREADS": "1", **own, **environment}

    def run(self, *command: str) -> str:
        done = processes.run(["-m", *command], self.environment, forked=self.forked)
        assert done.returncode == 0, done.stderr[-3000:]
        return done.stdout

    def calls(self, backend: str) -> dict[str, Any]:
        """What the first call of the program of machine.py finds here."""
        found: dict[str, Any] = json.loads(self.run("tests.cache.machine", backend).splitlines()[-1])
        return found

    def cache(self, *arguments: str) -> str:
        return self.run("aotviz", "cache", *arguments)


def by_server(folder: Path, url: str, backend: str, **environment: str) -> list[dict[str, Any]]:
    names = ("first", "second", "third")
    machines = [Machine(folder / name, name != "first", AOTVIZ_CACHE_URL=url, **environment) for name in names]
    return [machine.calls(backend) for machine in machines]


def by_file(folder: Path, backend: str, *how: str, **environment: str) -> list[dict[str, Any]]:
    maker, other = (Machine(folder / name, **environment) for name in ("maker", "other"))
    first = maker.calls(backend)
    file = str(folder / "exported")
    maker.cache("export", file)
    other.cache("import", file, *how)
    return [first, other.calls(backend), other.calls(backend)]


def main() -> None:
    secret = {"AOTVIZ_CACHE_KEY": "a secret for this table"}
    print("| how | lowering | first machine | second | third |\n| --- | --- | --- | --- | --- |")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        server = Server(folder)
        for backend in ("aotviz", "aotviz_eager"):
            ways = {
                "Redis": lambda to, backend=backend: by_server(to, server.url, backend),
                "Redis, signed": lambda to, backend=backend: by_server(to, server.url, backend, **secret),
                "file": lambda to, backend=backend: by_file(to, backend),
                "file, --trust-code": lambda to, backend=backend: by_file(to, backend, "--trust-code"),
                "file, signed": lambda to, backend=backend: by_file(to, backend, **secret),
            }
            for number, (way, run) in enumerate(ways.items()):
                found = run(folder / f"{backend}-{number}")  # Inductor gives paths to g++ without quotes
                cells = [f"{one['outcome']}, {one['seconds']:.2f} s, {one['loaded']} loaded" for one in found]
                print(f"| {way} | {backend} | {' | '.join(cells)} |", flush=True)
        server.kill()


if __name__ == "__main__":
    main()
