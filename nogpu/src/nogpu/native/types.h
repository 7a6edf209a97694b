// The dialect of the package's C, and its types.
//
// - Numbers are u8 to u64, s8 to s64 and f16 to f64, after their bits; int is for counts, truths and what C's library
//   takes; word is an argument of a CUDA function, a number or an address.
// - Structs are typedefs in CamelCase, functions and variables snake_case, enumerators and macros UPPER_CASE.
// - Numbers that have a name are enumerators. Python reads them and the structs from these texts (headers.py).
// - A null pointer is 0 and a truth by itself. The comment of a function that can be refused names the result for that;
//   an error that Python raises is left in a field (Context.result, Sim.error).
// - A comment is //: a sentence above what it is about, or a noun phrase behind a field.
// - A body of one statement has no braces, and stands behind its `if`, `else` or `for` where 120 columns hold it.

#pragma once

#include <stddef.h>
#include <stdint.h>
#include <string.h>

typedef uint8_t u8;
typedef uint16_t u16;
typedef uint32_t u32;
typedef uint64_t u64;
typedef int8_t s8;
typedef int16_t s16;
typedef int32_t s32;
typedef int64_t s64;
typedef _Float16 f16;
typedef float f32;
typedef double f64;
typedef uintptr_t word;
