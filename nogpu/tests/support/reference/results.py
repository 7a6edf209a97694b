"""Results of instructions of the opcode table's arithmetic rows, lane by lane, by NumPy and Python integers.

An operand is a register as a row of 32 lanes, unsigned or bool, or a literal. A function of `FAMILIES` takes the match
of a row's pattern, the widths of the destinations and the sources; it returns a row for each destination.
"""

import re
from types import SimpleNamespace

import numpy as np

from nogpu.arithmetic.lanes import INTS, UINTS
from nogpu.ops.memory import LOCAL_TAG, SHARED_TAG, TAG_SHIFT
from nogpu.ptx.ir import Immediate
from nogpu.ptx.literals import literal_bits
from nogpu.ptx.types import type_width
from tests.support.reference import carry, floats, integers, packing, roundings

f32, f64 = np.float32, np.float64
VIEWS = {"f16": np.float16, "f16x2": np.float16, "f32": f32, "f32x2": f32, "f64": f64}


def bits(operand, type_name):
    """The row of a source of a type."""
    if isinstance(operand, Immediate):
        value = bool(operand.value) if type_name == "pred" else literal_bits(operand, type_name)
        return np.full(32, value, bool if type_name == "pred" else UINTS[type_width(type_name)])
    return operand


def numbers(operand, type_name, flush=False):
    """A source as floats, bf16 as float32; of pairs 64 of them."""
    row = np.ascontiguousarray(bits(operand, type_name))
    found = floats.from_bf16(row) if type_name.startswith("bf16") else row.view(VIEWS[type_name])
    return floats.flush(found) if flush else found


def signs(row, type_name):
    """A row with the type's sign."""
    return row.view(INTS[8 * row.itemsize]) if type_name[0] == "s" else row


def by_lane(function, width, *columns):
    """A function of Python integers, as a row of a width."""
    values = zip(*(column.tolist() for column in columns), strict=True)
    return np.array([function(*each) & (1 << width) - 1 for each in values], UINTS[width])


def extended(row, width, type_name):
    """A row as one of at least as many bits."""
    return signs(row, type_name).astype((INTS if type_name[0] == "s" else UINTS)[width]).view(UINTS[width])


# Integers

I = integers  # noqa: E741  # in expressions
INTEGERS = {
    "add": ("qq", lambda t, a, b: a + b),
    "sub": ("qq", lambda t, a, b: a - b),
    "add.sat": ("tt", lambda t, a, b: I.clamped(a + b, 32)),
    "sub.sat": ("tt", lambda t, a, b: I.clamped(a - b, 32)),
    "mul.lo": ("qq", lambda t, a, b: a * b),
    "mad.lo": ("qqq", lambda t, a, b, c: a * b + c),
    "mul.hi": ("tt", lambda t, a, b: a * b >> t.bits),
    "mad.hi": ("ttq", lambda t, a, b, c: (a * b >> t.bits) + c),
    "mad.hi.sat": ("ttt", lambda t, a, b, c: I.clamped((a * b >> 32) + c, 32)),
    "mul.wide": ("tt", lambda t, a, b: a * b),
    "mad.wide": ("ttw", lambda t, a, b, c: a * b + c),
    "mul24.lo": ("qq", lambda t, a, b: I.product24(a, b, t.signed)),
    "mul24.hi": ("qq", lambda t, a, b: I.product24(a, b, t.signed) >> 16),
    "mad24.lo": ("qqq", lambda t, a, b, c: I.product24(a, b, t.signed) + c),
    "mad24.hi": ("qqq", lambda t, a, b, c: (I.product24(a, b, t.signed) >> 16) + c),
    "mad24.hi.sat": ("ttt", lambda t, a, b, c: I.clamped((I.product24(a, b, True) >> 16) + c, 32)),
    "div": ("tt", lambda t, a, b: I.divide(a, b)),
    "rem": ("tt", lambda t, a, b: I.remainder(a, b)),
    "min": ("tt", lambda t, a, b: min(a, b)),
    "max": ("tt", lambda t, a, b: max(a, b)),
    "min.relu": ("tt", lambda t, a, b: max(min(a, b), 0)),
    "max.relu": ("tt", lambda t, a, b: max(a, b, 0)),
    "neg": ("t", lambda t, a: -a),
    "abs": ("t", lambda t, a: abs(a)),
    "sad": ("ttt", lambda t, a, b, c: c + abs(a - b)),
    "dp4a.u32": ("qqq", lambda t, a, b, c: I.dot_bytes(a, b, c, False, t.signed)),
    "dp4a.s32": ("qqq", lambda t, a, b, c: I.dot_bytes(a, b, c, True, t.signed)),
    **{
        f"dp2a.{half}.{of_a}32": (
            "qqq",
            lambda t, a, b, c, of_a=of_a, half=half: I.dot_halves(a, b, c, of_a == "s", t.signed, half == "hi"),
        )
        for half in ("lo", "hi")
        for of_a in "us"
    },
    "popc": ("t", lambda t, a: a.bit_count()),
    "clz": ("t", lambda t, a: t.bits - a.bit_length()),
    "brev": ("t", lambda t, a: I.reverse_bits(a, t.bits)),
    "bfind": ("t", lambda t, a: I.find_leading(a, t.bits, t.signed, False)),
    "bfind.shiftamt": ("t", lambda t, a: I.find_leading(a, t.bits, t.signed, True)),
    "bfe": ("quu", lambda t, a, b, c: I.extract_field(a, b, c, t.bits, t.signed)),
    "bfi": ("ttuu", lambda t, a, b, c, d: I.insert_field(a, b, c, d, t.bits)),
    "fns": ("uui", lambda t, a, b, c: I.find_nth_set(a, b, c)),
    **{
        f"bmsk.{mode}": ("tt", lambda t, a, b, mode=mode: I.bit_mask(a, b, mode == "clamp"))
        for mode in ("clamp", "wrap")
    },
    **{
        f"szext.{mode}": ("uu", lambda t, a, b, mode=mode: I.extend_bits(a, b, t.signed, mode == "clamp"))
        for mode in ("clamp", "wrap")
    },
    "prmt": ("ttt", lambda t, a, b, c: I.permute_mode(a, b, c, t.ending) if t.ending else I.permute_bytes(a, b, c)),
    **{
        f"shf.{way}.{mode}": (
            "ttt",
            lambda t, a, b, c, way=way, mode=mode: I.funnel_shift(a, b, c, way == "l", mode == "clamp"),
        )
        for way in "lr"
        for mode in ("wrap", "clamp")
    },
    "and": ("tt", lambda t, a, b: a & b),
    "or": ("tt", lambda t, a, b: a | b),
    "xor": ("tt", lambda t, a, b: a ^ b),
    "not": ("t", lambda t, a: ~a),
    "cnot": ("t", lambda t, a: a == 0),
    "shl": ("tu", lambda t, a, b: a << min(b, t.bits)),
    "shr": ("tu", lambda t, a, b: a >> min(b, t.bits)),
}
"""Opcode before its type -> types of its sources, as in `opcodes.rows.computed`, and a function of type and sources."""
PAIRS = {"add": np.add, "min": np.minimum, "max": np.maximum}
PREDICATES = {"and": np.logical_and, "or": np.logical_or, "xor": np.logical_xor, "not": np.logical_not}


def integer(match, widths, sources):
    name, _, ending = match.string.partition(".pred")
    if name != match.string:
        rows = [bits(source, "pred") for source in sources]
        return [rows[0] if name == "mov" else PREDICATES[name](*rows)]
    if name.startswith("lop3"):
        return logic(match, sources)
    if "parts" in match.re.groupindex:
        columns = [bits(source, "b32") for source in sources]
        return [by_lane(lambda *values: integers.video(match, *values), 32, *columns)]
    type_name = match.group("type")
    name, _, ending = match.string.rpartition(f".{type_name}")
    if type_name.endswith("x2"):
        name, _, relu = name.partition(".")
        a, b = (
            np.ascontiguousarray(bits(x, "u32")).view(np.int16 if type_name[0] == "s" else np.uint16) for x in sources
        )
        found = PAIRS[name](a, b)
        return [(np.maximum(found, 0).astype(found.dtype) if relu else found).view(np.uint32)]
    letters, function = INTEGERS[name]
    width = type_width(type_name)
    types = {"t": type_name, "q": f"u{width}", "w": f"{type_name[0]}{2 * width}", "u": "u32", "i": "s32"}
    typed = SimpleNamespace(bits=width, signed=type_name[0] == "s", ending=ending.removeprefix("."))
    columns = [signs(bits(x, types[letter]), types[letter]) for x, letter in zip(sources, letters, strict=True)]
    return [by_lane(lambda *values: function(typed, *values), widths[0], *columns)]


def logic(match, sources):
    a, b, c = (bits(source, "b32") for source in sources[:3])
    result = by_lane(lambda *values: integers.logic3(*values, sources[3].value & 0xFF), 32, a, b, c)
    if "combine" not in match.re.groupindex:
        return [result]
    return [result, PREDICATES[match.group("combine")](result != 0, bits(sources[4], "pred"))]


CARRYING = {
    **{"add": carry.add, "sub": carry.subtract, "mad.lo": carry.multiply_low, "mad.hi.u": carry.multiply_high},
    "mad.hi.s": carry.multiply_high_signed,
}


def carrying(match, widths, sources):
    """The result and the flag. The last source is the flag before, whether the instruction reads it or not."""
    *rows, flag = sources
    type_name = match.group("type")
    name = re.sub(r"(add|sub|mad)c", r"\1", match.string).replace(".cc", "").removesuffix(f".{type_name}")
    function = CARRYING[f"{name}.{type_name[0]}" if name == "mad.hi" else name]
    reads = match.string.partition(".")[0].endswith("c")
    columns = [bits(row, type_name).tolist() for row in rows] + [(flag & reads).tolist()]
    results, flags = zip(*(function(*values, widths[0]) for values in zip(*columns, strict=True)), strict=True)
    return [np.array(results, UINTS[widths[0]]), np.array(flags, bool)]


# Comparison and selection

COMPARED = {"eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal, "gt": np.greater}
COMPARED |= {"ge": np.greater_equal, "lo": np.less, "ls": np.less_equal, "hi": np.greater, "hs": np.greater_equal}
UNORDERED = ("equ", "neu", "ltu", "leu", "gtu", "geu")
ONES = {"f32": 0x3F800000, "f16": 0x3C00, "bf16": 0x3F80}
PROPERTIES = {
    "finite": np.isfinite,
    "infinite": np.isinf,
    "number": lambda a: ~np.isnan(a),
    "notanumber": np.isnan,
    "normal": lambda a: np.isfinite(a) & (np.abs(a) >= np.finfo(a.dtype).tiny),
    "subnormal": lambda a: (a != 0) & (np.abs(a) < np.finfo(a.dtype).tiny),
}


def compared(match, a, b):
    type_name, operator = match.group("type"), match.group("op")
    if "f" not in type_name:
        return COMPARED[operator](signs(bits(a, type_name), type_name), signs(bits(b, type_name), type_name))
    flush = match.groupdict().get("ftz") is not None
    a, b = numbers(a, type_name, flush), numbers(b, type_name, flush)
    unordered = np.isnan(a) | np.isnan(b)
    if operator in ("num", "nan"):
        return unordered if operator == "nan" else ~unordered
    if operator in UNORDERED:
        return COMPARED[operator[:-1]](a, b) | unordered
    return COMPARED[operator](a, b) & ~unordered


def comparison(match, widths, sources):
    name, type_name = match.string.partition(".")[0], match.group("type")
    pairs = type_name.endswith("x2")
    if name == "testp":
        return [PROPERTIES[match.group("op")](numbers(sources[0], type_name))]
    if name in ("selp", "slct"):
        a, b = (bits(source, type_name) for source in sources[:2])
        if name == "selp":
            holds = bits(sources[2], "pred")
        elif match.string.endswith(".s32"):
            holds = signs(bits(sources[2], "s32"), "s32") >= 0
        else:
            holds = numbers(sources[2], "f32", match.group("ftz") is not None) >= 0
        return [np.where(holds, a, b)]
    holds = compared(match, *sources[:2])
    parts = [holds[0::2], holds[1::2]] if pairs else [holds, ~holds]
    if match.group("combine"):
        parts = [PREDICATES[match.group("combine")](part, bits(sources[2], "pred")) for part in parts]
    if name == "setp":
        return parts[: len(widths)]
    result = match.group("result").removesuffix("x2")
    width = 16 if pairs else type_width(result)
    one = ONES.get(result, (1 << width) - 1)
    rows = [np.where(part, one, 0).astype(UINTS[width]) for part in parts]
    return [floats.interleave(tuple(rows), np.uint32) if pairs else rows[0]]


# Floating-point arithmetic

APPROXIMATE = {"ex2": np.exp2, "lg2": np.log2, "sin": np.sin, "cos": np.cos, "tanh": np.tanh}


def computed(name, values):
    """float64 results of other instructions than those with a rounding, which are rounded to nearest."""
    if name in ("neg", "abs"):
        return -values[0] if name == "neg" else np.abs(values[0])
    wide = values[0].astype(f64)
    return 1 / np.sqrt(wide) if name == "rsqrt" else APPROXIMATE[name](wide)


def extreme(name, values, groups):
    choose = floats.smaller if name == "min" else floats.larger
    result, *others = [np.abs(value) for value in values] if groups.get("abs") else values
    for other in others:
        result = choose(result, other, groups.get("nan") is not None)
    return floats.signed_by(result, *values) if groups.get("xorsign") else result


def upper_half(values):
    words = values.view(np.uint64) & ~np.uint64(0xFFFFFFFF)
    tiny = words & np.uint64(0x7FF << 52) == 0
    return np.where(np.isnan(values), values, np.where(tiny, words & np.uint64(1 << 63), words).view(f64))


def floating(match, widths, sources):
    groups, name = match.groupdict(), match.string.partition(".")[0]
    type_name = groups["type"]
    if match.string.endswith(".approx.ftz.f64"):
        values = numbers(sources[0], "f64", False)
        taken = upper_half(values)
        result = floats.with_nan(upper_half(1 / (np.sqrt(taken) if name == "rsqrt" else taken)), values)
        return [np.ascontiguousarray(result).view(np.uint64)]
    if name == "copysign":
        sign = UINTS[widths[0]](1 << widths[0] - 1)
        a, b = (bits(source, type_name) for source in sources)
        return [a & sign | b & ~sign]
    types = [type_name] * len(sources)
    if groups.get("of"):
        types[:-1] = [groups["of"]] * (len(sources) - 1)
    values = [numbers(source, of, groups.get("ftz") is not None) for source, of in zip(sources, types, strict=True)]
    values = [value.astype(f32) if groups.get("of") else value for value in values]
    brain = type_name.startswith("bf16")
    kind = "bf16" if brain else {2: "f16", 4: "f32", 8: "f64"}[values[0].itemsize]
    if name in ("min", "max"):
        result = extreme(name, values, groups)
    elif name in roundings.OPERATIONS:
        result = roundings.rounded(name, values, kind, groups.get("rounding") or "rn").astype(values[0].dtype)
    elif name in ("neg", "abs") or not brain:
        result = computed(name, values).astype(values[0].dtype)
    else:
        result = roundings.rounded("cvt", [computed(name, values)], kind).astype(f32)
    if groups.get("oob"):
        result = floats.without_oob(result, *values[:2], np.uint32 if brain else np.uint16)
    if name not in ("min", "max", "neg", "abs"):
        result = floats.with_nan(result, *values)
    for modifier, change in (("ftz", floats.flush), ("sat", floats.saturate), ("relu", floats.rectify)):
        result = change(result) if groups.get(modifier) else result
    return [(packing.stored(result, kind) if brain else np.ascontiguousarray(result)).view(UINTS[widths[0]])]


# Conversion

INTEGRAL = {"rni": np.rint, "rzi": np.trunc, "rmi": np.floor, "rpi": np.ceil}


def narrowed(values, match, width, to):
    groups = match.groupdict()
    rounding, modifiers = groups.get("rounding") or "rn", groups.get("modifiers") or ""
    if rounding in INTEGRAL:
        values, rounding = INTEGRAL[rounding](values), "rn"
    values = floats.saturate(values) if groups.get("sat") else values
    found = packing.narrow(values, to, rounding, ".satfinite" in modifiers, ".relu" in modifiers)
    if groups.get("ftz") and to == "f32":
        found = floats.flush(found.view(f32)).view(np.uint32)
    return found.astype(UINTS[width])


def conversion(match, widths, sources):
    if match.string.startswith("mov."):
        return moved(type_width(match.group("type")), match.group("type"), widths, sources)
    (source,), of, width, to = sources, match.group("type"), widths[0], match.groupdict().get("to") or "f64"
    if of[0] in "us":
        values = signs(bits(source, of).astype(UINTS[type_width(of)]), of)
        if to[0] in "us":
            limits = np.iinfo((INTS if to[0] == "s" else UINTS)[type_width(to)])
            values = floats.saturate_integer(values, int(limits.min), int(limits.max)) if match.group("sat") else values
            return [extended(values.astype(limits.dtype).view(UINTS[type_width(to)]), width, to)]
        return [narrowed(values, match, width, to)]
    flush = match.groupdict().get("ftz") is not None and of == "f32"
    values = numbers(source, of, flush)
    if to[0] in "us":
        found = floats.float_to_int(values, type_width(to), to[0] == "s", match.group("rounding"))
        return [extended(found, width, to)]
    return [narrowed(values, match, width, to)]


def moved(width, type_name, widths, sources):
    """mov. A vector is its items."""
    if len(widths) > 1:
        value = bits(sources[0], type_name)
        return [(value >> UINTS[width](part * i)).astype(UINTS[part]) for i, part in enumerate(widths)]
    part = width // len(sources)
    rows = tuple(bits(source, type_name if part == width else f"b{part}") for source in sources)
    return [floats.interleave(rows, UINTS[width])]


def packed(match, widths, sources):
    groups, width = match.groupdict(), widths[0]
    modifiers = groups.get("modifiers") or ""
    flags = ".satfinite" in modifiers, ".relu" in modifiers
    if match.string.startswith("cvt.pack"):
        rows = [bits(source, "b32") for source in sources] + [np.zeros(32, np.uint32)] * (3 - len(sources))
        return [packing.pack_integers(*rows, int(groups["width"]), groups["sign"] == "s")]
    if match.string.endswith(".tf32.f32"):
        return [packing.narrow(numbers(sources[0], "f32"), "tf32", groups["rounding"], *flags)]
    if groups.get("of"):
        values = packing.unpacked(sources[0], groups["of"])
        if groups.get("scaled"):
            values = values * packing.unpacked(bits(sources[1], "b16"), "ue8m0")
        return [packing.packed(packing.narrow(values, groups["to"], "rn", *flags), 16, 32)]
    if match.string.startswith("cvt.rs"):
        values = packing.columns(*(numbers(source, "f32") for source in sources[1::-1]))
        return [packing.packed(packing.stochastic(values, groups["to"], bits(sources[2], "b32"), *flags), 16, 32)]
    scale = packing.unpacked(bits(sources.pop(), "b16"), "ue8m0") if groups.get("scaled") else 1
    if groups["type"] == "f32":
        values = packing.columns(*(numbers(source, "f32") for source in reversed(sources)))
    else:
        values = numbers(sources[0], groups["type"]).reshape(32, 2)
    values = values if groups["to"] != "s2f6" else values.astype(np.float64) / scale
    codes = packing.narrow(values, groups["to"], groups["rounding"], *flags)
    return [packing.packed(codes, {"e2m1": 4, "f16": 16, "bf16": 16}.get(groups["to"], 8), width)]


# Addresses

RANK_SHIFT = 24
TAGS = {"shared": SHARED_TAG << TAG_SHIFT, "local": LOCAL_TAG << TAG_SHIFT}


def address(match, widths, sources, parameters, parameter_bytes):
    """Results in the CTA of rank 0. parameters: the address of the kernel's parameters."""
    name, groups = match.string.partition(".")[0], match.groupdict()
    width, tag = widths[0], TAGS.get((groups.get("space") or "").partition("::")[0])
    if name == "createpolicy":
        return [np.zeros(32, np.uint64)]
    value = bits(sources[0], f"b{64 if name == 'isspacep' else type_width(groups['type'])}")
    if name == "getctarank":
        return [(value >> value.dtype.type(RANK_SHIFT) & value.dtype.type(0xFF)).astype(np.uint32)]
    if name == "mapa":
        ones = 0xFFFFFF | (0 if groups["space"] else 0xFF << TAG_SHIFT)
        rank = bits(sources[1], "u32")
        return [by_lane(lambda at, to: at & ones | to << RANK_SHIFT, width, value, rank)]
    if name == "isspacep":
        tests = {
            "shared::cluster": lambda at: at >> TAG_SHIFT == SHARED_TAG,
            "local": lambda at: at >> TAG_SHIFT == LOCAL_TAG,
            "global": lambda at: at >> TAG_SHIFT == 0,
            "param": lambda at: 0 <= at - parameters < parameter_bytes,
        }
        test = tests.get(groups["space"], lambda at: at >> RANK_SHIFT == TAGS["shared"] >> RANK_SHIFT)
        return [np.array([test(at) for at in value.tolist()])]
    if tag is not None:
        return [by_lane(lambda at: at & 0xFFFFFFFF if groups["to"] else at | tag, width, value)]
    if groups["space"] == "param" and not groups["to"]:
        return [by_lane(lambda at: at & 0xFFFFFFFF | parameters >> 32 << 32, width, value)]
    return [value]


FAMILIES = {"integers": integer, "carry": carrying, "comparisons": comparison, "floats": floating}
FAMILIES |= {"conversions": conversion, "packed": packed, "addresses": address}
