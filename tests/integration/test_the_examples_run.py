"""The files in examples/ do what they say, as they are."""

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest
from support.in_process import worker_in_process

from wakeful.client import Backend, Wakeful
from wakeful.persistence.memory import MemoryStore

pytestmark = [pytest.mark.anyio, pytest.mark.checkout]

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def example(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"example_{name}", EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


async def test_the_support_desk_asks_waits_for_approval_and_pays_once() -> None:
    desk, process = example("support"), example("ask_for_a_refund")
    store = MemoryStore()
    async with worker_in_process(store, desk.app):
        said = await process.ask_for_a_refund(Wakeful(Backend(store), tenant="acme", principal="ada"))
    assert said == "Your money is on its way."
    assert list(desk.REFUNDS.values()) == [4200]
