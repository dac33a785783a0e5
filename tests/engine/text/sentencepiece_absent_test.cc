#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/text/tokenizer.h"
#include "tests/support/tokenizer_files.h"

namespace tandem {
namespace {

TEST(SentencePieceAbsent, ABuildWithoutTheLibraryRefusesByName) {
  const absl::Status status = MakeTokenizer(MistralData()).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(std::string(status.message()), testing::HasSubstr("sentencepiece"));
}

}  // namespace
}  // namespace tandem
