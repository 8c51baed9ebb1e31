"""Every crash point of a run: a process that dies before or after its n-th SQL statement or tool effect.

An experiment is a run and the places where its executor is killed; what is left is taken up by a process that is
killed at the next place, and in the end by one that is not. Its name (`batch:14:after`) reproduces it.
"""

from wakeful.faults.crashes.experiments import Crash, Experiment, parse_experiment
from wakeful.faults.crashes.lab import Lab, Outcome

__all__ = ["Crash", "Experiment", "Lab", "Outcome", "parse_experiment"]
