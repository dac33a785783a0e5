#include "services/common/http/status_pages.h"

#include <utility>

namespace tandem {

void StatusPages::OnRequest(HttpRequest request, std::shared_ptr<HttpExchange> exchange) {
  const bool health = request.path == "/health";
  const bool metrics = request.path == "/metrics" && metrics_;
  if (!health && !metrics) {
    exchange->SetRoute("none");
    return exchange->Send(Refusal(404, "there is no such path: /health and /metrics are"));
  }
  exchange->SetRoute(health ? "/health" : "/metrics");
  if (request.method != "GET" && request.method != "HEAD") {
    HttpResponse refused = Refusal(405, "the method must be GET or HEAD");
    refused.headers.Add("Allow", "GET, HEAD");
    return exchange->Send(std::move(refused));
  }
  if (metrics) {
    return exchange->Send(
        {.content_type = "text/plain; version=0.0.4; charset=utf-8", .body = metrics_()});
  }
  const absl::Status status = health_();
  if (status.ok()) return exchange->Send({.content_type = "text/plain", .body = "serving\n"});
  exchange->Send(Refusal(503, {status.message().data(), status.message().size()}));
}

}  // namespace tandem
