"""What an outside ledger saw, against what the database says of its calls."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from wakeful.faults.checker.findings import Finding
from wakeful.faults.checker.records import Call

__all__ = ["check_effects"]

_DONE_NEVER = ("REQUESTED", "AWAITING_APPROVAL", "AWAITING_INPUT", "AWAITING_CHILD", "REFUSED", "DENIED", "CANCELLED")


def check_effects(effects: Mapping[str, int], calls: Iterable[Call], *, tools: frozenset[str]) -> Iterator[Finding]:
    """`effects` counts what happened by idempotency key, for the tools named.

    A non-idempotent call happened at most once: exactly once when it says so, at most once when it says that nobody
    knows, never when it was not run. Every other call that completed happened. Nothing happened that nobody called.
    """
    left = Counter(effects)
    for call in calls:
        times = left.pop(call.idempotency_key, 0)
        if call.tool not in tools:
            continue
        seen = f"{call.tool} of step {call.step} is {call.status} and happened {times} times"
        if call.idempotency_class == "non_idempotent":
            if times > 1 or (times == 0 and call.status == "COMPLETED") or (times and call.status == "FAILED"):
                yield Finding("non-idempotent effects happen once, or are said to be uncertain", call.run_id, seen)
        elif times == 0 and call.status == "COMPLETED":
            yield Finding("what completed happened", call.run_id, seen)
        if times and call.status in _DONE_NEVER and call.idempotency_class == "non_idempotent":
            yield Finding("what was not run did not happen", call.run_id, seen)
    for key, times in left.items():
        if times:
            yield Finding("nothing happens that nobody called", key, f"{times} times")
