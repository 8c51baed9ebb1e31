"""PostgreSQL and Valkey from wheels, for a machine that has neither.

An embedded server is an ordinary server that this process started for itself.

- It listens on a Unix socket in a folder of mode 0700, or on a random loopback port with a generated
  password; never on a default port, and never with trust over TCP.
- It ends with the process that started it, however that ends: a guardian process holds a pipe from the owner
  and shuts the server down at its end of file, then removes temporary data (`guardian.py`).
- As root it runs as an existing unprivileged user, from a copy of its programs in the machine's cache when
  that user cannot read the installed ones. No user is created, and no permission of a folder that is not ours
  is changed.
- Nothing else on the machine is touched: no process is ever ended by name, only a child by its handle.
"""

from wakeful.embedded.errors import EmbeddedError, EmbeddedInUse, EmbeddedMissing, EmbeddedStartFailed
from wakeful.embedded.places import cache_directory
from wakeful.embedded.postgres import EmbeddedPostgres
from wakeful.embedded.valkey import EmbeddedValkey

__all__ = [
    "EmbeddedError",
    "EmbeddedInUse",
    "EmbeddedMissing",
    "EmbeddedPostgres",
    "EmbeddedStartFailed",
    "EmbeddedValkey",
    "cache_directory",
]
