"""The revisions form one line, their names say what they do, and structure never travels with data."""

import ast
import inspect
import re
from pathlib import Path

import pytest
from alembic.script import Script
from support.schema import revisions

from wakeful.persistence.revision import EXPECTED_REVISION

pytestmark = pytest.mark.gate("migration_graph")

ROOT = Path(__file__).parents[2]
NAME = re.compile(r"(?P<revision>[0-9a-f]{12})_(?P<verb>[a-z]+)(_[a-z0-9]+)+\.py")
# A slug is an order to the database. A new verb is welcome; an adjective or a ticket number is not.
IMPERATIVES = {
    *("add", "allow", "backfill", "create", "define", "drop", "enforce", "fill", "grant", "index", "install", "move"),
    *("rename", "repair", "replace", "restore", "revoke", "split", "store", "tighten", "validate", "widen"),
}
REVISIONS = revisions()


def source(script: Script) -> str:
    return Path(script.path).read_text(encoding="utf-8")


def parametrized_by_revision() -> pytest.MarkDecorator:
    return pytest.mark.parametrize("script", REVISIONS, ids=lambda script: script.revision)


@pytest.mark.spec("MIG-1")
def test_there_is_one_head_one_base_and_no_merge() -> None:
    parents = [script.down_revision for script in REVISIONS]
    assert len(REVISIONS) >= 3
    assert all(parent is None or isinstance(parent, str) for parent in parents), "a merge revision has two parents"
    assert parents == [None, *[script.revision for script in REVISIONS[:-1]]]
    assert not any(script.branch_labels or script.dependencies for script in REVISIONS)


@pytest.mark.spec("MIG-1")
@parametrized_by_revision()
def test_a_file_is_named_by_its_revision_and_an_imperative_slug(script: Script) -> None:
    match = NAME.fullmatch(Path(script.path).name)
    assert match, f"{script.path}: want <12 hex>_<imperative_slug>.py"
    assert match["revision"] == script.revision
    assert match["verb"] in IMPERATIVES


@pytest.mark.spec("MIG-1")
@pytest.mark.checkout
def test_every_revision_file_is_part_of_the_graph() -> None:
    folder = ROOT / "migrations" / "wakeful" / "migrations" / "versions"
    assert {Path(script.path).name for script in REVISIONS} == {path.name for path in folder.glob("*.py")}


@pytest.mark.spec("MIG-4")
def test_the_expected_revision_is_the_head() -> None:
    assert REVISIONS[-1].revision == EXPECTED_REVISION


@pytest.mark.spec("MIG-4")
@pytest.mark.checkout
def test_the_expected_revision_is_written_down_and_not_computed() -> None:
    path = ROOT / "persistence" / "wakeful" / "persistence" / "revision.py"
    values = [
        node.value
        for node in ast.parse(path.read_text(encoding="utf-8")).body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "EXPECTED_REVISION"
    ]
    assert [type(value) for value in values] == [ast.Constant]


@pytest.mark.spec("MIG-2")
@parametrized_by_revision()
def test_a_revision_declares_whether_it_moves_rows(script: Script) -> None:
    assert isinstance(script.module.data_revision, bool)


@pytest.mark.spec("MIG-2")
@parametrized_by_revision()
def test_only_a_data_revision_has_no_way_down_and_it_says_what_would_be_lost(script: Script) -> None:
    if not script.module.data_revision:
        assert "NotImplementedError" not in inspect.getsource(script.module.downgrade)
        return
    with pytest.raises(NotImplementedError, match=r"\w+( \S+){5,}"):
        script.module.downgrade()


@pytest.mark.spec("MIG-2")
@parametrized_by_revision()
def test_a_revision_changes_structure_or_rows_and_never_both(script: Script) -> None:
    text = re.sub(r"\bFOR UPDATE\b|ON UPDATE|BEFORE UPDATE", "", source(script))
    structural = re.search(r"\b(CREATE|ALTER|DROP)\s+(TABLE|INDEX|POLICY|FUNCTION|TRIGGER|UNIQUE INDEX)\b", text)
    if script.module.data_revision:
        assert not structural
    else:
        assert not re.search(r"\b(UPDATE|INSERT INTO|DELETE FROM)\s+wakeful\.", text)


@pytest.mark.spec("MIG-2")
@parametrized_by_revision()
def test_a_concurrent_index_build_stands_alone_and_leaves_the_transaction(script: Script) -> None:
    text = source(script)
    builds = re.findall(r"\bINDEX CONCURRENTLY\b|postgresql_concurrently|\bbuild_concurrently\(", text)
    if builds:
        assert "autocommit_block" in text
        assert not re.search(r"\bALTER TABLE\b|\bCREATE TABLE\b", text)


@pytest.mark.spec("LOG-6")
@parametrized_by_revision()
def test_no_revision_writes_to_events(script: Script) -> None:
    assert not re.search(r"(UPDATE|INSERT INTO|DELETE FROM)\s+(ONLY\s+)?(wakeful\.)?events\b", source(script))


@pytest.mark.spec("MIG-5")
def test_no_schema_is_made_without_the_migrations() -> None:
    for folder in ("tests", "src", "persistence", "actors", "scheduler", "benchmarks", "migrations"):
        for path in (ROOT / folder).rglob("*.py"):
            tree = ast.parse(path.read_text(encoding="utf-8"))
            used = [node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)]
            assert "create_all" not in used, f"{path} makes tables from the metadata"
