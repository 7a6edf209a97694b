"""Copies a worker's output to this process's own, in a thread, up to a limit and without control characters.

The worker has pipes in place of this process's descriptors. So the worker cannot write after the verdict, into a file
to which the descriptors lead, or to a terminal. A terminal that is stopped stops only the worker, whose time runs.
"""

from __future__ import annotations

import codecs
import os
import select
import threading
from collections.abc import Sequence
from contextlib import suppress

from harness.results import clean

MOST_BYTES = 1 << 20  # limit of each output that is shown
BLOCK_BYTES = 1 << 16
END_TIMEOUT_S = 5


class Relay:
    """Two pipes, for a worker's stdout and stderr, and the thread that reads them."""

    def __init__(self, outputs: Sequence[int | None] = (1, 2)):
        """outputs: descriptors to which stdout and stderr are copied; None drops the text."""
        self.outputs = outputs
        pipes = [os.pipe() for _ in range(2)]
        self.reading, self.writing = zip(*pipes)
        self.thread = threading.Thread(target=self._copy, daemon=True)

    def start(self) -> None:
        """Start reading, after the worker has the writing ends."""
        for fd in self.writing:
            os.close(fd)
        self.thread.start()

    def end(self) -> None:
        """Wait until all written text is shown. No process may have the writing ends any more."""
        self.thread.join(END_TIMEOUT_S)

    def _copy(self) -> None:
        streams = dict(zip(self.reading, map(_Stream, self.outputs)))
        poll = select.poll()
        for fd in streams:
            poll.register(fd, select.POLLIN)
        while streams:
            for fd, _ in poll.poll():
                block = os.read(fd, BLOCK_BYTES)
                streams[fd].add(block)
                if not block:
                    poll.unregister(fd)
                    os.close(fd)
                    del streams[fd]


class _Stream:
    def __init__(self, fd: int | None):
        """fd: the descriptor to write to; None drops the text."""
        self.fd, self.remaining, self.dropped = fd, MOST_BYTES, 0
        self.decoder = codecs.getincrementaldecoder("utf-8")("backslashreplace")

    def add(self, block: bytes) -> None:
        """Show some bytes; an empty block is the end."""
        if self.fd is None:
            return
        kept = block[: self.remaining]
        self.remaining -= len(kept)
        self.dropped += len(block) - len(kept)
        text = clean(self.decoder.decode(kept, final=not block))
        if not block and self.dropped:
            text += f"\n({self.dropped:,} bytes more of the submission's output are not shown)\n"
        data = text.encode(errors="backslashreplace")
        with suppress(OSError):  # a closed descriptor, or a full one that another process has made non-blocking
            while data:
                data = data[os.write(self.fd, data) :]
