"""The demonstration: a support desk over an order book, run twice, once in peace and once under faults.

`desk` is the app (tools, agent), `stories` the conversations, `acting` plays them as their owners would, `scenes`
is what is shown, `command` is `wakeful demo`.
"""
