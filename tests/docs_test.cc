// What the README says exists: its links, its scripts, its flags.
#include <gtest/gtest.h>

#include <cctype>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>
#include <string>

#include <unistd.h>

#include "tests/support/process.h"

namespace tandem::test {
namespace {

const std::string kDocuments[] = {"README.md", "services/README.md"};

std::string Read(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

// Every occurrence of `open` ... `close`, without them.
std::set<std::string> Between(const std::string& text, const std::string& open,
                              const std::string& close) {
  std::set<std::string> found;
  for (size_t at = text.find(open); at != std::string::npos; at = text.find(open, at + 1)) {
    const size_t begin = at + open.size();
    const size_t end = text.find(close, begin);
    if (end != std::string::npos) found.insert(text.substr(begin, end - begin));
  }
  return found;
}

std::set<std::string> WordsThatBeginWith(const std::string& text, const std::string& prefix) {
  std::set<std::string> found;
  for (size_t at = text.find(prefix); at != std::string::npos; at = text.find(prefix, at + 1)) {
    if (at > 0 && std::string(" `(\n").find(text[at - 1]) == std::string::npos) continue;
    const size_t end = text.find_first_of(" `'\"),;:\n", at);
    found.insert(text.substr(at, end - at));
  }
  return found;
}

TEST(Docs, EveryLinkLeadsToAFileOrASection) {
  for (const std::string& document : kDocuments) {
    const std::string text = Read(document);
    const std::set<std::string> links = Between(text, "](", ")");
    EXPECT_GT(links.size(), 2u);
    std::set<std::string> anchors;
    for (std::string title : Between(text, "\n## ", "\n")) {
      for (char& c : title) c = c == ' ' ? '-' : static_cast<char>(std::tolower(c));
      anchors.insert("#" + title);
    }
    for (const std::string& link : links) {
      if (link.rfind("http", 0) == 0) continue;
      const bool found =
          link[0] == '#'
              ? anchors.count(link) != 0
              : std::filesystem::exists(std::filesystem::path(document).parent_path() / link);
      EXPECT_TRUE(found) << document << ": " << link;
    }
  }
}

TEST(Docs, EveryScriptThatTheReadmeNamesCanBeRun) {
  std::set<std::string> scripts;
  for (const char* prefix : {"deploy/", "tests/"}) {
    for (const std::string& word : WordsThatBeginWith(Read("README.md"), prefix)) {
      if (word.size() > 3 && word.substr(word.size() - 3) == ".sh") scripts.insert(word);
    }
  }
  EXPECT_GE(scripts.size(), 2u);
  for (const std::string& script : scripts) EXPECT_EQ(access(script.c_str(), X_OK), 0) << script;
}

// Between `<!-- COMMAND -->` and `<!-- end -->` a document has what the program prints.
// TANDEM_WRITE_DOCS writes it there.
TEST(Docs, HaveTheTablesThatTheProgramsPrint) {
  int tables = 0;
  for (const std::string& document :
       {std::string("README.md"), std::string("services/README.md")}) {
    std::string text = Read(document);
    const std::string before = text;
    for (size_t at = text.find("<!-- tandem"); at != std::string::npos;
         at = text.find("<!-- tandem", at + 1)) {
      const size_t begin = text.find(" -->\n", at);
      const size_t end = text.find("<!-- end -->", at);
      ASSERT_TRUE(begin != std::string::npos && end != std::string::npos) << document;
      const std::string command = text.substr(at + 5, begin - at - 5);
      const RunResult result =
          RunProgram({"/bin/sh", "-c", std::string(TANDEM_BINARY_FOLDER) + "/" + command});
      ASSERT_EQ(result.status, 0) << command << ": " << result.output;
      text.replace(begin + 5, end - begin - 5, "\n" + result.output + "\n");
      ++tables;
    }
    if (std::getenv("TANDEM_WRITE_DOCS") != nullptr) {
      std::ofstream(document) << text;
    } else {
      EXPECT_EQ(before, text) << document << ": TANDEM_WRITE_DOCS=1 docs_test writes this";
    }
  }
  EXPECT_GE(tables, 4);
}

TEST(Docs, EveryFlagThatTheyNameIsAFlagOfAProgram) {
  std::string help;
  for (const char* command : {"tandem generate", "tandem chat", "tandem tokenize", "tandem health",
                              "tandem explain", "tandem models", "tandem fleet", "tandem bench",
                              "tandem-text", "tandem-worker", "tandem-simulation"}) {
    const std::string text = command;
    const size_t space = text.find(' ');
    std::vector<std::string> argv = {std::string(TANDEM_BINARY_FOLDER) + "/" +
                                     text.substr(0, space)};
    if (space != std::string::npos) argv.push_back(text.substr(space + 1));
    argv.push_back("--help");
    const RunResult result = RunProgram(argv);
    EXPECT_EQ(result.status, 0) << text << ": " << result.output;
    help += result.output;
  }
  help += Read("deploy/local/bundle.sh");
  std::string documents;
  for (const std::string& document : kDocuments) documents += Read(document);
  // Without comments.
  for (size_t at = documents.find("<!--"); at != std::string::npos; at = documents.find("<!--")) {
    documents.erase(at, documents.find("-->", at) + 3 - at);
  }
  for (const std::string& flag : WordsThatBeginWith(documents, "--")) {
    static const std::set<std::string> kOfOtherPrograms = {"--preset", "--build", "--test-dir"};
    if (kOfOtherPrograms.count(flag) != 0) continue;
    EXPECT_NE(help.find(flag), std::string::npos) << flag;
  }
}

}  // namespace
}  // namespace tandem::test
