"""`wakeful run …`: submit, look, answer, stop."""

import json
from datetime import datetime, timedelta
from typing import Annotated, Any

import typer

from wakeful.cli.common import Json, Principal, Tenant, read_text, with_client
from wakeful.cli.output import data, note, out, print_json, print_json_line, table
from wakeful.cli.shapes import call_json, content_json, controlled_json, event_json, run_json, timeline_json
from wakeful.cli.tree import run_tree
from wakeful.client import Budget, RunHandle, RunStatus, SessionHandle, Wakeful
from wakeful.client.sentences import sentence
from wakeful.client.timeline import Timeline
from wakeful.domain.content import ArtifactRef
from wakeful.domain.errors import InvalidInput, RunFailure
from wakeful.domain.events import Event
from wakeful.domain.ids import derived_id
from wakeful.domain.ports.run_control import Controlled
from wakeful.domain.runs import Run
from wakeful.domain.states import InvocationStatus

__all__ = ["commands"]

commands = typer.Typer(no_args_is_help=True, help="Submit runs, watch them, answer them, stop them.")

RunId = Annotated[str, typer.Argument(metavar="RUN", help="The run's id.")]
CallId = Annotated[str | None, typer.Option("--call", metavar="ID", help="Which call; needed if several are open.")]
NoteText = Annotated[str | None, typer.Option("--note", help="A word for the record and the model.")]


@commands.command()
def submit(
    text: Annotated[list[str] | None, typer.Argument(help="Messages, in order; - reads one from stdin.")] = None,
    session: Annotated[str | None, typer.Option(metavar="ID", help="An open session.")] = None,
    agent: Annotated[str | None, typer.Option(metavar="NAME", help="Without --session: open one for it.")] = None,
    key: Annotated[str | None, typer.Option(help="Idempotency key: again, it returns the same run.")] = None,
    priority: Annotated[str, typer.Option(help="interactive, async or maintenance.")] = "interactive",
    in_seconds: Annotated[float | None, typer.Option(min=0, help="Not before this has passed.")] = None,
    at: Annotated[str | None, typer.Option(metavar="TIME", help="Not before this ISO 8601 time with zone.")] = None,
    deadline_seconds: Annotated[float | None, typer.Option(min=0, help="Failed if not done by then.")] = None,
    max_steps: Annotated[
        int | None, typer.Option(min=1, help="The last of them is asked without tools.")
    ] = Budget().max_steps,
    max_tool_calls: Annotated[int | None, typer.Option(min=0, help="Calls past it are refused.")] = None,
    max_tokens: Annotated[int | None, typer.Option(min=1, help="The run fails past it.")] = None,
    metadata: Annotated[str | None, typer.Option(metavar="JSON", help="An object kept with the run.")] = None,
    wait: Annotated[bool, typer.Option("--wait", help="Wait for its end and print the final reply.")] = False,
    timeout_seconds: Annotated[float | None, typer.Option(min=0, help="With --wait: exit 8 after this.")] = None,
    tenant: Tenant = None,
    principal: Principal = None,
    as_json: Json = False,
) -> None:
    """Queue a run and print its id."""
    if at is not None and in_seconds is not None:
        raise InvalidInput("give --at or --in-seconds, not both")
    messages = [read_text(each) for each in text or []]
    budget = Budget(max_steps=max_steps, max_tool_calls=max_tool_calls, max_tokens=max_tokens)

    async def work(wakeful: Wakeful) -> None:
        opened = await _session(wakeful, session, agent, key)
        run = await opened.submit(
            messages,
            key=key,
            priority=priority,
            scheduled_for=timedelta(seconds=in_seconds) if in_seconds is not None else _moment(at),
            deadline=timedelta(seconds=deadline_seconds) if deadline_seconds is not None else None,
            budget=budget,
            metadata=_object(metadata),
            agent=agent,
        )
        said = {"run": str(run.id), "session": str(run.ref.session_id), "created": run.created}
        if not wait:
            print_json(said) if as_json else data(str(run.id))
            return
        note(f"run {run.id} in session {run.ref.session_id}")
        result = await run.result(timeout=timeout_seconds)
        print_json({**said, "result": result}) if as_json else data(_text(result))

    with_client(tenant, principal, work)


async def _session(wakeful: Wakeful, session: str | None, agent: str | None, key: str | None) -> SessionHandle:
    if session is not None:
        return await wakeful.sessions.get(session)
    if agent is None:
        raise InvalidInput("give --session, or --agent to open a session for it")
    # The key names the session as well: the same command again must find the run and not open another session.
    own = wakeful.sessions.scope()
    identifier = derived_id("command-session", own.tenant_id, own.principal_id, key) if key else None
    return await wakeful.sessions.create(agent=agent, session_id=identifier)


@commands.command("list")
def list_runs(
    session: Annotated[str | None, typer.Option(metavar="ID", help="Only of this session.")] = None,
    status: Annotated[list[str] | None, typer.Option(help="Only in this status; may be given again.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=1000, help="At most as many.")] = 50,
    before: Annotated[str | None, typer.Option(metavar="ID", help="The last id of the page before.")] = None,
    tenant: Tenant = None,
    principal: Principal = None,
    as_json: Json = False,
) -> None:
    """List runs, newest first."""
    statuses = [_status(each) for each in status or []]

    async def work(wakeful: Wakeful) -> list[Run]:
        return await wakeful.runs.list(session=session, statuses=statuses, limit=limit, before=before)

    runs = with_client(tenant, principal, work)
    if as_json:
        print_json([run_json(run) for run in runs])
        return
    table(
        ["run", "status", "class", "agent", "step", "calls", "submitted", "session"],
        [
            [
                run.ref.run_id,
                run.status.value,
                run.priority.label,
                run.agent,
                run.step,
                run.tool_call_count,
                f"{run.created_at:%Y-%m-%d %H:%M:%S}",
                run.ref.session_id,
            ]
            for run in runs
        ],
    )


@commands.command()
def show(run_id: RunId, tenant: Tenant = None, principal: Principal = None, as_json: Json = False) -> None:
    """Draw a run's steps as a tree with times."""

    async def work(wakeful: Wakeful) -> tuple[Run, Timeline, list[Any]]:
        run = await wakeful.runs.get(run_id)
        timeline = Timeline.of(await run.history())
        return await run.read(), timeline, [call_json(call) for call in await run.calls()]

    run, timeline, open_calls = with_client(tenant, principal, work)
    if as_json:
        print_json({"run": run_json(run), "timeline": timeline_json(timeline), "open_calls": open_calls})
        return
    out().print(run_tree(run, timeline))
    for call in open_calls:
        asked = call["question"] or f"{call['tool']}({call['arguments']})"
        note(f"{call['status']}: {asked}  (call {call['id']})")


@commands.command()
def watch(
    run_id: RunId,
    after: Annotated[int, typer.Option(min=0, help="Begin behind this sequence.")] = 0,
    tenant: Tenant = None,
    principal: Principal = None,
    as_json: Json = False,
) -> None:
    """Print a run's events as they happen, until it ends; exit 7 if it fails. With --json one event per line."""

    async def work(wakeful: Wakeful) -> None:
        run = await wakeful.runs.get(run_id)
        async for event in run.events(after=after):
            print_json_line(event_json(event)) if as_json else data(event_line(event))
        await _raise_for_failure(run)

    with_client(tenant, principal, work)


async def _raise_for_failure(run: RunHandle) -> None:
    ended = await run.read()
    if ended.status is not RunStatus.COMPLETED:
        reason = f" ({ended.failure.code})" if ended.failure else ""
        raise RunFailure(f"run {run.id} ended as {ended.status.value}{reason}")


@commands.command()
def cancel(
    run_id: RunId,
    reason: Annotated[str | None, typer.Option(help="Kept in the log.")] = None,
    tenant: Tenant = None,
    principal: Principal = None,
    as_json: Json = False,
) -> None:
    """End a run: at once if nobody executes it, else as soon as its worker notices."""

    async def work(wakeful: Wakeful) -> Controlled:
        return await (await wakeful.runs.get(run_id)).cancel(reason=reason)

    _print_done(with_client(tenant, principal, work), as_json=as_json)


@commands.command()
def answer(
    run_id: RunId,
    text: Annotated[str, typer.Argument(help="The answer; - reads it from stdin.")],
    call: CallId = None,
    tenant: Tenant = None,
    principal: Principal = None,
    as_json: Json = False,
) -> None:
    """Answer an open question."""
    said = read_text(text)

    async def work(wakeful: Wakeful) -> Controlled:
        return await (await wakeful.runs.get(run_id)).answer(said, call=call)

    _print_done(with_client(tenant, principal, work), as_json=as_json)


@commands.command()
def approve(
    run_id: RunId,
    call: CallId = None,
    note_text: NoteText = None,
    tenant: Tenant = None,
    principal: Principal = None,
    as_json: Json = False,
) -> None:
    """Allow a call that awaits approval; it is then executed."""

    async def work(wakeful: Wakeful) -> Controlled:
        return await (await wakeful.runs.get(run_id)).approve(call=call, note=note_text)

    _print_done(with_client(tenant, principal, work), as_json=as_json)


@commands.command()
def deny(
    run_id: RunId,
    call: CallId = None,
    note_text: NoteText = None,
    tenant: Tenant = None,
    principal: Principal = None,
    as_json: Json = False,
) -> None:
    """Refuse a call that awaits approval; the model is told."""

    async def work(wakeful: Wakeful) -> Controlled:
        return await (await wakeful.runs.get(run_id)).deny(call=call, note=note_text)

    _print_done(with_client(tenant, principal, work), as_json=as_json)


@commands.command()
def review(
    run_id: RunId,
    call: CallId = None,
    happened: Annotated[
        bool | None, typer.Option("--happened/--did-not-happen", help="What the service says, or you saw.")
    ] = None,
    note_text: NoteText = None,
    tenant: Tenant = None,
    principal: Principal = None,
    as_json: Json = False,
) -> None:
    """List the calls whose outcome is UNCERTAIN, or say what happened to one: once, and the model is told."""

    async def listed(wakeful: Wakeful) -> list[dict[str, Any]]:
        run = await wakeful.runs.get(run_id)
        return [call_json(each) for each in await run.all_calls() if each.status is InvocationStatus.UNCERTAIN]

    async def resolved(wakeful: Wakeful) -> Controlled:
        run = await wakeful.runs.get(run_id)
        return await run.resolve(happened=bool(happened), call=call, note=note_text)

    if happened is not None:
        _print_done(with_client(tenant, principal, resolved), as_json=as_json)
        return
    if call is not None or note_text is not None:
        raise InvalidInput("say --happened or --did-not-happen")
    calls = with_client(tenant, principal, listed)
    if as_json:
        print_json(calls)
        return
    table(
        ["call", "step", "tool", "arguments", "idempotency key", "resolved"],
        [[c["id"], c["step"], c["tool"], c["arguments"], c["idempotency_key"], c["resolved_at"] or ""] for c in calls],
    )


def event_line(event: Event) -> str:
    """One event in one line."""
    said = sentence(event.payload) or _call_line(event)
    return f"{event.sequence:>6}  {event.created_at:%H:%M:%S.%f}"[:-3] + f"  {event.type:<26}{said}"


def _call_line(event: Event) -> str:
    payload = event.payload.model_dump(mode="json")
    parts = [f"step {payload['step']}"] if "step" in payload else []
    parts += [payload["tool"]] if "tool" in payload else []
    if isinstance(result := payload.get("result"), dict):
        parts.append(str(result.get("code", "")))
    return " ".join(parts)


def _print_done(done: Controlled, *, as_json: bool) -> None:
    if as_json:
        print_json(controlled_json(done))
    else:
        data(f"{done.run.run_id} {done.status.value}{'' if done.applied else ' (unchanged)'}")


def _text(result: Any) -> str:
    if result is None:
        return ""
    plain = content_json(result) if isinstance(result, ArtifactRef) else result
    return plain if isinstance(plain, str) else json.dumps(plain, ensure_ascii=False)


def _status(text: str) -> RunStatus:
    try:
        return RunStatus(text.upper())
    except ValueError:
        raise InvalidInput(f"unknown status {text!r}: use one of {', '.join(RunStatus)}") from None


def _moment(text: str | None) -> datetime | None:
    if text is None:
        return None
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        raise InvalidInput(f"--at {text!r} is no ISO 8601 time such as 2030-01-31T08:00:00+01:00") from None


def _object(text: str | None) -> dict[str, Any]:
    try:
        value = json.loads(text) if text else {}
    except (ValueError, RecursionError) as error:
        raise InvalidInput(f"--metadata is no JSON: {error}") from None
    if not isinstance(value, dict):
        raise InvalidInput("--metadata must be a JSON object")
    return value
