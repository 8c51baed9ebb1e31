"""A suspect that its own process hands back may be claimed by the same worker before that process is cleared away."""

from dataclasses import replace
from uuid import uuid4

from wakeful.actors.holdings import Holdings
from wakeful.domain.runs import Claim, Lease
from wakeful.domain.scopes import RunRef
from wakeful.domain.states import PriorityClass
from wakeful.runtime.holding import Holding


def a_suspect() -> Holding:
    lease = Lease(RunRef(uuid4(), uuid4(), uuid4()), uuid4(), 1)
    claim = Claim(lease, "a", 1, PriorityClass.INTERACTIVE, attempts=2, suspect=True, waited_seconds=0.0)
    return Holding(claim, trusted_until=0.0)


def claimed_again(before: Holding) -> Holding:
    lease = replace(before.lease, epoch=before.lease.epoch + 1)
    return Holding(replace(before.claim, lease=lease, suspect=False), trusted_until=0.0)


def test_a_new_lease_is_renewed_here_although_the_old_one_was_renewed_elsewhere() -> None:
    holdings, suspect = Holdings(), a_suspect()
    holdings.add(suspect)
    holdings.renewed_elsewhere(suspect)
    assert holdings.to_renew() == []
    again = claimed_again(suspect)
    assert holdings.add(again)
    assert holdings.to_renew() == [again]
    holdings.remove(suspect, released=True)
    assert holdings.to_renew() == [again]


def test_word_of_the_old_lease_that_comes_late_does_not_stop_the_new_ones_renewal() -> None:
    holdings, suspect = Holdings(), a_suspect()
    holdings.add(suspect)
    again = claimed_again(suspect)
    holdings.add(again)
    holdings.renewed_elsewhere(suspect)
    assert holdings.to_renew() == [again]
