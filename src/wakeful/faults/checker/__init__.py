"""Whether what a database holds can have come about: read-only, by rules that know nothing of the product's own code.

It reads rows and payloads as they are stored and folds them itself, so that a defect of the product's folding cannot
hide behind itself. Usable on any database of Wakeful, while it is at work: each tenant is read in one snapshot.
"""

from wakeful.faults.checker.checking import Checked, check_database, check_snapshot, check_tenant
from wakeful.faults.checker.effects import check_effects
from wakeful.faults.checker.findings import Finding
from wakeful.faults.checker.server import ServerWatch

__all__ = ["Checked", "Finding", "ServerWatch", "check_database", "check_effects", "check_snapshot", "check_tenant"]
