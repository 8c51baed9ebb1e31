"""The composition root: settings, and the one place where ports meet their adapters.

`build` composes what one process needs; `stack` composes processes. Nothing below this package imports it,
`wakeful.actors.boot` excepted (the Dramatiq command loads that, so it has to compose a process itself).
"""
