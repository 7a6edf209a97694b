"""Messages to the judge on the worker's own socket; see harness.messages."""

import json
import os
import pickle
import socket
import stat
import sys
import time

from harness import messages
from harness.shared_memory import dtype_name
from tests.submissions.hostile.kit import ANY, PROOF, folder, kind, patch, right, zeros

HUGE = 100_000_000  # bytes
FORGED = "\ntest.0.status: pass\ncheck: pass\n\x1b[2J"


def sockets():
    """The descriptors of this process's sockets."""
    found = []
    for name in os.listdir("/proc/self/fd"):
        try:
            if stat.S_ISSOCK(os.fstat(int(name)).st_mode):
                found.append(int(name))
        except OSError:  # descriptor of the listing itself
            pass
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


@kind(at_import=True)
def reply_before_request():
    """Replies that nobody has asked for yet, when it is imported"""
    send(reply(messages.Called()) + reply(messages.Done(), 1) + reply(messages.Finished(True), 2))


@kind(then=("all_zeros", "all_zeros"))
def replies_ahead(data):
    """A right result, with the replies to all requests of the next cases already on the way"""
    send(b"".join(reply(body, ahead) for ahead in range(1, 60) for body in (messages.Done(), returned(data))))
    return right(data)


@kind()
def replies_twice(data):
    """Each reply twice"""
    send(reply(messages.Called()))
    return zeros(data)


@kind()
def other_number(data):
    """The reply to a request of long ago"""
    send(reply(messages.Called(), -1))
    return zeros(data)


class RunsInTheReader:
    """Unpickling it writes the reader's process id into the run's folder."""

    def __reduce__(self):
        path = str(folder() / PROOF)
        return exec, (f"import os; open({path!r}, 'w').write(str(os.getpid()))",)


@kind()
def pickled_code(data):
    """A pickle that runs code where it is read"""
    send(framed(pickle.dumps(RunsInTheReader())))
    return zeros(data)


# ---------------------------------------------------------------------------------------------------------------------
# Messages that break the format
# ---------------------------------------------------------------------------------------------------------------------


def message(name, payload, tries):
    """Register a kind that sends `payload` as one message and returns zeros; # stands for the request's number."""

    def act(data):
        send(framed(payload.replace(b"#", str(request_number()).encode())))
        return zeros(data)

    act.__name__, act.__doc__, act.__module__ = name, tries, __name__
    kind()(act)


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


@kind()
def raw_text(data):
    """Protocol lines of the contest on the worker's socket"""
    send(b"check: pass\n" * 100)
    return zeros(data)


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
def enormous_length(data):
    """The length of a message of 4 GB, then silence"""
    send(b"\xff\xff\xff\xff")
    time.sleep(600)


@kind(timeout_s=20)
def flood(data):
    """100 MB of messages"""
    send(framed(b"{}") * (HUGE // 6))
    return zeros(data)


@kind(timeout_s=20)
def long_message(data):
    """A message of 100 MB"""
    send(framed(b'{"number": "' + b"x" * HUGE + b'"}'))
    return zeros(data)


# ---------------------------------------------------------------------------------------------------------------------
# Messages in the format that say what no worker would
# ---------------------------------------------------------------------------------------------------------------------


@kind()
def failed_with_escapes(data):
    """An exception's text with lines of the protocol and escape sequences, past the worker's own cleaning"""
    send(reply(messages.Failed(FORGED, FORGED)))
    return zeros(data)


@kind(timeout_s=20)
def failed_at_length(data):
    """An exception's text of 30 MB, past the worker's own limit"""
    send(reply(messages.Failed("x" * 30_000_000, "x" * 30_000_000)))
    return zeros(data)


def replies_with(body):
    """Make the worker's own function send this in place of every body of its class."""
    encode = messages.encode

    def changed(numbered):
        if type(numbered.body) is type(body):
            numbered = messages.NumberedReply(numbered.number, body)
        return encode(numbered)

    patch(messages, "encode", changed)


@kind()
def outputs_with_escapes(data):
    """Names of types that are lines of the protocol"""
    replies_with(messages.Outputs("list", True, (messages.Output(FORGED, False), messages.Output(FORGED, False))))
    return zeros(data)


@kind()
def outputs_at_length(data):
    """A name of a type of 30 MB"""
    replies_with(messages.Outputs("list", True, (messages.Output("x" * 30_000_000, False),) * 2))
    return zeros(data)


@kind()
def outputs_of_any_shape(data):
    """Shapes of -1, 10^30 and 100,000 dimensions"""
    items = messages.Output("Tensor", True, (-1, 10**30), "float16", "cuda:0")
    others = messages.Output("Tensor", True, (1,) * 100_000, "float16", "cuda:0")
    replies_with(messages.Outputs("list", True, (items, others)))
    return zeros(data)


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
    encode = messages.encode

    def changed(numbered):
        if isinstance(numbered.body, messages.Called):
            body = {"message": "Called", "launches": launches}
            return framed(json.dumps({"number": numbered.number, "body": body}).encode())
        return encode(numbered)

    patch(messages, "encode", changed)


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


@kind(mode="benchmark")
def negative_counts(data):
    """Mode benchmark, right results: counts below 0"""
    counts_launches(launch(mma=-1, stored_bytes=-(10**9)))
    return right(data)


def models(name, figures, tries):
    """Register a kind whose worker answers --clock with these figures."""

    def act(data):
        given = {"us": 1.0, "utilisation": {}, "waits": {}, **figures}
        encode = messages.encode

        def changed(numbered):
            if isinstance(numbered.body, (messages.Clocked, messages.Failed)):
                loop = {"message": "Modelled", **given}
                body = {"message": "Clocked", "chip": "b200", "band": "", "ordinary": loop, "programmatic": None}
                text = json.dumps({"number": numbered.number, "body": body})
                return framed(text.encode())
            return encode(numbered)

        patch(messages, "encode", changed)
        return right(data)

    act.__name__, act.__doc__, act.__module__ = name, tries, __name__
    kind(mode="benchmark", options=("--clock", "b200"), protocol="person")(act)


models("modelled_time_zero", {"us": 0}, "--clock, right results: a modelled time of 0")
models("modelled_time_negative", {"us": -5.0}, "--clock, right results: a negative modelled time")
models("modelled_time_huge", {"us": 1e308}, "--clock, right results: a modelled time of 1e308 us")
models("modelled_share", {"utilisation": {"DRAM": -3}}, "--clock, right results: a part busy for less than nothing")


@kind()
def finish_fails(data):
    """The last request of a case fails"""
    encode = messages.encode

    def changed(numbered):
        if isinstance(numbered.body, messages.Finished):
            numbered = messages.NumberedReply(numbered.number, messages.Failed("no end", ""))
        return encode(numbered)

    patch(messages, "encode", changed)
    return zeros(data)


# ---------------------------------------------------------------------------------------------------------------------
# The socket
# ---------------------------------------------------------------------------------------------------------------------


@kind(alone=True)
def closes_the_socket(data):
    """The sockets are closed, and zeros returned"""
    for fd in sockets():
        os.close(fd)
    return zeros(data)


@kind()
def shuts_the_socket(data):
    """The sockets are shut down in both directions, and zeros returned"""
    for fd in sockets():
        socket.socket(fileno=os.dup(fd)).shutdown(socket.SHUT_RDWR)
    return zeros(data)


@kind()
def sends_descriptors(data):
    """Two hundred descriptors in ancillary data"""
    null = os.open(os.devnull, os.O_RDWR)
    for fd in sockets():
        with socket.socket(fileno=os.dup(fd)) as theirs:
            socket.send_fds(theirs, [b"{}"], [null] * 200)
    return zeros(data)


@kind(verdict=ANY, alone=True)
def child_replies(data):
    """A forked child that returns zeros beside its parent, which returns right results"""
    return right(data) if os.fork() else zeros(data)


@kind()
def child_lives_on(data):
    """The worker ends, and its forked child goes on in its place"""
    if os.fork():
        os._exit(0)
    send(conversation(data))
    return zeros(data)
