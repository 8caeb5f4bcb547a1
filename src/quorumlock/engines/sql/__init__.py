"""What databases have in common: the locks are rows, compared and set.

A visit is a generator: it yields a `Batch` of queries and is sent their results. Which driver carries them, and
whether it waits in a thread or on an event loop, is the business of `postgresql`, `mysql` and `pools.py`.
"""
