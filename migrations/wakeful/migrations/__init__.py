"""The schema's history: Alembic revisions in one line, each either structure or data, never both.

A process never migrates by itself. `wakeful db upgrade` walks the revisions and then sets up the roles;
everything else compares the database with `wakeful.persistence.revision.EXPECTED_REVISION` and refuses.
"""
