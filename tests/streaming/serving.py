"""A process with a stream gateway: `python -m tests.streaming.serving DRAIN_SECONDS`; prints its port, then serves."""

import asyncio
import sys

from services.gateway.sse.hub import Hub
from services.gateway.sse.peer import StreamProtocol
from services.lifecycle import Life, listen, run, serve
from tests.support.streaming import FakeBroker, Log, stream_app


async def main(drain_seconds: float) -> int:
    log, broker, life = Log(), FakeBroker(), Life()
    for _ in range(2000):
        log.append("session", pad=4000)
    async with Hub(log, broker) as hub:
        listener = listen("127.0.0.1", 0)
        print(listener.getsockname()[1], flush=True)
        with life.signals():
            await serve(
                stream_app(hub), listener, life, drain=lambda: hub.drain(drain_seconds), protocol=StreamProtocol
            )
    assert len(asyncio.all_tasks()) == 1
    return 0


if __name__ == "__main__":
    sys.exit(run(main(float(sys.argv[1]))))
