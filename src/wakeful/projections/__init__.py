"""The projection engine: states follow the log, in any number of processes at once, and can be built anew."""
