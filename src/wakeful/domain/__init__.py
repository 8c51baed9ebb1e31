"""What Wakeful is about: types, state machines, event payloads, errors and ports.

Imports nothing but the standard library, Pydantic and the UUIDv7 generator. Everything else in the
distribution imports this package; it imports nobody.
"""
