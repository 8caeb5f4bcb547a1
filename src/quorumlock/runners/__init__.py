"""How effects are performed: with threads, with asyncio, or in simulated time."""
