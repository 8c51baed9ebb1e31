"""Ports: what the core asks of the outside, as transitions in the words of the domain.

Each method is one unit of work: when it returns, its transaction is committed; when it raises, nothing of it
happened (OutcomeUnknown excepted: do it again). None keeps a transaction open across anything but SQL.
"""
