"""The agent process: submits a run, follows it, answers its question and approves its refund.

Serve `support.py` first (`wakeful up --app support:app`), then run this with the settings it prints.
"""

import asyncio

from wakeful.client import Wakeful, connect


async def ask_for_a_refund(wakeful: Wakeful) -> str:
    """The whole conversation; the key makes it safe to run this again after a crash."""
    session = await wakeful.sessions.create(agent="support")
    run = await session.submit("I want my money back.", key=f"refund-{session.id}")
    while open_calls := await run.wait_for_calls(timeout=60):
        for each in open_calls:
            if each.question is not None:
                await run.answer("7", call=each.id)
            else:
                await run.approve(call=each.id, note="the article came back")
    return str(await run.result(timeout=60))


async def main() -> None:
    async with connect(tenant="acme", principal="ada") as wakeful:
        print(await ask_for_a_refund(wakeful))  # noqa: T201


if __name__ == "__main__":
    asyncio.run(main())
