"""What the commands share: options, one client per command, asyncio underneath."""

import asyncio
import sys
from collections.abc import Awaitable, Callable
from typing import Annotated, TypeVar

import typer

from wakeful.bootstrap.settings import load_settings
from wakeful.client import Wakeful, connect
from wakeful.domain.errors import InvalidInput

__all__ = ["Json", "Principal", "Tenant", "read_text", "with_client"]

Result = TypeVar("Result")

Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Tenant = Annotated[
    str | None, typer.Option("--tenant", metavar="ID", help="Whose data: a UUID or any text. [WAKEFUL_TENANT]")
]
Principal = Annotated[
    str | None, typer.Option("--principal", metavar="ID", help="Whose data within it. [WAKEFUL_PRINCIPAL]")
]


def with_client(tenant: str | None, principal: str | None, work: Callable[[Wakeful], Awaitable[Result]]) -> Result:
    """Do one command's work with a connected client."""
    settings = load_settings(tenant=tenant, principal=principal)

    async def connected() -> Result:
        async with connect(settings=settings, tenant=settings.tenant, principal=settings.principal) as wakeful:
            return await work(wakeful)

    return asyncio.run(connected())


def read_text(argument: str) -> str:
    """The text itself, or standard input for `-`. Raises InvalidInput for bytes that are no UTF-8."""
    if argument != "-":
        return argument
    try:
        return sys.stdin.buffer.read().decode("utf-8")
    except UnicodeDecodeError as error:
        raise InvalidInput(f"standard input is no UTF-8: {error}") from None
