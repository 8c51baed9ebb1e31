"""`python -m wakeful`."""

from wakeful.cli.main import main

main()
