"""The schema of messages, and a channel whose other end misbehaves."""

import json
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


LOOP = {"message": "Modelled", "us": 1.0, "utilisation": {}, "waits": {}}
CLOCKED = {"message": "Clocked", "chip": "b200", "band": "", "programmatic": None}
LAUNCH = {
    **{"message": "Launch", "kernel": "k", "schedule": "late", "grid": [1] * 3, "cluster": [1] * 3},
    **dict.fromkeys(("ctas", "warp_instructions", "mma", "mma_flops", "stored_bytes"), 1),
    **{"tma_load_requested_bytes": 1, "tma_load_unique_bytes": 1, "per_allocation": {}},
}


@pytest.mark.parametrize(
    ("body", "place"),
    [
        *(({**CLOCKED, "ordinary": {**LOOP, "us": us}}, "$.body.ordinary.us") for us in (0, -1.5, 1e308)),
        ({**CLOCKED, "ordinary": {**LOOP, "utilisation": {"DRAM": -0.1}}}, "$.body.ordinary.utilisation[...]"),
        *(({"message": "Timed", "nanoseconds": ns}, "$.body.nanoseconds") for ns in (0, -1, 1e300)),
        *(
            ({"message": "Called", "launches": [{**LAUNCH, name: count}]}, f"$.body.launches[0].{name}")
            for name, count in (("mma", -1), ("ctas", 2**63), ("grid", [1, -1, 1]), ("per_allocation", {"A": [0, -1]}))
        ),
        ({"message": "Called", "launches": [LAUNCH] * 10_001}, "$.body.launches"),
        ({"message": "Planned", "plan": {str(row): "" for row in range(501)}}, "$.body.plan"),
        ({"message": "Offered", "plans": ["plan"] * 501}, "$.body.plans"),
        ({"message": "Outputs", "container": "list", "is_plain": True, "items": [1] * 10_001}, "$.body.items"),
        ({"message": "Explained", "done": -1, "total": 1}, "$.body.done"),
    ],
)
def test_figures_and_lists_have_limits(body, place):
    with pytest.raises(MalformedMessage) as error:
        decode_reply(json.dumps({"number": 1, "body": body}).encode(), 1, messages.Message)
    assert place in str(error.value)


def test_messages_within_the_limits_cross():
    for body in (
        {**CLOCKED, "ordinary": LOOP},
        {"message": "Called", "launches": [LAUNCH] * 10_000},
        {"message": "Planned", "plan": {str(row): "" for row in range(500)}},
    ):
        assert decode_reply(json.dumps({"number": 1, "body": body}).encode(), 1, messages.Message)
    text = messages.encode(NumberedReply(7, Failed("an error", "a traceback")))
    assert LENGTH.unpack(text[: LENGTH.size]) == (len(text) - LENGTH.size,)
    assert decode_reply(text[LENGTH.size :], 7, Done, Failed) == Failed("an error", "a traceback")


@pytest.fixture
def ends():
    """The channel, its other end, and the process behind it."""
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
    channel, theirs, _ = ends
    theirs.close()
    with pytest.raises(Lost):
        channel.receive(soon())
    with pytest.raises(Lost):
        channel.send(b"x", soon())


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
