"""The wheel installs the one name `wakeful` and everything that belongs to it."""

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

pytestmark = pytest.mark.checkout

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def wheel_names(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """What hatchling puts into the wheel, built with the build tool of this environment."""
    folder = tmp_path_factory.mktemp("wheel")
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)],
        cwd=ROOT,
        check=True,
        capture_output=True,
    )
    (wheel,) = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        return archive.namelist()


def test_it_installs_nothing_but_wakeful_and_its_metadata(wheel_names: list[str]) -> None:
    tops = {name.partition("/")[0] for name in wheel_names}
    assert "wakeful" in tops
    assert [top for top in tops - {"wakeful"} if not top.endswith(".dist-info")] == []


def test_it_holds_every_file_of_every_root(wheel_names: list[str]) -> None:
    """Templates, statements and type markers too, which no import would miss in the checkout."""
    wanted = {
        path.relative_to(root.parent).as_posix()
        for root in ROOT.glob("*/wakeful")
        for path in root.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert wanted - set(wheel_names) == set()


def test_it_does_not_make_wakeful_a_regular_package(wheel_names: list[str]) -> None:
    assert "wakeful/__init__.py" not in wheel_names
