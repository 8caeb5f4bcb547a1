"""The front for asyncio."""
