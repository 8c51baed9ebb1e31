"""What Wakeful costs, as ratios measured in one run on one server. `python benchmarks --help`."""
