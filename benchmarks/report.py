"""The table for people and the JSON for everybody else."""

import json
import os
import platform
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.figure import Figure, Measured

__all__ = ["as_json", "print_table"]


def as_json(figures: Sequence[Figure], measured: Mapping[str, Measured], *, quick: bool) -> str:
    """Every figure's value under its key; under `details` what it was made of, under `run` where and when."""
    details = {figure.key: _detail(figure, measured[figure.key]) for figure in figures if figure.key in measured}
    values = {key: detail["value"] for key, detail in details.items()}
    run = {
        "measured_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "quick": quick,
        "cores": os.cpu_count(),
        "machine": platform.machine(),
        "python": platform.python_version(),
    }
    return json.dumps({**values, "details": details, "run": run}, indent=2) + "\n"


def _detail(figure: Figure, measured: Measured) -> dict[str, Any]:
    limit = figure.limit
    return {
        "value": _short(measured.value),
        "low": _short(measured.low),
        "high": _short(measured.high),
        "limit": None if limit is None else str(limit),
        "reached": None if limit is None else limit.reached(measured.value),
        "parts": {name: _short(value) for name, value in measured.parts.items()},
        "compares": figure.about,
    }


def print_table(figures: Sequence[Figure], measured: Mapping[str, Measured]) -> None:
    table = Table("figure", *("value", "rounds", "limit", "reached", "of"))
    for figure in figures:
        found = measured.get(figure.key)
        if found is None:
            table.add_row(figure.key, "failed", "", str(figure.limit or ""), "no", "")
            continue
        limit = figure.limit
        table.add_row(
            figure.key,
            _text(found.value),
            "" if found.low == found.high else f"{_text(found.low)} .. {_text(found.high)}",
            "" if limit is None else str(limit),
            "" if limit is None else ("yes" if limit.reached(found.value) else "NO"),
            ", ".join(f"{name} {_text(value)}" for name, value in found.parts.items()),
        )
    # As wide as it has to be where nobody looks at a terminal.
    Console(width=None if os.isatty(1) else 180).print(table)


def _short(value: float) -> float:
    return float(f"{value:.4g}")


def _text(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
