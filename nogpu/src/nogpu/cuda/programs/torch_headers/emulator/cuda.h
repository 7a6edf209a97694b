// What extensions use of c10::cuda and at::cuda, for a torch without CUDA: one device, one queue.
#pragma once

#include <c10/core/Device.h>
#include <c10/core/Stream.h>
#include <c10/util/Exception.h>
#include <cuda_runtime_api.h>

#include <optional>

#define C10_CUDA_CHECK(expression)                                                            \
  do {                                                                                        \
    const cudaError_t emulator_error = (expression);                                          \
    TORCH_CHECK(emulator_error == cudaSuccess, "CUDA error: ", cudaGetErrorString(emulator_error)); \
  } while (0)
#define C10_CUDA_CHECK_WARN(expression)                                                       \
  do {                                                                                        \
    const cudaError_t emulator_error = (expression);                                          \
    if (emulator_error != cudaSuccess)                                                        \
      TORCH_WARN("CUDA warning: ", cudaGetErrorString(emulator_error));                       \
  } while (0)
#define C10_CUDA_IGNORE_ERROR(expression) (void)(expression)
#define C10_CUDA_CLEAR_ERROR() (void)cudaGetLastError()
#define C10_CUDA_KERNEL_LAUNCH_CHECK() C10_CUDA_CHECK(cudaGetLastError())
#define AT_CUDA_CHECK(expression) C10_CUDA_CHECK(expression)
#define AT_CUDA_DRIVER_CHECK(expression) TORCH_CHECK((expression) == CUDA_SUCCESS, "CUDA driver error")

namespace c10::cuda {

class CUDAStream {
 public:
  CUDAStream() = default;
  explicit CUDAStream(cudaStream_t stream) : stream_(stream) {}
  cudaStream_t stream() const { return stream_; }
  operator cudaStream_t() const { return stream_; }
  operator c10::Stream() const { return unwrap(); }
  c10::Stream unwrap() const { return c10::Stream(c10::Stream::DEFAULT, device()); }
  c10::Device device() const { return c10::Device(c10::kCUDA, 0); }
  c10::DeviceIndex device_index() const { return 0; }
  c10::StreamId id() const { return 0; }
  bool query() const { return cudaStreamQuery(stream_) == cudaSuccess; }
  void synchronize() const { C10_CUDA_CHECK(cudaStreamSynchronize(stream_)); }
  bool operator==(const CUDAStream& other) const { return stream_ == other.stream_; }
  bool operator!=(const CUDAStream& other) const { return stream_ != other.stream_; }

 private:
  cudaStream_t stream_ = nullptr;
};

// The runtime knows this handle as the queue that is torch's current one when it is used (cuda/queues.py).
inline CUDAStream getCurrentCUDAStream(c10::DeviceIndex = -1) { return CUDAStream(reinterpret_cast<cudaStream_t>(3)); }
inline CUDAStream getDefaultCUDAStream(c10::DeviceIndex = -1) { return CUDAStream(); }
inline CUDAStream getStreamFromPool(bool = false, c10::DeviceIndex = -1) { return CUDAStream(); }
inline CUDAStream getStreamFromExternal(cudaStream_t stream, c10::DeviceIndex) { return CUDAStream(stream); }
inline void setCurrentCUDAStream(CUDAStream) {}
inline c10::DeviceIndex device_count() { return 1; }
inline c10::DeviceIndex current_device() { return 0; }
inline void set_device(c10::DeviceIndex) {}
inline void device_synchronize() { C10_CUDA_CHECK(cudaDeviceSynchronize()); }

struct CUDAGuard {
  explicit CUDAGuard(c10::DeviceIndex) {}
  explicit CUDAGuard(c10::Device) {}
  CUDAGuard(const CUDAGuard&) = delete;
  CUDAGuard& operator=(const CUDAGuard&) = delete;
  void set_device(c10::Device) {}
  void set_index(c10::DeviceIndex) {}
  c10::Device original_device() const { return c10::Device(c10::kCUDA, 0); }
  c10::Device current_device() const { return c10::Device(c10::kCUDA, 0); }
};

struct OptionalCUDAGuard {
  OptionalCUDAGuard() = default;
  explicit OptionalCUDAGuard(std::optional<c10::Device>) {}
  explicit OptionalCUDAGuard(std::optional<c10::DeviceIndex>) {}
  void set_device(c10::Device) {}
  void set_index(c10::DeviceIndex) {}
  void reset() {}
};

struct CUDAStreamGuard {
  explicit CUDAStreamGuard(c10::Stream) {}
  explicit CUDAStreamGuard(CUDAStream) {}
  void reset_stream(c10::Stream) {}
};

}  // namespace c10::cuda

namespace at::cuda {

using c10::cuda::CUDAGuard;
using c10::cuda::CUDAStream;
using c10::cuda::CUDAStreamGuard;
using c10::cuda::OptionalCUDAGuard;
using c10::cuda::current_device;
using c10::cuda::device_count;
using c10::cuda::device_synchronize;
using c10::cuda::getCurrentCUDAStream;
using c10::cuda::getDefaultCUDAStream;
using c10::cuda::getStreamFromExternal;
using c10::cuda::getStreamFromPool;
using c10::cuda::setCurrentCUDAStream;
using c10::cuda::set_device;

inline bool is_available() { return true; }
inline int warp_size() { return 32; }

inline cudaDeviceProp* getDeviceProperties(c10::DeviceIndex = 0) {
  static cudaDeviceProp properties = [] {
    cudaDeviceProp found;
    C10_CUDA_CHECK(cudaGetDeviceProperties(&found, 0));
    return found;
  }();
  return &properties;
}

inline cudaDeviceProp* getCurrentDeviceProperties() { return getDeviceProperties(); }

class CUDAEvent {
 public:
  explicit CUDAEvent(unsigned int flags = cudaEventDisableTiming) {
    C10_CUDA_CHECK(cudaEventCreateWithFlags(&event_, flags));
  }
  CUDAEvent(const CUDAEvent&) = delete;
  CUDAEvent& operator=(const CUDAEvent&) = delete;
  ~CUDAEvent() { (void)cudaEventDestroy(event_); }
  operator cudaEvent_t() const { return event_; }
  cudaEvent_t event() const { return event_; }
  void record(CUDAStream stream = getCurrentCUDAStream()) { C10_CUDA_CHECK(cudaEventRecord(event_, stream)); }
  void block(CUDAStream stream) { C10_CUDA_CHECK(cudaStreamWaitEvent(stream, event_, 0)); }
  void synchronize() const { C10_CUDA_CHECK(cudaEventSynchronize(event_)); }
  bool query() const { return cudaEventQuery(event_) == cudaSuccess; }
  float elapsed_time(const CUDAEvent& end) const {
    float milliseconds = 0;
    C10_CUDA_CHECK(cudaEventElapsedTime(&milliseconds, event_, end.event_));
    return milliseconds;
  }

 private:
  cudaEvent_t event_ = nullptr;
};

}  // namespace at::cuda

