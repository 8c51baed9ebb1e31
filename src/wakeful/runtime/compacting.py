"""Committing a summary of the conversation's older part: an event that says through where, the text in a checkpoint.

The text stands in that checkpoint alone. Losing it costs a summary's time again: the context is over its limit as it
was before, and is cut again. History itself is never cut.
"""

from wakeful.domain.appends import RunChange
from wakeful.domain.drivers import Summary
from wakeful.domain.events.envelope import Payload
from wakeful.domain.events.runs import ContextCompacted, RunCheckpointed
from wakeful.domain.payloads import repair_text
from wakeful.runtime.course import Course
from wakeful.runtime.journal import Entry

__all__ = ["commit_summary"]

TRIGGER = "compaction"


async def commit_summary(course: Course, summary: Summary) -> None:
    """Raises what Journal.append raises."""
    course.summary, course.summary_through = repair_text(summary.text), summary.through_sequence
    course.token_count += summary.usage.total
    await course.journal.append(
        Entry(
            (course.event(_said(course, summary)),),
            run=RunChange(add_tokens=summary.usage.total) if summary.usage.total else None,
            checkpoint=course.checkpoint(TRIGGER),
        )
    )


def _said(course: Course, summary: Summary) -> Payload:
    """Through where is said once; made again because its checkpoint was lost, the summary says nothing new."""
    if course.conversation.compacted_through >= summary.through_sequence:
        return RunCheckpointed(trigger=TRIGGER)
    return ContextCompacted(through_sequence=summary.through_sequence)
