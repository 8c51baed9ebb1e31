"""The command: which figures, how thoroughly, and where the results go."""

import argparse
import asyncio
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path

from benchmarks.bench import Bench
from benchmarks.figure import Figure, Measured
from benchmarks.figures import FIGURES
from benchmarks.progress import Progress
from benchmarks.report import as_json, print_table

__all__ = ["RESULTS", "main"]

RESULTS = Path(__file__).resolve().parent / "results.json"


def main(arguments: Sequence[str] | None = None) -> int:
    """0 when every figure asked for was measured, whatever it came to; 1 when one could not be."""
    chosen = _parser().parse_args(arguments)
    figures = _figures(chosen.only)
    measured, failed = asyncio.run(_measure(figures, quick=chosen.quick))
    text = as_json(figures, measured, quick=chosen.quick)
    output = chosen.output or (RESULTS if not chosen.only else None)
    if output is not None:
        output.write_text(text, encoding="utf-8")
    if chosen.json:
        print(text, end="")
    else:
        print_table(figures, measured)
    return 1 if failed else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python benchmarks",
        description="Measure Wakeful on a PostgreSQL of its own: ratios of one run on one server.",
        epilog="figures: " + ", ".join(figure.key for figure in FIGURES),
    )
    parser.add_argument("--only", nargs="+", metavar="KEY", default=[], help="measure these figures only")
    parser.add_argument("--quick", action="store_true", help="few and short rounds: to see that it works")
    parser.add_argument("--json", action="store_true", help="print the results as JSON instead of a table")
    parser.add_argument("--output", type=Path, help=f"where to write them ({RESULTS.name} beside this when all are)")
    return parser


def _figures(keys: Sequence[str]) -> list[Figure]:
    known = {figure.key: figure for figure in FIGURES}
    if unknown := [key for key in keys if key not in known]:
        sys.exit(f"no figure {', '.join(unknown)}: there are {', '.join(known)}")
    return [known[key] for key in keys] if keys else list(FIGURES)


async def _measure(figures: Sequence[Figure], *, quick: bool) -> tuple[dict[str, Measured], bool]:
    progress = Progress()
    measured: dict[str, Measured] = {}
    failed = False
    with Bench(quick=quick, progress=progress) as bench:
        for figure in figures:
            progress.begin(figure.key)
            try:
                measured[figure.key] = await figure.measure(bench)
            except Exception:
                # One figure that cannot be measured must not cost the others.
                failed = True
                progress.step("failed\n" + traceback.format_exc())
            progress.end()
    return measured, failed
