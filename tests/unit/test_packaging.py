"""The distribution is one namespace package spread over several root folders."""

import tomllib
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.checkout

ROOT = Path(__file__).resolve().parents[2]
SETTINGS: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
CONFIG = SETTINGS["tool"]
ROOTS = sorted(path.parent.name for path in ROOT.glob("*/wakeful") if path.is_dir())


def test_the_roots_are_the_five_of_the_design() -> None:
    assert ROOTS == ["actors", "migrations", "persistence", "scheduler", "src"]


def test_no_root_claims_the_namespace() -> None:
    """A stray wakeful/__init__.py in one root hides every other root in editable installs."""
    assert list(ROOT.glob("*/wakeful/__init__.py")) == []


def test_hatch_builds_every_root_in_the_wheel_and_serves_every_root_in_the_checkout() -> None:
    hatch = CONFIG["hatch"]["build"]
    assert sorted(hatch["dev-mode-dirs"]) == ROOTS
    assert sorted(path.removesuffix("/wakeful") for path in hatch["targets"]["wheel"]["packages"]) == ROOTS
    assert set(ROOTS) <= set(hatch["targets"]["sdist"]["only-include"])


def test_the_type_checkers_read_every_root() -> None:
    """A root that is missing from one list is silently untyped."""
    assert sorted({Path(path).name for path in CONFIG["mypy"]["mypy_path"]} - {"tests"}) == ROOTS
    assert set(ROOTS) | {"tests"} <= set(CONFIG["mypy"]["files"])


def test_ruff_sorts_every_root_as_ours_and_forbids_each_as_a_package() -> None:
    ruff = CONFIG["ruff"]
    assert set(ROOTS) <= set(ruff["src"])
    banned = ruff["lint"]["flake8-tidy-imports"]["banned-api"]
    assert sorted({*banned, "src"}) == ROOTS


def test_coverage_measures_every_root_but_the_migrations() -> None:
    """Also the files that nothing imports, which takes both settings."""
    assert sorted({*CONFIG["coverage"]["run"]["source"], "migrations"}) == ROOTS
    assert CONFIG["coverage"]["report"]["include_namespace_packages"] is True


def test_every_subpackage_is_marked_typed() -> None:
    """Type checkers look for py.typed per subpackage of a namespace."""
    subpackages = [path.parent for path in ROOT.glob("*/wakeful/*/__init__.py")]
    assert subpackages
    assert [path for path in subpackages if not (path / "py.typed").exists()] == []
    assert (ROOT / "src/wakeful/py.typed").exists()


def test_alembic_finds_the_migrations_root() -> None:
    assert CONFIG["alembic"]["script_location"] == "%(here)s/migrations/wakeful/migrations"


def test_the_import_contract_is_exhaustive_over_everything_but_the_migrations() -> None:
    (contract,) = (found for found in CONFIG["importlinter"]["contracts"] if found["id"] == "layers")
    assert contract["exhaustive"] is True
    named = {name.strip() for layer in contract["layers"] for name in layer.split("|")}
    modules = {
        path.stem for path in ROOT.glob("*/wakeful/*") if path.suffix == ".py" or (path / "__init__.py").exists()
    }
    assert modules - {"migrations"} <= named


def test_the_requirements_of_the_tests_do_not_name_the_project() -> None:
    """`tools/wheel-test` installs this group beside the wheel; the project's name would pull in the checkout."""
    assert not [name for name in SETTINGS["dependency-groups"]["test"] if str(name).startswith("wakeful")]


def test_no_module_is_longer_than_400_lines() -> None:
    lengths = {
        str(path.relative_to(ROOT)): len(path.read_text(encoding="utf-8").splitlines())
        for root in ROOTS
        for path in (ROOT / root).rglob("*.py")
    }
    assert {path: count for path, count in lengths.items() if count > 400} == {}
