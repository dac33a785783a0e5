// The files of the playground as they are served: whole, linked, small, and within the policy that
// goes out with them.
#include "services/text/web/files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <regex.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <set>
#include <string>
#include <vector>

namespace tandem::text {
namespace {

using testing::HasSubstr;
using testing::Not;

const WebFile* Find(std::string_view path) {
  for (const WebFile& file : WebFiles()) {
    if (file.path == path) return &file;
  }
  return nullptr;
}

std::string Page() { return std::string(WebFiles().front().body); }

// What the last group of a POSIX extended pattern matches, all over the text.
std::vector<std::string> Matches(const std::string& text, const char* pattern) {
  std::vector<std::string> out;
  regex_t regex;
  EXPECT_EQ(regcomp(&regex, pattern, REG_EXTENDED), 0) << pattern;
  regmatch_t found[4];
  const char* at = text.c_str();
  while (regexec(&regex, at, std::size(found), found, 0) == 0) {
    const regmatch_t& group = found[regex.re_nsub];
    out.emplace_back(at + group.rm_so, at + group.rm_eo);
    at += std::max<regoff_t>(found[0].rm_eo, 1);
  }
  regfree(&regex);
  return out;
}

TEST(WebFiles, AreTheFilesOfTheTreeByteForByte) {
  ASSERT_GT(WebFiles().size(), 3u);
  EXPECT_EQ(WebFiles().front().path, "/");
  for (const WebFile& file : WebFiles()) {
    const std::string name =
        file.path == "/" ? "index.html"
                         : std::string(file.path.substr(std::string("/playground/").size()));
    std::ifstream in("services/text/web/" + name, std::ios::binary);
    ASSERT_TRUE(in) << name << ": run from the root of the repository";
    EXPECT_EQ(file.body, std::string(std::istreambuf_iterator<char>(in), {})) << name;
  }
}

TEST(WebFiles, HaveTheirOwnPathsAndEtags) {
  std::set<std::string_view> paths, etags;
  for (const WebFile& file : WebFiles()) {
    paths.insert(file.path);
    etags.insert(file.etag);
    EXPECT_EQ(Matches(std::string(file.etag), "^(\"[0-9a-f]{32}\")$").size(), 1u) << file.etag;
  }
  EXPECT_EQ(paths.size(), WebFiles().size());
  EXPECT_EQ(etags.size(), WebFiles().size());
}

TEST(WebFiles, HaveTheContentTypeOfTheirName) {
  EXPECT_EQ(Find("/")->content_type, "text/html; charset=utf-8");
  EXPECT_EQ(Find("/playground/app.js")->content_type, "text/javascript; charset=utf-8");
  EXPECT_EQ(Find("/playground/style.css")->content_type, "text/css; charset=utf-8");
  EXPECT_EQ(Find("/playground/mark.svg")->content_type, "image/svg+xml");
}

TEST(WebFiles, HaveWhatThePageLinksTo) {
  const std::vector<std::string> links = Matches(Page(), "(src|href)=\"([^\"#][^\"]*)\"");
  EXPECT_GE(links.size(), 3u);
  for (const std::string& link : links) EXPECT_NE(Find("/" + link), nullptr) << link;
}

TEST(WebFiles, HaveWhatTheScriptsImportAndNoScriptThatNothingImports) {
  std::set<std::string> imported = {"/playground/app.js"};
  for (const WebFile& file : WebFiles()) {
    for (const std::string& name : Matches(std::string(file.body), "from '\\./([^']+)'")) {
      EXPECT_NE(Find("/playground/" + name), nullptr) << file.path << " imports " << name;
      imported.insert("/playground/" + name);
    }
  }
  for (const WebFile& file : WebFiles()) {
    if (!file.path.ends_with(".js")) continue;
    EXPECT_EQ(imported.count(std::string(file.path)), 1u) << file.path;
  }
}

TEST(WebFiles, NameNoOtherHost) {
  for (const WebFile& file : WebFiles()) {
    std::string text(file.body);
    const std::string name_of_svg = "\"http://www.w3.org/2000/svg\"";
    const size_t at = text.find(name_of_svg);
    if (file.path == "/playground/mark.svg" && at != std::string::npos) {
      text.erase(at, name_of_svg.size());
    }
    EXPECT_THAT(text, Not(HasSubstr("http://"))) << file.path;
    EXPECT_THAT(text, Not(HasSubstr("https://"))) << file.path;
    EXPECT_THAT(text, Not(testing::ContainsRegex("[\"'(]//[a-z]"))) << file.path;
  }
}

TEST(WebFiles, HaveNothingThatThePolicyForbids) {
  const std::string page = Page();
  EXPECT_EQ(Matches(page, "(<style)"), std::vector<std::string>());
  EXPECT_EQ(Matches(page, "[ \\n](style|on[a-z]+)="), std::vector<std::string>());
  for (const std::string& script : Matches(page, "<script([^>]*)>")) {
    EXPECT_THAT(script, HasSubstr("src="));
  }
  EXPECT_EQ(Matches(page, "<script[^>]*>([^<]+)</script>"), std::vector<std::string>());
}

TEST(WebFiles, MakeNoHtmlOutOfText) {
  for (const WebFile& file : WebFiles()) {
    for (const char* way :
         {"innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "DOMParser",
          "createContextualFragment", "setHTMLUnsafe", "eval(", "new Function"}) {
      EXPECT_THAT(std::string(file.body), Not(HasSubstr(way))) << file.path;
    }
  }
}

TEST(WebFiles, AreSmall) {
  size_t total = 0;
  for (const WebFile& file : WebFiles()) {
    EXPECT_FALSE(file.body.empty()) << file.path;
    EXPECT_LE(file.body.size(), 32u << 10) << file.path;
    EXPECT_LE(std::count(file.body.begin(), file.body.end(), '\n'), 500) << file.path;
    total += file.body.size();
  }
  EXPECT_LE(total, 128u << 10);
}

}  // namespace
}  // namespace tandem::text
