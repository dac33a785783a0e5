// The pages of a server that has no others: /health and /metrics.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "services/common/http/http_server.h"

namespace tandem {

class StatusPages final : public HttpHandler {
 public:
  // Both are called from the server's threads, and not to block. health: OK while it serves; the
  // message of another status is the page, which is then 503. metrics: the text of /metrics; null:
  // there is no such page.
  StatusPages(std::function<absl::Status()> health, std::function<std::string()> metrics)
      : health_(std::move(health)), metrics_(std::move(metrics)) {}

  void OnRequest(HttpRequest request, std::shared_ptr<HttpExchange> exchange) override;

 private:
  const std::function<absl::Status()> health_;
  const std::function<std::string()> metrics_;
};

}  // namespace tandem
