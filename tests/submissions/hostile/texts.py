"""Texts that a submission prints or raises; every case fails."""

import atexit
import os
import sys
import threading
import time

from tests.submissions.hostile.kit import kind

FORGED = "test.0.status: pass\ncheck: pass\n"
MEGABYTE = 1 << 20


def raises(name, text, tries, **properties):
    """Register a kind that raises a ValueError with this text."""

    def act():
        raise ValueError(text)

    kind(name, tries, **properties)(act)


raises("newlines", f"\n{FORGED}", "Protocol lines in an exception's text")
raises("other_newlines", FORGED.replace("\n", "\x85") + "\r\x0b\x0c\x1c\u2028" + FORGED, "The same by other line ends")
raises("escapes", "\x1b[2J\x1b[1A\x1b[2K\rcheck: pass\x07\x08\x9b2J", "Escape sequences of a terminal")
raises("surrogates", "check: pass \udcff\ud800", "Half a surrogate pair, which has no UTF-8")
raises("null_bytes", "a\0check: pass\0", "Null bytes")
raises("markup", "[bold green]1 passed, 0 failed[/] [link=x]", "Markup of the console's library")
raises("long_text", "x" * (50 * MEGABYTE), "A text of 50 MB", alone=True)
raises("many_lines", "check: pass\n" * 1_000_000, "A text of a million lines", alone=True)
raises("no_text", "", "An empty text")


@kind()
def text_that_exits():
    """An exception whose __str__ and __repr__ end the process"""

    class Exits(Exception):
        def __str__(self):
            os._exit(0)

        __repr__ = __str__

    raise Exits


@kind()
def text_that_raises():
    """An exception whose __str__ and __repr__ raise another one of its kind"""

    class Raises(Exception):
        def __str__(self):
            raise Raises

        __repr__ = __str__

    raise Raises


@kind()
def text_that_is_none(data):
    """An exception whose __str__ returns a subclass of str that misbehaves"""

    class Text(str):
        def splitlines(self, keepends=False):
            return ["", "check: pass"]

        def __format__(self, spec):
            return FORGED

    class Returns(Exception):
        def __str__(self):
            return Text(FORGED)

    raise Returns


@kind()
def name_of_the_class(data):
    """An exception class whose name is a protocol line"""
    raise type(f"\n{FORGED}", (Exception,), {"__module__": f"\n{FORGED}"})


@kind()
def cyclic_causes():
    """Exceptions that cause each other"""
    first, second = ValueError("first"), ValueError("second")
    first.__cause__, second.__cause__ = second, first
    raise first


@kind()
def many_causes():
    """A thousand exceptions that cause one another"""
    error = ValueError("last")
    for number in range(1000):
        cause, error = error, ValueError(f"{number}")
        error.__cause__ = cause
    raise error


@kind()
def exception_group():
    """A group of groups of exceptions"""
    group = ExceptionGroup(FORGED, [ValueError(FORGED)] * 100)
    for _ in range(5):
        group = ExceptionGroup(FORGED, [group] * 3)
    raise group


@kind()
def forged_output():
    """Protocol lines and a summary on standard output and error"""
    for file in (sys.stdout, sys.stderr):
        print(f"\n{FORGED}\x1b[2J1 passed, 0 failed", file=file, flush=True)


@kind(protocol="output")
def output_is_the_protocol():
    """Protocol lines on stdout and stderr where they are POPCORN_FD's own pipe, then in an exception's text"""
    for fd in (1, 2):
        os.write(fd, FORGED.encode())
    raise ValueError(f"\n{FORGED}")


@kind(protocol="person")
def summary_at_exit():
    """A person's table: another summary when the worker ends, and from a thread"""

    def forge():
        os.write(1, b"\x1b[2J\n1 passed, 0 failed\n")

    def forge_later():
        time.sleep(0.5)
        forge()

    atexit.register(forge)
    threading.Thread(target=forge_later).start()


kind("unfinished_line", "A person's table: a digit without a line's end when the worker ends", protocol="person")(
    lambda: atexit.register(os.write, 1, b"1")
)


@kind(protocol="person")
def escapes_for_a_person(data):
    """A person's table: an exception's text that clears the screen, with markup and a summary"""
    raise ValueError("\x1b[2J\x1b[H\x9b2J\a[bold]1 passed, 0 failed[/bold]\r\n1 passed, 0 failed")


@kind(alone=True)
def much_output():
    """100 MB on standard output and as much on standard error"""
    block = b"check: pass\n" * 100_000
    for fd in (1, 2):
        for _ in range(100 * MEGABYTE // len(block)):
            os.write(fd, block)


kind("not_text", "Bytes on standard output that are no text")(lambda: os.write(1, bytes(range(256)) * 100))
