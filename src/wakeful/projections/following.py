"""Following the log: every state that is behind is advanced, in bounded passes, in any number of processes at once."""

import random
from collections.abc import Sequence
from dataclasses import dataclass, fields
from datetime import timedelta
from uuid import UUID

import structlog

from wakeful.domain.errors import ConfigurationError, ProjectionStopped, Unavailable
from wakeful.domain.ports.projections import Behind, Projections
from wakeful.domain.projections import Projection, StateRef, StateScope, by_name
from wakeful.domain.scopes import SessionRef
from wakeful.projections.advancing import BATCH, Outcome, catch_up
from wakeful.projections.rebuilding import rebuild

__all__ = ["FollowConfig", "Followed", "Follower"]

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class FollowConfig:
    """How a follower looks for states that are behind."""

    interval: timedelta = timedelta(seconds=1)
    """Between two passes."""
    batch: int = BATCH
    """Events of one step: what bounds memory and transactions."""
    lately: timedelta = timedelta(seconds=10)
    """Sessions of runs that are executed, or ended within this time, are looked at in every pass."""
    sessions: int = 1000
    """Sessions looked at in one statement."""
    pages: int = 5
    """Statements of one pass over all sessions; the next pass goes on where it ended."""
    retry_stopped: timedelta = timedelta(minutes=1)
    """After this an event that stopped a state is tried again: newer code may know it."""

    def __post_init__(self) -> None:
        if min(self.batch, self.sessions, self.pages) < 1 or self.interval <= timedelta(0):
            raise ConfigurationError("a follower needs batches, pages and an interval greater than 0")


@dataclass(frozen=True, slots=True)
class Followed:
    """What one pass did."""

    advanced: int = 0
    """States brought up to the log."""
    events: int = 0
    rebuilt: int = 0
    stopped: int = 0
    """States that an event stopped, or stopped again."""
    overtaken: int = 0
    """Left to another process that was at it."""
    errors: int = 0

    def plus(self, other: "Followed") -> "Followed":
        return Followed(**{name.name: getattr(self, name.name) + getattr(other, name.name) for name in fields(self)})


class Follower:
    """Advances the states of these projections. `run_once` is safe at any time, in any number of processes."""

    name = "projections"

    def __init__(
        self, store: Projections, projections: Sequence[Projection], *, config: FollowConfig | None = None
    ) -> None:
        self._store, self._config = store, config or FollowConfig()
        self._projections = by_name(projections)
        self._after: SessionRef | None = None
        self._order = random.Random()  # noqa: S311 - only spreads processes over the states

    @property
    def interval(self) -> timedelta:
        return self._config.interval

    async def run_once(self) -> Followed:
        """One pass. A state that fails stops neither its neighbours nor the pass; an unreachable database does."""
        config, projections = self._config, list(self._projections.values())
        lately = await self._store.behind_lately(
            projections, within=config.lately, limit=config.sessions, retry_stopped=config.retry_stopped
        )
        total = await self._advance_all(lately)
        for _ in range(config.pages):
            page = await self._store.behind(
                projections, after=self._after, limit=config.sessions, retry_stopped=config.retry_stopped
            )
            self._after = page.last
            total = total.plus(await self._advance_all(page.behind))
            if page.last is None:
                break
        if total != Followed():
            values = {field.name: getattr(total, field.name) for field in fields(total)}
            _log.debug("projections.advanced", **{name: value for name, value in values.items() if value})
        return total

    async def _advance_all(self, behind: Sequence[Behind]) -> Followed:
        states = self._states(behind)
        # Processes that look at once begin at different ends and seldom meet.
        self._order.shuffle(states)
        total = Followed()
        for projection, state in states:
            total = total.plus(await self._advance(projection, state))
        return total

    def _states(self, behind: Sequence[Behind]) -> list[tuple[Projection, StateRef]]:
        found: dict[tuple[str, UUID, UUID], tuple[Projection, StateRef]] = {}
        for session in behind:
            for name in session.projections:
                projection = self._projections[name]
                principal = projection.scope is StateScope.PRINCIPAL
                state = StateRef(
                    session.session.tenant_id, session.principal_id if principal else session.session.session_id
                )
                found[name, state.tenant_id, state.scope] = (projection, state)
        return list(found.values())

    async def _advance(self, projection: Projection, state: StateRef) -> Followed:
        try:
            found = await catch_up(self._store, projection, state, batch=self._config.batch)
            done = Followed(events=found.events)
            match found.outcome:
                case Outcome.CAUGHT_UP | Outcome.MORE:
                    return done.plus(Followed(advanced=1))
                case Outcome.STOPPED:
                    return done.plus(Followed(stopped=1))
                case Outcome.OUTDATED | Outcome.DISORDERED:
                    rebuilt = await rebuild(self._store, projection, state, batch=self._config.batch)
                    return done.plus(Followed(rebuilt=1, events=rebuilt.events))
                case _:
                    return done.plus(Followed(overtaken=1))
        except ProjectionStopped:
            return Followed(stopped=1)
        except Unavailable:
            raise
        except Exception:
            _log.exception("projections.state_failed", projection=projection.name, scope=str(state.scope))
            return Followed(errors=1)
