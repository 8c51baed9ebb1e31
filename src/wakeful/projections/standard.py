"""The projections that every installation has."""

from wakeful.domain.projections import Projection
from wakeful.domain.session_history import SessionHistory
from wakeful.domain.trajectories import Trajectories

__all__ = ["STANDARD"]

STANDARD: tuple[Projection, ...] = (SessionHistory(), Trajectories())
