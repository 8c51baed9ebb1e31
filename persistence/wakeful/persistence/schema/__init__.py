"""Schema operations for operators: upgrade a database, or say what is wrong with it.

Nothing else in Wakeful changes a schema. Both functions are synchronous, take the direct address, and need
no event loop.
"""

from wakeful.persistence.schema.report import SchemaReport, check, sql_for_administrator
from wakeful.persistence.schema.upgrade import UpgradeResult, upgrade

__all__ = ["SchemaReport", "UpgradeResult", "check", "sql_for_administrator", "upgrade"]
