"""A seed is all there is to a program, and the programs of many seeds use everything."""

from collections import Counter

import pytest

from wakeful.domain.tools import ASK_USER, DELEGATE
from wakeful.faults.crashes.coverage import random_programs
from wakeful.faults.crashes.experiments import parse_experiment
from wakeful.faults.crashes.programs import program

SEEDS = range(300)


def test_the_same_name_is_the_same_program() -> None:
    assert [program(f"program-{seed}") for seed in SEEDS] == [program(f"program-{seed}") for seed in SEEDS]
    assert len({program(f"program-{seed}") for seed in SEEDS}) > 250


def test_programs_use_every_kind_of_call() -> None:
    used = Counter(call.tool for seed in SEEDS for turn in program(f"program-{seed}").turns for call in turn)
    kinds = {"look", "store", "pay", "refund", "declined", "breaks", "fly", ASK_USER, DELEGATE}
    assert set(used) == kinds
    assert min(used.values()) > 30
    assert any(program(f"program-{seed}").max_tool_calls is not None for seed in SEEDS)


def test_a_childs_program_is_named_by_its_place_and_delegates_no_deeper_than_two() -> None:
    assert program("program-1/0.0") != program("program-1/0.1")
    deep = [call.tool for seed in SEEDS for turn in program(f"program-{seed}/0.0/0.0").turns for call in turn]
    assert DELEGATE not in deep


def test_where_a_program_is_interrupted_comes_from_its_seed_too() -> None:
    def points(_: str) -> list[str]:
        return ["point"] * 50

    first, again = (
        [next(experiments) for _ in range(20)]
        for experiments in (random_programs(points, 7), random_programs(points, 7))
    )
    assert first == again
    assert [parse_experiment(str(each)) for each in first] == first


@pytest.mark.parametrize("name", ["batch:x:after", "batch:3:during", "batch:3"])
def test_a_name_that_is_no_experiment_is_refused(name: str) -> None:
    with pytest.raises(Exception, match="names no experiment"):
        parse_experiment(name)
