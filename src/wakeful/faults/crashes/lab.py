"""Performing experiments, and judging each by the same run undisturbed."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self
from uuid import UUID

import psycopg

from wakeful.domain.ids import new_id
from wakeful.faults.checker import Checked, Finding, check_effects, check_tenant
from wakeful.faults.crashes.experiments import Crash, Experiment
from wakeful.faults.crashes.hosting import Host
from wakeful.faults.crashes.orders import Order, Passage
from wakeful.faults.crashes.programs import PROGRAM, is_program, program
from wakeful.faults.crashes.scene import Place, at_stake, committed_steps, history, statuses
from wakeful.faults.crashes.shapes import ASKED, LEDGER_VARIABLE, WITNESSED
from wakeful.faults.ledger import Effect, LedgerProcess

__all__ = ["SHAPES_APP", "Lab", "Outcome"]

SHAPES_APP = "wakeful.faults.crashes.shapes:app"


@dataclass(frozen=True, slots=True)
class Outcome:
    """What an experiment showed. `landed` when every crash happened; one that did not proves nothing."""

    experiment: Experiment
    passages: tuple[Passage, ...]
    findings: tuple[Finding, ...]

    @property
    def landed(self) -> bool:
        return sum(passage.killed for passage in self.passages) == len(self.experiment.crashes)

    @property
    def labels(self) -> tuple[str, ...]:
        """Where the processes died."""
        return tuple(
            f"{crash.when} {passage.points[-1]}"
            for crash, passage in zip(self.experiment.crashes, self.passages, strict=False)
            if passage.killed
        )


@dataclass(frozen=True, slots=True)
class _Undisturbed:
    statuses: list[str]
    history: list[Any]
    points: tuple[str, ...]


@dataclass(slots=True)
class _Marks:
    """What was certain when processes died."""

    steps: list[dict[UUID, int]] = field(default_factory=list)
    """At each death, the newest committed step of each run."""
    uncertain: set[Place] = field(default_factory=set)


class Lab:
    """Experiments on one database, whose superuser `dsn` logs in as: no two labs on one at a time."""

    def __init__(self, dsn: str, *, role_prefix: str | None = None, app: str = SHAPES_APP) -> None:
        self._dsn, self._role_prefix, self._app = dsn, role_prefix, app
        self._ledger = LedgerProcess()
        self._host: Host | None = None
        self._connection: psycopg.Connection[Any] | None = None
        self._undisturbed: dict[str, _Undisturbed] = {}

    def __enter__(self) -> Self:
        self._ledger.start()
        self._host = Host({LEDGER_VARIABLE: str(self._ledger.socket)})
        self._connection = psycopg.connect(self._dsn, autocommit=True)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._host is not None:
            self._host.stop()
        if self._connection is not None:
            self._connection.close()
        self._ledger.stop()

    def points(self, shape: str) -> tuple[str, ...]:
        """The labels of the points of the undisturbed run."""
        return self._reference(shape).points

    def perform(self, experiment: Experiment) -> Outcome:
        """Perform it and judge it by the undisturbed run of its shape. Findings name rules, never raise."""
        reference = self._reference(experiment.shape)
        tenant, marks, passages = new_id(), _Marks(), []
        before = len(self._effects())
        session, run = new_id(), new_id()
        for number, crash in enumerate((*experiment.crashes, None)):
            passage = self._pass(experiment, tenant, session, run, crash, recover=number > 0)
            passages.append(passage)
            if not passage.killed:
                break
            self._mark(tenant, marks)
        effects = self._effects()[before:]
        findings = [*_ended_well(passages[-1], run), *self._judge(tenant, reference, marks, effects)]
        if findings:
            self._put_aside(tenant)
        return Outcome(experiment, tuple(passages), tuple(findings))

    def _pass(
        self,
        experiment: Experiment,
        tenant: UUID,
        session: UUID,
        run: UUID,
        crash: Crash | None,
        *,
        recover: bool,
        forked: bool = True,
    ) -> Passage:
        if self._host is None:
            raise RuntimeError("a lab is used in a `with` block")
        order = Order(
            app=self._app,
            dsn=self._dsn,
            role_prefix=self._role_prefix,
            tenant=tenant,
            session=session,
            run=run,
            agent=PROGRAM if is_program(experiment.shape) else experiment.shape,
            message=experiment.shape,
            recover=recover,
            max_tool_calls=program(experiment.shape).max_tool_calls if is_program(experiment.shape) else None,
            point=crash.point if crash else None,
            when=crash.when if crash else "before",
            forked=forked,
        )
        return self._host.carry_out(order)

    def _reference(self, shape: str) -> _Undisturbed:
        if shape not in self._undisturbed:
            tenant, run = new_id(), new_id()
            passage = self._pass(Experiment(shape), tenant, new_id(), run, None, recover=False, forked=False)
            if passage.error is not None:
                raise RuntimeError(f"the undisturbed run of {shape} failed: {passage.error}")
            ends = statuses(self._sql, tenant)
            self._undisturbed[shape] = _Undisturbed(ends, history(self._sql, tenant), passage.points)
        return self._undisturbed[shape]

    def _mark(self, tenant: UUID, marks: _Marks) -> None:
        marks.uncertain |= at_stake(self._sql, tenant)
        marks.steps.append(committed_steps(self._sql, tenant))

    def _judge(self, tenant: UUID, reference: _Undisturbed, marks: _Marks, effects: list[Effect]) -> Iterator[Finding]:
        ends = statuses(self._sql, tenant)
        if ends != reference.statuses:
            yield Finding("the same terminal state", tenant, f"{ends}, undisturbed {reference.statuses}")
        wanted = [_as_uncertain(line, marks.uncertain) for line in reference.history]
        found = history(self._sql, tenant)
        if wanted != found:
            yield Finding("the same history, but for what is uncertain", tenant, f"{found}, not {wanted}")
        yield from _asked(marks, Counter(e.key for e in effects if e.what == ASKED))
        checked = Checked()
        calls = check_tenant(self._sql, tenant, checked, settled=True)
        yield from checked.findings
        done = [effect for effect in effects if effect.what != ASKED]
        yield from check_effects(Counter(effect.key for effect in done), calls, tools=WITNESSED)

    def _put_aside(self, tenant: UUID) -> None:
        """What an experiment left unfinished must not be claimed by the next one."""
        self._sql.execute(b"UPDATE wakeful.runs SET scheduled_for = 'infinity' WHERE tenant_id = %s", [tenant])
        self._sql.execute(
            b"UPDATE wakeful.runs SET lease_expires_at = 'infinity' WHERE tenant_id = %s AND status = 'RUNNING'",
            [tenant],
        )

    @property
    def _sql(self) -> psycopg.Connection[Any]:
        if self._connection is None:
            raise RuntimeError("a lab is used in a `with` block")
        return self._connection

    def _effects(self) -> list[Effect]:
        return self._ledger.read().effects


def _ended_well(last: Passage, run: UUID) -> Iterator[Finding]:
    if last.error is not None:
        yield Finding("the run ends", run, last.error)


def _as_uncertain(line: Any, uncertain: set[Place]) -> Any:
    """A result as it has to be when its call's outcome could not be known."""
    if isinstance(line[0], tuple) and line[0] in uncertain:
        return (line[0], line[1], "UNCERTAIN", None)
    return line


def _asked(marks: _Marks, asked: Counter[str]) -> Iterator[Finding]:
    """The model is asked for a step once, and once more for each death that found its turn uncommitted."""
    for key, times in asked.items():
        run, _, step = key.partition("/")
        allowed = 1 + sum(1 for steps in marks.steps if steps.get(UUID(run), 0) < int(step))
        if times > allowed:
            yield Finding(
                "no model call that recovery may not make", run, f"step {step}: {times} calls, {allowed} allowed"
            )
