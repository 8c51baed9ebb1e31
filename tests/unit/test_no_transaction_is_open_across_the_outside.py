"""Going outside (a model, a tool, bytes, a pause) with a transaction open: refused, and not in our sources."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.runs import office

from wakeful.domain import transactions
from wakeful.models.scripted import say
from wakeful.runtime.interrupts import outside

pytestmark = [pytest.mark.anyio, pytest.mark.gate("txn_hygiene"), pytest.mark.spec("QUE-11", "LOG-1")]

OPENERS = {"begin", "connection", "_transaction", "sessions"}
"""What opens a transaction or takes a connection, in the one package that has them."""

OUTSIDE = {"sleep", "respond", "next_turn", "function", "put", "get_bytes", "wake", "wait", "gather", "to_thread"}
"""Calls that wait for something that is no SQL."""


def persistence() -> Path:
    import wakeful.persistence.store

    return Path(wakeful.persistence.store.__file__).parent


def openings(tree: ast.AST) -> Iterator[ast.AsyncWith]:
    for node in ast.walk(tree):
        if isinstance(node, ast.AsyncWith):
            names = {name for item in node.items if (name := called(item.context_expr))}
            if names & OPENERS:
                yield node


def awaited(region: ast.AsyncWith) -> Iterator[tuple[int, str | None]]:
    for statement in region.body:
        for node in ast.walk(statement):
            if isinstance(node, ast.Await):
                yield node.lineno, called(node.value)


def called(node: ast.AST) -> str | None:
    if isinstance(node, ast.Call):
        function = node.func
        return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", None)
    return None


def test_no_region_of_a_transaction_awaits_anything_but_sql() -> None:
    regions = 0
    offenders: list[str] = []
    for path in sorted(persistence().rglob("*.py")):
        for region in openings(ast.parse(path.read_text())):
            regions += 1
            offenders.extend(f"{path.name}:{line} {name}" for line, name in awaited(region) if name in OUTSIDE)
    assert regions > 20
    assert offenders == []


def test_the_check_sees_an_offender() -> None:
    source = "async def f(u):\n    async with u.begin(1) as unit:\n        await asyncio.sleep(1)\n"
    [region] = openings(ast.parse(source))
    assert [called(n.value) for n in ast.walk(region) if isinstance(n, ast.Await)] == ["sleep"]


async def test_going_outside_inside_a_transaction_is_refused() -> None:
    place = office(lambda app: app.agent("a", model="scripted:a"), a=[say("Hi.")])
    await place.submit("a", "Hi")
    [claim] = await place.claim()
    token = transactions.entered()
    try:
        with pytest.raises(AssertionError, match="transaction is open"):
            await outside(place.holding(claim), place.claim())
    finally:
        transactions.left(token)


async def test_a_store_says_while_it_holds_a_connection() -> None:
    """The runtime's check would be worth nothing if the store forgot to say it."""
    from wakeful.persistence.connections import HotPool

    class Connection:
        class pgconn:  # noqa: N801 - stands for an attribute
            status = 0
            transaction_status = 0

            @staticmethod
            def finish() -> None:
                return

    async def connect() -> Connection:
        return Connection()

    pool = HotPool(connect, size=1)  # type: ignore[arg-type]
    await pool.open()
    async with pool.connection():
        with pytest.raises(AssertionError):
            transactions.must_be_outside()
    transactions.must_be_outside()
    await pool.close()
