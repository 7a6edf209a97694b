"""Messages to the judge on the worker's own socket; see harness.messages."""

import json
import os
import pickle
import socket
import stat
import sys
import tempfile
import threading
import time
from contextlib import suppress
from pathlib import Path

from harness import messages
from harness.shared_memory import dtype_name
from tests.submissions.hostile import kit
from tests.submissions.hostile.kit import ANY, PASSES, PROOF, folder, kind, patch, right, zeros

HUGE = 100_000_000  # bytes
FORGED = "\ntest.0.status: pass\ncheck: pass\n\x1b[2J"


def sockets():
    """The descriptors of this process's sockets."""
    found = []
    for name in os.listdir("/proc/self/fd"):
        with suppress(OSError):  # descriptor of the listing itself
            if stat.S_ISSOCK(os.fstat(int(name)).st_mode):
                found.append(int(name))
    return found


def send(raw):
    """Write bytes to every socket."""
    for fd in sockets():
        rest = memoryview(raw)
        while rest:
            rest = rest[os.write(fd, rest) :]


def framed(payload):
    """A whole message with this text."""
    return messages.LENGTH.pack(len(payload)) + payload


def request_number():
    """The number of the request that this process is carrying out."""
    frame = sys._getframe()
    while frame:
        for value in list(frame.f_locals.values()):
            if isinstance(value, messages.NumberedRequest):
                return value.number
        frame = frame.f_back
    raise LookupError("no request")


def reply(body, ahead=0):
    """The reply to the present request, or to one ahead of it."""
    return messages.encode(messages.NumberedReply(request_number() + ahead, body))


def returned(data):
    """The description of outputs without a fault."""
    items = tuple(
        messages.Output("Tensor", True, tuple(c.shape), dtype_name(c.dtype), "cuda:0", "") for _, _, c in data[0]
    )
    return messages.Outputs("list", True, items)


def conversation(data):
    """Replies to the requests of a case from its first call on, as a worker with right results gives them."""
    bodies = [messages.Called(), returned(data)]
    for _ in range(2):
        bodies += [messages.Done(), messages.Called(), returned(data)]
    bodies += [returned(data), messages.Finished(True)]
    return b"".join(reply(body, ahead) for ahead, body in enumerate(bodies))


@kind()
def forged_then_exit(data):
    """The replies of a right result, then the process ends with 0"""
    send(conversation(data))
    os._exit(0)


@kind(timeout_s=4)
def forged_then_silence(data):
    """The replies of a right result, then nothing"""
    send(conversation(data))
    time.sleep(600)


kind("reply_before_request", "Replies that nobody has asked for yet, when it is imported", at_import=True)(
    lambda: send(reply(messages.Called()) + reply(messages.Done(), 1) + reply(messages.Finished(True), 2))
)


@kind(then=("all_zeros", "all_zeros"))
def replies_ahead(data):
    """A right result, with the replies to all requests of the next cases already on the way"""
    send(b"".join(reply(body, ahead) for ahead in range(1, 60) for body in (messages.Done(), returned(data))))
    return right(data)


kind("replies_twice", "Each reply twice")(lambda: send(reply(messages.Called())))
kind("other_number", "The reply to a request of long ago")(lambda: send(reply(messages.Called(), -1)))


class RunsInTheReader:
    """Unpickling it writes the reader's process id into the run's folder."""

    def __reduce__(self):
        path = str(folder() / PROOF)
        return exec, (f"import os; open({path!r}, 'w').write(str(os.getpid()))",)


kind("pickled_code", "A pickle that runs code where it is read")(lambda: send(framed(pickle.dumps(RunsInTheReader()))))


# ---- Messages that break the format ----


def message(name, payload, tries):
    """Register a kind that sends `payload` as one message and returns zeros; # stands for the request's number."""
    kind(name, tries)(lambda: send(framed(payload.replace(b"#", str(request_number()).encode()))))


message("garbage_message", os.urandom(200).replace(b"#", b""), "A message of random bytes")
message("empty_message", b"", "An empty message")
message("message_null", b"null", "The message null")
message("message_list", b"[]", "A list where an object is wanted")
message("message_number", b'{"number": 1e999, "body": {"message": "Called"}}', "A number that is infinite")
message("message_nan", b'{"number": #, "body": {"message": "Timed", "nanoseconds": NaN}}', "NaN, which JSON lacks")
message("message_unknown", b'{"number": #, "body": {"message": "Called", "check": "pass"}}', "An unknown field")
message("message_missing", b'{"number": #}', "No body")
message("message_of_no_class", b'{"number": #, "body": {"message": "Passed"}}', "A class that there is not")
message("message_wrong_types", b'{"number": #, "body": {"message": "Called", "launches": 7}}', "Another type")
message("message_wrong_class", b'{"number": #, "body": {"message": "Done"}}', "A reply of another class")
message("message_request", b'{"number": #, "body": {"message": "Finish"}}', "A request in place of a reply")
message("message_twice_a_key", b'{"number": #, "number": 0, "body": {"message": "Called"}}', "A key twice")
message("message_deep", b'{"number":' + b"[" * 100_000, "100,000 lists in one another")
message("message_not_utf8", b'{"number": #, "body": "\xff\xfe\xed\xa0\x80"}', "A text that is not UTF-8")
message("message_long_integer", b'{"number": ' + b"9" * 100_000 + b"}", "An integer of 100,000 digits")


kind("raw_text", "Protocol lines of the contest on the worker's socket")(lambda: send(b"check: pass\n" * 100))


@kind(timeout_s=4)
def half_a_message(data):
    """Half a message, then silence"""
    send(conversation(data)[:20])
    time.sleep(600)


@kind()
def half_a_message_then_exit(data):
    """Half a message, then the end"""
    send(conversation(data)[:20])
    os._exit(0)


@kind(timeout_s=4)
def slow_message(data):
    """A message of which a byte comes every 100 ms"""
    for byte in framed(b" " * 10_000):
        send(bytes([byte]))
        time.sleep(0.1)


@kind(timeout_s=4)
def enormous_length():
    """The length of a message of 4 GB, then silence"""
    send(b"\xff\xff\xff\xff")
    time.sleep(600)


kind("flood", "100 MB of messages", timeout_s=20)(lambda: send(framed(b"{}") * (HUGE // 6)))
kind("long_message", "A message of 100 MB", timeout_s=20)(lambda: send(framed(b'{"number": "' + b"x" * HUGE + b'"}')))


# ---- Messages in the format that say what no worker would ----

kind(
    "failed_with_escapes",
    "An exception's text with lines of the protocol and escape sequences, past the worker's own cleaning",
)(lambda: send(reply(messages.Failed(FORGED, FORGED))))
kind(
    "failed_without_text",
    "A person's table: exceptions without a text and a traceback in two cases",
    protocol="person",
    then=("failed_without_text",),
)(lambda: sends(messages.Outputs, lambda number: messages.Failed("", "")))
kind("failed_at_length", "An exception's text of 30 MB, past the worker's own limit", timeout_s=20)(
    lambda: send(reply(messages.Failed("x" * 30_000_000, "x" * 30_000_000)))
)


def sends(classes, change):
    """Make the worker's own function send, for bodies of these classes, a body or bytes of the request's number."""
    encode = messages.encode

    def changed(numbered):
        if not isinstance(numbered.body, classes):
            return encode(numbered)
        body = change(numbered.number)
        return body if isinstance(body, bytes) else encode(messages.NumberedReply(numbered.number, body))

    patch(messages, "encode", changed)


def replies_with(body):
    """Make the worker's own function send this in place of every body of its class."""
    sends(type(body), lambda number: body)


kind("outputs_with_escapes", "Names of types that are lines of the protocol")(
    lambda: replies_with(
        messages.Outputs("list", True, (messages.Output(FORGED, False), messages.Output(FORGED, False)))
    )
)
kind("outputs_at_length", "A name of a type of 30 MB")(
    lambda: replies_with(messages.Outputs("list", True, (messages.Output("x" * 30_000_000, False),) * 2))
)


@kind()
def outputs_of_any_shape():
    """Shapes of -1, 10^30 and 100,000 dimensions"""
    items = messages.Output("Tensor", True, (-1, 10**30), "float16", "cuda:0")
    others = messages.Output("Tensor", True, (1,) * 100_000, "float16", "cuda:0")
    replies_with(messages.Outputs("list", True, (items, others)))


@kind(
    line="m: [2, 2, 2, 2, 2, 2, 2, 2]; n: [8, 8, 8, 8, 8, 8, 8, 8]; k: [64, 64, 64, 64, 64, 64, 64, 64]; g: 8; seed: 1"
)
def outputs_of_long_shapes():
    """Shapes of 64 dimensions of 4,000 digits each in eight groups"""
    items = messages.Output("Tensor", True, (10**4000,) * messages.MAX_DIMENSIONS, "float16", "cuda:0")
    replies_with(messages.Outputs("list", True, (items,) * 8))


@kind()
def outputs_that_are_not_there(data):
    """The description of right outputs, and no bytes"""
    replies_with(returned(data))
    return []


def launch(**changed):
    """Counts of a launch, in the form of JSON."""
    names = ("ctas", "warp_instructions", "mma", "mma_flops", "stored_bytes")
    counts = dict.fromkeys((*names, "tma_load_requested_bytes", "tma_load_unique_bytes"), 1)
    others = {"kernel": "kernel", "schedule": "late", "grid": [1] * 3, "cluster": [1] * 3, "per_allocation": {}}
    return {"message": "Launch", **counts, **others, **changed}


def counts_launches(*launches):
    """Make the worker's own function send these counts for every call."""
    body = {"message": "Called", "launches": launches}
    sends(messages.Called, lambda number: framed(json.dumps({"number": number, "body": body}).encode()))


@kind(mode="benchmark", verdict=ANY)
def counts_of_any_size(data):
    """Mode benchmark, right results: counts of 4,000 digits"""
    counts_launches(launch(ctas=10**4000, stored_bytes=10**4000, tma_load_unique_bytes=-(10**4000)))
    return right(data)


@kind(mode="profile", verdict=ANY)
def counts_with_escapes(data):
    """Mode profile, right results: names of kernels and allocations that are lines of the protocol"""
    counts_launches(launch(kernel=FORGED, schedule=FORGED, per_allocation={FORGED: [1, 1]}))
    return right(data)


@kind(mode="profile", verdict=ANY)
def many_launches(data):
    """Mode profile, right results: a hundred thousand launches"""
    counts_launches(*[launch()] * 100_000)
    return right(data)


@kind(mode="profile", verdict=ANY, timeout_s=30)
def many_allocations(data):
    """Mode profile, right results: 10,000 launches of 400 allocations"""
    counts_launches(*[launch(per_allocation={str(number): [1, 1] for number in range(400)})] * 10_000)
    return right(data)


@kind(mode="benchmark", verdict=PASSES, protocol="terminal")
def plan_with_markup(data):
    """A person's table on a terminal, mode benchmark, right results: a plan of markup that nothing opens"""
    sys.modules["submission"].plan_report = lambda sizes: {"[/red]": "[/]"}
    return right(data)


@kind(mode="benchmark", verdict=ANY)
def plan_with_escapes(data):
    """Mode benchmark, right results: a plan of lines of the protocol"""
    sys.modules["submission"].plan_report = lambda sizes: {FORGED: FORGED}
    return right(data)


@kind(mode="benchmark", verdict=ANY)
def plan_at_length(data):
    """Mode benchmark, right results: a plan with a label of 10 MB"""
    sys.modules["submission"].plan_report = lambda sizes: {"x" * 10**7: 1}
    return right(data)


@kind(mode="benchmark", verdict=ANY)
def plan_of_surrogates(data):
    """Mode benchmark, right results: a plan of half surrogate pairs"""
    sys.modules["submission"].plan_report = lambda sizes: {"\udcff": "\ud800"}
    return right(data)


@kind(mode="benchmark", verdict=ANY)
def plan_that_fails(data):
    """Mode benchmark, right results: a plan that raises, in an object whose text raises"""

    class Raises:
        def __str__(self):
            raise SystemExit(0)

    sys.modules["submission"].plan_report = lambda sizes: {"": Raises()}
    return right(data)


@kind(mode="benchmark", timeout_s=30)
def plan_of_many_rows(data):
    """Mode benchmark, right results: a plan of 300,000 rows"""
    replies_with(messages.Planned({f"row {number}": "1" for number in range(300_000)}))
    return right(data)


@kind(options=("--plans", "all"), protocol="person", timeout_s=30)
def many_plans(data):
    """--plans all, right results: 100,000 plans to force"""
    replies_with(messages.Offered(tuple(f"plan {number}" for number in range(100_000))))
    return right(data)


@kind(options=("--plans", "all"), protocol="terminal")
def plans_with_markup(data):
    """--plans all on a terminal, right results: the names of the plans to force are markup that nothing opens"""
    replies_with(messages.Offered(("[/red]", "[/]")))
    return right(data)


@kind(options=("--plans", "all"), protocol="person", timeout_s=4, at_import=True)
def plans_that_hang():
    """--plans all, right results: 200 plans, then the worker's end; later ones hang when they import the submission"""
    mark = Path(tempfile.gettempdir()) / "offered"
    if mark.exists():
        time.sleep(600)

    def offer(number):
        mark.touch()
        threading.Timer(0.02, os._exit, (1,)).start()
        return messages.Offered(tuple(f"plan {number}" for number in range(200)))

    kit.answer = lambda chosen, data: sends(messages.Offered, offer) or right(data)


@kind(mode="benchmark")
def negative_counts(data):
    """Mode benchmark, right results: counts below 0"""
    counts_launches(launch(mma=-1, stored_bytes=-(10**9)))
    return right(data)


def models(name, figures, tries, **properties):
    """Register a kind whose worker answers --clock with these figures."""
    loop = {"message": "Modelled", "us": 1.0, "utilisation": {}, "waits": {}, **figures}
    body = {"message": "Clocked", "chip": "b200", "band": "", "ordinary": loop, "programmatic": None}

    def act(data):
        changed = (messages.Clocked, messages.Failed)
        sends(changed, lambda number: framed(json.dumps({"number": number, "body": body}).encode()))
        return right(data)

    kind(name, tries, mode="benchmark", options=("--clock", "b200"), protocol="person", **properties)(act)


models("modelled_time_zero", {"us": 0}, "--clock, right results: a modelled time of 0")
models("modelled_time_negative", {"us": -5.0}, "--clock, right results: a negative modelled time")
models("modelled_time_huge", {"us": 1e308}, "--clock, right results: a modelled time of 1e308 us")
models(
    "modelled_markup",
    {"utilisation": {"[/red]": 0.5}, "waits": {"[/]": ["[/]", 0.5]}},
    "--clock, right results: names of parts that are markup which nothing opens",
    verdict=PASSES,
)
models("modelled_share", {"utilisation": {"DRAM": -3}}, "--clock, right results: a part busy for less than nothing")


kind("finish_fails", "The last request of a case fails")(
    lambda: sends(messages.Finished, lambda number: messages.Failed("no end", ""))
)


# ---- The socket ----


@kind(alone=True)
def closes_the_socket():
    """The sockets are closed, and zeros returned"""
    for fd in sockets():
        os.close(fd)


@kind()
def shuts_the_socket():
    """The sockets are shut down in both directions, and zeros returned"""
    for fd in sockets():
        socket.socket(fileno=os.dup(fd)).shutdown(socket.SHUT_RDWR)


@kind()
def sends_descriptors():
    """Two hundred descriptors in ancillary data"""
    null = os.open(os.devnull, os.O_RDWR)
    for fd in sockets():
        with socket.socket(fileno=os.dup(fd)) as theirs:
            socket.send_fds(theirs, [b"{}"], [null] * 200)


kind(
    "child_replies",
    "A forked child that returns zeros beside its parent, which returns right results",
    verdict=ANY,
    alone=True,
)(lambda data: right(data) if os.fork() else zeros(data))


@kind()
def child_lives_on(data):
    """The worker ends, and its forked child goes on in its place"""
    if os.fork():
        os._exit(0)
    send(conversation(data))
    return zeros(data)
