"""Random structured programs, run by the emulator and lane by lane in Python."""

import random

import numpy as np
import pytest

from tests.support.small_kernels import launch, store

VARIABLES = [f"%r{i}" for i in range(1, 7)]
MASK = 0xFFFFFFFF
# Return statements at three places, one of them in a loop.
MIX = """
.func (.param .b32 result) mix(.param .b32 a, .param .b32 b)
{
    .reg .pred %p<3>; .reg .b32 %r<5>;
    ld.param.b32 %r1, [a];
    ld.param.b32 %r2, [b];
    st.param.b32 [result], %r1;
    and.b32 %r3, %r2, 1;
    setp.eq.u32 %p1, %r3, 0;
    @%p1 ret;
    mov.u32 %r3, 0;
AGAIN:
    mad.lo.u32 %r1, %r1, 5, %r3;
    st.param.b32 [result], %r1;
    add.u32 %r3, %r3, 1;
    and.b32 %r4, %r1, 7;
    setp.eq.u32 %p1, %r4, 3;
    @%p1 ret;
    setp.lt.u32 %p2, %r3, 4;
    @%p2 bra AGAIN;
    xor.b32 %r1, %r1, %r2;
    st.param.b32 [result], %r1;
}
"""


def mix(a, b):
    if not b & 1:
        return a
    for i in range(4):
        a = a * 5 + i & MASK
        if a & 7 == 3:
            return a
    return a ^ b


class Program:
    """A program of statements as tuples, with its PTX text and its effect on one lane."""

    def __init__(self, seed):
        self.random = random.Random(seed)
        self.labels = self.loops = 0
        self.statements = self.block(3)
        self.results = self.random.sample(VARIABLES, 3)

    def block(self, depth):
        return [self.statement(depth) for _ in range(self.random.randint(1, 4))]

    def statement(self, depth):
        kind = self.random.choice(
            ["set", "set", "guarded", "call", "if", "if", "loop", "leave"] if depth else ["set", "guarded"]
        )
        if kind == "if":
            other = self.block(depth - 1) if self.random.random() < 0.6 else []
            return kind, self.condition(), self.block(depth - 1), other
        if kind == "loop":
            self.loops += 1
            return (
                kind,
                f"%r{20 + self.loops}",
                self.random.randint(1, 3),
                self.random.random() < 0.5,
                self.block(depth - 1),
            )
        if kind == "leave":
            return kind, ("and", "%tid", self.random.choice([7, 15, 31]), self.random.randrange(8))
        if kind == "call":
            return kind, self.condition(), *self.random.sample(VARIABLES, 3)
        return kind, self.condition(), *self.assignment()

    def assignment(self):
        operation = self.random.choice(["add", "xor", "mul", "mov"])
        source = self.random.choice([*VARIABLES, "%tid", "7", "1000"])
        return operation, self.random.choice(VARIABLES), self.random.choice(VARIABLES), source

    def condition(self):
        """A random condition (op, variable, constant, constant): `and` tests bits, `lt` compares."""
        variable = self.random.choice([*VARIABLES, "%tid", "%tid", "%ntid.x"])
        return self.random.choice(["and", "lt"]), variable, self.random.choice([1, 3, 16]), self.random.randrange(4)

    def label(self):
        self.labels += 1
        return f"L{self.labels}"

    # PTX

    def test(self, condition):
        operation, variable, first, second = condition
        if operation == "and":
            return f"mov.u32 %r40, {variable}; and.b32 %r40, %r40, {first}; setp.eq.u32 %p1, %r40, {second};"
        return f"mov.u32 %r40, {variable}; setp.lt.u32 %p1, %r40, {first * 8 + second};"

    def assign(self, operation, target, source, other):
        if operation == "mov":
            return f"mov.u32 {target}, {other};"
        name = {"add": "add.u32", "xor": "xor.b32", "mul": "mul.lo.u32"}[operation]
        return f"{name} {target}, {source}, {other};"

    def emit(self, statements):
        lines = []
        for kind, *fields in statements:
            if kind == "set":
                lines.append(self.assign(*fields[1:]))
            elif kind == "guarded":
                lines += [self.test(fields[0]), f"@!%p1 {self.assign(*fields[1:])}"]
            elif kind == "call":
                target, first, second = fields[1:]
                lines += [self.test(fields[0]), f"@%p1 call ({target}), mix, ({first}, {second});"]
            elif kind == "if":
                condition, first, second = fields
                otherwise, join = self.label(), self.label()
                lines += [self.test(condition), f"@!%p1 bra {otherwise};", *self.emit(first)]
                lines += [f"bra {join};", f"{otherwise}:", *self.emit(second), f"{join}:"]
            elif kind == "loop":
                counter, count, divergent, body = fields
                again = self.label()
                limit = (
                    f"and.b32 %r41, %tid, 3; add.u32 %r41, %r41, {count};" if divergent else f"mov.u32 %r41, {count};"
                )
                lines += [f"mov.u32 {counter}, 0;", f"{again}:", *self.emit(body), f"add.u32 {counter}, {counter}, 1;"]
                lines += [limit, f"setp.lt.u32 %p1, {counter}, %r41;", f"@%p1 bra {again};"]
            elif kind == "leave":
                lines += [self.test(fields[0]), self.random.choice(["@%p1 bra EXIT;", "@%p1 ret;"])]
        return lines

    def text(self):
        start = [f"mov.u32 {name}, {3 * i + 1};" for i, name in enumerate(VARIABLES)]
        mixed = "mov.u32 %r42, 0;" + "".join(f"mad.lo.u32 %r42, %r42, 31, {name};" for name in self.results)
        # All lanes that have not exited must be together at the vote, which adds their number.
        vote = (
            "setp.eq.u32 %p2, 0, 0; vote.sync.ballot.b32 %r43, %p2, -1; popc.b32 %r43, %r43; add.u32 %r42, %r42, %r43;"
        )
        return "\n".join(
            [*start, "bar.warp.sync -1;", *self.emit(self.statements), mixed, vote, store("%r42"), "EXIT:"]
        )

    # One lane

    def run(self, statements, state):
        """Run the statements on one lane's state. Returns False if the lane has left."""
        for kind, *fields in statements:
            if kind == "set" or (kind == "guarded" and not self.holds(fields[0], state)):
                operation, target, source, other = fields[1:]
                a, b = state[source], state[other] if other in state else int(other)
                state[target] = {"mov": b, "add": a + b, "xor": a ^ b, "mul": a * b}[operation] & MASK
            elif kind == "call" and self.holds(fields[0], state):
                target, first, second = fields[1:]
                state[target] = mix(state[first], state[second])
            elif kind == "if":
                if not self.run(fields[1] if self.holds(fields[0], state) else fields[2], state):
                    return False
            elif kind == "loop":
                _, count, divergent, body = fields
                for _ in range(count + (state["%tid"] & 3 if divergent else 0)):
                    if not self.run(body, state):
                        return False
            elif kind == "leave" and self.holds(fields[0], state):
                return False
        return True

    def holds(self, condition, state):
        operation, variable, first, second = condition
        return state[variable] & first == second if operation == "and" else state[variable] < first * 8 + second

    def expected(self, lane, threads):
        state = {name: 3 * i + 1 for i, name in enumerate(VARIABLES)} | {"%tid": lane, "%ntid.x": threads}
        if not self.run(self.statements, state):
            return None
        total = 0
        for name in self.results:
            total = total * 31 + state[name] & MASK
        return total


@pytest.mark.parametrize("seed", range(150))
def test_random_programs(seed):
    threads = 40 if seed % 3 == 0 else 32
    program = Program(seed)
    out = np.zeros(threads, np.uint32)
    launch(program.text(), out, threads=threads, schedule="random:1" if seed % 2 else "late", declarations=MIX)
    expected = [program.expected(lane, threads) for lane in range(threads)]
    staying = [sum(expected[i] is not None for i in range(w, min(w + 32, threads))) for w in range(0, threads, 32)]
    assert out.tolist() == [0 if e is None else e + staying[i // 32] & MASK for i, e in enumerate(expected)]
