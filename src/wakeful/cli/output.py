"""Printing: tables and trees for people, JSON for programs."""

import json
import sys
from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

__all__ = ["data", "note", "out", "print_json", "print_json_line", "table"]

# Wide enough that nothing is cut where no terminal says how wide it is.
PIPED_WIDTH = 240


def out() -> Console:
    """Standard output. Colour on terminals only, never with NO_COLOR."""
    return Console(width=None if sys.stdout.isatty() else PIPED_WIDTH, highlight=False, soft_wrap=True)


def data(text: str) -> None:
    """One line of data."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def note(text: str) -> None:
    """Progress and advice, on standard error."""
    sys.stderr.write(text + "\n")
    sys.stderr.flush()


def print_json(value: Any) -> None:
    """One JSON document."""
    data(json.dumps(value, indent=2, ensure_ascii=False))


def print_json_line(value: Any) -> None:
    """One JSON value on a line of its own."""
    data(json.dumps(value, ensure_ascii=False))


def table(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Rows for people. What comes from the database is printed as it is, never as markup."""
    drawn = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        drawn.add_column(column, overflow="fold")
    for row in rows:
        drawn.add_row(*(Text(str(cell)) for cell in row))
    out().print(drawn)
