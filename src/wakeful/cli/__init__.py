"""The command line: data on standard output, everything else on standard error, exit codes in one table."""
