"""Random run programs: what the model will say, turn by turn, as a function of a seed and nothing else.

A program mixes tools of every idempotency class, batches, questions, approvals that are given or denied, refused and
failing calls, a tight budget now and then, and programs inside programs as child runs.
"""

import random
from dataclasses import dataclass

from wakeful.domain.content import ProposedCall
from wakeful.domain.models import ModelRequest, ModelResponse
from wakeful.domain.tools import ASK_USER, DELEGATE
from wakeful.models.scripted import call, calls, say

__all__ = ["PROGRAM", "Program", "is_program", "program", "program_script"]

PROGRAM = "program"
"""The agent, and how the names of its shapes begin: `program-<seed>`."""
DEEPEST = 2
MOST_TURNS = 4
MOST_CALLS = 3
TIGHT = 0.15
"""How often a program has fewer tool calls to spend than it proposes."""


@dataclass(frozen=True, slots=True)
class Program:
    turns: tuple[tuple[ProposedCall, ...], ...]
    max_tool_calls: int | None


def is_program(shape: str) -> bool:
    return shape.startswith(f"{PROGRAM}-")


def program(name: str) -> Program:
    """The program of this name (`program-7`; a child's is `program-7/0`): the same in every process."""
    dice = random.Random(name)  # noqa: S311 - a program, no secret
    depth = name.count("/")
    turns = tuple(
        tuple(_call(dice, name, depth, turn, position) for position in range(dice.randint(1, MOST_CALLS)))
        for turn in range(dice.randint(1, MOST_TURNS if depth == 0 else 2))
    )
    proposed = sum(len(turn) for turn in turns)
    tight = depth == 0 and proposed > 1 and dice.random() < TIGHT
    return Program(turns, dice.randint(1, proposed - 1) if tight else None)


def program_script(request: ModelRequest) -> ModelResponse:
    """What the model says: the program's name is the first message's text."""
    turns = program(str(next(m.content for m in request.messages if m.role == "user"))).turns
    if request.turn_index >= len(turns):
        return say("Done.")
    return calls(*turns[request.turn_index])


def _call(dice: random.Random, name: str, depth: int, turn: int, position: int) -> ProposedCall:
    kinds = ["look", "look", "store", "store", "pay", "pay", "refund", ASK_USER, "declined", "breaks", "fly"]
    if depth < DEEPEST:
        kinds.append(DELEGATE)
    what = f"{turn}.{position}"
    match dice.choice(kinds):
        case "look" | "store" as tool:
            return call(tool, item=what)
        case "pay" | "refund" | "declined" | "breaks" as tool:
            return call(tool, cents=10 * turn + position)
        case kind if kind == ASK_USER:
            return call(ASK_USER, question=f"{what}?")
        case kind if kind == DELEGATE:
            return call(DELEGATE, agent=PROGRAM, input=f"{name}/{what}")
        case tool:
            return call(tool)
