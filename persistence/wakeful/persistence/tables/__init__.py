"""One declarative row class per table, equal to the schema that the migrations build.

A row class never leaves `wakeful.persistence`. Constraint and index names are part of the contract:
errors are told apart by them.
"""

from wakeful.persistence.tables.artifacts import ArtifactRow
from wakeful.persistence.tables.base import SCHEMA, Base, metadata
from wakeful.persistence.tables.checkpoints import RunCheckpointRow
from wakeful.persistence.tables.deletions import SessionDeletionArtifactRow, SessionDeletionRow
from wakeful.persistence.tables.events import EventRow
from wakeful.persistence.tables.exports import ExportConsentRow, TrajectoryExportRow
from wakeful.persistence.tables.idempotency_keys import IdempotencyKeyRow
from wakeful.persistence.tables.installation import InstallationRow, SweepTickRow
from wakeful.persistence.tables.invocations import ToolInvocationRow
from wakeful.persistence.tables.projections import (
    DerivedEventKeyRow,
    ProjectionDocumentRow,
    ProjectionStateRow,
    ProjectionWatermarkRow,
)
from wakeful.persistence.tables.runs import RunRow
from wakeful.persistence.tables.sessions import SessionRow
from wakeful.persistence.tables.tenants import TenantRow

__all__ = [
    "SCHEMA",
    "ArtifactRow",
    "Base",
    "DerivedEventKeyRow",
    "EventRow",
    "ExportConsentRow",
    "IdempotencyKeyRow",
    "InstallationRow",
    "ProjectionDocumentRow",
    "ProjectionStateRow",
    "ProjectionWatermarkRow",
    "RunCheckpointRow",
    "RunRow",
    "SessionDeletionArtifactRow",
    "SessionDeletionRow",
    "SessionRow",
    "SweepTickRow",
    "TenantRow",
    "ToolInvocationRow",
    "TrajectoryExportRow",
    "metadata",
]
