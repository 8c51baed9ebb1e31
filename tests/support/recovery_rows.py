"""Every row of the recovery table, with the decision it leads to."""

from support.recovery_table import (
    ANSWERED,
    APPROVAL,
    ARRIVED,
    BARE,
    BEGAN,
    CHILD,
    COUNTED,
    COUNTED_AND_KEPT,
    END,
    HELP,
    INPUT,
    MIXED,
    OK,
    OVER,
    PAY,
    PAY_SAME,
    PAY_TWO,
    QUESTION,
    REFUND,
    REFUSED,
    REQUESTED,
    RUNNING,
    Row,
    result,
    started,
    turn,
    wrote,
)
from wakeful.domain.runs import Budget
from wakeful.runtime.planning import Unplanned
from wakeful.runtime.resume import Adopted, Dropped, Next

KEPT = turn(checkpoint=True)
ONE = (PAY_TWO, END)
TWO = (PAY_TWO, MIXED, END)
V1 = {"watermark": False}
NO_ROWS = {"rows": ()}
ONE_CALL = Budget(max_tool_calls=1)
UNGUARDED = Unplanned(guarded=False)
BOTH = {0: REQUESTED, 1: REQUESTED}
PAID = ((OK, OK), ())


def own(items: int = 0) -> Adopted:
    return Adopted(items, turn=False)


def newer(items: int) -> Adopted:
    return Adopted(items, turn=True)


MODEL_CALL_LOST = [
    Row("the model call was in flight", ("REC-8",), ONE, wrote(BEGAN), Next.ASK, 0, (1, 2), PAID,
        ("pay 1.0", "pay 1.1"), 1, own()),
    Row("nothing but the message, no checkpoint", ("REC-1", "REC-8"), ONE, wrote(BARE), Next.ASK, 0, (1, 2), PAID,
        ("pay 1.0", "pay 1.1"), None, own(1)),
]  # fmt: skip

OWN_BATCH = [
    Row("own batch, nothing started", ("REC-2",), ONE, wrote(BEGAN, KEPT), Next.CALLS, 1, (2,), PAID,
        ("pay 1.0", "pay 1.1"), 2, own(), BOTH, Unplanned(frozenset({0, 1}), guarded=False), before=0),
    Row("own batch, partly answered", ("REC-2",), ONE,
        wrote(BEGAN, turn(checkpoint=True, continuation="opaque"), result(0, updates={"last": "1.0", "1.0": "pay"})),
        Next.CALLS, 1, (2,), PAID, ("pay 1.1",), 2, own(1), {1: REQUESTED},
        Unplanned(frozenset({0, 1}), guarded=False), before=0, continuation="opaque", context_updates=True),
    Row("own batch, answered, not counted", ("REC-2", "REC-6"), ONE, wrote(BEGAN, KEPT, ANSWERED),
        Next.ASK, 1, (2,), PAID, (), 2, own(2), counted=2, through=1, before=0),
    Row("own batch, answered and counted, checkpoint lost", ("REC-2", "REC-6"), ONE, wrote(BEGAN, KEPT, COUNTED),
        Next.ASK, 1, (2,), PAID, (), 2, own(2), counted=2, through=1, before=0),
    Row("own batch, answered and counted", ("REC-2", "REC-6"), ONE, wrote(BEGAN, KEPT, COUNTED_AND_KEPT),
        Next.ASK, 1, (2,), PAID, (), 3, own(), counted=2, through=1, before=0),
]  # fmt: skip

ADOPTED = [
    Row("adopted batch, nothing started", ("REC-1", "REC-3"), ONE, wrote(BEGAN, turn()), Next.CALLS, 1, (2,), PAID,
        ("pay 1.0", "pay 1.1"), 1, newer(1), BOTH, before=0),
    Row("adopted batch, no checkpoint", ("REC-1", "REC-3"), ONE, wrote(BARE, turn()), Next.CALLS, 1, (2,), PAID,
        ("pay 1.0", "pay 1.1"), None, newer(2), BOTH, before=0),
    Row("adopted batch, answered, not counted", ("REC-6",), ONE, wrote(BEGAN, turn(), ANSWERED),
        Next.ASK, 1, (2,), PAID, (), 1, newer(3), counted=2, through=1, before=0),
    Row("adopted batch, answered, not counted, no checkpoint", ("REC-6",), ONE, wrote(BARE, turn(), ANSWERED),
        Next.ASK, 1, (2,), PAID, (), None, newer(4), counted=2, through=1, before=0),
    Row("adopted batch, counted, no checkpoint", ("REC-6",), ONE, wrote(BARE, turn(), COUNTED),
        Next.ASK, 1, (2,), PAID, (), None, newer(4), counted=2, through=1, before=0),
    Row("a newer turn supersedes the batch and its continuation", ("REC-3",), TWO,
        wrote(BEGAN, turn(checkpoint=True, continuation="opaque"), COUNTED, turn()),
        Next.CALLS, 2, (3,), ((OK, OK), (OK, OK, OK), ()), ("look 2.0", "pay 2.1", "put 2.2"), 2, newer(3),
        {0: REQUESTED, 1: REQUESTED, 2: REQUESTED}, counted=2, through=1, before=2,
        dropped=Dropped(continuation=True, pending_step=1)),
    Row("a newer turn, counted one batch behind", ("REC-3", "REC-6"), TWO,
        wrote(BEGAN, KEPT, COUNTED, turn(), ANSWERED),
        Next.ASK, 2, (3,), ((OK, OK), (OK, OK, OK), ()), (), 2, newer(6), counted=5, through=2, before=2,
        dropped=Dropped(pending_step=1)),
    Row("an open call of an older turn", ("REC-3", "REC-7"), (PAY, MIXED, END),
        wrote(BEGAN, KEPT, turn()),
        Next.CALLS, 2, (3,), (("superseded",), (OK, OK, OK), ()), ("look 2.0", "pay 2.1", "put 2.2"), 2, newer(1),
        {0: REQUESTED, 1: REQUESTED, 2: REQUESTED}, through=1, before=0, dropped=Dropped(pending_step=1),
        dropped_calls=((1, 0),), final_count=3),
    Row("a running call of an older turn", ("REC-3", "REC-7"), (PAY, QUESTION, END),
        wrote(BEGAN, KEPT, started(0), turn(), result(1)),
        Next.CALLS, 2, (3,), (("superseded: UNCERTAIN",), ("answered", OK), ()), (), 2, newer(2), {0: INPUT},
        through=1, before=0, dropped=Dropped(pending_step=1), dropped_calls=((1, 0),), final_count=2),
]  # fmt: skip

CLASSES = [
    Row("started calls of every class", ("REC-7",), (MIXED, END),
        wrote(BEGAN, KEPT, started(0), started(1), started(2)),
        Next.CALLS, 1, (2,), ((OK, "outcome_unknown: UNCERTAIN", OK), ()), ("look 1.0", "put 1.2"), 2, own(),
        {0: RUNNING, 1: RUNNING, 2: RUNNING}, Unplanned(frozenset({0, 1, 2}), guarded=False), before=0),
    Row("started calls of every class, no checkpoint", ("REC-7",), (MIXED, END),
        wrote(BARE, turn(), started(0), started(1), started(2)),
        Next.CALLS, 1, (2,), ((OK, "outcome_unknown: UNCERTAIN", OK), ()), ("look 1.0", "put 1.2"), None, newer(2),
        {0: RUNNING, 1: RUNNING, 2: RUNNING}, before=0),
    Row("a refused call with its refusal", ("REC-5",), (REFUSED, END), wrote(BEGAN, KEPT),
        Next.CALLS, 1, (2,), (("unknown_tool", OK), ()), ("pay 1.1",), 2, own(),
        {1: REQUESTED}, Unplanned(frozenset({1}), guarded=False), before=0),
]  # fmt: skip

FINAL = [
    Row("a final reply", ("REC-4",), (END,), wrote(BEGAN, turn()), Next.COMPLETE, 1, (), ((),), (), 1, newer(1),
        before=0, through=1),
    Row("a final reply after a batch, no checkpoint", ("REC-4",), ONE, wrote(BARE, turn(), COUNTED, turn()),
        Next.COMPLETE, 2, (), PAID, (), None, newer(5), counted=2, through=2, before=2),
    Row("a final reply after a batch behind its checkpoint", ("REC-4", "REC-3"), ONE,
        wrote(BEGAN, KEPT, COUNTED, turn()),
        Next.COMPLETE, 2, (), PAID, (), 2, newer(3), counted=2, through=2, before=2,
        dropped=Dropped(pending_step=1)),
]  # fmt: skip

BUDGET = [
    Row("no rows, fitted to the watermark", ("REC-5",), ONE, wrote(BEGAN, turn(**NO_ROWS)),
        Next.CALLS, 1, (2,), ((OK, OVER), ()), ("pay 1.0",), 1, newer(1), {0: None, 1: None}, Unplanned(),
        before=0, budget=ONE_CALL),
    Row("no rows, no watermark, fitted to the run's count", ("REC-5", "REC-6"), (PAY, PAY_TWO, END),
        wrote(BEGAN, turn(), COUNTED, turn(**NO_ROWS, **V1)),
        Next.CALLS, 2, (3,), ((OK,), (OK, OVER), ()), ("pay 2.0",), 1, newer(3), {0: None, 1: None}, Unplanned(),
        counted=1, through=1, before=1, budget=Budget(max_tool_calls=2)),
    Row("no rows, no watermark, fitted to the checkpoint's count", ("REC-5", "REC-6"), (PAY, PAY_TWO, END),
        wrote(BEGAN, turn(), COUNTED, turn(**NO_ROWS, **V1, checkpoint=True, pending=(0,))),
        Next.CALLS, 2, (3,), ((OK,), (OK, OVER), ()), ("pay 2.0",), 2, own(), {0: None, 1: None},
        Unplanned(frozenset({0})), counted=1, through=1, before=1, budget=Budget(max_tool_calls=2)),
    Row("a refusal missing from the log", ("REC-5",), ONE, wrote(BEGAN, turn(rows=(0,)), result(0)),
        Next.CALLS, 1, (2,), ((OK, OVER), ()), (), 1, newer(2), {1: None}, UNGUARDED, before=0, budget=ONE_CALL),
    Row("a refused call outside the saved batch", ("REC-5",), ONE,
        wrote(BEGAN, turn(rows=(0,), checkpoint=True)),
        Next.CALLS, 1, (2,), ((OK, OVER), ()), ("pay 1.0",), 2, own(), {0: REQUESTED, 1: None},
        Unplanned(frozenset({0}), guarded=False), before=0, budget=ONE_CALL),
    Row("a saved batch is not fitted again", ("REC-5",), ONE,
        wrote(BEGAN, turn(**NO_ROWS, checkpoint=True)),
        Next.CALLS, 1, (2,), PAID, ("pay 1.0", "pay 1.1"), 2, own(), {0: None, 1: None},
        Unplanned(frozenset({0, 1})), before=0, amended=True, final_count=2),
    Row("a refused call is not counted", ("REC-5", "REC-6"), ONE, wrote(BARE, turn(), ANSWERED),
        Next.ASK, 1, (2,), ((OK, OVER), ()), (), None, newer(4), counted=1, through=1, before=0, budget=ONE_CALL),
    Row("a refused call is not counted under a larger budget", ("REC-5", "REC-6"), ONE,
        wrote(BARE, turn(), ANSWERED), Next.ASK, 1, (2,), ((OK, OVER), ()), (), None, newer(4),
        counted=1, through=1, before=0, budget=ONE_CALL, amended=True),
    Row("a batch is counted whole under a smaller budget", ("REC-5", "REC-6"), ONE,
        wrote(BARE, turn(), ANSWERED), Next.ASK, 1, (2,), PAID, (), None, newer(4),
        counted=2, through=1, before=0, amended=True, final_count=2),
]  # fmt: skip

V1_COUNTS = [
    Row("no watermark, own batch not counted", ("REC-2", "REC-6", "UPC-2"), ONE,
        wrote(BEGAN, turn(**V1, checkpoint=True), ANSWERED),
        Next.ASK, 1, (2,), PAID, (), 2, own(2), counted=2, through=1, before=0),
    Row("no watermark, own batch counted, its checkpoint lost", ("REC-2", "REC-6", "UPC-2"), ONE,
        wrote(BEGAN, turn(**V1, checkpoint=True), COUNTED),
        Next.ASK, 1, (2,), PAID, (), 2, own(2), counted=2, through=1, before=0),
    Row("no watermark, own batch counted", ("REC-2", "REC-6", "UPC-2"), ONE,
        wrote(BEGAN, turn(**V1), COUNTED_AND_KEPT),
        Next.ASK, 1, (2,), PAID, (), 2, own(), counted=2, through=1),
    Row("no watermark, adopted, unanswered", ("REC-3", "REC-6", "UPC-2"), ONE, wrote(BEGAN, turn(**V1)),
        Next.CALLS, 1, (2,), PAID, ("pay 1.0", "pay 1.1"), 1, newer(1), BOTH, before=0),
    Row("no watermark, adopted, partly answered, no checkpoint", ("REC-3", "REC-6", "UPC-2"), ONE,
        wrote(BARE, turn(**V1), result(0)),
        Next.CALLS, 1, (2,), PAID, ("pay 1.1",), None, newer(3), {1: REQUESTED}, before=0),
    Row("no watermark, adopted, answered: not guessed", ("REC-6", "UPC-2"), ONE,
        wrote(BEGAN, turn(**V1), ANSWERED),
        Next.ASK, 1, (2,), PAID, (), 1, newer(3), through=1, final_count=0),
]  # fmt: skip

THREE = (PAY, PAY, PAY, END)
AGAIN = (PAY, PAY, PAY_SAME, END)
LAST = Budget(max_steps=2)
TWICE = (BEGAN, turn(), COUNTED, turn(), COUNTED)
GUARDS = [
    Row("no rows, the third in a row", ("REC-6",), THREE, wrote(*TWICE, turn(**NO_ROWS)),
        Next.CALLS, 3, (4,), ((OK,), (OK,), ("repeated_call",), ()), (), 1, newer(5), {0: None}, Unplanned(),
        counted=2, through=2, before=2),
    Row("no rows, the third in a row, no checkpoint", ("REC-6",), THREE,
        wrote(BARE, *TWICE[1:], turn(**NO_ROWS)),
        Next.CALLS, 3, (4,), ((OK,), (OK,), ("repeated_call",), ()), (), None, newer(6), {0: None}, Unplanned(),
        counted=2, through=2, before=2),
    Row("no rows, own turn without a saved batch", ("REC-6",), THREE, wrote(*TWICE, turn(**NO_ROWS, checkpoint=True,
        pending=())), Next.CALLS, 3, (4,), ((OK,), (OK,), ("repeated_call",), ()), (), 2, own(), {0: None},
        Unplanned(frozenset()), counted=2, through=2, before=2),
    Row("partly answered without rows: the guards were passed", ("REC-6",), AGAIN,
        wrote(*TWICE, turn(**NO_ROWS), result(0, row=False)),
        Next.CALLS, 3, (4,), ((OK,), (OK,), (OK, OK), ()), ("pay 3.1",), 1, newer(6), {1: None}, UNGUARDED,
        counted=2, through=2, before=2),
    Row("a saved batch without rows: the guards were passed", ("REC-6",), THREE,
        wrote(*TWICE, turn(**NO_ROWS, checkpoint=True, pending=(0,))),
        Next.CALLS, 3, (4,), ((OK,), (OK,), (OK,), ()), ("pay 3.0",), 2, own(), {0: None}, Unplanned(frozenset({0})),
        counted=2, through=2, before=2),
    Row("no rows, in the step kept for an answer", ("REC-6",), (PAY, MIXED, END),
        wrote(BEGAN, turn(), COUNTED, turn(**NO_ROWS)),
        Next.CALLS, 2, (), ((OK,), ("synthesis_reserve",) * 3), (), 1, newer(3), {0: None, 1: None, 2: None},
        Unplanned(), counted=1, through=1, before=1, budget=LAST),
    Row("no rows, in the step kept for an answer, no checkpoint", ("REC-6",), (PAY, MIXED, END),
        wrote(BARE, turn(), COUNTED, turn(**NO_ROWS)),
        Next.CALLS, 2, (), ((OK,), ("synthesis_reserve",) * 3), (), None, newer(4), {0: None, 1: None, 2: None},
        Unplanned(), counted=1, through=1, before=1, budget=LAST),
]  # fmt: skip

ASK_OWNER, GIVE_BACK, DELEGATED = (QUESTION, END), (REFUND, END), (HELP, END)
SAVED = Unplanned(frozenset({0, 1}), guarded=False)
SAID = (("answered", OK), ())
HELPED = (("completed", OK), ())
REFUNDED = ("look 1.1", "refund 1.0")
ARRIVALS = [
    Row("a question: open", ("REC-8",), ASK_OWNER, wrote(BEGAN, KEPT), Next.CALLS, 1, (2,), SAID, ("look 1.1",),
        2, own(), {0: INPUT, 1: REQUESTED}, SAVED, before=0),
    Row("a question: open, no checkpoint", ("REC-8",), ASK_OWNER, wrote(BARE, turn()), Next.CALLS, 1, (2,), SAID,
        ("look 1.1",), None, newer(2), {0: INPUT, 1: REQUESTED}, before=0),
    Row("a question: answered in the gap", ("REC-8",), ASK_OWNER, wrote(BEGAN, KEPT, ARRIVED), Next.CALLS, 1, (2,),
        SAID, ("look 1.1",), 2, own(1), {1: REQUESTED}, SAVED, before=0),
    Row("a question: answered in the gap as the last", ("REC-8", "REC-6"), ASK_OWNER,
        wrote(BARE, turn(), result(1), ARRIVED), Next.ASK, 1, (2,), SAID, (), None, newer(4),
        counted=2, through=1, before=0),
    Row("an approval: open", ("REC-7",), GIVE_BACK, wrote(BEGAN, KEPT), Next.CALLS, 1, (2,), PAID, REFUNDED,
        2, own(), {0: APPROVAL, 1: REQUESTED}, SAVED, before=0),
    Row("an approval: open, no checkpoint", ("REC-7",), GIVE_BACK, wrote(BARE, turn()), Next.CALLS, 1, (2,), PAID,
        REFUNDED, None, newer(2), {0: APPROVAL, 1: REQUESTED}, before=0),
    Row("an approval: given in the gap", ("REC-7",), GIVE_BACK, wrote(BEGAN, KEPT, ARRIVED), Next.CALLS, 1, (2,),
        PAID, REFUNDED, 2, own(), BOTH, SAVED, before=0),
    Row("an approval: given in the gap as the last", ("REC-7",), GIVE_BACK,
        wrote(BARE, turn(), result(1), ARRIVED), Next.CALLS, 1, (2,), PAID, ("refund 1.0",), None, newer(3),
        {0: REQUESTED}, before=0),
    Row("a child run: open", ("REC-7",), DELEGATED, wrote(BEGAN, KEPT), Next.CALLS, 1, (2,), HELPED, ("look 1.1",),
        2, own(), {0: CHILD, 1: REQUESTED}, SAVED, before=0),
    Row("a child run: its result in the gap", ("REC-7",), DELEGATED, wrote(BARE, turn(), result(1), result(0)),
        Next.ASK, 1, (2,), PAID, (), None, newer(4), counted=2, through=1, before=0),
]  # fmt: skip

ROWS = [
    *MODEL_CALL_LOST,
    *OWN_BATCH,
    *ADOPTED,
    *CLASSES,
    *FINAL,
    *BUDGET,
    *V1_COUNTS,
    *GUARDS,
    *ARRIVALS,
]
