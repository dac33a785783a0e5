// /set and /unset of a chat.
#include "services/cli/request_settings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tandem::cli {
namespace {

using testing::HasSubstr;

TEST(RequestSettings, SetsWhatTheFlagSetsAndGoesBackToTheCommandLine) {
  RequestFlags base;
  base.temperature = 0.3f;
  base.max_tokens = 7;
  RequestSettings settings(base);
  EXPECT_TRUE(settings.Set("temperature", "0.7").ok());
  EXPECT_TRUE(settings.Set("stop", "a b").ok());
  EXPECT_TRUE(settings.Set("temperature", "-1").ok()) << "ranges are the server's to say";
  EXPECT_TRUE(settings.Set("ignore-eos", "true").ok());
  EXPECT_EQ(settings.flags().temperature, -1.0f);
  EXPECT_EQ(settings.flags().stop_strings, std::vector<std::string>{"a b"});
  EXPECT_EQ(settings.flags().max_tokens, 7);
  EXPECT_TRUE(settings.flags().ignore_eos);
  EXPECT_EQ(settings.values().size(), 3u);
  EXPECT_TRUE(settings.Unset("temperature").ok());
  EXPECT_EQ(settings.flags().temperature, 0.3f);
  EXPECT_TRUE(settings.flags().ignore_eos);
  EXPECT_EQ(settings.Unset("temperature").code(), absl::StatusCode::kNotFound);
}

TEST(RequestSettings, AWrongNameOrValueIsNamedAndChangesNothing) {
  RequestSettings settings{RequestFlags{}};
  ASSERT_TRUE(settings.Set("seed", "5").ok());
  const auto message = [&settings](const char* name, const char* value) {
    const absl::Status status = settings.Set(name, value);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    return std::string(status.message());
  };
  EXPECT_THAT(message("top-q", "3"), HasSubstr("top-q"));
  EXPECT_THAT(message("temperature", "warm"), HasSubstr("warm"));
  EXPECT_THAT(message("timeout", "-3"), HasSubstr("timeout"));
  EXPECT_THAT(message("logit-bias", "7"), HasSubstr("ID:VALUE"));
  EXPECT_THAT(message("help", "1"), HasSubstr("help"));
  EXPECT_EQ(settings.values(), (std::map<std::string, std::string>{{"seed", "5"}}));
  EXPECT_EQ(settings.flags().seed, 5u);
}

}  // namespace
}  // namespace tandem::cli
