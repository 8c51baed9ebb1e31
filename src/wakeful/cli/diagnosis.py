"""`wakeful doctor`: what is reachable, what waits, and what to do about it."""

from dataclasses import dataclass, field
from typing import Annotated, Any

import typer

from wakeful.bootstrap import build
from wakeful.bootstrap.broker_probe import probe_broker
from wakeful.bootstrap.redaction import redacted
from wakeful.bootstrap.settings import Settings, load_settings
from wakeful.cli.common import Json
from wakeful.cli.exit_codes import ExitCode
from wakeful.cli.output import data, print_json, table
from wakeful.domain.errors import Unavailable, WakefulError

__all__ = ["doctor"]

# A queue whose first run has been due for longer has nobody who looks.
WAITING_TOO_LONG_SECONDS = 10.0
SWEEPER_GONE_SECONDS = 10.0


@dataclass(slots=True)
class Findings:
    """What was found; `problems` say what is wrong and what to do, `remarks` what is worth knowing."""

    database: dict[str, Any] = field(default_factory=dict)
    broker: dict[str, Any] = field(default_factory=dict)
    queue: dict[str, Any] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)
    unreachable: bool = False


def doctor(
    app: Annotated[
        str | None, typer.Option(metavar="MODULE:APP", help="Say which waiting runs it does not serve. [WAKEFUL_APP]")
    ] = None,
    as_json: Json = False,
) -> None:
    """Say what is reachable, at which revision, what waits, and what to do. Exit 6 without a database, else 1 if
    there is anything to do."""
    settings = load_settings(app=app)
    found = Findings()
    _look_at_database(settings, found)
    _look_at_broker(settings, found)
    if as_json:
        print_json(
            {
                "healthy": not found.problems,
                "database": found.database,
                "broker": found.broker,
                "queue": found.queue,
                "problems": found.problems,
                "remarks": found.remarks,
            }
        )
    else:
        _print(found)
    if found.problems:
        raise typer.Exit(ExitCode.UNREACHABLE if found.unreachable else ExitCode.FAILURE)


def _look_at_database(settings: Settings, found: Findings) -> None:
    from wakeful.persistence.schema import check

    address = settings.direct_url()
    found.database = {"address": redacted(settings.required_database_url()), "reachable": False}
    try:
        report = check(address, role_prefix=settings.role_prefix)
    except Unavailable as error:
        found.unreachable = True
        found.problems.append(f"{redacted(str(error))}. Check WAKEFUL_DATABASE_URL, or start one with `wakeful up`")
        return
    except WakefulError as error:
        found.problems.append(str(error))
        return
    found.database |= {
        "reachable": True,
        "revision": report.current_revision,
        "expected_revision": report.expected_revision,
        "login": report.login,
        "mode": report.mode.value if report.mode else None,
        "role_prefix": report.role_prefix,
    }
    found.problems += report.what_to_do
    found.remarks += [f"single-role mode: {line}" for line in report.weaker]
    if report.usable:
        _look_at_queue(settings, found)


def _look_at_queue(settings: Settings, found: Findings) -> None:
    from wakeful.persistence.overview import overview

    try:
        seen = overview(settings.direct_url(), role_prefix=settings.role_prefix)
    except WakefulError as error:
        found.problems.append(f"the queue cannot be read: {error}")
        return
    found.queue = {
        "runs": [
            {
                "status": each.status.value,
                "class": each.priority.label,
                "count": each.count,
                "oldest_due_seconds": each.oldest_seconds,
            }
            for each in seen.counts
        ],
        "due_by_agent": {each.agent: each.due for each in seen.due},
        "expired_leases": seen.expired_leases,
        "busy_workers": seen.busy_workers,
        "last_sweep_seconds": seen.last_sweep_seconds,
    }
    served = _served(settings, found)
    for each in seen.due:
        if served is not None and each.agent not in served:
            found.problems.append(
                f"{each.due} due runs are of agent {each.agent}, which {settings.app} does not serve: start a worker "
                "whose app registers it"
            )
        elif each.oldest_seconds > WAITING_TOO_LONG_SECONDS:
            found.problems.append(
                f"{each.due} due runs of agent {each.agent} wait, the first for {each.oldest_seconds:.0f} s: start a "
                "worker that serves this agent and class, or give it more slots"
            )
    _look_at_sweeps(found, seen.last_sweep_seconds, seen.expired_leases, active=bool(seen.counts))


def _look_at_sweeps(found: Findings, last: float | None, expired: int, *, active: bool) -> None:
    if active and (last is None or last > SWEEPER_GONE_SECONDS):
        since = "never looked" if last is None else f"last looked {last:.0f} s ago"
        found.problems.append(
            f"no sweeper is running ({since}), so runs of dead workers are not taken back ({expired} leases are over): "
            "start `wakeful scheduler`"
        )


def _served(settings: Settings, found: Findings) -> frozenset[str] | None:
    if settings.app is None:
        return None
    from wakeful.bootstrap.apps import catalogue_of

    try:
        return frozenset(catalogue_of(build.load_app(settings.app)).names)
    except WakefulError as error:
        found.problems.append(str(error))
        return None


def _look_at_broker(settings: Settings, found: Findings) -> None:
    if settings.broker_url is None:
        found.broker = {"address": None, "reachable": None}
        found.remarks.append("no broker is set (WAKEFUL_BROKER_URL): runs start at poll speed")
        return
    why = probe_broker(settings)
    found.broker = {"address": redacted(settings.broker_url.get_secret_value()), "reachable": why is None}
    if why is not None:
        found.problems.append(f"the broker does not answer ({why}): runs start at poll speed. Check WAKEFUL_BROKER_URL")


def _print(found: Findings) -> None:
    database = found.database
    data(f"database  {'reachable' if database['reachable'] else 'NOT reachable'}  {database['address']}")
    if database["reachable"]:
        data(f"schema    {database['revision'] or 'none'} (expected {database['expected_revision']})")
        data(f"roles     {database['mode'] or 'none'}, prefix {database['role_prefix']}, login {database['login']}")
    broker = found.broker
    data(f"broker    {_reach(broker['reachable'])}  {broker['address'] or ''}".rstrip())
    if found.queue.get("runs"):
        table(
            ["status", "class", "runs", "oldest due"],
            [
                [
                    each["status"],
                    each["class"],
                    each["count"],
                    f"{each['oldest_due_seconds']:.1f} s ago" if each["oldest_due_seconds"] is not None else "",
                ]
                for each in found.queue["runs"]
            ],
        )
    elif found.queue:
        data("queue     empty")
    for line in found.remarks:
        data(f"note: {line}")
    for line in found.problems:
        data(f"to do: {line}")
    if not found.problems:
        data("nothing to do")


def _reach(reachable: bool | None) -> str:
    return "none" if reachable is None else "reachable" if reachable else "NOT reachable"
