"""The store: every operation of SPEC-0003, blocking, on a session that somebody else opened and will commit.

Verbs are batch-shaped: a list of commands in, an outcome for each out, in order. Agents' verbs take the endpoint as their
scope; the operator's twins live in `operator.py`, which nothing on the agents' path may import.
"""
