"""The schema of messages, and a channel whose other end does what it likes."""

import os
import socket
import subprocess
import sys
import time

import pytest

from harness import messages
from harness.messages import LENGTH, Channel, Done, Failed, Lost, MalformedMessage, NumberedReply, Outputs, decode_reply


@pytest.mark.parametrize(
    ("text", "part"),
    [
        (b"", "Input data was truncated"),
        (b"garbage", "invalid character"),
        (b"\xff\xfe", "invalid"),
        (b"\x80\x04K\x01.", "invalid"),  # a pickle
        (b"[]", "Expected `object`, got `array`"),
        (b"[" * 100_000, ""),
        (b"{}", "missing required field `number`"),
        (b'{"number":1,"body":{}}', "missing required field `message`"),
        (b'{"number":1,"body":{"message":"Done","more":1}}', "unknown field `more`"),
        (b'{"number":1,"body":{"message":"Result"}}', "Invalid value 'Result'"),
        (b'{"number":"1","body":{"message":"Done"}}', "Expected `int`, got `str`"),
        (b'{"number":2,"body":{"message":"Done"}}', "the reply to request 2, where that to 1 is due"),
        (b'{"number":1,"body":{"message":"Ready","device":"a"}}', "Ready, where Done or Outputs is due"),
        (b'{"number":1,"body":{"message":"Outputs","container":"","is_plain":1,"items":[]}}', "Expected `bool`"),
        (b'{"number":1,"body":{"message":"Store","slot":1}}', "Invalid value 'Store'"),
        (b'{"number":1,"body":{"message":"Timed","nanoseconds":NaN}}', "invalid character"),
    ],
)
def test_what_does_not_fit_the_schema_is_refused(text, part):
    with pytest.raises(MalformedMessage) as error:
        decode_reply(text, 1, Done, Outputs)
    assert part in str(error.value)


def test_a_reply_comes_back():
    text = messages.encode(NumberedReply(7, Failed("an error", "a traceback")))
    assert LENGTH.unpack(text[: LENGTH.size]) == (len(text) - LENGTH.size,)
    assert decode_reply(text[LENGTH.size :], 7, Done, Failed) == Failed("an error", "a traceback")


@pytest.fixture
def ends():
    """(channel, the other end, the process behind it)."""
    ours, theirs = socket.socketpair()
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    pidfd = os.pidfd_open(process.pid)
    channel = Channel(ours, pidfd)
    yield channel, theirs, process
    channel.close()
    theirs.close()
    os.close(pidfd)
    process.kill()
    process.communicate()


def soon():
    return time.monotonic() + 0.2


def test_no_wait_is_without_an_end(ends):
    channel, theirs, _ = ends
    for sent in (b"", b"\0\0", b"\0\0\0\5ab"):
        theirs.sendall(sent)
        with pytest.raises(TimeoutError):
            channel.receive(soon())
    with pytest.raises(TimeoutError):
        channel.send(b"x" * 10**8, soon())


def test_a_length_above_the_limit_is_refused_before_it_is_read(ends):
    channel, theirs, _ = ends
    theirs.sendall(b"\xff\xff\xff\xff")
    with pytest.raises(MalformedMessage, match=r"a length of 4294967295 bytes, the limit is \d+"):
        channel.receive(soon())


def test_the_end_of_the_process_is_noticed_while_another_holds_the_socket(ends):
    channel, theirs, process = ends
    theirs.sendall(LENGTH.pack(2) + b"{}")
    process.kill()
    process.wait()
    assert channel.receive(soon()) == b"{}", "what it sent before is read"
    began = time.monotonic()
    with pytest.raises(Lost):
        channel.receive(began + 60)
    assert time.monotonic() - began < 5


def test_a_closed_socket_is_noticed(ends):
    channel, theirs, _ = ends
    theirs.close()
    with pytest.raises(Lost):
        channel.receive(soon())
    with pytest.raises(Lost):
        channel.send(b"x", soon())
