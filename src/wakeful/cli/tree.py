"""A run drawn as a tree: steps, their calls, and what happened between them, with times."""

from datetime import datetime

from rich.text import Text
from rich.tree import Tree

from wakeful.client.sentences import shortened
from wakeful.client.timeline import CallNode, Mark, StepNode, Timeline
from wakeful.domain.runs import Run
from wakeful.domain.states import RunStatus

__all__ = ["run_tree"]

_RUN_STYLES = {
    RunStatus.COMPLETED: "green",
    RunStatus.FAILED: "red",
    RunStatus.CANCELLED: "yellow",
    RunStatus.RUNNING: "cyan",
}
_CALL_STYLES = {
    "COMPLETED": "green",
    "FAILED": "red",
    "UNCERTAIN": "bold magenta",
    "REFUSED": "yellow",
    "DENIED": "yellow",
    "CANCELLED": "yellow",
}


def run_tree(run: Run, timeline: Timeline) -> Tree:
    """Times count from the run's submission."""
    zero = run.created_at
    head = Text.assemble(
        ("run ", "bold"), str(run.ref.run_id), "  ", (run.status.value, _RUN_STYLES.get(run.status, "blue"))
    )
    head.append(f"  {run.agent} v{run.agent_version}, {run.priority.label}, submitted {zero:%Y-%m-%d %H:%M:%S} UTC")
    tree = Tree(head, guide_style="dim")
    for entry in timeline.entries:
        if isinstance(entry, Mark):
            tree.add(Text.assemble((_since(zero, entry.at), "dim"), "  ", entry.text))
        else:
            _add_step(tree, zero, entry)
    return tree


def _add_step(tree: Tree, zero: datetime, step: StepNode) -> None:
    line = Text.assemble((_since(zero, step.at), "dim"), "  ", (f"step {step.step}", "bold"))
    if step.usage.total:
        line.append(f"  {step.usage.total} tokens", "dim")
    if said := shortened(step.content):
        line.append(f"  {said}")
    branch = tree.add(line)
    for call in step.calls:
        _add_call(branch, zero, call)


def _add_call(branch: Tree, zero: datetime, call: CallNode) -> None:
    at = call.started_at or call.ended_at
    line = Text.assemble((_since(zero, at) if at else "        ", "dim"), "  ")
    line.append(f"{call.tool}({shortened(call.arguments, 60)})  ")
    line.append(call.status, _CALL_STYLES.get(call.status, "cyan"))
    if call.started_at and call.ended_at:
        line.append(f" in {_length((call.ended_at - call.started_at).total_seconds())}", "dim")
    if call.attempts > 1:
        line.append(f", attempt {call.attempts}", "yellow")
    leaf = branch.add(line)
    if call.result is not None and (told := _told(call)):
        leaf.add(Text(told, style="dim"))
    for note in call.notes:
        leaf.add(Text(note, style="dim"))


def _told(call: CallNode) -> str:
    """What the model was told, in one line."""
    if call.result is None:
        return ""
    parts = [] if call.result.code in ("", "ok", "completed") else [call.result.code]
    if call.result.message:
        parts.append(call.result.message)
    elif call.result.data is not None:
        parts.append(str(call.result.data))
    return shortened(": ".join(parts), 100)


def _since(zero: datetime, at: datetime) -> str:
    return f"+{(at - zero).total_seconds():.3f} s"


def _length(seconds: float) -> str:
    return f"{seconds * 1000:.0f} ms" if seconds < 1 else f"{seconds:.2f} s"
