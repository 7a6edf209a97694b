"""Results with one rounding, by rational arithmetic, lane by lane (PTX ISA, "Floating Point Instructions")."""

from fractions import Fraction
from math import inf, isfinite, isqrt, ldexp

import numpy as np

FORMATS = {"f16": (11, -14, 15), "bf16": (8, -126, 127), "tf32": (11, -126, 127), "f32": (24, -126, 127)}
FORMATS["f64"] = (53, -1022, 1023)
"""Format -> bits of the significand, least and greatest exponent of normal numbers."""


def root(value):
    """The root of a rational number to many more bits than a format has, never exact by accident."""
    scale = 2**2400
    found = Fraction(isqrt(value.numerator * scale * scale // value.denominator), scale)
    return found if found * found == value else found + Fraction(1, 2 * scale)


OPERATIONS = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "div": lambda a, b: a / b,
    "rcp": lambda a: 1 / a,
    "sqrt": lambda a: np.sqrt(a) if isinstance(a, np.ndarray) else root(a),
    "fma": lambda a, b, c: a * b + c,
    "mad": lambda a, b, c: a * b + c,
    "cvt": lambda a: a,
}
"""Operation -> a function of rational numbers, and of arrays for signs of zeros, infinities and NaN."""


def round_exactly(value, name, rounding):
    """A rational number other than 0, rounded to a format of FORMATS: rn, rna, rz, rm or rp."""
    precision, low, high = FORMATS[name]
    numerator, denominator = abs(value.numerator), value.denominator
    exponent = numerator.bit_length() - denominator.bit_length()
    exponent -= (numerator << max(-exponent, 0)) < (denominator << max(exponent, 0))
    unit = max(exponent, low) - precision + 1  # exponent of the last place
    divisor = denominator << max(unit, 0)
    count, rest = divmod(numerator << max(-unit, 0), divisor)
    outwards = {"rz": False, "rm": value < 0, "rp": value > 0}
    up = {"rn": 2 * rest > divisor or (2 * rest == divisor and count % 2 == 1), "rna": 2 * rest >= divisor}
    count += bool(rest) and (outwards | up)[rounding]
    most, last = 2**precision - 1, high - precision + 1
    if unit > last or (unit == last and count > most):
        result = inf if outwards.get(rounding, True) else ldexp(most, last)
    else:
        result = ldexp(count, unit)
    return result if value > 0 else -result


def rounded(operation, sources, name, rounding="rn"):
    """float64 results of an operation on rows of floats or integers, with one rounding to a format."""
    function = OPERATIONS[operation]
    result = function(*(source.astype(np.float64) for source in sources))
    for i, values in enumerate(zip(*(source.tolist() for source in sources), strict=True)):
        if len(values) == 3 and isfinite(values[0]) and isfinite(values[1]) and not isfinite(values[2]):
            result[i] = values[2]  # infinite or NaN, whatever the product
        if not all(map(isfinite, values)) or (operation in ("div", "rcp") and not values[-1]):
            continue
        if operation == "sqrt" and values[0] <= 0:
            continue
        exact = function(*map(Fraction, values))
        if exact:
            result[i] = round_exactly(exact, name, rounding)
        elif rounding == "rm" and operation in ("add", "sub", "fma", "mad"):
            # The sum of opposite numbers, or of zeros of which one is negative, is -0 (IEEE 754, 6.3).
            signs = np.signbit([values[0] * values[1] if len(values) == 3 else values[0], values[-1]])
            signs[1] ^= operation == "sub"
            result[i] = -0.0 if signs.any() else 0.0
    return result
