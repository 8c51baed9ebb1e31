"""`wakeful db …`: upgrade the schema, or say what is wrong with it."""

from dataclasses import asdict
from typing import Annotated

import typer

from wakeful.bootstrap.settings import load_settings
from wakeful.cli.common import Json
from wakeful.cli.exit_codes import ExitCode
from wakeful.cli.output import data, note, print_json

__all__ = ["commands"]

commands = typer.Typer(no_args_is_help=True, help="Upgrade or check the database.")


@commands.command()
def upgrade(
    login: Annotated[
        list[str] | None, typer.Option(help="Another login that may take the roles; may be given again.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Bring the schema to this release's revision and set up the roles. Again, it changes nothing."""
    from wakeful.persistence.schema import upgrade as upgrade_schema

    settings = load_settings()
    done = upgrade_schema(settings.direct_url(), role_prefix=settings.role_prefix, logins=login or [])
    if as_json:
        print_json(asdict(done))
        return
    before = done.from_revision or "nothing"
    data(f"schema: {before} -> {done.to_revision}" if before != done.to_revision else f"schema: at {done.to_revision}")
    data(f"roles: {done.mode.value}, prefix {done.role_prefix}")
    if done.for_administrator:
        note("an administrator has to run:")
        for statement in done.for_administrator:
            note(f"  {statement}")


@commands.command()
def check(as_json: Json = False) -> None:
    """Say what the database holds and what to do about it; changes nothing. Exit 1 unless it can serve."""
    from wakeful.persistence.schema import check as check_schema

    settings = load_settings()
    report = check_schema(settings.direct_url(), role_prefix=settings.role_prefix)
    if as_json:
        print_json({**asdict(report), "usable": report.usable})
    else:
        data(f"schema: {report.current_revision or 'none'} (expected {report.expected_revision})")
        data(f"login: {report.login}, roles: {report.mode.value if report.mode else 'none'}, {report.role_prefix}")
        for line in report.weaker:
            data(f"weaker: {line}")
        for line in report.what_to_do:
            note(f"to do: {line}")
    if not report.usable:
        raise typer.Exit(ExitCode.FAILURE)
