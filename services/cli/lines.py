"""Lines of standard input for a program that must not block on them."""

import asyncio
import os
import sys
import threading

_WAITING_LINES = 16


class Lines:
    """Lines typed or piped, without their ends; None once at the end of the input.

    A thread reads, since a terminal cannot be made non-blocking without making standard output so too, and a regular
    file cannot be polled. It is a daemon and reads the descriptor itself: a buffered reader's lock, held at exit, would
    abort the interpreter. Only a few lines are read ahead.
    """

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._queue: asyncio.Queue[str | None] = asyncio.Queue(maxsize=_WAITING_LINES)
        threading.Thread(target=self._read, name="stdin", daemon=True).start()

    async def next(self) -> str | None:
        return await self._queue.get()

    def _read(self) -> None:
        rest = b""
        while got := os.read(sys.stdin.fileno(), 65536):
            *whole, rest = (rest + got).split(b"\n")
            for line in whole:
                self._put(line)
        if rest:
            self._put(rest)
        self._put(None)

    def _put(self, line: bytes | None) -> None:
        text = None if line is None else line.decode(errors="replace").rstrip("\r")
        try:
            asyncio.run_coroutine_threadsafe(self._queue.put(text), self._loop).result()
        except (RuntimeError, asyncio.CancelledError):
            raise SystemExit from None  # the loop is gone: nobody reads any more
