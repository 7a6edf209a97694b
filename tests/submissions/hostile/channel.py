"""Messages to the harness on the worker's own socket."""

import os
import pickle
import socket
import stat
import struct
import time

from tests.submissions.hostile.kit import folder, kind, right, zeros

HUGE = 100_000_000  # bytes


def sockets():
    """The descriptors of this process's sockets."""
    found = []
    for name in os.listdir("/proc/self/fd"):
        try:
            if stat.S_ISSOCK(os.fstat(int(name)).st_mode):
                found.append(int(name))
        except OSError:  # the listing's own
            pass
    return found


def framed(payload):
    """A whole message of the protocol."""
    return struct.pack("!i", len(payload)) + payload


def passing():
    """The payload that says a case has passed."""
    from harness.results import Result

    return pickle.dumps((Result(True, "bit-exact"), True))


def send(raw):
    """Write bytes to every socket."""
    for fd in sockets():
        while raw:
            raw = raw[os.write(fd, raw) :]


@kind(alone=True)
def forged_then_exit(data):
    """A forged pass, then the process ends with 0"""
    send(framed(passing()))
    os._exit(0)


@kind(alone=True)
def forged_then_silence(data):
    """A forged pass, then nothing for a long time"""
    send(framed(passing()))
    time.sleep(600)


@kind(at_import=True)
def reply_before_request():
    """Forged passes before anything was asked"""
    send(20 * framed(passing()))


@kind(then=("all_zeros", "all_zeros"))
def replies_twice(data):
    """A right result, and forged passes that the next cases' wrong results may take for theirs"""
    send(framed(passing()) * 10)
    return right(data)


class RunsInTheReader:
    """Unpickling it writes the reader's process id into the run's folder."""

    def __reduce__(self):
        path = str(folder() / "ran-in-the-harness")
        return exec, (f"import os; open({path!r}, 'w').write(str(os.getpid()))",)


@kind(alone=True)
def pickled_code(data):
    """A pickle that runs code where it is read"""
    send(framed(pickle.dumps(RunsInTheReader())))
    return zeros(data)


def message(name, payload, tries):
    """Register a kind that sends `payload` as one message and returns zeros."""

    def act(data):
        send(framed(payload))
        return zeros(data)

    act.__name__, act.__doc__, act.__module__ = name, tries, __name__
    kind(alone=True)(act)


message("garbage_message", os.urandom(200), "A message of random bytes")
message("empty_message", b"", "An empty message")
message("message_null", b"null", "The message null")
message("message_list", b"[]", "A list where an object is wanted")
message("message_number", b"1e999", "A number that is infinite")
message("message_nan", b'{"passed": true, "seconds": NaN}', "NaN, which JSON does not have")
message("message_unknown_fields", b'{"passed": true, "check": "pass", "status": "pass"}', "Fields that nobody knows")
message("message_wrong_types", b'{"passed": "yes", "message": 7, "outputs": {}}', "Fields of other types")
message("message_deep", b"[" * 100_000, "100,000 lists in one another")
message("message_not_utf8", b'{"message": "\xff\xfe\xed\xa0\x80"}', "A text that is not UTF-8")
message("message_long_integer", b"9" * 5000, "An integer of 5,000 digits")


@kind(alone=True)
def raw_text(data):
    """Protocol lines of the contest on the worker's socket"""
    send(b"check: pass\n" * 100)
    return zeros(data)


@kind(alone=True, timeout_s=6)
def half_a_message(data):
    """Half a message, then silence"""
    send(framed(passing())[:-5])
    time.sleep(600)


@kind(alone=True)
def half_a_message_then_exit(data):
    """Half a message, then the end"""
    send(framed(passing())[:-5])
    os._exit(0)


@kind(alone=True, timeout_s=6)
def enormous_length(data):
    """The length of a message of 2 GB, then silence"""
    send(b"\x7f\xff\xff\xff")
    time.sleep(600)


@kind(alone=True)
def negative_length(data):
    """Lengths of -1 and more than memory has"""
    send(b"\xff" * 12)
    return zeros(data)


@kind(alone=True, timeout_s=20)
def flood(data):
    """100 MB of messages"""
    send(framed(b"{}") * (HUGE // 6))
    return zeros(data)


@kind(alone=True, timeout_s=20)
def long_message(data):
    """A message of 100 MB"""
    send(framed(b'{"message": "' + b"x" * HUGE + b'"}'))
    return zeros(data)


@kind(alone=True)
def closes_the_socket(data):
    """The sockets are closed, and zeros returned"""
    for fd in sockets():
        os.close(fd)
    return zeros(data)


@kind(alone=True)
def shuts_the_socket(data):
    """The sockets are shut down in both directions, and zeros returned"""
    for fd in sockets():
        socket.socket(fileno=os.dup(fd)).shutdown(socket.SHUT_RDWR)
    return zeros(data)


@kind(alone=True)
def sends_descriptors(data):
    """Two hundred descriptors in ancillary data"""
    null = os.open(os.devnull, os.O_RDWR)
    for fd in sockets():
        with socket.socket(fileno=os.dup(fd)) as theirs:
            socket.send_fds(theirs, [b"{}"], [null] * 200)
    return zeros(data)


@kind(alone=True)
def child_replies(data):
    """A forked child that returns zeros beside its parent, which returns right results"""
    return right(data) if os.fork() else zeros(data)


@kind(alone=True)
def child_lives_on(data):
    """The worker ends, and its forked child goes on in its place"""
    if os.fork():
        os._exit(0)
    send(framed(passing()))
    return zeros(data)
