"""An effect ledger: an outside service that knows what really happened.

A process of its own with a file of its own, so neither a killed worker nor the database can change its mind. It is
told of every effect under an idempotency key. Asked `once`, it takes a key one time, makes it durable, and answers
a repeated key with what it stored, counting it as replayed. Otherwise it takes every request, so that an effect
that was repeated shows.
"""

from wakeful.faults.ledger.book import Book, Effect, judge_book, read_book
from wakeful.faults.ledger.client import LedgerClient, LedgerUnreachable, Recorded
from wakeful.faults.ledger.process import LedgerProcess

__all__ = [
    "Book",
    "Effect",
    "LedgerClient",
    "LedgerProcess",
    "LedgerUnreachable",
    "Recorded",
    "judge_book",
    "read_book",
]
