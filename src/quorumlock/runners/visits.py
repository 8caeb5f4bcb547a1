"""Visits to all nodes at a time, each over a connection of its own: what locks are doing is not disturbed."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar

from ..core.states import NodeState
from ..engines.base import Engine, LoopStore, Store, Visit, Visitable
from .base import reason

T = TypeVar("T")
READ_SIZE = 65536
MANY = 1000


def states(engine: Engine, samples: int) -> tuple[NodeState, ...]:
    """How the nodes are doing."""
    if isinstance(engine, Store):
        return engine.states(samples)
    assert isinstance(engine, Visitable)
    return engine.judged(visit_all(engine, lambda: engine.look(samples)))


async def states_async(engine: Engine, samples: int) -> tuple[NodeState, ...]:
    """The same for asyncio."""
    if isinstance(engine, LoopStore):
        return await engine.states_async(samples)
    if isinstance(engine, Store):
        return await asyncio.to_thread(engine.states, samples) if engine.blocking else engine.states(samples)
    assert isinstance(engine, Visitable)
    return engine.judged(await visit_all_async(engine, lambda: engine.look(samples)))


def visit_all(engine: Visitable, ask: Callable[[], Visit[T]]) -> list[T | str]:
    """What each node said; or, as text, why it said nothing."""
    from concurrent.futures import ThreadPoolExecutor

    count = len(engine.labels)
    with ThreadPoolExecutor(count, "quorumlock-visit") as pool:
        return list(pool.map(lambda index: _visit(engine, index, ask()), range(count)))


async def visit_all_async(engine: Visitable, ask: Callable[[], Visit[T]]) -> list[T | str]:
    """The same for asyncio."""
    return await asyncio.gather(*(_visit_async(engine, index, ask()) for index in range(len(engine.labels))))


def _visit(engine: Visitable, index: int, visit: Visit[T]) -> T | str:
    try:
        connection = engine.open(index)
    except Exception as error:  # whatever redis-py raises
        return reason(error)
    try:
        sock = connection._sock
        step: bytes | float = next(visit)
        while True:
            if isinstance(step, float):
                time.sleep(step)
                step = visit.send(b"")
                continue
            try:
                if step:
                    sock.sendall(step)
                data = sock.recv(READ_SIZE)
            except OSError as error:
                return _silence(engine, error)
            if not data:
                return "closed the connection"
            step = visit.send(data)
    except StopIteration as done:
        return done.value  # type: ignore[no-any-return]
    except PermissionError as error:
        return reason(error)
    except ValueError as error:  # bytes that are no answer
        return f"is no Redis or Valkey server, or something lies between ({reason(error)})"
    finally:
        with suppress(OSError):
            connection.disconnect()


async def _visit_async(engine: Visitable, index: int, visit: Visit[T]) -> T | str:
    try:
        connection = await engine.open_async(index)
    except Exception as error:
        return reason(error)
    try:
        step: bytes | float = next(visit)
        while True:
            if isinstance(step, float):
                await asyncio.sleep(step)
                step = visit.send(b"")
                continue
            try:
                data = await asyncio.wait_for(_exchange(connection, step), engine.visit_timeout)
            except OSError as error:  # TimeoutError is one
                return _silence(engine, error)
            if not data:
                return "closed the connection"
            step = visit.send(data)
    except StopIteration as done:
        return done.value  # type: ignore[no-any-return]
    except PermissionError as error:
        return reason(error)
    except ValueError as error:  # bytes that are no answer
        return f"is no Redis or Valkey server, or something lies between ({reason(error)})"
    finally:
        await connection.disconnect(nowait=True)


async def _exchange(connection: Any, data: bytes) -> bytes:
    if data:
        connection._writer.write(data)
    return await connection._reader.read(READ_SIZE)  # type: ignore[no-any-return]


def _silence(engine: Visitable, error: OSError) -> str:
    if isinstance(error, TimeoutError):
        return f"did not answer within {engine.visit_timeout:g} s"
    return reason(error)
