"""A TCP proxy before PostgreSQL that understands where messages end, and fails at the worst of moments.

It can cut connections, stall them, make them a black hole (nothing arrives, nothing closes), delay what they carry,
and swallow exactly the answer to a statement that committed. Every fault is counted when it landed.
"""

from wakeful.faults.proxy.process import FaultProxy
from wakeful.faults.proxy.relay import Landed

__all__ = ["FaultProxy", "Landed"]
