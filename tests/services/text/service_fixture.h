// A whole text tier in this process, with scripted workers behind it and a real client in front,
// all on loopback.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "services/common/channel.h"
#include "services/text/text_server.h"
#include "tandem/v1/generation.grpc.pb.h"
#include "tests/support/scripted_worker.h"

namespace tandem::text {

// What one Generate call gave.
struct Answer {
  grpc::Status status;
  std::vector<v1::Started> started;
  std::map<int32_t, std::string> text;
  std::map<int32_t, std::vector<int32_t>> token_ids;
  std::map<int32_t, v1::Finished> finished;
  int64_t deltas = 0;
  bool operator==(const Answer& other) const {
    return text == other.text && token_ids == other.token_ids;
  }
};

class ServiceTest : public testing::Test {
 protected:
  static constexpr std::chrono::seconds kPatience{30};

  ~ServiceTest() override {
    stub_.reset();
    channel_.reset();
    server_.reset();
    for (const auto& worker : workers_) {
      EXPECT_EQ(worker->totals().errors, std::vector<std::string>());
    }
  }

  test::ScriptedWorker& AddWorker(test::ScriptedWorkerOptions options = {}) {
    workers_.push_back(std::make_unique<test::ScriptedWorker>(std::move(options)));
    workers_.back()->Start();
    options_.workers.push_back(workers_.back()->address());
    return *workers_.back();
  }
  // Starts the text tier over the workers, and waits until it serves.
  void Serve() {
    StartServer();
    ASSERT_TRUE(Eventually([this] { return server_->serving(); }));
  }
  void StartServer() {
    auto server = TextServer::Start(options_);
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
    channel_ = *MakeChannel({.target = server_->address(), .max_send_bytes = 16 << 20});
    stub_ = v1::Generation::NewStub(channel_);
  }

  static bool Eventually(const std::function<bool()>& holds,
                         std::chrono::milliseconds patience = kPatience) {
    const auto end = std::chrono::steady_clock::now() + patience;
    while (!holds()) {
      if (std::chrono::steady_clock::now() > end) return false;
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    return true;
  }

  static v1::GenerateRequest Prompt(const std::string& prompt, int32_t max_tokens) {
    v1::GenerateRequest request;
    request.set_prompt(prompt);
    request.set_max_tokens(max_tokens);
    request.mutable_sampling()->set_temperature(0.0f);
    request.mutable_stopping()->set_ignore_eos(true);
    request.mutable_response()->set_token_ids(true);
    return request;
  }

  static void Note(const v1::GenerateResponse& message, Answer* answer) {
    if (message.has_started()) {
      answer->started.push_back(message.started());
    } else if (message.has_delta()) {
      const v1::Delta& delta = message.delta();
      ++answer->deltas;
      answer->text[delta.choice()] += delta.text();
      std::vector<int32_t>& ids = answer->token_ids[delta.choice()];
      ids.insert(ids.end(), delta.token_ids().begin(), delta.token_ids().end());
    } else if (message.has_finished()) {
      EXPECT_EQ(answer->finished.count(message.finished().choice()), 0u);
      answer->finished[message.finished().choice()] = message.finished();
    }
  }

  // Sends and reads to the end; after each message on_message may act.
  Answer Ask(const v1::GenerateRequest& request,
             const std::function<void(grpc::ClientContext&, const v1::GenerateResponse&)>&
                 on_message = nullptr,
             std::chrono::milliseconds timeout = std::chrono::milliseconds(0)) {
    grpc::ClientContext context;
    context.set_wait_for_ready(true);  // on a busy machine a connection takes its time
    if (timeout.count() > 0) {
      context.set_deadline(std::chrono::system_clock::now() + timeout);
    }
    Answer answer;
    const auto reader = stub_->Generate(&context, request);
    v1::GenerateResponse message;
    while (reader->Read(&message)) {
      Note(message, &answer);
      if (on_message) on_message(context, message);
    }
    answer.status = reader->Finish();
    return answer;
  }

  int64_t LiveSessions() const {
    int64_t live = 0;
    for (const auto& worker : workers_) live += worker->totals().live;
    return live;
  }

  TextServerOptions options_;
  std::vector<std::unique_ptr<test::ScriptedWorker>> workers_;
  std::unique_ptr<TextServer> server_;
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<v1::Generation::Stub> stub_;
};

}  // namespace tandem::text
