"""Replay: recorded conversations through the whole system, under faults, and compared afterwards.

How a recording becomes runs is told by `wakeful.models.recording`; what is compared, and how, by `normal_form`.
"""
