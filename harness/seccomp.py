"""A filter that refuses system calls which Landlock does not see and no submission needs. It allows all others.

Refused calls fail with EPERM. The filter refuses all calls of another instruction set, whose numbers differ.
"""

from __future__ import annotations

import ctypes
import errno
import platform
import re
import struct
from collections.abc import Iterator

from harness.linux import PR_SET_SECCOMP, checked, libc

MODE_FILTER = 2
ALLOW, REFUSE = 0x7FFF0000, 0x00050000 | errno.EPERM
LOAD_WORD, AND, JUMP_EQUAL, JUMP_AT_LEAST, RETURN = 0x20, 0x54, 0x15, 0x35, 0x06
AT_NUMBER, AT_ARCHITECTURE, AT_ARGUMENT_0, ARGUMENT_BYTES = 0, 4, 16, 8  # offsets in struct seccomp_data
OTHER_ABI = 0x40000000  # bit that x86's x32 adds to the number

MACHINES = ("x86_64", "aarch64")
ARCHITECTURES = (0xC000003E, 0xC00000B7)  # AUDIT_ARCH_*

REFUSED_CALLS = """
# keys, whose helper programs run outside of every domain
add_key 248 217, request_key 249 218, keyctl 250 219
# counters with signals, programs in the kernel, faults that others wait for, calls that no filter sees
perf_event_open 298 241, bpf 321 280, userfaultfd 323 282, io_uring_setup 425 425
# other views of the files
mount 165 40, umount2 166 39, pivot_root 155 41, chroot 161 51, open_tree 428 428, move_mount 429 429, fsopen 430
430, fsconfig 431 431, fsmount 432 432, fspick 433 433, mount_setattr 442 442, open_tree_attr 467 467, setns 308
268, open_by_handle_at 304 265, fanotify_init 300 262
# what outlives a process: IPC of System V and queues of POSIX
shmget 29 194, shmat 30 196, shmctl 31 195, semget 64 190, semop 65 193, semctl 66 191, semtimedop 220 192, msgget
68 186, msgsnd 69 189, msgrcv 70 188, msgctl 71 187, mq_open 240 180, mq_unlink 241 181
# the machine
vhangup 153 58, reboot 169 142, kexec_load 246 104, kexec_file_load 320 294, init_module 175 105, finit_module 313
273, delete_module 176 106, swapon 167 224, swapoff 168 225, sethostname 170 161, setdomainname 171 162,
settimeofday 164 170, clock_settime 227 112, clock_adjtime 305 266, adjtimex 159 171, acct 163 89, quotactl 179 60,
syslog 103 116
"""
# Call -> numbers by machine.
REFUSED = {name: (int(x86), int(arm)) for name, x86, arm in re.findall(r"(\w+)\s+(\d+)\s+(\d+)", REFUSED_CALLS)}

# Call -> numbers by machine, {argument: the only value allowed}; any other value could name another process.
LIMITED = {
    "prlimit64": ((302, 261), {0: 0}),
    "sched_setparam": ((142, 118), {0: 0}),
    "sched_setscheduler": ((144, 119), {0: 0}),
    "sched_setattr": ((314, 274), {0: 0}),
    "setpriority": ((141, 140), {0: 0, 1: 0}),
    "ioprio_set": ((251, 30), {0: 1, 1: 0}),
}

IOCTL = (16, 29)
TERMINAL = (  # low halves of ioctl's requests that change a terminal, write what it reads, or take it over
    *range(0x5402, 0x540C),  # TCSETS to TCFLSH
    0x540E,  # TIOCSCTTY
    0x5410,  # TIOCSPGRP
    0x5412,  # TIOCSTI
    0x5414,  # TIOCSWINSZ
    0x541C,  # TIOCLINUX
    *(0x5422, 0x5423),  # TIOCNOTTY, TIOCSETD
    *(0x542B, 0x542C, 0x542D),  # TCSETS2, TCSETSW2, TCSETSF2
    0x5437,  # TIOCVHANGUP
)


class _Program(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("instructions", ctypes.c_char_p)]


Instruction = tuple[int, int, int, int]  # code, instructions to skip if true, if false, constant


def _argument(index: int) -> Instruction:
    return LOAD_WORD, 0, 0, AT_ARGUMENT_0 + ARGUMENT_BYTES * index


def _refused_if(code: int, constant: int, refused: bool = True) -> Iterator[Instruction]:
    yield code, 0 if refused else 1, 1 if refused else 0, constant
    yield RETURN, 0, 0, REFUSE


def _of_call(number: int, body: list[Instruction]) -> Iterator[Instruction]:
    yield JUMP_EQUAL, 0, len(body) + 1, number
    yield from body
    yield RETURN, 0, 0, ALLOW


def program(machine: int) -> list[Instruction]:
    """The filter, in the kernel's classic BPF. machine: an index of MACHINES."""
    code: list[Instruction] = [(LOAD_WORD, 0, 0, AT_ARCHITECTURE)]
    code += _refused_if(JUMP_EQUAL, ARCHITECTURES[machine], refused=False)
    code.append((LOAD_WORD, 0, 0, AT_NUMBER))
    code += _refused_if(JUMP_AT_LEAST, OTHER_ABI)
    for numbers in REFUSED.values():
        code += _refused_if(JUMP_EQUAL, numbers[machine])
    for numbers, arguments in LIMITED.values():
        body = []
        for index, value in arguments.items():
            body += [_argument(index), *_refused_if(JUMP_EQUAL, value, refused=False)]
        code += _of_call(numbers[machine], body)
    requests = [each for request in TERMINAL for each in _refused_if(JUMP_EQUAL, request)]
    code += _of_call(IOCTL[machine], [_argument(1), (AND, 0, 0, 0xFFFF), *requests])
    return [*code, (RETURN, 0, 0, ALLOW)]


def install() -> None:
    """Filter the calls of this thread and of all that it starts. Does nothing on machines that are not in MACHINES.

    PR_SET_NO_NEW_PRIVS must be set. Raises OSError.
    """
    if platform.machine() in MACHINES:
        code = program(MACHINES.index(platform.machine()))
        text = b"".join(struct.pack("HBBI", *instruction) for instruction in code)
        checked(libc.prctl(PR_SET_SECCOMP, MODE_FILTER, ctypes.byref(_Program(len(code), text)), 0, 0))
