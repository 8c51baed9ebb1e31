"""The PL/pgSQL functions, one file per version: `append_v1.sql`, then `append_v2.sql`, never edited after a release.

A revision installs one with `op.execute(load_function("append_v1.sql"))`, and its `downgrade()` drops it
or installs the version before. Keeping every version as a file is what makes that possible.
"""

from pathlib import Path

from sqlalchemy import TextClause, text

__all__ = ["load_function"]

_FOLDER = Path(__file__).parent


def load_function(name: str) -> TextClause:
    """The statements of one file, ready for `op.execute`; FileNotFoundError names what there is.

    Colons are escaped, so that a slice or a label inside a function body is not taken for a parameter.
    """
    path = _FOLDER / name
    if not path.is_file():
        known = ", ".join(sorted(file.name for file in _FOLDER.glob("*.sql"))) or "none yet"
        raise FileNotFoundError(f"no function file {name!r} beside {_FOLDER.name}/__init__.py; there is: {known}")
    return text(path.read_text(encoding="utf-8").replace(":", r"\:"))
