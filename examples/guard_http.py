"""Two holders and one service: the one that slept too long is answered 412.

Needs: pip install quorumlock httpx. The service is called in this process; with a server in front it is the same.
"""

import asyncio
from typing import Any

import httpx

import quorumlock
from quorumlock.guards import FencingAuth, FencingMiddleware

report = {"total": 0}


async def application(scope: Any, receive: Any, send: Any) -> None:
    """Any ASGI application: Starlette, FastAPI, Django. It finds the fence in scope["quorumlock.claim"]."""
    report["total"] += 1
    await send({"type": "http.response.start", "status": 204, "headers": []})
    await send({"type": "http.response.body", "body": b""})


service = FencingMiddleware(application, resource=lambda scope: "report")


async def main() -> None:
    transport = httpx.ASGITransport(service)
    async with (
        quorumlock.connect_async("memory://") as locks,
        httpx.AsyncClient(transport=transport, base_url="http://service") as client,
    ):
        slow = await locks.lock("report", ttl=10, keep=False).acquire()
        locks.engine.clock.advance(60)  # slow sleeps for a minute: its lock expires, and somebody else gets it

        async with locks.lock("report") as lease:
            answer = await client.put("/report", auth=FencingAuth(lease))
            print(f"fence {lease.fence}: {answer.status_code}")

        answer = await client.put("/report", auth=FencingAuth(slow))
        print(f"fence {slow.fence}: {answer.status_code}, {answer.json()['detail']}")
        answer = await client.put("/report")
        print(f"no fence: {answer.status_code}, {answer.json()['detail']}")
        print("the report was written", report["total"], "time")


asyncio.run(main())
