"""Two hand-written functions per table: a stored row to a domain value, and a domain value to column values."""
