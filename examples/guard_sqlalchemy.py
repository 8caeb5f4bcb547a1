"""The guard table through SQLAlchemy: a Session for threads, an AsyncSession for asyncio."""

import asyncio
import tempfile
from pathlib import Path

from sqlalchemy import create_engine
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

import quorumlock
from quorumlock.guards import AsyncSQLGuard, SQLGuard


class Base(DeclarativeBase):
    pass


class Report(Base):
    __tablename__ = "report"
    id: Mapped[int] = mapped_column(primary_key=True)
    total: Mapped[int]


def in_a_session(url: str, lock: quorumlock.Lock) -> quorumlock.Lease:
    engine, guard = create_engine(url), SQLGuard()
    Base.metadata.create_all(engine)
    with Session(engine) as session, session.begin():
        guard.create(session)
        session.add(Report(id=1, total=0))
    paused = lock.acquire()
    paused.release()
    with lock as lease, Session(engine) as session, session.begin():
        guard.enter(session, lease)
        report = session.get_one(Report, 1)
        guard.admit(session, lease)
        report.total += 10
        print(f"fence {lease.fence} wrote {report.total}")
    engine.dispose()
    return paused


async def in_an_async_session(url: str, paused: quorumlock.Lease) -> None:
    engine, guard = create_async_engine(url), AsyncSQLGuard()
    try:
        async with AsyncSession(engine) as session, session.begin():
            report = await session.get_one(Report, 1)
            report.total = 1
            await guard.admit(session, paused)
    except quorumlock.StaleFence as stale:
        print(f"refused: {stale}")
    async with AsyncSession(engine) as session:
        print("total:", (await session.get_one(Report, 1)).total)
    await engine.dispose()


with tempfile.TemporaryDirectory() as folder, quorumlock.connect("memory://") as locks:
    file = Path(folder) / "reports"
    paused = in_a_session(f"sqlite:///{file}", locks.lock("report", keep=False))
    asyncio.run(in_an_async_session(f"sqlite+aiosqlite:///{file}", paused))
