"""What the README prints is what runs: the app, the commands and the agent process, word for word."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from wakeful.bootstrap.stack import Stack

ROOT = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.checkout

PRINTED = (ROOT / "README.md").read_text() if (ROOT / "README.md").exists() else ""
LIMIT_LINES = 30


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", PRINTED, re.MULTILINE | re.DOTALL)


def command(start: str) -> list[str]:
    [line] = [line[2:] for block in blocks("console") for line in block.splitlines() if line[2:].startswith(start)]
    return shlex.split(line, comments=True)


def test_an_agent_with_two_tools_takes_less_than_thirty_lines() -> None:
    app = blocks("python")[0]
    assert len([line for line in app.splitlines() if line.strip()]) < LIMIT_LINES
    assert app.count("@app.tool") == 2


@pytest.mark.timeout(180)
def test_the_printed_app_is_served_and_the_printed_commands_and_process_use_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    app, process = blocks("python")[:2]
    (tmp_path / "support.py").write_text(app)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")]))
    with Stack(app="support:app", workers=1) as stack:
        environment = {**os.environ, **stack.environment}
        submit = [sys.executable, "-m", *command("wakeful run submit")]
        said = subprocess.run(submit, env=environment, capture_output=True, text=True, check=False, timeout=90)
        assert said.returncode == 0, said.stderr
        assert "Refunded." in said.stdout + said.stderr
        run_id = re.findall(r"[0-9a-f]{8}-[0-9a-f-]{27}", said.stdout + said.stderr)[0]
        show = [run_id if word == "RUN_ID" else word for word in command("wakeful run show")]
        shown = subprocess.run(
            [sys.executable, "-m", *show], env=environment, capture_output=True, text=True, check=False, timeout=60
        )
        assert shown.returncode == 0, shown.stderr
        assert "find_order" in shown.stdout
        body = process.replace("postgresql://...", stack.database_url)
        lines = body.splitlines()
        start = next(number for number, line in enumerate(lines) if line.startswith("async with"))
        wrapped = [*lines[:start], "import asyncio", "async def main():", *("    " + line for line in lines[start:])]
        code = "\n".join([*wrapped, "asyncio.run(main())"])
        agent = subprocess.run(
            [sys.executable, "-c", code], env=os.environ, capture_output=True, text=True, check=False, timeout=90
        )
        assert agent.returncode == 0, agent.stderr
        assert agent.stdout.splitlines()[-1] == "Refunded."
        assert "run.completed" in agent.stdout
