// Vectors of the CPU's size, and the blocks of sums that its registers hold.

#pragma once

#include "vectors.h"

#if defined(__AVX__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

// A vector of the CPU's size, and a b + c with one rounding where the CPU has it: products of two elements are exact in
// float, so the other CPUs get the same sums.
#if defined(__AVX512F__)
enum { VECTOR = 64, ROWS = 8, VECTORS = 2 };
#define FUSED_f32(a, b, c) ((v_f32)_mm512_fmadd_ps((__m512)(a), (__m512)(b), (__m512)(c)))
#define FUSED_f64(a, b, c) ((v_f64)_mm512_fmadd_pd((__m512d)(a), (__m512d)(b), (__m512d)(c)))
#elif defined(__FMA__)
enum { VECTOR = 32, ROWS = 4, VECTORS = 2 };
#define FUSED_f32(a, b, c) ((v_f32)_mm256_fmadd_ps((__m256)(a), (__m256)(b), (__m256)(c)))
#define FUSED_f64(a, b, c) ((v_f64)_mm256_fmadd_pd((__m256d)(a), (__m256d)(b), (__m256d)(c)))
#elif defined(__aarch64__)
enum { VECTOR = 16, ROWS = 4, VECTORS = 4 };
#define FUSED_f32(a, b, c) ((v_f32)vfmaq_f32((float32x4_t)(c), (float32x4_t)(a), (float32x4_t)(b)))
#define FUSED_f64(a, b, c) ((v_f64)vfmaq_f64((float64x2_t)(c), (float64x2_t)(a), (float64x2_t)(b)))
#else
enum { VECTOR = 16, ROWS = 4, VECTORS = 2 };
#define FUSED_f32(a, b, c) ((a) * (b) + (c))
#define FUSED_f64(a, b, c) ((a) * (b) + (c))
#endif

typedef f32 v_f32 __attribute__((vector_size(VECTOR)));
typedef f64 v_f64 __attribute__((vector_size(VECTOR)));
typedef v_f32 v_f32_in_memory __attribute__((aligned(4), may_alias));
typedef v_f64 v_f64_in_memory __attribute__((aligned(8), may_alias));

// Four elements, at any place in memory
typedef f32 Singles __attribute__((vector_size(16), aligned(4), may_alias));
typedef s32 Words __attribute__((vector_size(16), aligned(4), may_alias));
typedef f64 Doubles __attribute__((vector_size(32), aligned(8), may_alias));
#ifdef __AVX__
#define WIDENED(singles) ((Doubles)_mm256_cvtps_pd((__m128)(singles)))
#define NARROWED(doubles) ((Singles)_mm256_cvtpd_ps((__m256d)(doubles)))
#else
#define WIDENED(singles) __builtin_convertvector(singles, Doubles)
#define NARROWED(doubles) __builtin_convertvector(doubles, Singles)
#endif
