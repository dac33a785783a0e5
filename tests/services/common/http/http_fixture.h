// A server on a free loopback port whose handler does what a test says.
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "services/common/http/http_server.h"
#include "tests/support/raw_client.h"

namespace tandem::test {

inline constexpr std::chrono::seconds kHttpPatience{20};

inline bool Eventually(const std::function<bool()>& holds) {
  const auto end = std::chrono::steady_clock::now() + kHttpPatience;
  while (!holds()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return true;
}

// What an exchange said of its client.
struct SeenEvents final : HttpExchangeEvents {
  void OnDrained() override { ++drained; }
  void OnGone() override { ++gone; }
  std::atomic<int> drained{0};
  std::atomic<int> gone{0};
};

class HttpServerTest : public testing::Test, public HttpHandler {
 protected:
  struct Asked {
    HttpRequest request;
    std::shared_ptr<HttpExchange> exchange;
    std::shared_ptr<SeenEvents> events;
  };

  // Here and not in the destructor, when this is no HttpHandler any more.
  void TearDown() override { server_.reset(); }

  // Paths: /echo answers at once with method, path, query and body; /file with no body; all others
  // are left to Next.
  void OnRequest(HttpRequest request, std::shared_ptr<HttpExchange> exchange) override {
    exchange->SetRoute("test");
    if (request.path == "/echo") {
      return exchange->Send(
          {.content_type = "text/plain",
           .body = request.method + " " + request.path + " " + request.query + " " + request.body});
    }
    auto events = std::make_shared<SeenEvents>();
    exchange->Watch(events);
    std::lock_guard lock(mutex_);
    asked_.push_back({std::move(request), std::move(exchange), std::move(events)});
    changed_.notify_all();
  }
  void OnEnd(const HttpEnd& end) override {
    std::lock_guard lock(mutex_);
    ends_.push_back(end);
  }

  void Serve() {
    options_.listen = "127.0.0.1:0";
    auto server = HttpServer::Start(options_, this);
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
  }
  int port() const { return server_->port(); }

  // The next request that was left open.
  Asked Next() {
    std::unique_lock lock(mutex_);
    if (!changed_.wait_for(lock, kHttpPatience, [this] { return !asked_.empty(); })) {
      ADD_FAILURE() << "no request came";
      return {};
    }
    Asked asked = std::move(asked_.front());
    asked_.pop_front();
    return asked;
  }
  size_t waiting() {
    std::lock_guard lock(mutex_);
    return asked_.size();
  }
  std::vector<int> statuses() {
    std::lock_guard lock(mutex_);
    std::vector<int> out;
    for (const HttpEnd& end : ends_) out.push_back(end.status);
    return out;
  }
  bool NoneIsOpen() {
    return Eventually([this] { return server_->connections() == 0; });
  }

  HttpServerOptions options_;
  std::unique_ptr<HttpServer> server_;

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Asked> asked_;
  std::vector<HttpEnd> ends_;
};

}  // namespace tandem::test
