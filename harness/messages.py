"""Messages between the judge and the worker process: their schema, and the socket that carries them as JSON.

A message is a length of four bytes, most significant first, and that many bytes of JSON. The judge sends a Request and
the worker answers with a Reply of the same number. msgspec checks both against the classes here; what does not fit
raises MalformedMessage.
"""

from __future__ import annotations

import selectors
import socket
import struct
import time
from contextlib import suppress
from typing import Annotated, Literal

import msgspec

LENGTH = struct.Struct("!I")
MAX_BYTES = 64 * 2**20  # size limit of a message; the longest are the counts of a call with many launches
MAX_TEXT = 100_000  # characters of an error, its traceback or a report
MAX_NAME = 200  # characters of a type's, a device's or a kernel's name


MAX_DIMENSIONS = 64  # dimensions of a tensor
MAX_ITEMS = 10_000  # outputs, launches or lines of a message
MAX_NAMES = 500  # plans, figures, allocations or roles of a message: each is a row or a column of a table
MAX_COUNT = 2**63 - 1
MAX_US = 1e9  # time of a modelled call
MAX_NS = 1e15  # time of a timed call

Text = Annotated[str, msgspec.Meta(max_length=MAX_TEXT)]
Name = Annotated[str, msgspec.Meta(max_length=MAX_NAME)]
Count = Annotated[int, msgspec.Meta(ge=0, le=MAX_COUNT)]
Share = Annotated[float, msgspec.Meta(ge=0, le=2)]  # share of a rate; above 1 where the rate itself is modelled
Row = msgspec.Meta(max_length=MAX_NAMES)
Items = msgspec.Meta(max_length=MAX_ITEMS)


class MalformedMessage(Exception):
    """Bytes that are no message, or a message of an unexpected class."""


class Message(msgspec.Struct, tag=True, tag_field="message", forbid_unknown_fields=True):
    """Plain data that crosses the socket."""


# ---- Data: an input tuple, with its tensors' bytes in the shared memory ----


class Tensor(Message):
    """A tensor: a span of memory that starts at its first element."""

    shape: tuple[int, ...]
    stride: tuple[int, ...]  # elements
    dtype: str  # torch's name, without "torch."
    device: str  # "cuda" or "cpu"
    offset: int  # bytes from the start of the shared memory to the first element


class Nested(Message):
    """A tuple or a list of tensors, integers and sequences."""

    kind: Literal["tuple", "list"]
    items: tuple[Tensor | Nested | int, ...]


# ---- Requests ----


class Store(Message):
    """Make the input tuple `data` from the shared memory and keep it under the number `slot`. Answer: Done.

    in_place: give the slot's tensors, which have the same layout, the new values.
    """

    slot: int
    data: Nested
    memory_bytes: int  # size of the shared memory
    in_place: bool = False


class Call(Message):
    """Call the submission on the inputs of the slots, in turn, then wait for the device. Answer: Called.

    clone: call it on a fresh copy of each input, as the contest does.
    counted: the emulator counts the launches. recorded: it records them for Clock, in place of earlier ones.
    """

    slots: tuple[int, ...]
    clone: bool
    counted: bool = False
    recorded: bool = False


class Fetch(Message):
    """Copy the result of the last call on the slot to the shared memory. Answer: Outputs.

    places: expected shape and dtype of each tensor, with the place of its contiguous elements.
    """

    slot: int
    places: tuple[Tensor, ...]
    memory_bytes: int


class Time(Message):
    """Call the submission on the inputs of slots 0 to `slots` - 1, back to back between two events. Answer: Timed."""

    slots: int


class Clock(Message):
    """Replay the recorded call on a chip as a loop of `calls` calls; chip: a profile's name or file. Answer: Clocked.

    timeline, picture: files for the replayed calls, as ordinary launches; empty for none.
    """

    chip: str
    calls: int
    timeline: str = ""
    picture: str = ""


class Why(Message):
    """Continue the replays of the loop, in ordinary launches, each with one cost left out. Answer: Explained.

    The judge repeats the request until the answer has lines.
    """

    chip: str
    calls: int


class Overwrite(Message):
    """Fill the outputs of slots 0 to `slots` - 1 with NaN. Answer: Done."""

    slots: int


class Profile(Message):
    """Profile one call on the slot's input. Answer: Profiled."""

    slot: int


class Plan(Message):
    """Give the submission's own account of its launches for these sizes. Answer: Planned."""

    problem: str
    sizes: tuple[tuple[int, int, int, int], ...]  # (M, N, K, L) of each group


class Offer(Plan):
    """Name the plans that can be forced on a call of these sizes. Answer: Offered."""


class Force(Message):
    """Launch in this plan, one of those offered, until Finish. Answer: Done."""

    plan: str


class Finish(Message):
    """Forget all slots and the forced plan, and release cached device memory. Answer: Finished."""


Request = Store | Call | Fetch | Time | Clock | Why | Overwrite | Profile | Plan | Offer | Force | Finish

# ---- Replies ----


class Ready(Message):
    """The worker runs. The message answers no request and has number 0."""

    device: Name


class Done(Message):
    """The request has been carried out."""


class Launch(Message):
    """Counts of one launch on the emulator, with the names of its counters."""

    kernel: Text
    grid: tuple[Count, Count, Count]
    cluster: tuple[Count, Count, Count]
    schedule: Name
    ctas: Count
    warp_instructions: Count
    mma: Count
    mma_flops: Count
    stored_bytes: Count
    tma_load_requested_bytes: Count
    tma_load_unique_bytes: Count
    per_allocation: Annotated[dict[Text, tuple[Count, Count]], Row]


class Called(Message):
    """The calls have returned and the device has finished them."""

    launches: Annotated[tuple[Launch, ...], Items] = ()


class Output(Message):
    """One item of a call's result."""

    type: Name
    is_plain: bool  # a torch.Tensor, not of a subclass, and strided
    shape: Annotated[tuple[Count, ...], msgspec.Meta(max_length=MAX_DIMENSIONS)] = ()
    dtype: Name = ""
    device: Name = ""
    fault: Name = ""  # name of the other owner of its memory; empty if the item may be where it is


class Outputs(Message):
    """The result of a call. A tensor of the expected shape and dtype has been copied to its place."""

    container: Name  # type that holds the items; empty for a lone tensor
    is_plain: bool  # a list, not of a subclass, or a lone tensor
    items: Annotated[tuple[Output, ...], Items]


class Timed(Message):
    """The mean time of a call, in nanoseconds."""

    nanoseconds: Annotated[float, msgspec.Meta(gt=0, le=MAX_NS)]


class Modelled(Message):
    """Modelled figures of a loop."""

    us: Annotated[float, msgspec.Meta(gt=0, le=MAX_US)]  # time of a call
    utilisation: Annotated[dict[Name, Share], Row]  # part of the chip -> share of its rate
    waits: Annotated[dict[Name, tuple[Name, Share]], Row]  # role -> longest wait of its warps, share of their time


class Clocked(Message):
    """Result of a loop's replay: its modelled figures."""

    chip: Name
    band: Name  # text on the known error of the model
    ordinary: Modelled  # figures as ordinary launches
    programmatic: Modelled | None  # figures as launched, if any launch has the programmatic attribute
    files: Annotated[tuple[Text, ...], Row] = ()  # lines about written files and failures to write


class Explained(Message):
    """Progress or result of replays that ask what would make a loop faster."""

    done: Count
    total: Count
    lines: Annotated[tuple[Text, ...], Row] = ()  # results, after the last replay


class Profiled(Message):
    """A profiler's report, as text; empty where a profiler outside of the process makes it."""

    report: Text


class Planned(Message):
    """The submission's account of its launches: label -> figure; empty if it gives none."""

    plan: Annotated[dict[Name, Name], Row]


class Offered(Message):
    """The plans that can be forced, and the chosen one; none if the submission or the problem leaves no choice."""

    plans: Annotated[tuple[Name, ...], Row]
    chosen: Name = ""


class Finished(Message):
    """The case is finished. is_usable: the worker's device can run another one."""

    is_usable: bool


class Failed(Message):
    """The request raised an exception."""

    error: Text
    traceback: Text


Reply = Ready | Done | Called | Outputs | Timed | Clocked | Explained | Profiled | Planned | Offered | Finished | Failed


class NumberedRequest(msgspec.Struct, forbid_unknown_fields=True):
    """A request and its number, from 1 on."""

    number: int
    body: Request


class NumberedReply(msgspec.Struct, forbid_unknown_fields=True):
    """A reply and the number of its request."""

    number: int
    body: Reply


REQUESTS = msgspec.json.Decoder(NumberedRequest)
REPLIES = msgspec.json.Decoder(NumberedReply)

# ---- Transport ----


def encode(message: NumberedRequest | NumberedReply) -> bytes:
    """The bytes of a message: its length, then its JSON."""
    text = msgspec.json.encode(message)
    return LENGTH.pack(len(text)) + text


def decode_reply(text: bytes, number: int, *expected: type[Message]) -> Message:
    """The body of the reply to this request, of an expected class. Raises MalformedMessage for others."""
    try:
        reply = REPLIES.decode(text)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise MalformedMessage(f"{error}, in {text[:100]!r}") from None
    if reply.number != number:
        raise MalformedMessage(f"the reply to request {reply.number}, where that to {number} is due")
    if not isinstance(reply.body, expected):
        names = " or ".join(one.__name__ for one in expected)
        raise MalformedMessage(f"{type(reply.body).__name__}, where {names} is due")
    return reply.body


def receive(connection: socket.socket) -> bytes | None:
    """Wait without limit for the next message. Returns its JSON, or None at the end of the stream."""
    header = connection.recv(LENGTH.size, socket.MSG_WAITALL)
    if len(header) < LENGTH.size:
        return None
    return connection.recv(LENGTH.unpack(header)[0], socket.MSG_WAITALL)


class Lost(Exception):
    """The other side's process has ended."""


class Channel:
    """The judge's end of the socket. The process at the other end may do anything, so every wait has a deadline."""

    def __init__(self, connection: socket.socket, process: int):
        """process: a pidfd of the worker, which shows its end even if another process holds the socket open."""
        self.connection, self.process = connection, process
        connection.setblocking(False)
        self.selector = selectors.DefaultSelector()
        self.selector.register(process, selectors.EVENT_READ)
        self.selector.register(connection, selectors.EVENT_READ)

    def hang_up(self) -> None:
        """Signal the end of the stream to the other side, if it is there."""
        with suppress(OSError):
            self.connection.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        self.selector.close()
        self.connection.close()

    def send(self, data: bytes, deadline: float) -> None:
        """Send all bytes. Raises Lost, or TimeoutError at the deadline (in time.monotonic's seconds)."""
        while data:
            self._wait(selectors.EVENT_WRITE, deadline)
            try:
                data = data[self.connection.send(data) :]
            except OSError:
                raise Lost from None

    def receive(self, deadline: float) -> bytes:
        """The next message's JSON. Raises Lost, TimeoutError, or MalformedMessage for a length above the limit."""
        (length,) = LENGTH.unpack(self._receive(LENGTH.size, deadline))
        if length > MAX_BYTES:
            raise MalformedMessage(f"a length of {length} bytes, the limit is {MAX_BYTES}")
        return self._receive(length, deadline)

    def _receive(self, count: int, deadline: float) -> bytes:
        data = bytearray()
        while len(data) < count:
            self._wait(selectors.EVENT_READ, deadline)
            try:
                part = self.connection.recv(count - len(data))
            except OSError:
                raise Lost from None
            if not part:
                raise Lost
            data += part
        return bytes(data)

    def _wait(self, event: int, deadline: float) -> None:
        """Wait until the socket is ready. Bytes that a process sent before its end can still be read."""
        self.selector.modify(self.connection, event)
        while True:
            remaining = deadline - time.monotonic()
            if remaining <= 0:
                raise TimeoutError
            ready = {key.fd for key, _ in self.selector.select(remaining)}
            if self.connection.fileno() in ready:
                return
            if self.process in ready:
                raise Lost
