// Trace files: what is read back, wherever the file ends and whatever stopped it.
#include "services/trace/trace_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/support/process.h"

namespace tandem::test {
namespace {

using testing::HasSubstr;
namespace pb = trace::v1;

constexpr int64_t kMany = 1 << 20;

pb::Record Header() {
  pb::Record record;
  record.mutable_header()->set_version(kTraceVersion);
  record.mutable_header()->set_request_id("test");
  return record;
}
pb::Record Note(int32_t number) {
  pb::Record record;
  record.set_nanos(number);
  record.mutable_lost()->set_why(std::string(static_cast<size_t>(number % 200), 'x'));
  return record;
}
std::string Bytes(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}
// A header, `notes` records, and an end.
std::string WholeTrace(int32_t notes) {
  const TemporaryFolder folder;
  auto file = TraceFile::Create(folder.File("a"), kMany);
  EXPECT_TRUE(file.ok()) << file.status();
  EXPECT_TRUE((*file)->Append(Header()).ok());
  for (int32_t i = 0; i < notes; ++i) EXPECT_TRUE((*file)->Append(Note(i)).ok());
  (*file)->End(pb::End::REASON_DONE, "");
  return Bytes(folder.File("a"));
}

TEST(TraceFile, GivesBackWhatWasWritten) {
  const auto trace = ParseTrace(WholeTrace(3));
  ASSERT_TRUE(trace.ok()) << trace.status();
  EXPECT_EQ(trace->header.request_id(), "test");
  ASSERT_EQ(trace->records.size(), 3u);
  EXPECT_EQ(trace->records[2].nanos(), 2);
  EXPECT_EQ(trace->end.reason(), pb::End::REASON_DONE);
}

TEST(TraceFile, CutOffAtAnyByteItIsATraceOfTheWholeRecordsBefore) {
  const std::string whole = WholeTrace(5);
  const size_t header_end = kTraceMagic.size() + DelimitedRecord(Header()).size();
  size_t longest = 0;
  for (size_t size = 0; size < whole.size(); ++size) {
    const auto trace = ParseTrace(std::string_view(whole).substr(0, size));
    ASSERT_EQ(trace.ok(), size >= header_end) << "at " << size << ": " << trace.status();
    if (!trace.ok()) continue;
    EXPECT_EQ(trace->end.reason(), pb::End::REASON_UNSPECIFIED);
    EXPECT_GE(trace->records.size(), longest);
    longest = trace->records.size();
    for (size_t i = 0; i < longest; ++i) EXPECT_EQ(trace->records[i].nanos(), int64_t(i));
  }
  EXPECT_EQ(longest, 5u);
}

TEST(TraceFile, DamageIsNamedWithItsPlace) {
  std::string bytes = WholeTrace(2);
  const size_t second = kTraceMagic.size() + DelimitedRecord(Header()).size();
  bytes[second + 1] = '\x07';  // no field has wire type 7
  EXPECT_THAT(std::string(ParseTrace(bytes).status().message()),
              HasSubstr("byte " + std::to_string(second)));
  EXPECT_FALSE(ParseTrace("something else").ok());
}

TEST(TraceFile, AnotherVersionIsRefusedByNumber) {
  pb::Record header = Header();
  header.mutable_header()->set_version(9);
  const auto trace = ParseTrace(std::string(kTraceMagic) + DelimitedRecord(header));
  EXPECT_THAT(std::string(trace.status().message()), HasSubstr("version 9"));
}

TEST(TraceFile, IsItsOwnersAloneAndNeverReplacesAnything) {
  const TemporaryFolder folder;
  const mode_t before = umask(0);
  EXPECT_TRUE(TraceFile::Create(folder.File("a"), kMany).ok());
  umask(before);
  struct stat status;
  ASSERT_EQ(stat(folder.File("a").c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0600u);
  EXPECT_THAT(std::string(TraceFile::Create(folder.File("a"), kMany).status().message()),
              HasSubstr(folder.File("a")));
  ASSERT_EQ(symlink(folder.File("elsewhere").c_str(), folder.File("link").c_str()), 0);
  EXPECT_FALSE(TraceFile::Create(folder.File("link"), kMany).ok());
  EXPECT_FALSE(std::filesystem::exists(folder.File("elsewhere")));
}

TEST(TraceFile, NeverHasMoreBytesThanItMayAndSaysWhyItEnds) {
  for (int64_t limit = 400; limit < 1200; limit += 37) {
    const TemporaryFolder folder;
    auto file = TraceFile::Create(folder.File("a"), limit);
    ASSERT_TRUE(file.ok()) << file.status();
    ASSERT_TRUE((*file)->Append(Header()).ok());
    absl::Status status;
    int32_t number = 0;
    while (status.ok()) status = (*file)->Append(Note(++number));
    EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
    EXPECT_TRUE((*file)->ended());
    EXPECT_TRUE((*file)->Append(Note(1)).ok()) << "nothing, and no error";
    const std::string bytes = Bytes(folder.File("a"));
    EXPECT_LE(static_cast<int64_t>(bytes.size()), limit);
    const auto trace = ParseTrace(bytes);
    ASSERT_TRUE(trace.ok()) << trace.status();
    EXPECT_EQ(trace->end.reason(), pb::End::REASON_BYTES);
    EXPECT_EQ(trace->records.size(), static_cast<size_t>(number - 1));
  }
}

TEST(TraceFile, OnAFullDiskTheFileEndsAndNothingElseHappens) {
  TraceFile file(open("/dev/full", O_WRONLY), kMany);
  EXPECT_TRUE(absl::IsUnavailable(file.Append(Header())));
  EXPECT_TRUE(file.ended());
  EXPECT_TRUE(file.Append(Note(1)).ok()) << "nothing, and no error";
}

TEST(TraceFile, AWriteThatFailsHalfWayLeavesWholeRecords) {
  const TemporaryFolder folder;
  auto file = TraceFile::Create(folder.File("a"), kMany);
  ASSERT_TRUE(file.ok()) << file.status();
  rlimit before;
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  const rlimit small = {.rlim_cur = 700, .rlim_max = before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  absl::Status status = (*file)->Append(Header());
  size_t whole = 0;
  while (status.ok()) {
    status = (*file)->Append(Note(199));  // about 210 bytes, so that there is room left for the end
    whole += status.ok();
  }
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
  std::signal(SIGXFSZ, handler);
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
  const auto trace = ParseTrace(Bytes(folder.File("a")));
  ASSERT_TRUE(trace.ok()) << trace.status();
  EXPECT_EQ(trace->end.reason(), pb::End::REASON_DISK);
  EXPECT_EQ(trace->records.size(), whole);
  EXPECT_EQ(whole, 3u);
}

TEST(TraceFile, ReadingNamesTheFile) {
  const TemporaryFolder folder;
  EXPECT_TRUE(absl::IsNotFound(ReadTrace(folder.File("none")).status()));
  std::ofstream(folder.File("bad")) << "no trace at all";
  EXPECT_THAT(std::string(ReadTrace(folder.File("bad")).status().message()),
              HasSubstr(folder.File("bad")));
}

}  // namespace
}  // namespace tandem::test
