/* Tensor memory and tensor core. Included by library.cu. */

#pragma once

#include "control.cuh"

static __device__ uint32_t *tmem_of(uint32_t control, uint32_t rank) {
    return hopper_pool.words + (size_t)load(in_cta(AT(tmem), rank)) * (COLUMNS * LANES);
}

static __device__ void take_tmem(uint32_t control) {
    uint64_t slots = hopper_pool.slots;
    uint64_t slot = (blockIdx.x + (uint64_t)gridDim.x * (blockIdx.y + (uint64_t)gridDim.y * blockIdx.z)) % slots;
    while (atomicCAS(&hopper_pool.taken[slot], 0, 1)) slot = slot + 1 == slots ? 0 : slot + 1;
    __threadfence();
    store(AT(tmem), (uint32_t)slot);
}

/* tcgen05.alloc by a whole warp: base address of `columns` more columns, filled with NaN. The CTAs of a pair wait for
 * each other. */
extern "C" __device__ uint32_t hopper_alloc(uint32_t control, uint32_t columns, uint32_t cta_group) {
    uint32_t base = load(AT(columns)), lane = threadIdx.x % 32;
    __syncwarp();
    if (base + columns > COLUMNS) refuse("tcgen05.alloc: too few columns are left", columns);
    uint4 *words = (uint4 *)(tmem_of(control, own_rank()) + base * LANES);
    for (uint32_t i = lane; i < columns * LANES / 4; i += 32) __stcg(&words[i], make_uint4(~0u, ~0u, ~0u, ~0u));
    __threadfence();
    __syncwarp();
    if (lane == 0) {
        store(AT(columns), base + columns);
        if (cta_group == 2) {
            uint32_t count = add(AT(allocations), 1) + 1;
            add(in_cta(AT(pair_allocations), own_rank() ^ 1), 1);
            while (load(AT(pair_allocations)) < count) __nanosleep(64);
        }
    }
    __syncwarp();
    return base;
}

extern "C" __device__ void hopper_dealloc(uint32_t control, uint32_t columns) {
    if (threadIdx.x % 32 == 0) add(AT(columns), -columns);
}

/* Global address of the calling lane's first word of a tcgen05.ld or .st; `fragment` in hardware/tensor/tmem.py gives the
 * distances of the registers, SHAPES in rules_tcgen05.py the values of `shape` (PTX ISA, "Matrix fragments for shape .32x32b" and
 * the sections behind). */
extern "C" __device__ uint64_t hopper_tmem_address(uint32_t control, uint32_t taddr, uint32_t shape, uint32_t packed,
                                                   uint32_t half_split) {
    uint32_t t = threadIdx.x % 32, row = 0, column = 0, split = 0;
    switch (shape) {
    case 0: row = t; break;
    case 1: row = t / 4 + 8 * (t % 2), column = t % 4 / 2; break;
    case 2: row = t / 4, column = t % 4; break;
    case 3: row = t / 4, column = 2 * (t % 4); break;
    case 4: row = t % 16, split = half_split * (t / 16); break;
    }
    uint32_t lane = taddr >> 16 & (LANES - 1);
    if (lane / 32 != threadIdx.x / 32 % 4) refuse("tcgen05.ld or .st: the warp does not reach this lane", lane);
    __threadfence();
    column = (taddr & (COLUMNS - 1)) + column * (packed ? 2 : 1) + split;
    return (uint64_t)(tmem_of(control, own_rank()) + column * LANES + lane + row);
}

/* Tensor core: the servers' work. Bit layouts: nogpu/src/nogpu/hardware/tensor/descriptors.py and instruction.py. */

struct Operand {
    uint32_t start, lead, stride, span;

    __device__ explicit Operand(uint64_t descriptor) {
        uint32_t mode = descriptor >> 61;
        if ((descriptor >> 46 & 7) != 1 || (descriptor >> 49 & 15) || (mode & 1))
            refuse("shared memory descriptor, high word", descriptor >> 32);
        start = (descriptor & 0x3FFF) << 4;
        lead = (descriptor >> 16 & 0x3FFF) << 4;
        stride = (descriptor >> 32 & 0x3FFF) << 4;
        span = mode == 2 ? 128 : mode == 4 ? 64 : mode == 6 ? 32 : 0;
    }

    /* Address of a 16-byte chunk in a CTA's shared memory. */
    __device__ uint32_t chunk(uint32_t rank, uint32_t row, uint32_t chunk) const {
        uint32_t linear = start + row / 8 * stride + row % 8 * (span ? span : 16) + chunk * (span ? 16 : lead);
        if (span) linear ^= (linear >> 7 & (span / 16 - 1)) << 4;
        return in_cta(linear, rank);
    }
};

/* Four e2m1 elements in the low 16 bits -> four int8 of twice their value. */
static __device__ uint32_t decode4(uint32_t codes) {
    uint32_t magnitude, sign;
    asm("prmt.b32 %0, %1, %2, %3;" : "=r"(magnitude) : "r"(0x03020100), "r"(0x0C080604), "r"(codes & 0x7777));
    asm("prmt.b32 %0, %1, %1, %2;" : "=r"(sign) : "r"(0x80), "r"(codes & 0x8888)); /* 0xFF or 0x80 */
    sign &= 0x7F7F7F7F;
    sign |= sign << 1 & 0x80808080;
    return __vsub4(magnitude ^ sign, sign);
}

static __device__ void decode_row(const Operand &operand, uint32_t rank, uint32_t row, uint32_t (&values)[16]) {
    for (uint32_t chunk = 0; chunk < 2; chunk++) {
        uint4 data = load_chunk(operand.chunk(rank, row, chunk));
        uint32_t words[4] = {data.x, data.y, data.z, data.w};
        for (uint32_t i = 0; i < 4; i++) {
            values[8 * chunk + 2 * i] = decode4(words[i]);
            values[8 * chunk + 2 * i + 1] = decode4(words[i] >> 16);
        }
    }
}

static __device__ float decode_scale(uint32_t code, bool ue8m0) {
    if (ue8m0) return code == 255 ? __uint_as_float(0x7FC00000) : code ? __uint_as_float(code << 23) : 0x1p-127f;
    uint32_t exponent = code >> 3 & 15, mantissa = code & 7;
    if ((code & 0x7F) == 0x7F) return __uint_as_float(0x7FC00000);
    return exponent ? __uint_as_float((exponent + 120) << 23 | mantissa << 20) : mantissa * 0x1p-9f;
}

/* Four scale factors, one per 16 elements. */
static __device__ void decode_scales(uint32_t word, uint32_t first_byte, uint32_t block, bool ue8m0,
                                     float (&scales)[4]) {
    for (uint32_t i = 0; i < 4; i++) scales[i] = decode_scale(word >> 8 * (first_byte + i * 16 / block) & 255, ue8m0);
}

static __device__ uint32_t scale_word(const uint32_t *tmem, uint32_t taddr, uint32_t row) {
    return __ldcg(&tmem[((taddr & (COLUMNS - 1)) + row / 32) * LANES + row % 32]);
}

static __device__ void multiply(uint32_t control, const Job &job, uint32_t row) {
    uint32_t n = (job.idesc >> 17 & 63) << 3, m = (job.idesc >> 24 & 31) << 4, pair = job.cta_group;
    uint32_t block = job.shape, sfa_id = job.idesc >> 29 & 3, sfb_id = job.idesc >> 4 & 3;
    bool ue8m0 = job.idesc >> 23 & 1;
    float sign = (job.idesc >> 13 ^ job.idesc >> 14) & 1 ? -0.25f : 0.25f;
    if ((job.idesc & 7) || (job.idesc >> 7 & 7) != 1 || (job.idesc >> 10 & 7) != 1 || (job.idesc >> 15 & 3) ||
        job.idesc >> 31 || m != 128 * pair || n == 0 || n % (8 * pair) || (job.d >> 16 & (LANES - 1)))
        refuse("tcgen05.mma: instruction descriptor", job.idesc);
    Operand a(job.a), b(job.b);
    uint32_t leader = own_rank() & ~(pair - 1), half = n / pair;
    for (uint32_t cta = 0; cta < pair; cta++) {
        uint32_t *tmem = tmem_of(control, leader + cta);
        uint32_t *d = tmem + (job.d & (COLUMNS - 1)) * LANES + row;
        uint32_t a_values[16];
        float a_scales[4];
        decode_row(a, leader + cta, row, a_values);
        decode_scales(scale_word(tmem, job.sfa, row), sfa_id, block, ue8m0, a_scales);
        for (uint32_t first = 0; first < n; first += 8) {
            float sums[8];
            uint32_t b_words[8];
            for (uint32_t i = 0; i < 8; i++) {
                sums[i] = job.accumulate ? __uint_as_float(__ldcg(&d[(first + i) * LANES])) : 0;
                b_words[i] = scale_word(tmem, job.sfb, first + i);
            }
#pragma unroll 1
            for (uint32_t i = 0; i < 8; i++) {
                uint32_t column = first + i, b_values[16];
                float b_scales[4], sum = 0;
                decode_row(b, leader + column / half, column % half, b_values);
                decode_scales(b_words[0], sfb_id, block, ue8m0, b_scales);
                for (uint32_t k = 0; k < 4; k++) {
                    int dot = 0;
                    for (uint32_t j = 4 * k; j < 4 * k + 4; j++) dot = __dp4a((int)a_values[j], (int)b_values[j], dot);
                    sum += (float)dot * (a_scales[k] * b_scales[k]);
                }
                float value = sums[0] + sum * sign;
                __stcg(&d[column * LANES], __float_as_uint(value));
                /* Rotated, so that the loop, which is not unrolled, keeps its arrays in registers. */
                for (uint32_t j = 0; j < 7; j++) sums[j] = sums[j + 1], b_words[j] = b_words[j + 1];
            }
        }
    }
}

/* job.shape: rows << 8 | chunks per row << 4 | choice of the 32 rows for each quarter of the lanes: 0 the first rows
 * for all, 1 warpx2::02_13, 2 warpx2::01_23, 3 its own rows for each. */
static __device__ void copy(uint32_t control, const Job &job, uint32_t lane) {
    Operand source(job.a);
    uint32_t quarter = lane / 32, choice = job.shape & 15, chunks = job.shape >> 4 & 15;
    uint32_t part = choice == 0 ? 0 : choice == 1 ? quarter & 1 : choice == 2 ? quarter / 2 : quarter;
    uint32_t leader = own_rank() & ~(job.cta_group - 1);
    for (uint32_t cta = 0; cta < job.cta_group; cta++) {
        uint32_t *words = tmem_of(control, leader + cta) + (job.d & (COLUMNS - 1)) * LANES + lane;
        for (uint32_t chunk = 0; chunk < chunks; chunk++) {
            uint4 data = load_chunk(source.chunk(leader + cta, 32 * part + lane % 32, chunk));
            __stcg(&words[(4 * chunk + 0) * LANES], data.x);
            __stcg(&words[(4 * chunk + 1) * LANES], data.y);
            __stcg(&words[(4 * chunk + 2) * LANES], data.z);
            __stcg(&words[(4 * chunk + 3) * LANES], data.w);
        }
    }
}

static __device__ void run_jobs(uint32_t control, uint32_t server) {
    for (uint32_t parity = 0;; parity ^= 1) {
        wait(AT(posted), parity);
        Job job;
        uint32_t *words = (uint32_t *)&job;
        for (uint32_t i = 0; i < sizeof job / 4; i++) words[i] = read(AT(job) + 4 * i);
        if (job.kind == JOB_END) return;
        fence_cluster();
        if (job.kind == JOB_MMA)
            multiply(control, job, server);
        else
            copy(control, job, server);
        __threadfence();
        arrive(AT(done));
    }
}

/* Hand a job to the servers and wait until it is done; JOB_END, the last one, is not waited for. */
static __device__ void post(uint32_t control, const Job &job) {
    while (exchange_if(AT(lock), 0, 1)) __nanosleep(64);
    const uint32_t *words = (const uint32_t *)&job;
    for (uint32_t i = 0; i < sizeof job / 4; i++) write(AT(job) + 4 * i, words[i]);
    uint32_t number = read(AT(jobs));
    write(AT(jobs), number + 1);
    arrive(AT(posted));
    if (job.kind == JOB_END) return;
    wait(AT(done), number & 1);
    __threadfence();
    store(AT(lock), 0);
}

extern "C" __device__ void hopper_copy(uint32_t control, uint32_t cta_group, uint32_t shape, uint32_t taddr,
                                       uint64_t descriptor) {
    post(control, Job{JOB_COPY, cta_group, shape, taddr, 0, 0, 0, 0, descriptor, 0});
}

extern "C" __device__ void hopper_mma(uint32_t control, uint32_t cta_group, uint32_t block, uint32_t d, uint64_t a,
                                      uint64_t b, uint32_t idesc, uint32_t sfa, uint32_t sfb, uint32_t accumulate) {
    post(control, Job{JOB_MMA, cta_group, block, d, idesc, sfa, sfb, accumulate, a, b});
}
