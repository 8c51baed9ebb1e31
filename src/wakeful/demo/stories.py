"""The conversations of the demonstration, and the script that plays the model in them."""

from collections.abc import Callable
from dataclasses import dataclass

from wakeful.domain.errors import PermanentModelError
from wakeful.domain.models import ModelRequest, ModelResponse
from wakeful.domain.states import InvocationStatus, PriorityClass
from wakeful.domain.tools import ASK_USER
from wakeful.models.scripted import Line, call, calls, last_result, say

__all__ = ["FOLLOW_UP", "LETTER", "STORIES", "STORY", "Story", "script"]

STORY = "story"
"""The key of a run's metadata that names its story."""

Scripted = Line | Callable[[ModelRequest], Line]


@dataclass(frozen=True, slots=True)
class Story:
    """A conversation of one run: what is asked, what the model says step by step, and what must happen outside."""

    name: str
    priority: PriorityClass
    message: str
    lines: tuple[Scripted, ...]
    effects: tuple[str, ...] = ()
    answer: str | None = None
    """What the owner says when asked."""


def script(request: ModelRequest) -> Line:
    """The line of this step of the run's story: a function of the request alone, so a crash cannot confuse it."""
    story = _ALL.get(str(request.run.metadata.get(STORY)))
    if story is None or request.step > len(story.lines):
        return PermanentModelError("the run has no story, or its story has ended", code="script_ended")
    line = story.lines[request.step - 1]
    return line if isinstance(line, ModelResponse | str | Exception) else line(request)


def _look(*numbers: str, text: str | None = None) -> ModelResponse:
    return calls(*(call("find_order", order=number) for number in numbers), text=text)


def _state(request: ModelRequest) -> Line:
    found = last_result(request, "find_order")
    return say(f"Your {found['article']} is {found['state']}.")


def _refund_what_was_paid(request: ModelRequest) -> Line:
    found = last_result(request, "find_order")
    tool = "refund_large" if found["cents"] > 50_000 else "refund"
    return calls(call(tool, order=found["order"], cents=found["cents"]))


def _answered(request: ModelRequest) -> Line:
    return _look("".join(character for character in str(last_result(request, ASK_USER)) if character.isdigit()))


def _total(request: ModelRequest) -> Line:
    found = [message.result.data for message in request.messages if message.result is not None]
    cents = [int(str(data["cents"])) for data in found if isinstance(data, dict) and "cents" in data]
    return say(f"{len(cents)} orders, {sum(cents) / 100:.2f} in all.")


def _late(number: str, customer: str) -> Story:
    return Story(
        f"chase parcel {number}",
        PriorityClass.ASYNC,
        f"{customer}'s parcel {number} is late: look after it.",
        (
            _look(number),
            calls(call("flag_order", order=number, flag="late")),
            calls(call("refund", order=number, cents=500), text="The delivery fee goes back."),
            calls(call("flag_order", order=number, flag="fee-refunded")),
            _look(number),
            _state,
        ),
        effects=(f"flag {number} late", f"refund {number} 500", f"flag {number} fee-refunded"),
    )


def _audit(name: str, *numbers: str) -> Story:
    return Story(
        f"audit {name}",
        PriorityClass.MAINTENANCE,
        f"Go through the orders of {name}.",
        (
            *(
                line
                for number in numbers
                for line in (_look(number), calls(call("flag_order", order=number, flag="audited")))
            ),
            _total,
        ),
        effects=tuple(f"flag {number} audited" for number in numbers),
    )


STORIES: tuple[Story, ...] = (
    Story("where is it", PriorityClass.INTERACTIVE, "Where is order 1003?", (_look("1003"), _state)),
    Story(
        "broken lamp",
        PriorityClass.INTERACTIVE,
        "The lamp of order 1001 is broken, I want my money back.",
        (
            _look("1001"),
            _refund_what_was_paid,
            calls(call("flag_order", order="1001", flag="returned")),
            "Your money is on its way.",
        ),
        effects=("refund 1001 4900", "flag 1001 returned"),
    ),
    Story(
        "which order (question)",
        PriorityClass.INTERACTIVE,
        "Refund my last order.",
        (
            calls(call(ASK_USER, question="Which order do you mean, 1005 or 1006?")),
            _answered,
            _refund_what_was_paid,
            "Done.",
        ),
        effects=("refund 1005 12900",),
        answer="The pen, 1005.",
    ),
    Story(
        "large refund (approval)",
        PriorityClass.INTERACTIVE,
        "The standing desk of order 1007 wobbles. Take it back.",
        (_look("1007"), _refund_what_was_paid, "A colleague agreed: your money is on its way."),
        effects=("refund_large 1007 64900",),
    ),
    Story(
        "compare (parallel batch)",
        PriorityClass.INTERACTIVE,
        "What did I spend on 1002, 1003, 1004 and 1007?",
        (_look("1002", "1003", "1004", "1007", text="I look at all four."), _total),
    ),
    Story(
        "invoice by post",
        PriorityClass.INTERACTIVE,
        "Send me the invoice of 1002 on paper.",
        (_look("1002"), calls(call("send_letter", order="1002")), "It is in the post."),
        effects=("letter 1002",),
    ),
    _late("1008", "Tony"),
    _late("1009", "Leslie"),
    _late("1010", "Radia"),
    _audit("spring", "1001", "1002", "1003"),
    _audit("summer", "1004", "1005", "1006"),
    _audit("autumn", "1008", "1009", "1010"),
)


def _after_the_letter(request: ModelRequest) -> Line:
    result = next(message.result for message in reversed(request.messages) if message.result is not None)
    if result.status is InvocationStatus.UNCERTAIN:
        return say("I cannot tell whether the letter went out, so I do not send another. A colleague looks into it.")
    return say("It is in the post.")


def _after_the_note(request: ModelRequest) -> Line:
    notes = [m.content for m in request.messages if m.role == "system" and "outcome was unknown" in str(m.content)]
    known = bool(notes) and "it did happen" in str(notes[-1])
    return say("It has been found: your letter is on its way." if known else "We still do not know.")


LETTER = Story(
    "invoice by slow post",
    PriorityClass.INTERACTIVE,
    "Send me the invoice of 1005 on paper.",
    (_look("1005"), calls(call("send_letter", order="1005", post="slow")), _after_the_letter),
    effects=("letter 1005",),
)
FOLLOW_UP = Story("is it on its way", PriorityClass.INTERACTIVE, "Any news of my letter?", (_after_the_note,))

_ALL: dict[str, Story] = {story.name: story for story in (*STORIES, LETTER, FOLLOW_UP)}
