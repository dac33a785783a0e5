// The picture of who may include whom, as a test: reads every #include of the tree.
//
// A folder's line below lists the folders that it may include, beside itself. Whatever is not
// listed is an error, as are CUDA headers outside kernels/cuda, RPC or HTTP headers in kernels and
// engine, and source files over 500 lines.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <map>
#include <set>
#include <string>
#include <vector>

namespace tandem {
namespace {

namespace fs = std::filesystem;

bool StartsWith(const std::string& text, const std::string& prefix) {
  return text.compare(0, prefix.size(), prefix) == 0;
}

// What puts the doors together stands above them, in the folder of what they stand on.
bool StandsAboveItsFolder(const std::string& file) {
  return file == "services/text/main.cc" || StartsWith(file, "services/text/text_server.");
}

// Longest prefix wins. A rule may name a folder or one header.
const std::map<std::string, std::vector<std::string>>& Rules() {
  static const auto& rules = *new std::map<std::string, std::vector<std::string>>{
      {"kernels/draw", {}},
      {"kernels", {"kernels"}},
      {"engine/base", {}},
      {"engine/text", {"engine/base"}},
      {"engine/sampling", {"engine/base", "kernels/draw"}},
      {"engine/checkpoint",
       {"engine/base", "engine/text/byte_alphabet.h", "engine/text/tokenizer_data.h", "kernels"}},
      {"engine/model", {"engine/base", "engine/checkpoint", "kernels"}},
      {"engine/cache", {"engine/base", "kernels/tensor.h"}},
      {"engine/scheduler", {"engine/base", "engine/cache"}},
      {"engine/drafts", {"engine/base"}},
      {"engine", {"engine", "kernels"}},
      {"services/common", {"engine", "kernels/draw"}},
      {"services/common/http", {"services/common", "engine/base"}},
      {"services/text/openai", {"services/text/openai", "engine/base", "engine/text"}},
      {"services/text/http",
       {"services/common", "services/common/http", "services/text", "services/text/openai",
        "engine/base"}},
      {"services/text",
       {"services/common", "services/common/http", "services/text/http", "services/trace",
        "engine/base", "engine/text", "engine/sampling", "kernels/draw"}},
      {"services/trace", {"services/common", "engine/base", "engine/sampling", "kernels/draw"}},
      {"services/worker", {"services/common", "engine", "kernels"}},
      {"services/cli",
       {"services/common", "services/trace", "engine/base", "engine/text", "engine/sampling",
        "engine/checkpoint", "kernels/draw"}},
      {"tests", {"kernels", "engine", "services", "tests"}},
  };
  return rules;
}

struct Include {
  std::string file;
  int line;
  std::string target;
};

// "a/b" holds "a/b/c.h" and "a/b", not "a/bc".
bool Holds(const std::string& place, const std::string& path) {
  return path == place || StartsWith(path, place + "/");
}

std::string RuleFor(const std::string& path) {
  std::string best;
  for (const auto& [place, allowed] : Rules()) {
    if (Holds(place, path) && place.size() > best.size()) best = place;
  }
  return best;
}

std::vector<std::string> SourceFiles() {
  std::vector<std::string> files;
  for (const char* top : {"kernels", "engine", "services", "tests", "proto"}) {
    for (const auto& entry : fs::recursive_directory_iterator(top)) {
      const std::string extension = entry.path().extension().string();
      static const std::set<std::string> kSources = {".h",     ".cc", ".cu", ".cuh",
                                                     ".proto", ".py", ".sh"};
      if (entry.is_regular_file() && kSources.count(extension) != 0) {
        files.push_back(entry.path().generic_string());
      }
    }
  }
  std::sort(files.begin(), files.end());
  return files;
}

std::vector<Include> Includes() {
  std::vector<Include> includes;
  for (const std::string& file : SourceFiles()) {
    std::ifstream in(file);
    std::string text;
    for (int line = 1; std::getline(in, text); ++line) {
      if (!StartsWith(text, "#include ")) continue;
      const size_t open = text.find_first_of("\"<");
      const size_t close = text.find_first_of("\">", open + 1);
      if (open == std::string::npos || close == std::string::npos) continue;
      includes.push_back({file, line, text.substr(open + 1, close - open - 1)});
    }
  }
  return includes;
}

bool InTree(const std::string& target) {
  for (const char* top : {"kernels/", "engine/", "services/", "tests/"}) {
    if (StartsWith(target, top)) return true;
  }
  return false;
}

TEST(Layering, EveryIncludeGoesTheWayThatTheArchitectureAllows) {
  const std::vector<Include> includes = Includes();
  ASSERT_GT(includes.size(), 100u) << "run from the root of the repository";
  for (const Include& include : includes) {
    if (!InTree(include.target)) continue;
    const std::string rule = RuleFor(include.file);
    ASSERT_FALSE(rule.empty()) << include.file << " is in no folder of the architecture";
    bool allowed = Holds(rule, include.target) && RuleFor(include.target) == rule;
    for (const std::string& place : Rules().at(rule)) allowed |= Holds(place, include.target);
    EXPECT_TRUE(allowed) << include.file << ":" << include.line << " includes " << include.target
                         << ", which " << rule << " may not";
  }
}

TEST(Layering, FoldersFormNoLoop) {
  std::map<std::string, std::set<std::string>> edges;
  for (const Include& include : Includes()) {
    if (!InTree(include.target) || StartsWith(include.file, "tests/")) continue;
    if (StandsAboveItsFolder(include.file)) continue;
    EXPECT_FALSE(StandsAboveItsFolder(include.target))
        << include.file << " includes " << include.target;
    const std::string from = fs::path(include.file).parent_path().generic_string();
    const std::string to = fs::path(include.target).parent_path().generic_string();
    if (from != to) edges[from].insert(to);
  }
  std::map<std::string, int> state;  // 1 open, 2 done
  std::vector<std::string> path;
  const std::function<void(const std::string&)> visit = [&](const std::string& folder) {
    state[folder] = 1;
    path.push_back(folder);
    for (const std::string& next : edges[folder]) {
      if (state[next] == 1) {
        std::string loop;
        for (auto it = std::find(path.begin(), path.end(), next); it != path.end(); ++it)
          loop += *it + " -> ";
        ADD_FAILURE() << "folders include each other: " << loop << next;
      } else if (state[next] == 0) {
        visit(next);
      }
    }
    path.pop_back();
    state[folder] = 2;
  };
  std::vector<std::string> folders;
  for (const auto& [folder, next] : edges) folders.push_back(folder);
  for (const std::string& folder : folders) {
    if (state[folder] == 0) visit(folder);
  }
}

TEST(Layering, CudaHeadersStayInKernelsCudaAndRpcHeadersInServices) {
  for (const Include& include : Includes()) {
    const bool cuda = StartsWith(include.target, "cuda") || StartsWith(include.target, "cublas") ||
                      StartsWith(include.target, "nccl") || StartsWith(include.target, "cub/");
    if (cuda) {
      EXPECT_TRUE(StartsWith(include.file, "kernels/cuda/") ||
                  StartsWith(include.file, "tests/kernels/cuda/") ||
                  include.file == "tests/bench/kernel_bench.cc")
          << include.file << " includes " << include.target;
    }
    const bool rpc = StartsWith(include.target, "grpc") ||
                     StartsWith(include.target, "google/protobuf") ||
                     StartsWith(include.target, "boost/beast") ||
                     include.target.find(".pb.h") != std::string::npos;
    if (rpc) {
      const bool service =
          StartsWith(include.file, "services/") || StartsWith(include.file, "tests/services/") ||
          StartsWith(include.file, "tests/support/") || StartsWith(include.file, "tests/e2e/") ||
          StartsWith(include.file, "tests/bench/text_tier_") ||
          StartsWith(include.file, "tests/bench/canned_worker");
      EXPECT_TRUE(service) << include.file << " includes " << include.target;
    }
  }
}

TEST(Layering, HttpHeadersStayInTheServerAndTheClient) {
  for (const Include& include : Includes()) {
    if (!StartsWith(include.target, "boost/")) continue;
    EXPECT_TRUE(StartsWith(include.file, "services/common/http/") ||
                include.file == "services/cli/http_client.cc")  // the other end
        << include.file << " includes " << include.target;
    // Others include these, and would compile all of it again.
    EXPECT_NE(include.file, "services/common/http/http_server.h");
    EXPECT_NE(include.file, "services/common/http/http_message.h");
  }
}

TEST(Layering, NoSourceFileIsOver500Lines) {
  for (const std::string& file : SourceFiles()) {
    std::ifstream in(file);
    const auto lines =
        std::count(std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>(), '\n');
    EXPECT_LE(lines, 500) << file;
  }
}

TEST(Layering, TheTopLevelHoldsNothingElse) {
  const std::set<std::string> expected = {
      "proto",          "kernels",           "engine",    "services", "deploy", "tests",
      "CMakeLists.txt", "CMakePresets.json", "README.md", "LICENSE",  "build"};
  for (const auto& entry : fs::directory_iterator(".")) {
    const std::string name = entry.path().filename().string();
    EXPECT_TRUE(name[0] == '.' || expected.count(name) != 0) << name;
  }
}

}  // namespace
}  // namespace tandem
