"""What a model is told of the two built-in tools."""

from collections.abc import Sequence

from wakeful.domain.models import ToolSchema
from wakeful.domain.tools import ASK_USER, DELEGATE

__all__ = ["ASK_USER_SCHEMA", "delegate_schema"]

ASK_USER_SCHEMA = ToolSchema(
    ASK_USER,
    "Ask the person you work for a question and wait for the answer.",
    {
        "type": "object",
        "properties": {"question": {"type": "string", "description": "What to ask, complete in itself."}},
        "required": ["question"],
        "additionalProperties": False,
    },
)


def delegate_schema(agents: Sequence[str]) -> ToolSchema:
    """The schema of `agent.delegate` for an agent that may start child runs of `agents`."""
    return ToolSchema(
        DELEGATE,
        "Give a piece of work to another agent and wait for its final reply.",
        {
            "type": "object",
            "properties": {
                "agent": {"type": "string", "enum": list(agents)},
                "input": {"type": "string", "description": "The task, complete in itself."},
            },
            "required": ["agent", "input"],
            "additionalProperties": False,
        },
    )
