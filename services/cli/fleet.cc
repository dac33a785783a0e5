// `tandem fleet`: the workers behind a text tier, once or again and again.
#include <unistd.h>
#include <chrono>
#include <condition_variable>
#include <ctime>
#include <iostream>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include <CLI/CLI.hpp>

#include "absl/status/statusor.h"
#include "services/cli/commands.h"
#include "services/cli/connection.h"
#include "services/cli/fleet_output.h"
#include "services/cli/interrupt.h"
#include "services/cli/live_view.h"
#include "services/cli/terminal.h"

namespace tandem::cli {
namespace {

constexpr std::chrono::seconds kPatience{10};

struct Flags {
  ConnectionFlags connection;
  std::optional<double> watch;  // seconds
  bool json = false;
};

absl::StatusOr<v1::ListWorkersResponse> ListWorkers(const Connection& connection,
                                                    v1::Fleet::Stub& stub) {
  grpc::ClientContext context;
  connection.Authorize(&context);
  context.set_deadline(std::chrono::system_clock::now() + kPatience);
  v1::ListWorkersResponse response;
  const grpc::Status status = stub.ListWorkers(&context, {}, &response);
  if (!status.ok()) return FromGrpc(status);
  return response;
}

// A text tier that does not answer is part of the picture: the watch goes on. One that wants
// another key will not change its mind.
int Watch(const Connection& connection, v1::Fleet::Stub& stub, const Flags& flags) {
  std::mutex mutex;
  std::condition_variable changed;
  bool stop = false;
  const InterruptScope interrupt([&] {
    std::lock_guard lock(mutex);
    stop = true;
    changed.notify_all();
  });
  const bool live = StdoutIsTerminal() && !flags.json;
  std::optional<LiveView> view;
  if (live) view.emplace(STDOUT_FILENO);
  const auto interval = std::chrono::duration<double>(*flags.watch);
  std::unique_lock lock(mutex);
  while (!stop) {
    lock.unlock();
    const auto workers = ListWorkers(connection, stub);
    if (absl::IsUnauthenticated(workers.status())) return Fail(workers.status());
    if (flags.json) {
      std::cout << FleetJson(workers, std::time(nullptr)) << "\n" << std::flush;
    } else if (live) {
      view->Draw(FleetTable(workers, SizeOfTerminal(STDOUT_FILENO).columns));
    } else {
      std::cout << FleetTable(workers, 0) << "\n" << std::flush;
    }
    if (!std::cout) return 1;  // the reader of a pipe is gone
    lock.lock();
    changed.wait_for(lock, interval, [&] { return stop; });
  }
  if (live) std::cout << "\n";  // behind what the terminal shows for Ctrl-C
  return 130;
}

int RunFleet(const Flags& flags) {
  const auto connection = Connection::Dial(flags.connection);
  if (!connection.ok()) return Fail(connection.status());
  const auto stub = v1::Fleet::NewStub((*connection)->channel());
  if (flags.watch.has_value()) return Watch(**connection, *stub, flags);
  const auto workers = ListWorkers(**connection, *stub);
  if (!workers.ok()) return Fail(workers.status());
  if (flags.json) {
    std::cout << FleetJson(workers, std::time(nullptr)) << "\n";
  } else {
    std::cout << FleetTable(workers,
                            StdoutIsTerminal() ? SizeOfTerminal(STDOUT_FILENO).columns : 0);
  }
  return 0;
}

}  // namespace

void AddFleet(CLI::App& app, const std::function<void(Run)>& set_run) {
  const auto flags = std::make_shared<Flags>();
  CLI::App* command = app.add_subcommand(
      "fleet",
      "The workers behind a text tier: state, load, caches, drafts; exit status 0 also "
      "where none serves");
  flags->connection.AddTo(*command);
  command
      ->add_option("--watch", flags->watch,
                   "Ask again every so many seconds, until Ctrl-C; on a terminal in place")
      ->check(CLI::Range(0.1, 3600.0));
  command->add_flag("--json", flags->json,
                    "Print a JSON object a sample: time, and workers with the names of "
                    "tandem.v1.Worker's fields, or error");
  command->callback([flags, set_run] { set_run([flags] { return RunFleet(*flags); }); });
}

}  // namespace tandem::cli
