"""A process dies in every state in which a run can be left, in every run shape: the same end.

Every statement and effect, before and after, and hundreds of pairs are behind `make chaos`.
"""

from collections.abc import Iterator
from itertools import islice

import pytest
from support.database import ROLE_PREFIX, Database, database_from

from wakeful.embedded import EmbeddedPostgres
from wakeful.faults.crashes import Experiment, Lab, parse_experiment
from wakeful.faults.crashes.coverage import one_of_each_kind, random_programs
from wakeful.faults.crashes.shapes import SHAPES

pytestmark = [pytest.mark.spec("REC-1", "REC-7", "REC-8", "LOG-3"), pytest.mark.gate("crash_recovery")]


@pytest.fixture(scope="module")
def place(postgres: EmbeddedPostgres, migrated_template: str) -> Iterator[Database]:
    with database_from(postgres, migrated_template, role_prefix=ROLE_PREFIX) as clone:
        yield clone


@pytest.fixture(scope="module")
def lab(place: Database) -> Iterator[Lab]:
    with Lab(place.dsn, role_prefix=place.role_prefix) as opened:
        yield opened


def performed(lab: Lab, experiment: Experiment) -> tuple[str, ...]:
    outcome = lab.perform(experiment)
    assert outcome.landed, f"{experiment} killed nobody"
    assert not outcome.findings, f"{experiment} ({outcome.labels}): {[str(each) for each in outcome.findings]}"
    return outcome.labels


@pytest.mark.gate("exactly_once")
@pytest.mark.parametrize("shape", SHAPES)
def test_a_death_in_any_state_leads_to_the_same_end(lab: Lab, shape: str) -> None:
    chosen = list(one_of_each_kind(shape, lab.points))
    assert chosen, "nothing to prove"
    for experiment in chosen:
        performed(lab, experiment)


def test_a_death_while_another_death_is_recovered_from_leads_to_the_same_end(lab: Lab) -> None:
    for name in ("sequence:29:after+9:after", "batch:28:after+22:before", "question:30:after+12:before"):
        assert len(performed(lab, parse_experiment(name))) == 2


def test_random_programs_with_random_deaths_end_as_they_would_have(lab: Lab) -> None:
    """A sample of the hundreds behind `make chaos`."""
    outcomes = [lab.perform(experiment) for experiment in islice(random_programs(lab.points, 4), 3)]
    assert [str(finding) for outcome in outcomes for finding in outcome.findings] == []
    assert any(outcome.landed for outcome in outcomes)


def test_a_point_that_is_never_reached_is_no_proof(lab: Lab) -> None:
    outcome = lab.perform(parse_experiment("sequence:9999:before"))
    assert not outcome.landed
    assert not outcome.findings


def test_an_experiment_is_found_again_by_its_name() -> None:
    for name in ("batch", "batch:14:after", "child:3:before+70:after"):
        assert str(parse_experiment(name)) == name
