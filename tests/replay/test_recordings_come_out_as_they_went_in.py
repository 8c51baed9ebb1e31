"""The rules of replay, end to end without faults: every recording equals the history it leaves."""

from collections import Counter
from pathlib import Path

import pytest
from support.in_process import worker_in_process

from wakeful.domain.ids import new_id
from wakeful.domain.ports.wakeups import NoWakeups
from wakeful.domain.states import IdempotencyClass
from wakeful.faults.ledger import LedgerProcess, judge_book
from wakeful.faults.replay.comparing import compare, expected_effects
from wakeful.faults.replay.plan import Plan, Selection, read_selection
from wakeful.faults.replay.submitting import Submitter
from wakeful.faults.replay.workload import replay_app
from wakeful.persistence.memory import MemoryStore

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
def everything(trajectories: Path) -> Selection:
    selection = read_selection(sorted(trajectories.glob("*.jsonl")))
    assert selection.skipped == {}
    assert len(selection.lines) == 313
    return selection


@pytest.mark.parametrize(
    ("tool_class", "every"),
    [
        ("conditionally_idempotent", 6),
        ("non_idempotent", 20),
        pytest.param("conditionally_idempotent", 1, marks=pytest.mark.slow),
    ],
)
async def test_recordings_replay_identically_in_memory(
    everything: Selection, tmp_path: Path, tool_class: str, every: int
) -> None:
    store = MemoryStore()
    ended: Counter[str] = Counter()
    with LedgerProcess() as ledger:
        plan = Plan(
            batch=new_id(),
            lines=everything.lines[::every],
            ledger=ledger.socket,
            owners=tmp_path / "owners",
            tool_class=IdempotencyClass(tool_class),
            tool_delay_seconds=0,
        )
        conversations = plan.conversations()
        submitter = Submitter(store, NoWakeups(), stall_seconds=60, on_run=lambda run: ended.update([run.status.value]))
        async with worker_in_process(store, replay_app(plan.workload())):
            outcomes = await submitter.submit_all(conversations)
        book = ledger.read()
    different = {o.conversation.recording.id: await compare(store, o) for o in outcomes}
    assert {key: value for key, value in different.items() if value is not None} == {}
    assert ended == Counter({"COMPLETED": sum(len(each.recording.runs) for each in conversations)})
    judgement = judge_book(book, expected_effects(conversations))
    assert (judgement.duplicate, judgement.lost, book.replayed) == ((), (), 0)
    assert len(book.effects) == sum(len(each.recording.calls) for each in conversations)
