// Textures, surfaces and CUDA arrays; test_textures.py calls these functions. Each returns 0, or the line that failed.
#include <cstring>
#include <cuda.h>
#include <cuda_runtime.h>

#define CHECK(condition)                                                                                               \
    do {                                                                                                               \
        if (!(condition)) return __LINE__;                                                                             \
    } while (0)
#define OK(call) CHECK((call) == cudaSuccess)
#define REFUSES(code, call) CHECK((call) == cudaError##code && cudaGetLastError() == cudaError##code)

typedef unsigned char uchar;

enum Source { LINEAR, PITCHED, ARRAY };

struct Case {
    int source, dimensions, sizes[3];
    int count, bits, kind;  // of channels
    int filter, fraction, normalized, modes[3];
    float border[4];
};

static int texel_bytes(const Case &c) { return c.count * c.bits / 8; }

static cudaChannelFormatDesc channels(const Case &c) {
    int bits[4] = {};
    for (int i = 0; i < c.count; i++) bits[i] = c.bits;
    return cudaCreateChannelDesc(bits[0], bits[1], bits[2], bits[3], (cudaChannelFormatKind)c.kind);
}

static bool by_driver;  // textures, arrays and their copies
extern "C" void use_driver(int yes) { by_driver = yes; }

static CUarray_format format(const Case &c) {
    if (c.kind == cudaChannelFormatKindFloat) return c.bits == 16 ? CU_AD_FORMAT_HALF : CU_AD_FORMAT_FLOAT;
    CUarray_format whole[][3] = {{CU_AD_FORMAT_SIGNED_INT8, CU_AD_FORMAT_SIGNED_INT16, CU_AD_FORMAT_SIGNED_INT32},
                                 {CU_AD_FORMAT_UNSIGNED_INT8, CU_AD_FORMAT_UNSIGNED_INT16, CU_AD_FORMAT_UNSIGNED_INT32}};
    return whole[c.kind][c.bits / 16];
}

static int array_by_driver(const Case &c, const void *texels, CUarray *array, unsigned flags) {
    size_t row = (size_t)c.sizes[0] * texel_bytes(c), rows = c.dimensions > 1 ? c.sizes[1] : 1;
    CUDA_ARRAY3D_DESCRIPTOR d = {(size_t)c.sizes[0], c.dimensions > 1 ? rows : 0, c.dimensions > 2 ? (size_t)c.sizes[2] : 0};
    d.Format = format(c), d.NumChannels = c.count, d.Flags = flags;
    CHECK(cuArray3DCreate(array, &d) == CUDA_SUCCESS);
    CUDA_MEMCPY3D copy = {};
    copy.srcMemoryType = CU_MEMORYTYPE_HOST, copy.srcHost = texels, copy.srcPitch = row, copy.srcHeight = rows;
    copy.dstMemoryType = CU_MEMORYTYPE_ARRAY, copy.dstArray = *array;
    copy.WidthInBytes = row, copy.Height = rows, copy.Depth = c.dimensions > 2 ? c.sizes[2] : 1;
    CHECK(cuMemcpy3D(&copy) == CUDA_SUCCESS);
    return 0;
}

static int texture_by_driver(const Case &c, const cudaResourceDesc &r, CUtexObject *texture) {
    CUDA_RESOURCE_DESC place = {};
    if (c.source == ARRAY) place.resType = CU_RESOURCE_TYPE_ARRAY, place.res.array.hArray = (CUarray)r.res.array.array;
    if (c.source == LINEAR) {
        place.resType = CU_RESOURCE_TYPE_LINEAR;
        place.res.linear = {(CUdeviceptr)r.res.linear.devPtr, format(c), (unsigned)c.count, r.res.linear.sizeInBytes};
    }
    if (c.source == PITCHED) {
        place.resType = CU_RESOURCE_TYPE_PITCH2D;
        auto &from = r.res.pitch2D;
        place.res.pitch2D = {(CUdeviceptr)from.devPtr, format(c), (unsigned)c.count, from.width, from.height,
                             from.pitchInBytes};
    }
    CUDA_TEXTURE_DESC d = {};
    for (int i = 0; i < 3; i++) d.addressMode[i] = (CUaddress_mode)c.modes[i];
    d.filterMode = (CUfilter_mode)c.filter;
    d.flags = (c.fraction ? 0 : CU_TRSF_READ_AS_INTEGER) | (c.normalized ? CU_TRSF_NORMALIZED_COORDINATES : 0);
    memcpy(d.borderColor, c.border, sizeof d.borderColor);
    CHECK(cuTexObjectCreate(texture, &place, &d, nullptr) == CUDA_SUCCESS);
    return 0;
}

// A texture's memory: rows of texels of the host's, which lie behind each other.
static int resource(const Case &c, const void *texels, cudaResourceDesc &r, unsigned flags = cudaArrayDefault) {
    cudaChannelFormatDesc desc = channels(c);
    size_t row = (size_t)c.sizes[0] * texel_bytes(c), rows = c.dimensions > 1 ? c.sizes[1] : 1;
    memset(&r, 0, sizeof r);
    if (c.source == LINEAR) {
        r.resType = cudaResourceTypeLinear;
        r.res.linear.desc = desc;
        r.res.linear.sizeInBytes = row;
        OK(cudaMalloc(&r.res.linear.devPtr, row));
        OK(cudaMemcpy(r.res.linear.devPtr, texels, row, cudaMemcpyHostToDevice));
    } else if (c.source == PITCHED) {
        r.resType = cudaResourceTypePitch2D;
        r.res.pitch2D.desc = desc;
        r.res.pitch2D.width = c.sizes[0];
        r.res.pitch2D.height = rows;
        OK(cudaMallocPitch(&r.res.pitch2D.devPtr, &r.res.pitch2D.pitchInBytes, row, rows));
        OK(cudaMemcpy2D(r.res.pitch2D.devPtr, r.res.pitch2D.pitchInBytes, texels, row, row, rows, cudaMemcpyHostToDevice));
    } else if (by_driver) {
        return array_by_driver(c, texels, (CUarray *)&r.res.array.array, flags);
    } else {
        r.resType = cudaResourceTypeArray;
        cudaExtent extent = make_cudaExtent(c.sizes[0], c.dimensions > 1 ? rows : 0, c.dimensions > 2 ? c.sizes[2] : 0);
        OK(cudaMalloc3DArray(&r.res.array.array, &desc, extent, flags));
        cudaMemcpy3DParms copy = {};
        copy.srcPtr = make_cudaPitchedPtr((void *)texels, row, c.sizes[0], rows);
        copy.dstArray = r.res.array.array;
        copy.extent = make_cudaExtent(c.sizes[0], rows, c.dimensions > 2 ? c.sizes[2] : 1);
        copy.kind = cudaMemcpyHostToDevice;
        OK(cudaMemcpy3D(&copy));
    }
    return 0;
}

static cudaTextureDesc description(const Case &c) {
    cudaTextureDesc d = {};
    for (int i = 0; i < 3; i++) d.addressMode[i] = (cudaTextureAddressMode)c.modes[i];
    d.filterMode = (cudaTextureFilterMode)c.filter;
    d.readMode = (cudaTextureReadMode)c.fraction;
    d.normalizedCoords = c.normalized;
    memcpy(d.borderColor, c.border, sizeof d.borderColor);
    return d;
}

static int release(const Case &c, cudaResourceDesc &r) {
    if (c.source == ARRAY) OK(cudaFreeArray(r.res.array.array));
    else OK(cudaFree(c.source == LINEAR ? r.res.linear.devPtr : r.res.pitch2D.devPtr));
    return 0;
}

template <class T> using Kernel = void (*)(cudaTextureObject_t, Case, const float *, int, T *);

// out: on the host, a result for each of n coordinates, which are rows of x, y and z.
template <class T>
int run(Kernel<T> kernel, const Case &c, const void *texels, const float *at, int n, void *out, unsigned flags = 0) {
    cudaResourceDesc r;
    if (int line = resource(c, texels, r, flags)) return line;
    cudaTextureDesc d = description(c);
    cudaTextureObject_t texture;
    if (by_driver) {
        if (int line = texture_by_driver(c, r, (CUtexObject *)&texture)) return line;
    } else OK(cudaCreateTextureObject(&texture, &r, &d, nullptr));
    float *places;
    T *found;
    OK(cudaMalloc(&places, 12 * n));
    OK(cudaMalloc(&found, sizeof(T) * n));
    OK(cudaMemcpy(places, at, 12 * n, cudaMemcpyHostToDevice));
    kernel<<<(n + 31) / 32, 32>>>(texture, c, places, n, found);
    OK(cudaMemcpy(out, found, sizeof(T) * n, cudaMemcpyDeviceToHost));
    if (by_driver) CHECK(cuTexObjectDestroy(texture) == CUDA_SUCCESS);
    else OK(cudaDestroyTextureObject(texture));
    OK(cudaFree(places));
    OK(cudaFree(found));
    return release(c, r);
}

template <class T> __global__ void fetch(cudaTextureObject_t texture, Case c, const float *at, int n, T *out) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float x = at[i], y = at[n + i], z = at[2 * n + i];
    if (c.source == LINEAR) out[i] = tex1Dfetch<T>(texture, (int)x);
    else if (c.dimensions == 1) out[i] = tex1D<T>(texture, x);
    else if (c.dimensions == 2) out[i] = i & 1 ? tex2D<T>(texture, x, y) : tex2DLod<T>(texture, x, y, 0);
    else out[i] = tex3D<T>(texture, x, y, z);
}

#define FETCH(type)                                                                                                    \
    extern "C" int fetch_##type(const Case *c, const void *texels, const float *at, int n, void *out) {                \
        return run(fetch<type>, *c, texels, at, n, out);                                                 \
    }
FETCH(float) FETCH(float2) FETCH(float4) FETCH(int) FETCH(uint2) FETCH(uchar) FETCH(uchar4) FETCH(short2) FETCH(char)
FETCH(ushort4)

template <int CHANNEL> __global__ void gather(cudaTextureObject_t t, Case c, const float *at, int n, float4 *out) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = tex2Dgather<float4>(t, at[i], at[n + i], CHANNEL);
}

extern "C" int gather_second(const Case *c, const void *texels, const float *at, int n, void *out) {
    return run(gather<1>, *c, texels, at, n, out, cudaArrayTextureGather);
}

// Surfaces: a value is read at (x, y, z), which may lie outside, and written at the mirrored place of another surface.

template <class T, cudaSurfaceBoundaryMode MODE>
__global__ void move(cudaSurfaceObject_t from, cudaSurfaceObject_t to, Case c, const int *at, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x, size = sizeof(T);
    if (i >= n) return;
    int x = at[i], y = at[n + i], z = at[2 * n + i];
    int u = c.sizes[0] - 1 - x, v = c.sizes[1] - 1 - y, w = c.sizes[2] - 1 - z;
    T value;
    if (c.dimensions == 1) surf1Dread(&value, from, x * size, MODE), surf1Dwrite(value, to, u * size, MODE);
    if (c.dimensions == 2) surf2Dread(&value, from, x * size, y, MODE), surf2Dwrite(value, to, u * size, v, MODE);
    if (c.dimensions == 3)
        surf3Dread(&value, from, x * size, y, z, MODE), surf3Dwrite(value, to, u * size, v, w, MODE);
}

template <class T, cudaSurfaceBoundaryMode MODE>
int moved(const Case &c, const void *texels, void *out, const int *at, int n) {
    cudaResourceDesc from, to;
    if (int line = resource(c, texels, from, cudaArraySurfaceLoadStore)) return line;
    if (int line = resource(c, out, to, cudaArraySurfaceLoadStore)) return line;
    cudaSurfaceObject_t sources, targets;
    OK(cudaCreateSurfaceObject(&sources, &from));
    OK(cudaCreateSurfaceObject(&targets, &to));
    int *places;
    OK(cudaMalloc(&places, 12 * n));
    OK(cudaMemcpy(places, at, 12 * n, cudaMemcpyHostToDevice));
    move<T, MODE><<<1, n>>>(sources, targets, c, places, n);
    OK(cudaDeviceSynchronize());
    cudaMemcpy3DParms copy = {};
    size_t row = (size_t)c.sizes[0] * texel_bytes(c);
    copy.srcArray = to.res.array.array;
    copy.dstPtr = make_cudaPitchedPtr(out, row, c.sizes[0], c.sizes[1]);
    copy.extent = make_cudaExtent(c.sizes[0], c.sizes[1], c.sizes[2]);
    copy.kind = cudaMemcpyDeviceToHost;
    OK(cudaMemcpy3D(&copy));
    OK(cudaDestroySurfaceObject(sources));
    OK(cudaDestroySurfaceObject(targets));
    if (int line = release(c, from)) return line;
    return release(c, to);
}

#define MOVE(type, mode)                                                                                               \
    extern "C" int move_##type##_##mode(const Case *c, const void *texels, void *out, const int *at, int n) {          \
        return moved<type, cudaBoundaryMode##mode>(*c, texels, out, at, n);                                            \
    }
MOVE(uchar, Clamp) MOVE(short2, Zero) MOVE(float, Clamp) MOVE(float4, Zero) MOVE(uint2, Trap) MOVE(float, Trap)

// The runtime's functions

extern "C" int copies() {
    cudaArray_t array, other;
    cudaChannelFormatDesc desc = cudaCreateChannelDesc<short2>(), found;
    OK(cudaMallocArray(&array, &desc, 6, 5));
    OK(cudaMallocArray(&other, &desc, 6, 5));
    int texels[5][6], back[5][6] = {}, part[2][3];
    for (int i = 0; i < 30; i++) (&texels[0][0])[i] = i * 1001;
    OK(cudaMemcpy2DToArray(array, 0, 0, texels, 24, 24, 5, cudaMemcpyHostToDevice));
    OK(cudaMemcpy2DFromArray(part, 12, array, 8, 1, 12, 2, cudaMemcpyDeviceToHost));
    for (int i = 0; i < 6; i++) CHECK(part[i / 3][i % 3] == texels[1 + i / 3][2 + i % 3]);
    OK(cudaMemcpy2DArrayToArray(other, 4, 1, array, 8, 2, 12, 3, cudaMemcpyDeviceToDevice));
    OK(cudaMemcpy2DFromArray(back, 24, other, 4, 1, 12, 3, cudaMemcpyDeviceToHost));
    CHECK(back[0][0] == texels[2][2] && back[2][2] == texels[4][4]);
    OK(cudaMemcpyToArray(other, 8, 1, &texels[0][0], 44, cudaMemcpyHostToDevice));  // 4 texels of row 1, then on
    OK(cudaMemcpyFromArray(&back[0][0], other, 8, 1, 44, cudaMemcpyDeviceToHost));
    CHECK(!memcmp(back, texels, 44));
    OK(cudaMemcpy2DFromArray(part, 4, other, 0, 2, 4, 1, cudaMemcpyDeviceToHost));
    CHECK(part[0][0] == texels[0][4]);
    cudaExtent extent;
    unsigned flags;
    OK(cudaArrayGetInfo(&found, &extent, &flags, array));
    CHECK(extent.width == 6 && extent.height == 5 && extent.depth == 0 && flags == 0 && !memcmp(&found, &desc, sizeof found));
    OK(cudaGetChannelDesc(&found, array));
    CHECK(found.x == 16 && found.y == 16 && found.z == 0 && found.f == cudaChannelFormatKindSigned);
    REFUSES(InvalidValue, cudaMemcpy2DToArray(array, 4, 0, texels, 24, 24, 1, cudaMemcpyHostToDevice));
    REFUSES(InvalidValue, cudaMemcpy2DToArray(array, 0, 1, texels, 24, 24, 5, cudaMemcpyHostToDevice));
    REFUSES(InvalidValue, cudaMemcpyToArray(array, 0, 4, texels, 28, cudaMemcpyHostToDevice));
    OK(cudaFreeArray(array));
    OK(cudaFreeArray(other));
    REFUSES(InvalidResourceHandle, cudaFreeArray(array));
    cudaPitchedPtr planes;
    OK(cudaMalloc3D(&planes, make_cudaExtent(100, 3, 2)));
    CHECK(planes.pitch >= 100 && planes.xsize == 100 && planes.ysize == 3);
    OK(cudaMemset(planes.ptr, 1, planes.pitch * 6));
    OK(cudaFree(planes.ptr));
    return 0;
}

extern "C" int copies_by_driver() {
    CUarray array;
    CUdeviceptr memory;
    CUDA_ARRAY_DESCRIPTOR d = {6, 5, CU_AD_FORMAT_SIGNED_INT16, 2};
    CHECK(cuArrayCreate(&array, &d) == CUDA_SUCCESS && cuMemAlloc(&memory, 120) == CUDA_SUCCESS);
    int texels[5][6], part[2][3] = {}, seen[3];
    for (int i = 0; i < 30; i++) (&texels[0][0])[i] = i * 1001;
    CUDA_MEMCPY2D in = {0, 0, CU_MEMORYTYPE_HOST, texels, 0, 0, 24, 0, 0, CU_MEMORYTYPE_ARRAY, 0, 0, array, 0, 24, 5};
    CHECK(cuMemcpy2D(&in) == CUDA_SUCCESS);
    CUDA_MEMCPY2D out = {8, 1, CU_MEMORYTYPE_ARRAY, 0, 0, array, 0, 4, 1, CU_MEMORYTYPE_DEVICE, 0, memory, 0, 20, 12, 2};
    CHECK(cuMemcpy2DAsync(&out, 0) == CUDA_SUCCESS);
    CHECK(cuMemcpyDtoH(seen, memory + 24, 12) == CUDA_SUCCESS);
    CHECK(!memcmp(seen, &texels[1][2], 12));
    CUDA_MEMCPY2D back = {4, 1, CU_MEMORYTYPE_UNIFIED, 0, memory, 0, 20, 0, 0, CU_MEMORYTYPE_HOST, part, 0, 0, 12, 12, 2};
    CHECK(cuMemcpy2DUnaligned(&back) == CUDA_SUCCESS && !memcmp(part[1], &texels[2][2], 12));
    out.srcXInBytes = 16;  // a box that does not lie in the array
    CHECK(cuMemcpy2D(&out) == CUDA_ERROR_INVALID_VALUE);
    out.srcXInBytes = 8, out.dstMemoryType = (CUmemorytype)5;
    CHECK(cuMemcpy2D(&out) == CUDA_ERROR_INVALID_VALUE);
    d.Format = CU_AD_FORMAT_NV12;
    CUarray other;
    CHECK(cuArrayCreate(&other, &d) == CUDA_ERROR_NOT_SUPPORTED);
    CHECK(cuMemFree(memory) == CUDA_SUCCESS && cuArrayDestroy(array) == CUDA_SUCCESS);
    CHECK(cuMemcpy2D(&in) == CUDA_ERROR_INVALID_HANDLE);
    return 0;
}

// Each layer beside a texture of its own. Lanes name layers of their own, some behind the last one, which they read then.
enum { LAYERS = 3 };

__global__ void compare_layers(cudaTextureObject_t layered, const cudaTextureObject_t *alone, int dimensions, float *sums) {
    int layer = threadIdx.x % (LAYERS + 2), of = layer < LAYERS ? layer : LAYERS - 1;
    float x = threadIdx.x * 0.37f - 4, y = threadIdx.x * 0.23f - 2;
    float found = dimensions == 2 ? tex2DLayered<float>(layered, x, y, layer) : tex1DLayered<float>(layered, x, layer);
    float expected = dimensions == 2 ? tex2D<float>(alone[of], x, y) : tex1D<float>(alone[of], x);
    atomicAdd(&sums[0], found != expected);
    atomicAdd(&sums[1], found);
}

extern "C" int layers() {
    enum { WIDTH = 5 };
    auto desc = cudaCreateChannelDesc<float>();
    float *sums;
    cudaTextureObject_t *alone;
    OK(cudaMallocManaged(&sums, 2 * sizeof *sums));
    OK(cudaMallocManaged(&alone, LAYERS * sizeof *alone));
    for (int dimensions = 1; dimensions <= 2; dimensions++) {
        int height = dimensions == 2 ? 4 : 0, rows = dimensions == 2 ? 4 : 1;
        float texels[LAYERS * WIDTH * 4];
        for (int i = 0; i < LAYERS * WIDTH * 4; i++) texels[i] = i * i + 1;
        cudaTextureDesc d = {};
        d.filterMode = cudaFilterModeLinear;
        d.addressMode[0] = d.addressMode[1] = cudaAddressModeClamp;
        cudaResourceDesc r = {};
        r.resType = cudaResourceTypeArray;
        cudaMemcpy3DParms box = {};
        box.srcPtr = make_cudaPitchedPtr(texels, WIDTH * sizeof *texels, WIDTH, rows);
        box.extent = make_cudaExtent(WIDTH, rows, LAYERS);
        box.kind = cudaMemcpyHostToDevice;
        OK(cudaMalloc3DArray(&box.dstArray, &desc, make_cudaExtent(WIDTH, height, LAYERS), cudaArrayLayered));
        OK(cudaMemcpy3D(&box));
        r.res.array.array = box.dstArray;
        cudaTextureObject_t layered;
        OK(cudaCreateTextureObject(&layered, &r, &d, nullptr));
        for (int layer = 0; layer < LAYERS; layer++) {
            OK(cudaMallocArray(&r.res.array.array, &desc, WIDTH, height));
            OK(cudaMemcpy2DToArray(r.res.array.array, 0, 0, texels + layer * WIDTH * rows, WIDTH * sizeof *texels,
                                   WIDTH * sizeof *texels, rows, cudaMemcpyHostToDevice));
            OK(cudaCreateTextureObject(&alone[layer], &r, &d, nullptr));
        }
        sums[0] = sums[1] = 0;
        compare_layers<<<1, 64>>>(layered, alone, dimensions, sums);
        OK(cudaDeviceSynchronize());
        CHECK(sums[0] == 0 && sums[1] > 0);
    }
    return 0;
}

// Directions into cubemaps beside the textures that their faces are, by the table of the programming guide.
enum { CUBES = 2 };

__global__ void compare_faces(cudaTextureObject_t cube, const cudaTextureObject_t *alone, bool is_layered, float *sums) {
    int i = threadIdx.x, layer = is_layered ? i % (CUBES + 2) : 0, of = layer < CUBES ? layer : CUBES - 1;
    float x = sinf(i * 1.7f), y = cosf(i * 2.3f), z = sinf(i * 0.9f + 1), m, s, t;
    int face;
    if (fabsf(x) > fabsf(y) && fabsf(x) > fabsf(z)) face = x < 0, m = fabsf(x), s = x < 0 ? z : -z, t = -y;
    else if (fabsf(y) > fabsf(z)) face = 2 + (y < 0), m = fabsf(y), s = x, t = y < 0 ? -z : z;
    else face = 4 + (z < 0), m = fabsf(z), s = z < 0 ? -x : x, t = -y;
    s = (__fdiv_rn(s, m) + 1) / 2, t = (__fdiv_rn(t, m) + 1) / 2;
    float found = is_layered ? texCubemapLayered<float>(cube, x, y, z, layer) : texCubemap<float>(cube, x, y, z);
    atomicAdd(&sums[0], found != tex2D<float>(alone[6 * of + face], s, t));
    atomicAdd(&sums[1 + face], 1);
}

extern "C" int faces() {
    enum { WIDTH = 4 };
    auto desc = cudaCreateChannelDesc<float>();
    float *sums, texels[CUBES * 6 * WIDTH * WIDTH];
    cudaTextureObject_t *alone, cube;
    OK(cudaMallocManaged(&sums, 7 * sizeof *sums));
    OK(cudaMallocManaged(&alone, CUBES * 6 * sizeof *alone));
    for (int i = 0; i < CUBES * 6 * WIDTH * WIDTH; i++) texels[i] = i * i + 1;
    for (int cubes = 1; cubes <= CUBES; cubes++) {
        cudaTextureDesc d = {};
        d.filterMode = cudaFilterModeLinear;
        d.addressMode[0] = d.addressMode[1] = cudaAddressModeClamp;
        d.normalizedCoords = 1;
        cudaResourceDesc r = {};
        r.resType = cudaResourceTypeArray;
        cudaMemcpy3DParms box = {};
        box.srcPtr = make_cudaPitchedPtr(texels, WIDTH * sizeof *texels, WIDTH, WIDTH);
        box.extent = make_cudaExtent(WIDTH, WIDTH, 6 * cubes);
        box.kind = cudaMemcpyHostToDevice;
        int flags = cudaArrayCubemap | (cubes > 1 ? cudaArrayLayered : 0);
        OK(cudaMalloc3DArray(&box.dstArray, &desc, box.extent, flags));
        OK(cudaMemcpy3D(&box));
        r.res.array.array = box.dstArray;
        OK(cudaCreateTextureObject(&cube, &r, &d, nullptr));
        for (int face = 0; face < 6 * cubes; face++) {
            OK(cudaMallocArray(&r.res.array.array, &desc, WIDTH, WIDTH));
            OK(cudaMemcpy2DToArray(r.res.array.array, 0, 0, texels + face * WIDTH * WIDTH, WIDTH * sizeof *texels,
                                   WIDTH * sizeof *texels, WIDTH, cudaMemcpyHostToDevice));
            OK(cudaCreateTextureObject(&alone[face], &r, &d, nullptr));
        }
        memset(sums, 0, 7 * sizeof *sums);
        compare_faces<<<1, 512>>>(cube, alone, cubes > 1, sums);
        OK(cudaDeviceSynchronize());
        CHECK(sums[0] == 0);
        for (int face = 0; face < 6; face++) CHECK(sums[1 + face] > 20);
        r.res.array.array = box.dstArray;
        d.seamlessCubemap = 1;
        REFUSES(NotSupported, cudaCreateTextureObject(&cube, &r, &d, nullptr));
    }
    return 0;
}

extern "C" int refusals() {
    cudaArray_t array;
    cudaTextureObject_t texture;
    cudaSurfaceObject_t surface;
    cudaResourceDesc r = {};
    cudaTextureDesc d = {}, back;
    auto desc = cudaCreateChannelDesc<int>(), bytes = cudaCreateChannelDesc<uchar4>();
    auto three = cudaCreateChannelDesc(8, 8, 8, 0, cudaChannelFormatKindUnsigned);
    REFUSES(InvalidValue, cudaMallocArray(&array, &desc, 131073, 0));
    REFUSES(InvalidValue, cudaMallocArray(&array, &desc, 0, 4));
    REFUSES(InvalidValue, cudaMallocArray(&array, &three, 4, 4));
    auto compressed = cudaCreateChannelDesc<cudaChannelFormatKindUnsignedBlockCompressed1>();
    REFUSES(NotSupported, cudaMallocArray(&array, &compressed, 4, 4));
    REFUSES(InvalidValue, cudaMalloc3DArray(&array, &desc, make_cudaExtent(4, 4, 2049), cudaArrayLayered));
    REFUSES(InvalidValue, cudaMalloc3DArray(&array, &desc, make_cudaExtent(4, 4, 0), cudaArrayLayered));
    OK(cudaMalloc3DArray(&array, &desc, make_cudaExtent(4, 4, 6), cudaArrayLayered | cudaArraySurfaceLoadStore));
    r.resType = cudaResourceTypeArray;
    r.res.array.array = array;
    REFUSES(NotSupported, cudaCreateSurfaceObject(&surface, &r));
    REFUSES(InvalidValue, cudaMalloc3DArray(&array, &desc, make_cudaExtent(4, 4, 12), cudaArrayCubemap));
    REFUSES(InvalidValue, cudaMalloc3DArray(&array, &desc, make_cudaExtent(4, 4, 7), cudaArrayCubemap | cudaArrayLayered));
    REFUSES(InvalidValue, cudaMalloc3DArray(&array, &desc, make_cudaExtent(4, 2, 6), cudaArrayCubemap));
    REFUSES(NotSupported, cudaMalloc3DArray(&array, &desc, make_cudaExtent(4, 4, 6), cudaArraySparse));
    OK(cudaMallocArray(&array, &desc, 4, 4));
    r.resType = cudaResourceTypeArray;
    r.res.array.array = array;
    d.filterMode = cudaFilterModeLinear;
    REFUSES(InvalidFilterSetting, cudaCreateTextureObject(&texture, &r, &d, nullptr));
    d.readMode = cudaReadModeNormalizedFloat;
    REFUSES(InvalidNormSetting, cudaCreateTextureObject(&texture, &r, &d, nullptr));
    d = cudaTextureDesc();
    cudaResourceViewDesc view = {};
    REFUSES(NotSupported, cudaCreateTextureObject(&texture, &r, &d, &view));
    d.sRGB = 1;
    REFUSES(NotSupported, cudaCreateTextureObject(&texture, &r, &d, nullptr));
    d.sRGB = 0;
    d.borderColor[1] = 1;
    REFUSES(NotSupported, cudaCreateTextureObject(&texture, &r, &d, nullptr));
    d.borderColor[1] = 0;
    d.addressMode[0] = (cudaTextureAddressMode)4;
    REFUSES(InvalidValue, cudaCreateTextureObject(&texture, &r, &d, nullptr));
    d.addressMode[0] = cudaAddressModeClamp;
    r.resType = cudaResourceTypeMipmappedArray;
    REFUSES(NotSupported, cudaCreateTextureObject(&texture, &r, &d, nullptr));
    r.resType = cudaResourceTypeArray;
    OK(cudaCreateTextureObject(&texture, &r, &d, nullptr));
    OK(cudaGetTextureObjectTextureDesc(&back, texture));
    CHECK(!memcmp(&back, &d, sizeof d));
    cudaResourceDesc place;
    OK(cudaGetTextureObjectResourceDesc(&place, texture));
    CHECK(place.resType == cudaResourceTypeArray && place.res.array.array == array);
    OK(cudaDestroyTextureObject(texture));
    REFUSES(InvalidValue, cudaGetTextureObjectTextureDesc(&back, texture));
    REFUSES(InvalidValue, cudaDestroyTextureObject(texture));
    REFUSES(InvalidValue, cudaCreateSurfaceObject(&surface, &r));  // the array is not for surfaces
    OK(cudaFreeArray(array));
    REFUSES(InvalidResourceHandle, cudaCreateTextureObject(&texture, &r, &d, nullptr));
    char *memory;
    size_t pitch;
    OK(cudaMallocPitch(&memory, &pitch, 64, 4));
    r = cudaResourceDesc();
    r.resType = cudaResourceTypePitch2D;
    r.res.pitch2D.desc = bytes;
    r.res.pitch2D.devPtr = memory;
    r.res.pitch2D.width = 16;
    r.res.pitch2D.height = 4;
    r.res.pitch2D.pitchInBytes = 48;
    REFUSES(InvalidValue, cudaCreateTextureObject(&texture, &r, &d, nullptr));  // a row has 64 bytes
    r.res.pitch2D.pitchInBytes = pitch + 4;
    REFUSES(InvalidValue, cudaCreateTextureObject(&texture, &r, &d, nullptr));
    r.res.pitch2D.pitchInBytes = pitch;
    r.res.pitch2D.devPtr = memory + 4;
    REFUSES(InvalidValue, cudaCreateTextureObject(&texture, &r, &d, nullptr));
    REFUSES(InvalidValue, cudaCreateSurfaceObject(&surface, &r));
    OK(cudaFree(memory));
    return 0;
}
