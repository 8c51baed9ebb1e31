"""The ledger is the judge of exactly-once, so it must not be wrong itself."""

import asyncio
import os
import select
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from wakeful.faults.ledger import LedgerClient, LedgerProcess, LedgerUnreachable, judge_book, read_book

pytestmark = pytest.mark.anyio


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[LedgerProcess]:
    with LedgerProcess(tmp_path / "book.jsonl") as process:
        yield process


async def test_a_repeated_key_gets_the_stored_payload_and_has_no_second_effect(ledger: LedgerProcess) -> None:
    client = ledger.client()
    first = await client.record("k", "refund 7", {"paid": 1})
    again = await client.record("k", "refund 7", {"paid": 2})
    assert (first.replayed, again.replayed) == (False, True)
    assert (again.number, again.payload) == (first.number, {"paid": 1})
    book = ledger.read()
    assert len(book.effects) == 1
    assert book.replayed == 1


async def test_one_key_sent_by_many_at_once_is_one_effect(ledger: LedgerProcess) -> None:
    client = ledger.client()
    answers = await asyncio.gather(*(client.record("k", "w", number) for number in range(20)))
    assert Counter(answer.replayed for answer in answers) == {False: 1, True: 19}
    assert len({answer.payload for answer in answers}) == 1
    assert len(ledger.read().effects) == 1


async def test_without_once_every_request_is_an_effect(ledger: LedgerProcess) -> None:
    client = ledger.client()
    await client.record("k", "letter", once=False)
    await client.record("k", "letter", once=False)
    judgement = judge_book(ledger.read(), Counter(["letter"]))
    assert judgement.duplicate == ("letter",)


async def test_what_it_answered_is_in_the_file_when_the_process_is_killed(tmp_path: Path) -> None:
    file = tmp_path / "book.jsonl"
    with LedgerProcess(file) as process:
        await process.client().record("k", "w", "x" * 200_000)
        os.kill(process.pid, signal.SIGKILL)
    assert read_book(file).effects[0].payload == "x" * 200_000


async def test_a_restarted_ledger_knows_the_keys_of_before(tmp_path: Path) -> None:
    file = tmp_path / "book.jsonl"
    with LedgerProcess(file) as process:
        await process.client().record("k", "w", 1)
    with file.open("a") as torn:
        torn.write('{"number":2,"key":"to')
    with LedgerProcess(file) as process:
        assert (await process.client().record("k", "w", 2)).payload == 1
        assert (await process.client().record("l", "w", 3)).number == 2
    assert [effect.key for effect in read_book(file).effects] == ["k", "l"]


async def test_a_ledger_that_is_gone_raises_a_typed_error(tmp_path: Path) -> None:
    with pytest.raises(LedgerUnreachable):
        await LedgerClient(tmp_path / "none.sock").record("k", "w")


def test_it_ends_when_its_owner_is_killed(tmp_path: Path) -> None:
    code = (
        "import sys, time; from pathlib import Path; from wakeful.faults.ledger import LedgerProcess\n"
        "p = LedgerProcess(Path(sys.argv[1])).start(); print(p.pid, flush=True); time.sleep(60)"
    )
    owner = subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path / "book.jsonl")], stdout=subprocess.PIPE, text=True
    )
    assert owner.stdout is not None
    pid = int(owner.stdout.readline())
    descriptor = os.pidfd_open(pid)
    try:
        owner.kill()
        owner.wait()
        owner.stdout.close()
        readable, _, _ = select.select([descriptor], [], [], 20)
        assert readable, "the ledger still runs 20 s after its owner was killed"
    finally:
        os.close(descriptor)


def test_lost_and_uncalled_for_effects_are_told_apart(tmp_path: Path) -> None:
    file = tmp_path / "book.jsonl"
    file.write_text('{"number":1,"key":"a","what":"x","payload":null}\n')
    judgement = judge_book(read_book(file), Counter(["y"]))
    assert judgement.lost == ("y",)
    assert judgement.duplicate == ("x",)
