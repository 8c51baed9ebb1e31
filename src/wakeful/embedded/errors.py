"""Why an embedded server cannot be had.

```
ConfigurationError
└── EmbeddedError
    ├── EmbeddedMissing      the binaries are not installed
    ├── EmbeddedInUse        another process runs the server in this folder
    └── EmbeddedStartFailed  the server did not come up; the message ends with its own last words
```
"""

from wakeful.domain.errors import ConfigurationError

__all__ = ["EmbeddedError", "EmbeddedInUse", "EmbeddedMissing", "EmbeddedStartFailed"]


class EmbeddedError(ConfigurationError):
    code = "embedded"


class EmbeddedMissing(EmbeddedError):
    code = "embedded_missing"


class EmbeddedInUse(EmbeddedError):
    code = "embedded_in_use"


class EmbeddedStartFailed(EmbeddedError):
    code = "embedded_start_failed"
