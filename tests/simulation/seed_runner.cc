#include "tests/simulation/seed_runner.h"

#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>
#include <vector>

#include "engine/base/check.h"

namespace tandem::test {
namespace {

// Written by a worker, read by the parent when it has ended.
struct Report {
  uint64_t seed = 0;  // that is running
  int64_t num_seeds = 0;
  Counters counters;
  char violation[1024] = {};
};

class SharedReports final {
 public:
  explicit SharedReports(int32_t count) : bytes_(static_cast<size_t>(count) * sizeof(Report)) {
    void* const memory =
        mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    TANDEM_CHECK(memory != MAP_FAILED) << "mmap of " << bytes_ << " bytes";
    reports_ = static_cast<Report*>(memory);
    for (int32_t i = 0; i < count; ++i) new (reports_ + i) Report();
  }
  SharedReports(const SharedReports&) = delete;
  SharedReports& operator=(const SharedReports&) = delete;
  ~SharedReports() { munmap(reports_, bytes_); }
  Report& operator[](int32_t i) { return reports_[i]; }

 private:
  size_t bytes_;
  Report* reports_;
};

// Keeps what a worker says on stderr.
class MessageFile final {
 public:
  MessageFile() : fd_(memfd_create("messages", 0)) { TANDEM_CHECK(fd_ >= 0) << "memfd_create"; }
  MessageFile(const MessageFile&) = delete;
  MessageFile& operator=(const MessageFile&) = delete;
  ~MessageFile() { close(fd_); }
  int fd() const { return fd_; }
  // The beginning of it.
  std::string Text() const {
    char text[2000];
    const ssize_t bytes = pread(fd_, text, sizeof(text), 0);
    return std::string(text, static_cast<size_t>(std::max<ssize_t>(bytes, 0)));
  }

 private:
  int fd_;
};

void RunWorker(Scenario scenario, int64_t count, int32_t worker, int32_t num_workers,
               Report* report) {
  const uint64_t first = scenario.seed;
  for (int64_t i = worker; i < count; i += num_workers) {
    scenario.seed = first + static_cast<uint64_t>(i);
    report->seed = scenario.seed;
    const Outcome outcome = Simulate(scenario, nullptr);
    report->counters.Add(outcome.counters);
    ++report->num_seeds;
    if (outcome.violation.empty()) continue;
    std::strncpy(report->violation, outcome.violation.c_str(), sizeof(report->violation) - 1);
    return;
  }
}

}  // namespace

RunResult RunSeeds(const Scenario& scenario, int64_t count, int32_t num_workers) {
  TANDEM_CHECK(num_workers >= 1 && num_workers <= 16) << num_workers << " workers";
  SharedReports reports(num_workers);
  std::vector<MessageFile> messages(static_cast<size_t>(num_workers));
  std::vector<pid_t> children;
  for (int32_t worker = 0; worker < num_workers; ++worker) {
    const pid_t child = fork();
    TANDEM_CHECK(child >= 0) << "fork: " << std::strerror(errno);
    if (child == 0) {
      dup2(messages[worker].fd(), STDERR_FILENO);
      RunWorker(scenario, count, worker, num_workers, &reports[worker]);
      _exit(0);
    }
    children.push_back(child);
  }
  RunResult result;
  for (int32_t worker = 0; worker < num_workers; ++worker) {
    int status = 0;
    while (waitpid(children[worker], &status, 0) < 0 && errno == EINTR) {
    }
    const Report& report = reports[worker];
    result.num_seeds += report.num_seeds;
    result.counters.Add(report.counters);
    std::string violation = report.violation;
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
      violation = "aborted: " + messages[worker].Text();
    }
    if (violation.empty()) continue;
    if (result.violation.empty() || report.seed < result.failed_seed) {
      result.violation = violation;
      result.failed_seed = report.seed;
    }
  }
  return result;
}

std::string ViolationOf(const Scenario& scenario) { return RunSeeds(scenario, 1, 1).violation; }

}  // namespace tandem::test
