// Given equal logits, the lists and the draw of the CPU backend are those of the CUDA backend, to
// the bit.
//
// TANDEM_EXHAUSTIVE: 1,000,000 rows of vocabularies to 1,024 ids, 50,000 of 49,152 and 5,000 of
// 262,144 (minutes).
#include <atomic>
#include <cstdlib>
#include <iostream>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "kernels/cpu/cpu_ops.h"
#include "kernels/cuda/cuda_ops.h"
#include "tests/engine/sampling/random_rows.h"
#include "tests/engine/sampling/worker_lists.h"
#include "tests/kernels/cuda/cuda_arrays.h"

namespace tandem::kernels::cuda {
namespace {

using test::RandomCase;
using test::RandomVocabulary;
using test::SeedOf;
using test::WorkerLists;

constexpr int32_t kMaxRows = 2048;  // of a step

class CandidatesOfBoth : public CudaTest {
 protected:
  void SetUp() override {
    CudaTest::SetUp();
    if (IsSkipped()) return;
    auto cpu = MakeCpuOps({});
    ASSERT_TRUE(cpu.ok()) << cpu.status();
    auto cuda = MakeCudaOps({});
    ASSERT_TRUE(cuda.ok()) << cuda.status();
    cpu_ = *std::move(cpu);
    cuda_ = *std::move(cuda);
    cpu_lists_ = std::make_unique<WorkerLists>(kMaxRows, *cpu_);
    cuda_lists_ = std::make_unique<WorkerLists>(kMaxRows, *cuda_);
  }

  static int64_t Rows(int64_t exhaustive, int64_t otherwise) {
    return std::getenv("TANDEM_EXHAUSTIVE") != nullptr ? exhaustive : otherwise;
  }

  // num_rows in steps of `rows` that share a vocabulary of `vocab_size`, 0: of 1 to 1,024 ids.
  void Compare(uint64_t base, int64_t num_rows, int32_t rows, int32_t vocab_size) {
    int64_t drawn = 0;
    for (int64_t begin = 0; begin < num_rows && !HasFailure(); begin += rows) {
      const uint64_t vocabulary_seed = SeedOf(base, static_cast<uint64_t>(begin));
      const int32_t size =
          vocab_size > 0 ? vocab_size : test::RandomVocabSize(vocabulary_seed, 1024);
      const RandomVocabulary vocabulary = test::MakeRandomVocabulary(vocabulary_seed, size);
      std::vector<RandomCase> cases(std::min<int64_t>(rows, num_rows - begin));
      FillInParallel(vocabulary_seed, vocabulary, &cases);
      std::vector<const RandomCase*> pointers;
      for (const RandomCase& it : cases) pointers.push_back(&it);
      const std::vector<Candidates> on_cpu = cpu_lists_->Make(pointers);
      const std::vector<Candidates> on_cuda = cuda_lists_->Make(pointers);
      for (size_t i = 0; i < cases.size(); ++i) {
        ASSERT_EQ(test::DifferenceOf(on_cpu[i], on_cuda[i]), "")
            << test::Reproducer(vocabulary_seed, size, SeedOf(vocabulary_seed, i));
        drawn += on_cpu[i].summary.drawn >= 0;
      }
    }
    std::cout << num_rows << " rows, " << drawn << " draws\n";
    EXPECT_GT(drawn, num_rows * 3 / 4);
  }

 private:
  // Case i of the seed SeedOf(base, i), made on every core.
  static void FillInParallel(uint64_t base, const RandomVocabulary& vocabulary,
                             std::vector<RandomCase>* cases) {
    std::atomic<size_t> next = 0;
    const auto work = [&] {
      for (size_t i; (i = next.fetch_add(1)) < cases->size();) {
        (*cases)[i] = test::MakeRandomCase(SeedOf(base, i), vocabulary);
      }
    };
    std::vector<std::thread> threads;
    for (unsigned i = 1; i < std::thread::hardware_concurrency(); ++i) threads.emplace_back(work);
    work();
    for (std::thread& thread : threads) thread.join();
  }

  std::unique_ptr<Ops> cpu_, cuda_;
  std::unique_ptr<WorkerLists> cpu_lists_, cuda_lists_;
};

TEST_F(CandidatesOfBoth, AreEqualForSmallVocabularies) {
  Compare(11, Rows(1000000, 50000), 1000, 0);
}

TEST_F(CandidatesOfBoth, AreEqualForVocabulariesOf49152Ids) {
  Compare(12, Rows(50000, 500), 250, 49152);
}

TEST_F(CandidatesOfBoth, AreEqualForTheLargestVocabulary) {
  Compare(13, Rows(5000, 50), 50, 262144);
}

}  // namespace
}  // namespace tandem::kernels::cuda
