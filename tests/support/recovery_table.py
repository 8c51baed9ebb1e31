"""The rows of the recovery table: a log as a dead holder left it, how it is taken up, and what comes of it."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from support.pasts import Past
from wakeful.domain.runs import Budget
from wakeful.domain.states import InvocationStatus
from wakeful.domain.tools import ASK_USER, DELEGATE
from wakeful.models.scripted import Line, call, calls, say
from wakeful.runtime.planning import Unplanned
from wakeful.runtime.resume import Adopted, Batch, Counted, Decision, Dropped, Next

REQUESTED, RUNNING = InvocationStatus.REQUESTED, InvocationStatus.RUNNING
INPUT, APPROVAL, CHILD = (
    InvocationStatus.AWAITING_INPUT,
    InvocationStatus.AWAITING_APPROVAL,
    InvocationStatus.AWAITING_CHILD,
)

END = say("Done.", input_tokens=7, output_tokens=3)
PAY = calls(call("pay", cents=1), text="I pay.")
PAY_TWO = calls(call("pay", cents=1), call("pay", cents=2), text="I pay twice.")
PAY_SAME = calls(call("pay", cents=1), call("pay", cents=1), text="Again.")
MIXED = calls(call("look"), call("pay", cents=1), call("put"))
REFUSED = calls(call("fly"), call("pay", cents=1))
QUESTION = calls(call(ASK_USER, question="Which?"), call("look"))
REFUND = calls(call("refund"), call("look"))
HELP = calls(call(DELEGATE, agent="helper", input="Help"), call("look"))

OK = "ok"
OVER = "tool_call_budget"


@dataclass(frozen=True)
class Row:
    """`codes` are the result codes of every turn at the end, `effects` what was done after the crash alone."""

    name: str
    rows: tuple[str, ...]
    script: tuple[Line, ...]
    past: Callable[[Past], Awaitable[None]]
    next: Next
    step: int
    asked: tuple[int, ...]
    codes: tuple[tuple[str, ...], ...]
    effects: tuple[str, ...] = ()
    checkpoint: int | None = None
    adopted: Adopted = Adopted(1, False)
    calls: Mapping[int, InvocationStatus | None] | None = None
    unplanned: Unplanned = field(default_factory=lambda: Unplanned(guarded=False))
    counted: int = 0
    through: int = 0
    before: int | None = None
    dropped: Dropped = field(default_factory=Dropped)
    dropped_calls: tuple[tuple[int, int], ...] = ()
    budget: Budget = field(default_factory=Budget)
    final_count: int | None = None
    """The run's count at its end where it is not that of the run without a crash."""
    amended: bool = False
    """The budget was amended between the crash and the resume."""
    continuation: str | None = None
    """The provider's continuation that the first model call after the crash is given."""
    context_updates: bool = False
    """Whether all the run's context updates were kept, as in the run without a crash."""

    def decision(self, tokens: int, dropped: Dropped) -> Decision:
        batch = None if self.calls is None else Batch(self.step, self.calls, self.unplanned)
        return Decision(
            self.checkpoint,
            self.adopted,
            self.next,
            self.step,
            batch,
            Counted(self.counted, tokens, self.through, self.before),
            dropped,
        )


def wrote(*items: tuple[str, dict[str, Any]]) -> Callable[[Past], Awaitable[None]]:
    """What the dead holder did, in order: methods of Past with their options."""

    async def write(past: Past) -> None:
        for name, options in items:
            await getattr(past, name)(**options)

    return write


def did(what: str, /, **options: Any) -> tuple[str, dict[str, Any]]:
    return what, options


BEGAN = did("begin")
BARE = did("begin", checkpoint=False)


def turn(**options: Any) -> tuple[str, dict[str, Any]]:
    return did("turn", **options)


def result(position: int, **options: Any) -> tuple[str, dict[str, Any]]:
    return did("result", position=position, **options)


def started(position: int) -> tuple[str, dict[str, Any]]:
    return did("started", position=position)


ANSWERED = did("answered", count=False)
COUNTED = did("answered")
COUNTED_AND_KEPT = did("answered", checkpoint=True)
ARRIVED = did("arrive")
