"""`python benchmarks` from the checkout."""

import sys
from pathlib import Path

# Given a folder, Python looks for modules in it; ours are `benchmarks.…`, seen from the folder above.
sys.path[0] = str(Path(__file__).resolve().parent.parent)

from benchmarks.command import main  # noqa: E402 - only importable now

if __name__ == "__main__":
    sys.exit(main())
