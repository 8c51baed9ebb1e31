"""`wakeful demo` is the first thing a stranger runs; its exit code is its verdict."""

import re

import pytest
from support.commands import wakeful


@pytest.mark.timeout(300)
def test_the_demo_ends_with_a_verdict_that_holds() -> None:
    ran = wakeful("demo", "--seed", 1)
    assert ran.code == 0, ran.out + ran.err
    assert ran.out.count("holds  ") == 6
    assert "FAILS" not in ran.out
    assert re.search(
        r"\([1-9]\d* kills hit [1-9]\d* runs, [1-9]\d* checkpoints were deleted", " ".join(ran.out.split())
    )
    assert "The call is UNCERTAIN." in ran.out
