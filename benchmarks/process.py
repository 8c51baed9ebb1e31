"""What a process uses, as the kernel counts it."""

import os
from pathlib import Path

__all__ = ["cpu_seconds", "resident_kib"]


def cpu_seconds(pid: int) -> float:
    """Processor time of all its threads so far, user and system."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def resident_kib(pid: int) -> int:
    for line in Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1])
    raise RuntimeError(f"process {pid} is gone")
