"""SQLAlchemy and its row classes stay behind the persistence folder: proved on the source, module by module."""

import ast
import importlib
import inspect
import pkgutil
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import wakeful.domain
from wakeful.persistence import tables
from wakeful.persistence.tables import Base

pytestmark = [pytest.mark.checkout, pytest.mark.gate("orm_confined"), pytest.mark.spec("ORM-1")]

ROOT = Path(__file__).parents[2]
SOURCES = ("src", "persistence", "actors", "scheduler", "migrations", "benchmarks", "examples")
ROW_CLASSES = frozenset(name for name in tables.__all__ if name.endswith("Row"))
# Types of SQLAlchemy's that would carry rows or sessions out under another name.
CARRIERS = frozenset({"Row", "RowMapping", "Result", "ScalarResult", "AsyncSession", "AsyncConnection", "Mapped"})


def modules(*folders: str) -> Iterator[tuple[Path, ast.Module]]:
    for folder in folders:
        for path in sorted((ROOT / folder).rglob("*.py")):
            yield path, ast.parse(path.read_text(encoding="utf-8"))


def outside_persistence() -> Iterator[tuple[Path, ast.Module]]:
    """Every module that must not know SQLAlchemy; migrations and tests may."""
    return modules(*(folder for folder in SOURCES if folder not in {"persistence", "migrations"}))


def imports(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Call) and ast.unparse(node.func) in {"importlib.import_module", "__import__"}:
            yield from (str(arg.value) for arg in node.args if isinstance(arg, ast.Constant))


def public_functions(tree: ast.Module) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and not node.name.startswith("_"):
            yield node


def annotations(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """Every annotation of a public function, with its name."""
    for node in public_functions(tree):
        every = node.args
        arguments = [*every.posonlyargs, *every.args, *every.kwonlyargs, every.vararg, every.kwarg]
        found = [argument.annotation for argument in arguments if argument] + [node.returns]
        yield from ((node.name, ast.unparse(annotation)) for annotation in found if annotation)


def names_in(annotation: str) -> set[str]:
    """Every name an annotation mentions, inside strings too: a forward reference is one."""
    return set(re.findall(r"[A-Za-z_]\w*", annotation))


def test_there_are_row_classes_and_modules_to_look_at() -> None:
    assert len(ROW_CLASSES) >= 15
    assert len(list(outside_persistence())) >= 20
    assert {mapper.class_.__name__ for mapper in Base.registry.mappers} == ROW_CLASSES


def test_no_module_outside_persistence_imports_sqlalchemy() -> None:
    guilty = [
        f"{path.relative_to(ROOT)}: {name}"
        for path, tree in outside_persistence()
        for name in imports(tree)
        if name.split(".")[0] in {"sqlalchemy", "alembic"}
    ]
    assert guilty == []


def test_no_module_outside_persistence_imports_a_row_class() -> None:
    guilty = [
        f"{path.relative_to(ROOT)}: {name}"
        for path, tree in outside_persistence()
        for name in imports(tree)
        if name.startswith("wakeful.persistence.tables") or name.rsplit(".", 1)[-1] in ROW_CLASSES
    ]
    assert guilty == []


def test_no_row_class_stands_in_a_signature_outside_persistence() -> None:
    guilty = [
        f"{path.relative_to(ROOT)}: {function}: {annotation}"
        for path, tree in outside_persistence()
        for function, annotation in annotations(tree)
        if names_in(annotation) & ROW_CLASSES
    ]
    assert guilty == []


def test_no_port_names_what_could_hold_a_row() -> None:
    guilty = [
        f"{path.relative_to(ROOT)}: {function}: {annotation}"
        for path, tree in modules("src/wakeful/domain/ports")
        for function, annotation in annotations(tree)
        if names_in(annotation) & (ROW_CLASSES | CARRIERS)
    ]
    assert guilty == []


@pytest.mark.spec("ORM-3")
@pytest.mark.parametrize("folder", ["src/wakeful/domain/ports", "persistence/wakeful/persistence/repositories"])
def test_what_a_repository_returns_is_concrete(folder: str) -> None:
    """`Any` and a bare dict are no violation of the boundary but an evasion of its check."""
    returned = [
        (f"{path.relative_to(ROOT)}: {function.name}", ast.unparse(function.returns))
        for path, tree in modules(folder)
        for function in public_functions(tree)
        if function.returns
    ]
    assert returned
    evading = [(place, text) for place, text in returned if text == "Any" or text.startswith(("dict", "tuple[Any"))]
    carrying = [(place, text) for place, text in returned if names_in(text) & (ROW_CLASSES | CARRIERS)]
    assert (evading, carrying) == ([], [])


@pytest.mark.spec("ORM-2")
def test_no_model_reads_from_attributes() -> None:
    guilty = [
        str(path.relative_to(ROOT))
        for path, tree in modules(*SOURCES)
        for node in ast.walk(tree)
        if (isinstance(node, ast.keyword) and node.arg in {"from_attributes", "orm_mode"})
        or (isinstance(node, ast.Constant) and node.value in {"from_attributes", "orm_mode"})
    ]
    assert guilty == []


@pytest.mark.spec("ORM-2")
def test_no_domain_type_is_mapped() -> None:
    """Imperative mapping would turn a domain class into a row class without any import."""
    guilty = [
        str(path.relative_to(ROOT))
        for path, tree in modules(*SOURCES)
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and node.attr == "map_imperatively"
    ]
    assert guilty == []
    for info in pkgutil.walk_packages(wakeful.domain.__path__, "wakeful.domain."):
        module = importlib.import_module(info.name)
        for _, value in inspect.getmembers(module, inspect.isclass):
            assert not hasattr(value, "__mapper__"), value


def test_the_domain_imports_only_the_standard_library_pydantic_and_itself() -> None:
    allowed = {*sys.stdlib_module_names, "pydantic", "pydantic_core", "uuid_utils"}
    guilty = [
        f"{path.relative_to(ROOT)}: {name}"
        for path, tree in modules("src/wakeful/domain")
        for name in imports(tree)
        if name.split(".")[0] not in allowed and not name.startswith("wakeful.domain")
    ]
    assert guilty == []
