"""Child runs: a delegating call becomes a run in a session of its own, under ids derived from the call."""

from datetime import timedelta
from functools import partial

from wakeful.domain.content import ProposedCall
from wakeful.domain.errors import ConfigurationError
from wakeful.domain.invocations import Invocation
from wakeful.domain.ports.run_queue import RunQueue
from wakeful.domain.ports.sessions import Sessions
from wakeful.domain.ports.wakeups import Wakeups
from wakeful.domain.runs import Message, Submission, Submitted
from wakeful.domain.sessions import NewSession
from wakeful.runtime.course import Course
from wakeful.runtime.patience import until_answered
from wakeful.runtime.planning import parse_arguments

__all__ = ["Children"]


class Children:
    """Starts child runs. No transaction spans the two sessions: the intent (`run.child_started`) is committed with the
    parent's turn, and everything is found again by its derived id."""

    def __init__(
        self, queue: RunQueue, sessions: Sessions, wakeups: Wakeups, versions: dict[str, int], longest_pause: timedelta
    ) -> None:
        self._queue, self._sessions, self._wakeups, self._versions = queue, sessions, wakeups, versions
        self._longest_pause = longest_pause

    async def start(self, course: Course, call: Invocation, proposed: ProposedCall) -> None:
        """Submit the call's child; doing it again finds the same run. Its deadline and its budget of tokens lie
        within the parent's."""
        if call.child_run_id is None or call.child_session_id is None:
            raise ConfigurationError(f"call {call.id} delegates without a child's id")
        if isinstance(proposed.arguments, str):
            arguments = parse_arguments(proposed.arguments)
        else:
            raise ConfigurationError("the input of a delegation is too large to inline")
        submission = self._submission(course, call, str(arguments["agent"]), str(arguments["input"]))
        submitted = await until_answered(course.holding, self._longest_pause, partial(self._submit, submission))
        if submitted.created:
            self._wakeups.wake(course.run.priority)

    async def _submit(self, submission: Submission) -> Submitted:
        await self._sessions.create(NewSession(submission.scope, submission.agent, session_id=submission.session_id))
        return await self._queue.submit(submission)

    def _submission(self, course: Course, call: Invocation, agent: str, text: str) -> Submission:
        if call.child_run_id is None or call.child_session_id is None:
            raise ConfigurationError(f"call {call.id} delegates without a child's id")
        return Submission(
            scope=course.run.scope,
            session_id=call.child_session_id,
            agent=agent,
            agent_version=self._versions.get(agent, 0),
            messages=(Message(text),),
            priority=course.run.priority,
            deadline=course.run.deadline,
            budget=course.run.budget,
            run_id=call.child_run_id,
            parent=course.run.ref,
            parent_invocation_id=call.id,
            trace_id=course.run.trace_id,
        )
