"""`wakeful session …` and `wakeful events …`."""

from typing import Annotated

import typer

from wakeful.cli.common import Json, Principal, Tenant, with_client
from wakeful.cli.output import data, print_json, print_json_line, table
from wakeful.cli.runs import event_line
from wakeful.cli.shapes import event_json, session_json
from wakeful.client import Wakeful
from wakeful.domain.sessions import Session

__all__ = ["commands", "event_commands"]

commands = typer.Typer(no_args_is_help=True, help="Open, list and close sessions.")
event_commands = typer.Typer(no_args_is_help=True, help="Read a session's event log.")

SessionId = Annotated[str, typer.Argument(metavar="SESSION", help="The session's id.")]


@commands.command()
def create(
    agent: Annotated[str, typer.Option(metavar="NAME", help="Who answers in it.")],
    title: Annotated[str | None, typer.Option(help="For people.")] = None,
    session_id: Annotated[
        str | None, typer.Option("--id", metavar="ID", help="An id of your own: again, it returns the same session.")
    ] = None,
    tenant: Tenant = None,
    principal: Principal = None,
    as_json: Json = False,
) -> None:
    """Open a session and print its id."""

    async def work(wakeful: Wakeful) -> Session:
        return (await wakeful.sessions.create(agent=agent, title=title, session_id=session_id)).record

    _print_session(with_client(tenant, principal, work), as_json=as_json)


@commands.command("list")
def list_sessions(
    limit: Annotated[int, typer.Option(min=1, max=1000, help="At most as many.")] = 50,
    after: Annotated[str | None, typer.Option(metavar="ID", help="The last id of the page before.")] = None,
    tenant: Tenant = None,
    principal: Principal = None,
    as_json: Json = False,
) -> None:
    """List sessions, latest activity first."""

    async def work(wakeful: Wakeful) -> list[Session]:
        return await wakeful.sessions.list(limit=limit, after=after)

    found = with_client(tenant, principal, work)
    if as_json:
        print_json([session_json(session) for session in found])
        return
    table(
        ["session", "status", "agent", "events", "latest activity", "title"],
        [
            [s.session_id, s.status, s.agent, s.last_sequence, f"{s.updated_at:%Y-%m-%d %H:%M:%S}", s.title or ""]
            for s in found
        ],
    )


@commands.command()
def close(session: SessionId, tenant: Tenant = None, principal: Principal = None, as_json: Json = False) -> None:
    """Close a session: nothing can be submitted to it any more."""

    async def work(wakeful: Wakeful) -> Session:
        return await wakeful.sessions.close(session)

    _print_session(with_client(tenant, principal, work), as_json=as_json)


@event_commands.command()
def tail(
    session: SessionId,
    after: Annotated[int, typer.Option(min=0, help="Begin behind this sequence.")] = 0,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on with what comes, until Ctrl-C.")] = False,
    limit: Annotated[int | None, typer.Option(min=1, help="End after as many events.")] = None,
    tenant: Tenant = None,
    principal: Principal = None,
    as_json: Json = False,
) -> None:
    """Print a session's events in order. With --json one event per line."""

    async def work(wakeful: Wakeful) -> None:
        opened = await wakeful.sessions.get(session)
        last = None if follow else (await opened.read()).last_sequence
        if last is not None and last <= after:
            return
        count = 0
        async for event in opened.events(after=after):
            if last is not None and event.sequence > last:
                return
            print_json_line(event_json(event)) if as_json else data(event_line(event))
            count += 1
            if count == limit or event.sequence == last:
                return

    with_client(tenant, principal, work)


def _print_session(session: Session, *, as_json: bool) -> None:
    if as_json:
        print_json(session_json(session))
    else:
        data(str(session.session_id))
