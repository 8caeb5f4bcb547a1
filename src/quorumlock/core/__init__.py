"""The protocol, written once, without any I/O.

The contract between a procedure and whoever runs it:

1. A procedure is a generator, `Steps[T]`. It yields effects (`effects.py`) and returns its result.
2. A runner performs an effect completely, then resumes the procedure with `next`. Nothing is sent in:
   the answers of a round are in the effect's own tally.
3. A node's failure is a vote (UNKNOWN), never an exception. What a runner does throw into a procedure is
   cancellation or an interrupt, with `throw()`, at the effect that was being performed.
4. A procedure that may leave something behind answers such a throw with a clean-up round, and then raises
   it again. A runner performs that round like any other, shielded from further cancellation.
5. So a started procedure is never `close()`d: a generator that yields under GeneratorExit dies of it.
6. A procedure that is called inside another is always `yield from`-ed. (A test looks for forgotten ones.)
7. Nothing here imports socket, asyncio, threading, time or random: clocks, randomness and tokens are
   handed in with the `Fleet`. That is what lets the simulator run this very code. (A test enforces it.)
"""
