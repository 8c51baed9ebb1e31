"""The ledger's process: `python -m wakeful.faults.ledger SOCKET FILE`. It ends when its standard input does."""

import asyncio
import sys
from pathlib import Path

from wakeful.faults.ledger.server import serve

asyncio.run(serve(Path(sys.argv[1]), Path(sys.argv[2])))
