"""pgbench on the product's tables, indexes and role."""

import asyncio
import os
import re
from pathlib import Path

from benchmarks.bench import SCOPE, Bench, Database

__all__ = ["per_second", "transactions"]

_TPS = re.compile(r"^tps = ([0-9.]+) \(without initial connection time\)", re.MULTILINE)
_FAILED = re.compile(r"number of failed transactions: ([0-9]+)")


async def per_second(bench: Bench, database: Database, script: str, *, clients: int) -> float:
    """Transactions per second over one round's time."""
    return await _run(bench, database, script, clients, ["-T", str(bench.seconds)])


async def transactions(bench: Bench, database: Database, script: str, *, clients: int, each: int) -> float:
    """Transactions per second of exactly `each` of them by every client."""
    return await _run(bench, database, script, clients, ["-t", str(each)])


async def _run(bench: Bench, database: Database, script: str, clients: int, length: list[str]) -> float:
    path = bench.folder / "script.sql"
    path.write_text(script, encoding="utf-8")
    # Prepared statements, as the product's driver uses them: the fastest that pgbench has.
    command = [str(bench.postgres.programs / "pgbench"), "-n", "-M", "prepared", "-c", str(clients), *length]
    process = await asyncio.create_subprocess_exec(
        *command,
        "-f",
        str(path),
        database.dsn,
        env={**os.environ, "PGOPTIONS": f"-c role={database.app_role} -c wakeful.tenant={SCOPE.tenant_id}"},
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    said = (await process.communicate())[0].decode()
    tps, failed = _TPS.search(said), _FAILED.search(said)
    if process.returncode != 0 or tps is None or (failed and failed[1] != "0") or "aborted" in said:
        raise RuntimeError(f"pgbench ended with {process.returncode}:\n{_kept(path, said)}")
    return float(tps[1])


def _kept(path: Path, said: str) -> str:
    return f"{path.read_text(encoding='utf-8')}\n{said}"
