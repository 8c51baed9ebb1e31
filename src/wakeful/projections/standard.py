"""The projections that every installation has."""

from wakeful.domain.projections import Projection
from wakeful.domain.session_history import SessionHistory

__all__ = ["STANDARD"]

STANDARD: tuple[Projection, ...] = (SessionHistory(),)
