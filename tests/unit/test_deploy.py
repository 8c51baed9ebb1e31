"""The container and compose files name what exists, run commands that the command line knows, and hold no secret."""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from wakeful.bootstrap.settings import Settings
from wakeful.domain.states import PriorityClass

pytestmark = pytest.mark.checkout

ROOT = Path(__file__).resolve().parents[2]
CONTAINERFILE = (ROOT / "deploy/Containerfile").read_text(encoding="utf-8")
COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "deploy/compose.yaml").read_text(encoding="utf-8"))
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
OURS = {name: service for name, service in SERVICES.items() if "build" in service}


def instructions() -> list[tuple[str, str, str]]:
    """(stage, instruction, rest) in order, continued lines joined."""
    joined = CONTAINERFILE.replace("\\\n", " ")
    found, stage = [], ""
    for line in joined.splitlines():
        if not line.strip() or line.startswith("#"):
            continue
        word, _, rest = line.strip().partition(" ")
        if word == "FROM":
            stage = rest.rpartition(" AS ")[2]
        found.append((stage, word, rest))
    return found


def entrypoint(stage: str) -> list[str]:
    (words,) = (json.loads(rest) for at, word, rest in instructions() if (at, word) == (stage, "ENTRYPOINT"))
    return list(words)


def test_there_is_a_target_for_each_role() -> None:
    stages = [stage for stage, word, _ in instructions() if word == "FROM"]
    assert stages[-3:] == ["migrate", "worker", "scheduler"]


def test_what_is_copied_into_the_image_is_in_the_checkout() -> None:
    sources = [part for _, word, rest in instructions() if word == "COPY" for part in rest.split()[:-1]]
    assert {"src", "persistence", "actors", "scheduler", "migrations"} <= set(sources)
    assert [source for source in sources if not (ROOT / source).exists()] == []


def test_the_build_sees_what_it_copies() -> None:
    ignore = (ROOT / "deploy/Containerfile.dockerignore").read_text(encoding="utf-8").splitlines()
    sources = [part for _, word, rest in instructions() if word == "COPY" for part in rest.split()[:-1]]
    assert ignore[0] == "*"
    assert {f"!{source}" for source in sources} <= set(ignore)


def test_stages_build_on_stages_and_end_as_an_unprivileged_user() -> None:
    parents = {stage: rest.split()[0] for stage, word, rest in instructions() if word == "FROM"}
    users = {stage: rest for stage, word, rest in instructions() if word == "USER"}
    for role in ("migrate", "worker", "scheduler"):
        assert users.get(role, users[parents[role]]) == "wakeful"


def test_every_service_of_ours_builds_a_target_that_exists() -> None:
    stages = {stage for stage, word, _ in instructions() if word == "FROM"}
    for service in OURS.values():
        build = service["build"]
        assert build["target"] in stages
        context = (ROOT / "deploy" / build["context"]).resolve()
        assert context == ROOT
        assert (context / build["dockerfile"]).is_file()


@pytest.mark.parametrize("name", OURS)
def test_the_command_line_knows_the_command_of_a_service(name: str) -> None:
    """With `--help` behind it the command is parsed, options and all, and not carried out."""
    program, *words = entrypoint(OURS[name]["build"]["target"])
    assert program == "wakeful"
    command = [sys.executable, "-m", "wakeful", *words, *OURS[name].get("command", []), "--help"]
    result = subprocess.run(command, check=False, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr


def test_each_priority_class_has_a_pool_of_its_own() -> None:
    pools = [service["command"][1] for service in OURS.values() if service["build"]["target"] == "worker"]
    assert sorted(pools) == sorted(found.name.lower() for found in PriorityClass)


def test_the_services_are_given_settings_that_exist() -> None:
    names = {
        name for service in OURS.values() for name in service.get("environment", {}) if name.startswith("WAKEFUL_")
    }
    names |= set(re.findall(r"\b(WAKEFUL_\w+)=", CONTAINERFILE))
    assert names
    assert {name.removeprefix("WAKEFUL_").lower() for name in names} <= set(Settings.model_fields)


def test_no_secret_has_a_default() -> None:
    """Every password is a variable that stops the start when it is not set."""
    values = [
        str(value)
        for service in SERVICES.values()
        for name, value in service.get("environment", {}).items()
        if "PASSWORD" in name or "URL" in name
    ]
    assert len(values) >= 4
    for value in values:
        assert re.search(r"\$\{WAKEFUL_\w+_PASSWORD:\?[^}]+\}", value), value
    assert not re.search(r"(?i)^(ENV|ARG).*(password|secret|token)", CONTAINERFILE, re.MULTILINE)


def test_nothing_is_published_to_the_host() -> None:
    assert [name for name, service in SERVICES.items() if "ports" in service] == []


def test_a_worker_is_given_longer_than_its_drain() -> None:
    grace = Settings.model_fields["drain_grace_seconds"].default
    for service in OURS.values():
        if service["build"]["target"] == "worker":
            assert int(service["stop_grace_period"].removesuffix("s")) > grace


def test_what_a_service_waits_for_is_there() -> None:
    for service in SERVICES.values():
        for name, condition in service.get("depends_on", {}).items():
            assert name in SERVICES
            if condition["condition"] == "service_healthy":
                assert "healthcheck" in SERVICES[name]
        for volume in service.get("volumes", []):
            source = volume.partition(":")[0]
            assert source in COMPOSE["volumes"] or source.startswith("$")
