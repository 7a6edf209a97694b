"""Entry -> entry without calls: device functions are expanded where they are called.

A `.param` variable of a call is a place in local memory that caller and callee share, so that nothing is copied.
`brx.idx` becomes a check of its index and a chain of branches, a 128-bit register becomes two of 64 bits (`wide`), and
wmma becomes loads, mma.sync and stores (`wmma`).
Calls of functions that a driver provides (`ops.system_calls`) stay. New instructions have the line and the text of the
instruction that they replace.
"""

from __future__ import annotations

import dataclasses
import itertools
import re
from dataclasses import dataclass

from nogpu.compiler import wide, wmma
from nogpu.errors import EmulatorError
from nogpu.hardware.variables import function_addresses
from nogpu.ops.system_calls import SYSTEM_CALLS
from nogpu.ptx.ir import (
    SINK,
    Address,
    Body,
    Entry,
    Function,
    Immediate,
    Instruction,
    Negated,
    Pair,
    Param,
    Predicate,
    Register,
    Scope,
    Symbol,
    Variable,
    Vector,
    located,
)

INSTRUCTION_LIMIT = 200_000  # most instructions of an entry with its calls expanded

_PARAM_ACCESS = re.compile(r"(ld|st)\.param(?:::func)?(?=\.)")


def link(entry: Entry) -> Entry:
    """The entry without calls; its variables include those of its module that it uses.

    Raises EmulatorError for an entry that is not understood, for recursive calls, for calls of functions that are not
    understood or have no body, and for arguments that do not fit.
    """
    if entry.error is not None:
        raise entry.error
    return entry if entry.scope is None else _Linker(entry, entry.scope).linked


@dataclass
class _Frame:
    """One expansion of a body."""

    body: Body
    suffix: str
    """Suffix of the names of its registers and labels."""
    places: dict[str, str]
    """Parameter -> the variable that holds it."""
    callers: tuple[str, ...]
    """Names of the functions whose expansions enclose it, its own included."""

    @property
    def end(self) -> str:
        """The label behind its last instruction."""
        return f"end{self.suffix}"


class _Linker:
    def __init__(self, entry: Entry, scope: Scope) -> None:
        self.entry, self.scope = entry, scope
        self.linked = dataclasses.replace(
            entry, instructions=[], labels={}, registers={}, variables=dict(entry.variables)
        )
        self._numbers = itertools.count(1)
        self._used: set[str] = set()
        self._functions = function_addresses(scope)
        self._expand(_Frame(entry, "", {}, ()))
        module = scope.variables
        self.linked.variables |= {name: module[name] for name in module if name in self._used}

    def _expand(self, frame: _Frame) -> None:
        """Appends the instructions of a body."""
        body, linked = frame.body, self.linked
        for register in body.registers.values():
            renamed = self._renamed_register(frame, register)
            linked.registers[renamed.name] = renamed
            if renamed.width == wide.WIDE:
                linked.registers |= {part.name: part for part in wide.registers(renamed)}
        for variable in body.variables.values():
            name = self._variable(frame, variable)
            linked.variables[name] = dataclasses.replace(variable, name=name)
        starts: dict[int, list[str]] = {}
        for label, index in body.labels.items():
            starts.setdefault(index, []).append(label + frame.suffix)
        for index, instruction in enumerate(body.instructions):
            self._place(starts.get(index, []))
            self._instruction(frame, instruction)
            if len(linked.instructions) > INSTRUCTION_LIMIT:
                raise located(
                    f"more than {INSTRUCTION_LIMIT} instructions with calls expanded", self.entry, instruction
                )
        self._place(starts.get(len(body.instructions), []))
        if frame.callers:
            self._place([frame.end])

    def _place(self, labels: list[str]) -> None:
        """Puts labels in front of the next instruction."""
        for label in labels:
            self.linked.labels[label] = len(self.linked.instructions)

    def _emit(self, origin: Instruction, opcode: str, *operands: object, predicate: Predicate | None = None) -> None:
        try:
            self.linked.instructions += [
                Instruction(name, parts, predicate, origin.line, origin.text, origin.source, origin.place)
                for name, parts in wide.split(opcode, operands)
            ]
        except ValueError as error:
            raise located(str(error), self.entry, origin) from None

    # Names

    @staticmethod
    def _variable(frame: _Frame, variable: Variable) -> str:
        """The expanded name of a variable: shared variables exist once per CTA, local ones once per expansion."""
        if not frame.callers:
            return variable.name
        return f"{frame.body.name}::{variable.name}" if variable.space == "shared" else variable.name + frame.suffix

    def _symbol(self, frame: _Frame, name: str) -> str:
        """The expanded name of a parameter, variable or label; a variable of the module keeps its name."""
        if name in frame.places:
            return frame.places[name]
        if name in frame.body.variables:
            return self._variable(frame, frame.body.variables[name])
        if name in frame.body.labels:
            return name + frame.suffix
        self._used.add(name)
        return name

    @staticmethod
    def _renamed_register(frame: _Frame, register: Register) -> Register:
        return Register(register.name + frame.suffix, register.width) if frame.suffix else register

    def _renamed(self, frame: _Frame, operand: object) -> object:
        """The operand with expanded names; the address of a function becomes an immediate."""

        def of(part: object) -> object:
            return self._renamed(frame, part)

        match operand:
            case Register():
                return self._renamed_register(frame, operand)
            case Symbol(name):
                if operand == SINK:
                    return operand
                renamed = self._symbol(frame, name)
                return Immediate(self._functions[name]) if renamed in self._functions else Symbol(renamed)
            case Negated(register):
                return Negated(self._renamed_register(frame, register))
            case Vector(items):
                return Vector(tuple(map(of, items)))
            case Pair(first, second):
                return Pair(of(first), of(second))
            case Address(base, offset, coordinates, direct):
                return Address(of(base), offset, None if coordinates is None else tuple(map(of, coordinates)), direct)
        return operand

    # Instructions

    def _instruction(self, frame: _Frame, instruction: Instruction) -> None:
        guard = instruction.predicate
        predicate = None
        if guard is not None:
            predicate = Predicate(self._renamed_register(frame, guard.register), guard.negated)
        name = instruction.opcode.partition(".")[0]
        if name in ("call", "brx", "wmma"):
            self._guarded(frame, instruction, predicate)
        elif name == "ret" and frame.callers:
            self._emit(instruction, "bra", Symbol(frame.end), predicate=predicate)
        else:
            operands = tuple(self._renamed(frame, operand) for operand in instruction.operands)
            opcode = self._opcode(frame, instruction)
            self._emit(instruction, opcode, *operands, predicate=predicate)

    def _opcode(self, frame: _Frame, instruction: Instruction) -> str:
        """The opcode: call parameters are loaded from and stored to local memory, an entry's parameters are not."""
        match = _PARAM_ACCESS.match(instruction.opcode)
        if match is None:
            return instruction.opcode
        bases = [o.base for o in instruction.operands if isinstance(o, Address)]
        passed = any(isinstance(base, Symbol) and base.name in frame.body.variables for base in bases)
        if not (frame.callers or passed):
            return instruction.opcode
        return f"{match[1]}.local{instruction.opcode[match.end() :]}"

    def _guarded(self, frame: _Frame, instruction: Instruction, predicate: Predicate | None) -> None:
        """Expands call, brx or wmma; the new instructions are skipped together if the guard does not hold."""
        skip = f"skip#{next(self._numbers)}"
        if predicate is not None:
            self._emit(instruction, "bra", Symbol(skip), predicate=Predicate(predicate.register, not predicate.negated))
        if instruction.opcode.startswith("brx"):
            self._branch_indexed(frame, instruction)
        elif instruction.opcode.startswith("wmma"):
            self._warp_matrix(frame, instruction)
        else:
            self._call(frame, instruction)
        if predicate is not None:
            self._place([skip])

    def _branch_indexed(self, frame: _Frame, instruction: Instruction) -> None:
        """Expands brx.idx (PTX ISA, "brx.idx")."""
        targets = []
        if len(instruction.operands) == 2 and isinstance(instruction.operands[1], Symbol):
            targets = frame.body.branch_targets.get(instruction.operands[1].name, [])
        if not targets:
            raise self._fail(frame, instruction, "the list of targets is not declared by .branchtargets")
        index = self._renamed(frame, instruction.operands[0])
        self._emit(instruction, instruction.opcode, index, Immediate(len(targets)))
        chosen = self._register(f"%brx#{next(self._numbers)}", 1)
        for number, target in enumerate(targets[:-1]):
            self._emit(instruction, "setp.eq.u32", chosen, index, Immediate(number))
            label = Symbol(self._symbol(frame, target))
            self._emit(instruction, "bra", label, predicate=Predicate(chosen, False))
        self._emit(instruction, "bra", Symbol(self._symbol(frame, targets[-1])))

    def _warp_matrix(self, frame: _Frame, instruction: Instruction) -> None:
        """Expands wmma.load, wmma.mma or wmma.store."""

        def new(width: int) -> Register:
            return self._register(f"%wmma#{next(self._numbers)}", width)

        operands = tuple(self._renamed(frame, operand) for operand in instruction.operands)
        try:
            for opcode, parts in wmma.expanded(instruction.opcode, operands, new):
                self._emit(instruction, opcode, *parts)
        except ValueError as error:
            raise self._fail(frame, instruction, str(error)) from None

    def _register(self, name: str, width: int) -> Register:
        self.linked.registers[name] = register = Register(name, width)
        return register

    # Calls

    def _call(self, frame: _Frame, instruction: Instruction) -> None:
        """Expands call (PTX ISA, "call")."""
        operands = list(instruction.operands)
        results = operands.pop(0).items if operands and isinstance(operands[0], Vector) else ()
        target = operands[0] if operands else None
        arguments = operands[1].items if len(operands) > 1 and isinstance(operands[1], Vector) else ()
        if isinstance(target, Register):
            self._call_through(frame, instruction, target, results, arguments)
            return
        function = self.scope.functions.get(target.name) if isinstance(target, Symbol) else None
        if function is None:
            raise self._fail(frame, instruction, f"{target} is not a function")
        if function.error is not None:
            raise _of_called(function, function.error, self.entry)
        reason = self._refusal(frame, function, results, arguments)
        if reason is not None:
            raise self._fail(frame, instruction, reason)
        number = next(self._numbers)
        places = {}
        for params, given, loads in ((function.results, results, True), (function.params, arguments, False)):
            for param, argument in zip(params, given):
                places[param.name] = self._passed(frame, instruction, param, argument, number, loads)
        if function.defined:
            self._expand(_Frame(function, f"#{number}", places, (*frame.callers, function.name)))
        elif function.name in SYSTEM_CALLS:
            self._emit(instruction, f"call.{function.name}", *(Address(Symbol(place)) for place in places.values()))
        else:
            raise self._fail(frame, instruction, _without_body(function.name))
        for param, result in zip(function.results, results):
            if isinstance(result, Register):
                place = Address(Symbol(places[param.name]))
                self._emit(instruction, f"ld.local.b{8 * param.size}", self._renamed(frame, result), place)

    @staticmethod
    def _refusal(frame: _Frame, function: Function, results: tuple, arguments: tuple) -> str | None:
        """The reason why a function cannot be called here, or None."""
        if (len(results), len(arguments)) != (len(function.results), len(function.params)):
            return (
                f"{len(arguments)} arguments and {len(results)} results for {function.name}, which has "
                f"{len(function.params)} and {len(function.results)}"
            )
        if function.name in frame.callers:
            way = " -> ".join((*frame.callers[frame.callers.index(function.name) :], function.name))
            return f"recursive calls are not modelled: {way}"
        return None

    def _call_through(
        self, frame: _Frame, instruction: Instruction, target: Register, results: tuple, arguments: tuple
    ) -> None:
        """Expands a call through a pointer: compares it with the addresses of all functions that fit the operands."""
        pointer, number = self._renamed(frame, target), next(self._numbers)
        differs = self._register(f"%call#{number}", 1)
        for name, function in self.scope.functions.items():
            usable = function.defined and function.error is None and name not in frame.callers
            if not usable or not self._fits(frame, function, results, arguments):
                continue
            following = f"next#{next(self._numbers)}"
            address = Immediate(self._functions[name])
            self._emit(instruction, "setp.ne.u64", differs, pointer, address)
            self._emit(instruction, "bra", Symbol(following), predicate=Predicate(differs, False))
            direct = (Vector(results), Symbol(name), Vector(arguments))
            self._call(frame, dataclasses.replace(instruction, operands=direct, predicate=None))
            self._emit(instruction, "bra", Symbol(f"called#{number}"))
            self._place([following])
        self._emit(instruction, "call.unknown", pointer)
        self._place([f"called#{number}"])

    def _fits(self, frame: _Frame, function: Function, results: tuple, arguments: tuple) -> bool:
        """True if a function has as many results and parameters as given, of the same sizes where these are known."""
        if (len(results), len(arguments)) != (len(function.results), len(function.params)):
            return False
        pairs = zip((*results, *arguments), (*function.results, *function.params))
        return all(self._size(frame, given) in (None, param.size) for given, param in pairs)

    def _passed(
        self, frame: _Frame, instruction: Instruction, param: Param, argument: object, number: int, result: bool
    ) -> str:
        """The variable that holds a parameter: the caller's, or a new one for a value in a register."""
        if isinstance(argument, Symbol) and argument != SINK:
            size = self._size(frame, argument)
            if size is None:
                reason = f"argument {argument.name} is neither a .param variable nor a register"
                raise self._fail(frame, instruction, reason)
            if size != param.size:
                reason = f"{argument.name} has {size} bytes, parameter {param.name} {param.size}"
                raise self._fail(frame, instruction, reason)
            return self._symbol(frame, argument.name)
        place = f"{param.name}#{number}"
        self.linked.variables[place] = Variable(place, "param", param.size, param.align)
        if not result:
            value = self._renamed(frame, argument)
            self._emit(instruction, f"st.local.b{8 * param.size}", Address(Symbol(place)), value)
        return place

    @staticmethod
    def _size(frame: _Frame, argument: object) -> int | None:
        """Bytes of a .param variable or of a parameter that is passed on; None for any other argument."""
        own = [*frame.body.params, *frame.body.results] if isinstance(frame.body, Function) else []
        sizes = {param.name: param.size for param in own}
        sizes |= {v.name: v.size for v in frame.body.variables.values() if v.space == "param"}
        return sizes.get(argument.name) if isinstance(argument, Symbol) else None

    def _fail(self, frame: _Frame, instruction: Instruction, reason: str) -> EmulatorError:
        inside = f" (in {' -> '.join(frame.callers)})" if frame.callers else ""
        return located(reason + inside, self.entry, instruction)


def _without_body(name: str) -> str:
    """The words for a call of a function that has no body in the module."""
    runtime, _, function = name.partition("__cudaCDP2")
    if runtime or not function:
        return f"the module has no body of function {name}"
    return f"cuda{function} is a function of CUDA's device runtime that kernels cannot call: it is not modelled"


def _of_called(function: Function, error: EmulatorError, entry: Entry) -> EmulatorError:
    """The error of a called function, as an error of the entry that calls it."""
    reason = f"{error.reason} (in function {function.name}, which the kernel calls)"
    line, text, source = error.ptx_line, error.ptx_text, error.source
    return EmulatorError(reason, kernel=entry.name, ptx_line=line, ptx_text=text, source=source)
