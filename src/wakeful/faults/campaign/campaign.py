"""A campaign from servers to verdict."""

import random
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice

from wakeful.embedded import EmbeddedPostgres
from wakeful.faults.campaign.report import CampaignReport, Part
from wakeful.faults.checker import ServerWatch
from wakeful.faults.crashes import Experiment, Lab, parse_experiment
from wakeful.faults.crashes.coverage import all_single, random_pairs, random_programs
from wakeful.faults.crashes.shapes import SHAPES
from wakeful.faults.storm.storm import BUILT_IN, SERVER, StormOptions, storm
from wakeful.persistence.schema import upgrade

__all__ = ["PAIRS", "PROGRAMS", "CampaignOptions", "campaign", "reproduce"]

PAIRS = 500
PROGRAMS = 300
SHARES = {"crash_points": 0.3, "pairs": 0.2, "programs": 0.2}
"""Of the time, at most; what one leaves the next ones have, and the storm has the rest."""
LONGEST_STORM_SECONDS = 15 * 60.0
MOST_FINDINGS = 10
"""After so many of one kind nobody needs more."""

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class CampaignOptions:
    """Without `seconds` everything is done, and the storm lasts fifteen minutes."""

    seconds: float | None
    storm: StormOptions
    experiments: bool = True
    """Crash points, pairs and programs: of the built-in app alone, whose tools have a witness."""


def campaign(options: CampaignOptions, say: Say) -> CampaignReport:
    """Nothing runs any more on return. Raises what kept the servers from starting, and ChildDied."""
    report, started = CampaignReport(options.storm.seed), time.monotonic()
    if options.experiments and options.storm.app == BUILT_IN:
        with _lab() as lab:
            _experiment(report, lab, options, started, say)
    left = LONGEST_STORM_SECONDS
    if options.seconds is not None:
        left = options.seconds - (time.monotonic() - started)
    if left > 0:
        _storm(report, options.storm, left, say)
    report.seconds = time.monotonic() - started
    return report


def reproduce(name: str, seed: int, say: Say) -> CampaignReport:
    """One experiment by its name. Raises ConfigurationError for a name that is none."""
    experiment = parse_experiment(name)
    report, started = CampaignReport(seed), time.monotonic()
    with _lab() as lab:
        report.parts["experiments"] = part = Part(1)
        say(f"points of {experiment.shape}: {len(lab.points(experiment.shape))}")
        _perform(lab, part, [experiment], float("inf"))
    report.seconds = time.monotonic() - started
    return report


def _experiment(report: CampaignReport, lab: Lab, options: CampaignOptions, started: float, say: Say) -> None:
    dice = random.Random(options.storm.seed)  # noqa: S311 - dice, no secret
    singles = [experiment for shape in SHAPES for experiment in all_single(shape, lab.points)]
    dice.shuffle(singles)
    kinds: dict[str, tuple[int, Iterable[Experiment]]] = {
        "crash_points": (len(singles), singles),
        "pairs": (PAIRS, random_pairs(lab.points, dice)),
        "programs": (PROGRAMS, random_programs(lab.points, options.storm.seed * PROGRAMS)),
    }
    share = 0.0
    for name, (count, experiments) in kinds.items():
        share += SHARES[name]
        until = float("inf") if options.seconds is None else started + share * options.seconds
        report.parts[name] = part = Part(count)
        _perform(lab, part, experiments, until)
        say(f"{name.replace('_', ' ')}: {part.done} of {part.of}, {len(part.findings)} findings")


def _perform(lab: Lab, part: Part, experiments: Iterable[Experiment], until: float) -> None:
    """As many as there are, or the time allows. One that killed nobody where it should proves nothing and counts
    apart; of random ones, which may name a point that is not reached, others take its place."""
    for experiment in islice(experiments, part.of * 2):
        if part.landed >= part.of or time.monotonic() > until or len(part.findings) >= MOST_FINDINGS:
            return
        outcome = lab.perform(experiment)
        part.done += 1
        part.landed += outcome.landed
        part.findings += [f"{finding} (wakeful chaos --reproduce {experiment})" for finding in outcome.findings]


def _storm(report: CampaignReport, options: StormOptions, seconds: float, say: Say) -> None:
    say(f"storm of {seconds:.0f} s")
    raged = storm(options.lasting(seconds), say)
    report.storm, report.clocks = raged.counts, raged.clocks
    report.logs = str(raged.logs) if raged.logs is not None else None
    again = f"(wakeful chaos --storm-only --seed {options.seed})"
    report.storm_findings = [f"{finding} {again}" for finding in raged.findings]


@contextmanager
def _lab() -> Iterator[Lab]:
    with EmbeddedPostgres(settings=SERVER) as server:
        upgrade(server.dsn())
        watch = ServerWatch(server.dsn())
        watch.begin()
        with Lab(server.dsn()) as lab:
            yield lab
        for finding in watch.findings(at_rest=True):
            raise RuntimeError(str(finding))
