"""What providers without a model say when they are asked for a summary: the same for the same request."""

from wakeful.domain.content import Usage
from wakeful.domain.models import ModelRequest, ModelResponse

__all__ = ["summary_of"]


def summary_of(request: ModelRequest) -> ModelResponse:
    """A sentence with the number of messages it stands for."""
    text = f"(A summary of {len(request.messages) - 1} messages.)"
    return ModelResponse(content=text, usage=Usage(output_tokens=len(text) // 4 + 1))
