#include "tests/e2e/fleet.h"

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <thread>
#include <utility>

#include "engine/base/check.h"
#include "grpc/health/v1/health.grpc.pb.h"
#include "tandem/decode/v1/decode.grpc.pb.h"

namespace tandem::test {
namespace {

using std::chrono::system_clock;

// The port that a program wrote to its port file once it listens.
std::string WaitForPort(const std::string& file, Process& process, double patience_seconds) {
  for (int i = 0; i < static_cast<int>(100 * patience_seconds); ++i) {
    std::ifstream in(file);
    std::string port;
    if (in >> port) return "127.0.0.1:" + port;
    TANDEM_CHECK(process.running()) << "the program ended early:\n" << process.output();
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  TANDEM_CHECK(false) << "no port after " << patience_seconds << " s:\n" << process.output();
  return "";
}

std::optional<std::string> Variable(const char* name) {
  const char* value = std::getenv(name);
  if (value == nullptr || *value == '\0') return std::nullopt;
  return value;
}

}  // namespace

std::string ProgramPath(const std::string& name) {
  return std::filesystem::read_symlink("/proc/self/exe").parent_path() / name;
}

std::optional<std::string> DefaultModel() { return Variable("TANDEM_TEST_MODEL"); }

std::optional<std::string> TestPython() { return Variable("TANDEM_TEST_PYTHON"); }

bool IsServing(const std::string& address, double timeout_seconds) {
  const auto end =
      std::chrono::steady_clock::now() + std::chrono::duration<double>(timeout_seconds);
  // A connection of its own, tried again at once: the program may just be starting.
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 20);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 50);
  const auto stub = grpc::health::v1::Health::NewStub(
      grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), arguments));
  do {
    grpc::ClientContext context;
    context.set_deadline(system_clock::now() + std::chrono::seconds(2));
    grpc::health::v1::HealthCheckResponse response;
    if (stub->Check(&context, {}, &response).ok() &&
        response.status() == grpc::health::v1::HealthCheckResponse::SERVING) {
      return true;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  } while (std::chrono::steady_clock::now() < end);
  return false;
}

Fleet::Fleet(Options options) : options_(std::move(options)) {
  std::vector<std::string> argv = {ProgramPath("tandem-text"), "--listen", "127.0.0.1:0",
                                   "--port-file", folder_.File("text.port"),
                                   "--http-listen", "127.0.0.1:0",
                                   "--http-port-file", folder_.File("http.port")};
  for (int i = 0; i < options_.workers; ++i) workers_.push_back(StartWorker(i, "127.0.0.1:0"));
  for (int i = 0; i < options_.workers; ++i) {
    worker_addresses_.push_back(WaitForPort(PortFile(i), *workers_[i], options_.patience_seconds));
    argv.insert(argv.end(), {"--worker", worker_addresses_.back()});
  }
  argv.insert(argv.end(), options_.text_flags.begin(), options_.text_flags.end());
  text_ = std::make_unique<Process>(argv);
  text_address_ = WaitForPort(folder_.File("text.port"), *text_, options_.patience_seconds);
  http_address_ = WaitForPort(folder_.File("http.port"), *text_, options_.patience_seconds);
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(64 << 20);
  stub_ = v1::Generation::NewStub(
      grpc::CreateCustomChannel(text_address_, grpc::InsecureChannelCredentials(), arguments));
  TANDEM_CHECK(WaitServing(options_.patience_seconds))
      << "not serving after " << options_.patience_seconds << " s\n"
      << worker().output() << text_->output();
}

std::string Fleet::PortFile(int worker) const {
  return folder_.File("worker" + std::to_string(worker) + ".port");
}

std::unique_ptr<Process> Fleet::StartWorker(int worker, const std::string& listen) {
  std::vector<std::string> argv = {ProgramPath("tandem-worker"),
                                   "--model",
                                   options_.model,
                                   "--listen",
                                   listen,
                                   "--port-file",
                                   PortFile(worker)};
  argv.insert(argv.end(), options_.worker_flags.begin(), options_.worker_flags.end());
  return std::make_unique<Process>(argv);
}

void Fleet::KillWorker(int worker) {
  workers_[worker]->Signal(SIGKILL);
  workers_[worker]->Wait(10);
}

void Fleet::StartWorkerAgain(int worker) {
  workers_[worker] = StartWorker(worker, worker_addresses_[worker]);
}

void Fleet::RestartWorker(int worker) {
  StartWorkerAgain(worker);
  TANDEM_CHECK(WaitServing(options_.patience_seconds))
      << workers_[worker]->output() << text_->output();
}

bool Fleet::WaitServing(double timeout_seconds) {
  for (const std::string& address : worker_addresses_) {
    if (!IsServing(address, timeout_seconds)) return false;
  }
  return IsServing(text_address_, timeout_seconds);
}

CallResult Fleet::Generate(const v1::GenerateRequest& request) {
  CallResult result;
  grpc::ClientContext context;
  context.set_deadline(system_clock::now() + std::chrono::seconds(300));
  const auto reader = stub_->Generate(&context, request);
  v1::GenerateResponse response;
  while (reader->Read(&response)) {
    if (response.has_started()) result.started = response.started();
    if (response.has_delta()) {
      const v1::Delta& delta = response.delta();
      const size_t choice = delta.choice();
      if (result.texts.size() <= choice) result.texts.resize(choice + 1);
      if (result.token_ids.size() <= choice) result.token_ids.resize(choice + 1);
      result.texts[choice] += delta.text();
      result.token_ids[choice].insert(result.token_ids[choice].end(), delta.token_ids().begin(),
                                      delta.token_ids().end());
    }
    if (response.has_finished()) result.finished.push_back(response.finished());
  }
  result.status = reader->Finish();
  return result;
}

bool Fleet::WorkerIsFreeSoon() {
  for (int i = 0; i < 200; ++i) {
    if (WorkerSessions() == 0) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  return false;
}

int Fleet::WorkerSessions() {
  const std::optional<decode::v1::Load> load = WorkerLoad();
  return load ? load->running() + load->queued() : -1;
}

std::optional<decode::v1::Load> Fleet::WorkerLoad(int worker) {
  const auto stub = decode::v1::DecodeWorker::NewStub(
      grpc::CreateChannel(worker_addresses_[worker], grpc::InsecureChannelCredentials()));
  grpc::ClientContext context;
  context.set_deadline(system_clock::now() + std::chrono::seconds(5));
  const auto stream = stub->Decode(&context);
  decode::v1::DecodeResponse response;
  std::optional<decode::v1::Load> load;
  // Hello, then a frame with the load within 500 ms.
  while (!load && stream->Read(&response)) {
    if (response.has_load()) load = response.load();
  }
  context.TryCancel();
  stream->Finish();
  return load;
}

}  // namespace tandem::test
