"""Every port in memory: a production adapter for tests and for single-process use.

It passes the contract suites that PostgreSQL's adapters pass. What it does not give is what a process cannot give
itself: nothing outlives it, and it serves one process only.
"""

from wakeful.persistence.memory.store import MemoryStore

__all__ = ["MemoryStore"]
