"""Dramatiq and the worker pool: wakeups in, claims out.

A message says "look now" and nothing else. It is acknowledged at once and executes nothing: runs are executed by the
pool, which claims them from the database and polls by itself, so losing every message costs a poll interval each.
"""
