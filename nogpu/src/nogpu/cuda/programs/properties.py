"""cudaDeviceProp of CUDA 13, as driver_types.h of the CUDA toolkit declares it."""

from __future__ import annotations

import ctypes

from nogpu.hardware import textures
from nogpu.hardware.properties import DeviceProperties

_CHAR, _SIZE, _INT = ctypes.c_char, ctypes.c_size_t, ctypes.c_int32


class CudaDeviceProp(ctypes.Structure):
    """cudaDeviceProp, field by field."""

    # fmt: off
    _fields_ = [
        ("name", _CHAR * 256), ("uuid", _CHAR * 16), ("luid", _CHAR * 8), ("luidDeviceNodeMask", _INT),
        ("totalGlobalMem", _SIZE), ("sharedMemPerBlock", _SIZE), ("regsPerBlock", _INT), ("warpSize", _INT),
        ("memPitch", _SIZE), ("maxThreadsPerBlock", _INT), ("maxThreadsDim", _INT * 3), ("maxGridSize", _INT * 3),
        ("totalConstMem", _SIZE), ("major", _INT), ("minor", _INT), ("textureAlignment", _SIZE),
        ("texturePitchAlignment", _SIZE), ("multiProcessorCount", _INT), ("integrated", _INT),
        ("canMapHostMemory", _INT), ("maxTexture1D", _INT), ("maxTexture1DMipmap", _INT),
        ("maxTexture2D", _INT * 2), ("maxTexture2DMipmap", _INT * 2), ("maxTexture2DLinear", _INT * 3),
        ("maxTexture2DGather", _INT * 2), ("maxTexture3D", _INT * 3), ("maxTexture3DAlt", _INT * 3),
        ("maxTextureCubemap", _INT), ("maxTexture1DLayered", _INT * 2), ("maxTexture2DLayered", _INT * 3),
        ("maxTextureCubemapLayered", _INT * 2), ("maxSurface1D", _INT), ("maxSurface2D", _INT * 2),
        ("maxSurface3D", _INT * 3), ("maxSurface1DLayered", _INT * 2), ("maxSurface2DLayered", _INT * 3),
        ("maxSurfaceCubemap", _INT), ("maxSurfaceCubemapLayered", _INT * 2), ("surfaceAlignment", _SIZE),
        ("concurrentKernels", _INT), ("ECCEnabled", _INT), ("pciBusID", _INT), ("pciDeviceID", _INT),
        ("pciDomainID", _INT), ("tccDriver", _INT), ("asyncEngineCount", _INT), ("unifiedAddressing", _INT),
        ("memoryBusWidth", _INT), ("l2CacheSize", _INT), ("persistingL2CacheMaxSize", _INT),
        ("maxThreadsPerMultiProcessor", _INT), ("streamPrioritiesSupported", _INT),
        ("globalL1CacheSupported", _INT), ("localL1CacheSupported", _INT), ("sharedMemPerMultiprocessor", _SIZE),
        ("regsPerMultiprocessor", _INT), ("managedMemory", _INT), ("isMultiGpuBoard", _INT),
        ("multiGpuBoardGroupID", _INT), ("hostNativeAtomicSupported", _INT), ("pageableMemoryAccess", _INT),
        ("concurrentManagedAccess", _INT), ("computePreemptionSupported", _INT),
        ("canUseHostPointerForRegisteredMem", _INT), ("cooperativeLaunch", _INT),
        ("sharedMemPerBlockOptin", _SIZE), ("pageableMemoryAccessUsesHostPageTables", _INT),
        ("directManagedMemAccessFromHost", _INT), ("maxBlocksPerMultiProcessor", _INT),
        ("accessPolicyMaxWindowSize", _INT), ("reservedSharedMemPerBlock", _SIZE), ("hostRegisterSupported", _INT),
        ("sparseCudaArraySupported", _INT), ("hostRegisterReadOnlySupported", _INT),
        ("timelineSemaphoreInteropSupported", _INT), ("memoryPoolsSupported", _INT),
        ("gpuDirectRDMASupported", _INT), ("gpuDirectRDMAFlushWritesOptions", _INT),
        ("gpuDirectRDMAWritesOrdering", _INT), ("memoryPoolSupportedHandleTypes", _INT),
        ("deferredMappingCudaArraySupported", _INT), ("ipcEventSupported", _INT), ("clusterLaunch", _INT),
        ("unifiedFunctionPointers", _INT), ("deviceNumaConfig", _INT), ("deviceNumaId", _INT),
        ("mpsEnabled", _INT), ("hostNumaId", _INT), ("gpuPciDeviceID", _INT), ("gpuPciSubsystemID", _INT),
        ("hostNumaMultinodeIpcSupported", _INT), ("reserved", _INT * 56),
    ]
    # fmt: on


def filled(properties: DeviceProperties) -> CudaDeviceProp:
    """The properties of a device. A field that is not modelled, such as the PCI bus, stays 0."""
    result = CudaDeviceProp(
        name=properties.name.encode(),
        totalGlobalMem=properties.total_memory,
        sharedMemPerBlock=properties.shared_memory_per_block,
        regsPerBlock=properties.registers_per_block,
        warpSize=properties.warp_size,
        memPitch=2**31 - 1,
        maxThreadsPerBlock=properties.max_threads_per_block,
        maxThreadsDim=properties.max_block,
        maxGridSize=properties.max_grid,
        totalConstMem=64 << 10,
        textureAlignment=textures.ALIGNMENT,
        texturePitchAlignment=textures.PITCH_ALIGNMENT,
        surfaceAlignment=textures.ALIGNMENT,
        maxTexture1D=textures.LIMITS[1][0],
        maxTexture1DLinear=textures.MOST_LINEAR,
        maxTexture2D=textures.LIMITS[2][:2],
        maxTexture3D=textures.LIMITS[3],
        maxTexture1DLayered=(textures.LAYERED_LIMITS[1][0], textures.LAYERED_LIMITS[1][2]),
        maxTexture2DLayered=textures.LAYERED_LIMITS[2],
        maxTextureCubemap=textures.CUBEMAP_LIMIT,
        maxTextureCubemapLayered=(textures.CUBEMAP_LIMIT, textures.FACES * textures.MOST_CUBEMAPS),
        major=properties.capability[0],
        minor=properties.capability[1],
        multiProcessorCount=properties.sm_count,
        memoryBusWidth=properties.memory_bus_width,
        l2CacheSize=properties.l2_bytes,
        persistingL2CacheMaxSize=properties.persisting_l2_bytes,
        accessPolicyMaxWindowSize=properties.max_access_policy_window,
        maxThreadsPerMultiProcessor=properties.max_threads_per_sm,
        sharedMemPerMultiprocessor=properties.shared_memory_per_sm,
        regsPerMultiprocessor=properties.registers_per_sm,
        sharedMemPerBlockOptin=properties.shared_memory_per_block_optin,
        maxBlocksPerMultiProcessor=properties.max_blocks_per_sm,
        reservedSharedMemPerBlock=properties.shared_memory_reserved_per_block,
    )
    for able in _ABILITIES:
        setattr(result, able, 1)
    return result


_ABILITIES = (
    *("canMapHostMemory", "concurrentKernels", "unifiedAddressing", "streamPrioritiesSupported", "managedMemory"),
    *("globalL1CacheSupported", "localL1CacheSupported", "concurrentManagedAccess", "computePreemptionSupported"),
    *("cooperativeLaunch", "hostRegisterSupported", "memoryPoolsSupported", "clusterLaunch", "ipcEventSupported"),
)
