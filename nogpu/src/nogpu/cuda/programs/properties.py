"""cudaDeviceProp of CUDA 13, as driver_types.h of the CUDA toolkit declares it."""

from __future__ import annotations

import ctypes

from nogpu import headers
from nogpu.hardware import textures
from nogpu.hardware.properties import DeviceProperties


class CudaDeviceProp(ctypes.Structure):
    """cudaDeviceProp, field by field."""

    _fields_ = headers.fields(
        "char name[256], uuid[16], luid[8]; s32 luidDeviceNodeMask; word totalGlobalMem, sharedMemPerBlock; "
        "s32 regsPerBlock, warpSize; word memPitch; s32 maxThreadsPerBlock, maxThreadsDim[3], maxGridSize[3]; "
        "word totalConstMem; s32 major, minor; word textureAlignment, texturePitchAlignment; s32 multiProcessorCount, "
        "integrated, canMapHostMemory, maxTexture1D, maxTexture1DMipmap, maxTexture2D[2], maxTexture2DMipmap[2], "
        "maxTexture2DLinear[3], maxTexture2DGather[2], maxTexture3D[3], maxTexture3DAlt[3], maxTextureCubemap, "
        "maxTexture1DLayered[2], maxTexture2DLayered[3], maxTextureCubemapLayered[2], maxSurface1D, maxSurface2D[2], "
        "maxSurface3D[3], maxSurface1DLayered[2], maxSurface2DLayered[3], maxSurfaceCubemap, "
        "maxSurfaceCubemapLayered[2]; word surfaceAlignment; s32 concurrentKernels, ECCEnabled, pciBusID, "
        "pciDeviceID, pciDomainID, tccDriver, asyncEngineCount, unifiedAddressing, memoryBusWidth, l2CacheSize, "
        "persistingL2CacheMaxSize, maxThreadsPerMultiProcessor, streamPrioritiesSupported, globalL1CacheSupported, "
        "localL1CacheSupported; word sharedMemPerMultiprocessor; s32 regsPerMultiprocessor, managedMemory, "
        "isMultiGpuBoard, multiGpuBoardGroupID, hostNativeAtomicSupported, pageableMemoryAccess, "
        "concurrentManagedAccess, computePreemptionSupported, canUseHostPointerForRegisteredMem, cooperativeLaunch; "
        "word sharedMemPerBlockOptin; s32 pageableMemoryAccessUsesHostPageTables, directManagedMemAccessFromHost, "
        "maxBlocksPerMultiProcessor, accessPolicyMaxWindowSize; word reservedSharedMemPerBlock; "
        "s32 hostRegisterSupported, sparseCudaArraySupported, hostRegisterReadOnlySupported, "
        "timelineSemaphoreInteropSupported, memoryPoolsSupported, gpuDirectRDMASupported, "
        "gpuDirectRDMAFlushWritesOptions, gpuDirectRDMAWritesOrdering, memoryPoolSupportedHandleTypes, "
        "deferredMappingCudaArraySupported, ipcEventSupported, clusterLaunch, unifiedFunctionPointers, "
        "deviceNumaConfig, deviceNumaId, mpsEnabled, hostNumaId, gpuPciDeviceID, gpuPciSubsystemID, "
        "hostNumaMultinodeIpcSupported, reserved[56]"
    )


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
