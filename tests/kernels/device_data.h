// Test data on a backend's device: upload, download, and random values.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "kernels/ops.h"

namespace tandem::kernels {

// Owns what it puts on the device.
class DeviceData final {
 public:
  explicit DeviceData(Ops& ops) : ops_(ops) {}

  template <typename T>
  T* Put(const std::vector<T>& values) {
    T* device = Zeroes<T>(values.size());
    Set(device, values);
    return device;
  }
  template <typename T>
  T* Zeroes(size_t count) {
    absl::StatusOr<Buffer> buffer = ops_.Allocate(count * sizeof(T), "test data");
    if (!buffer.ok()) {
      ADD_FAILURE() << buffer.status();
      std::abort();
    }
    buffers_.push_back(*std::move(buffer));
    return buffers_.back().template as<T>();
  }
  template <typename T>
  void Set(T* device, const std::vector<T>& values) {
    ops_.CopyToDevice(device, values.data(), values.size() * sizeof(T));
  }
  template <typename T>
  std::vector<T> Get(const T* device, size_t count) {
    std::vector<T> values(count);
    ops_.CopyToHost(values.data(), device, count * sizeof(T));
    EXPECT_TRUE(ops_.Finish(ops_.Mark()).ok());
    return values;
  }

  // Activations, in the backend's dtype on the device and in fp32 here.
  void* Activations(size_t count) { return Zeroes<uint8_t>(count * ops_.info().act_bytes); }
  void SetActivations(void* device, const std::vector<float>& values);
  std::vector<float> GetActivations(const void* device, size_t count);

 private:
  Ops& ops_;
  std::vector<Buffer> buffers_;
};

// Seeded values; the same on every machine.
class RandomData final {
 public:
  explicit RandomData(uint32_t seed) : random_(seed) {}

  // In [0, bound).
  int32_t Below(int32_t bound) { return static_cast<int32_t>(random_() % bound); }
  // Sum of uniform numbers, about normal, with this standard deviation.
  float Normal(float deviation);
  std::vector<float> Normals(size_t count, float deviation);
  std::vector<int32_t> Tokens(size_t count, int32_t vocab_size);
  std::vector<int32_t> Permutation(int32_t count);

 private:
  std::mt19937 random_;
};

// A matrix as a checkpoint stores it.
struct StoredMatrix {
  std::vector<uint8_t> bytes;
  HostMatrix view;  // of bytes
};
// Values of about this standard deviation, in random blocks of the dtype. rows and cols as
// HostMatrix.
std::unique_ptr<StoredMatrix> RandomMatrix(DType dtype, int32_t rows, int32_t cols, float deviation,
                                           RandomData& random);

// Every value of got is within tolerance * max|want| of want's, and finite where want's is.
void ExpectClose(const std::vector<float>& got, const std::vector<float>& want, double tolerance,
                 const std::string& what);
// Equal bit for bit, naming the first that differs.
void ExpectSameBits(const std::vector<float>& got, const std::vector<float>& want,
                    const std::string& what);
// Whether they are, without a failure.
bool SameBits(const std::vector<float>& got, const std::vector<float>& want);

}  // namespace tandem::kernels
