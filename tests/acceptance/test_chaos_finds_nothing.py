"""A short campaign of every kind, and the same command on somebody's own agents."""

from pathlib import Path

import pytest
from support.commands import wakeful

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]

APP = """
from wakeful.app import App
from wakeful.models.scripted import ScriptedProvider, call, calls, say

app = App()

@app.tool(idempotency="read_only")
async def look(item: str) -> str:
    "Look something up."
    return item

app.model_provider("scripted", ScriptedProvider({"mine": [calls(call("look", item="a")), say("Done.")]}))
app.agent("mine", model="scripted:mine", tools=[look])
"""


@pytest.mark.gate("exactly_once")
@pytest.mark.gate("crash_recovery")
@pytest.mark.spec("REC-1", "QUE-4", "QUE-5", "LOG-10")
def test_a_campaign_of_three_minutes_holds() -> None:
    ran = wakeful("chaos", "--minutes", 3, "--seed", 7, "--json", timeout_seconds=900)
    assert ran.code == 0, ran.out + ran.err
    report = ran.json
    assert report["findings"] == []
    for part in ("crash_points", "pairs", "programs"):
        assert report[part]["landed"] > 10, f"too few {part} landed: {report}"
    storm = report["storm"]
    assert storm["runs"] > 10
    assert storm["kills"] + storm["pauses"] + storm["drains"] > 0
    assert sum(storm[name] > 0 for name in ("answers_lost", "cuts", "database_restarts", "database_kills")) > 1


def test_a_storm_over_ones_own_agents_holds(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(APP)
    ran = wakeful("chaos", "--app", "mine:app", "--minutes", 0.5, "--seed", 1, "--json", cwd=tmp_path)
    assert ran.code == 0, ran.out + ran.err
    assert ran.json["storm"]["runs"] > 0
    assert "crash_points" not in ran.json


def test_an_experiment_is_performed_by_its_name() -> None:
    ran = wakeful("chaos", "--reproduce", "sequence:28:after", "--json")
    assert ran.code == 0, ran.out + ran.err
    assert ran.json["experiments"] == {"of": 1, "done": 1, "landed": 1}
    refused = wakeful("chaos", "--reproduce", "sequence:28:during")
    assert refused.code == 2
    assert "names no experiment" in refused.err
