"""Faults on purpose, and the means to judge what they left: an effect ledger outside the database, and replay."""
