#include "services/cli/load_generator.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <utility>

#include "engine/base/check.h"
#include "services/cli/load_plan.h"

namespace tandem::cli {
namespace {

constexpr Nanos kTick = kNanosPerSecond / 10;

void Add(const ServerSide& side, LoadReport* report) {
  report->queue.Add(side.queue);
  report->prefill.Add(side.prefill);
  if (!report->server.has_value()) report->server.emplace();
  ServerSide& sum = *report->server;
  sum.from_lists += side.from_lists;
  sum.fetched += side.fetched;
  sum.misses += side.misses;
  sum.faults += side.faults;
  sum.rewound += side.rewound;
  sum.reopened += side.reopened;
  sum.approximate += side.approximate;
}

void Add(const LoadResult& result, Nanos intended, Nanos sent, LoadReport* report) {
  report->output_tokens += result.output_tokens;
  report->send_lag.Add(sent - intended);
  if (result.cancelled) {
    ++report->cancelled;
    return;
  }
  if (!result.error.empty()) {
    ++report->failed;
    const bool room =
        report->errors.size() < kMaxErrorKinds || report->errors.count(result.error) != 0;
    ++report->errors[room ? result.error : "other errors"];
    return;
  }
  ++report->ok;
  report->prompt_tokens += result.prompt_tokens;
  report->cached_tokens += result.cached_tokens;
  if (result.first > 0) report->first_token.Add(result.first - intended);
  if (result.output_tokens > 1) {
    report->per_output_token.Add((result.last - result.first) / (result.output_tokens - 1));
  }
  for (const Nanos gap : result.gaps) report->gap.Add(gap);
  report->end_to_end.Add(result.done - intended);
  if (result.server.has_value()) Add(*result.server, report);
}

// One phase: the warm-up, or what is measured.
class Phase final {
 public:
  Phase(LoadTarget* target, LoadMeter* meter, const LoadOptions& options, int64_t first_number)
      : target_(target),
        meter_(meter),
        options_(options),
        next_number_(first_number),
        last_number_(options.requests > 0 ? first_number + options.requests : INT64_MAX),
        start_(SteadyNow()),
        end_(options.duration_seconds > 0
                 ? start_ + static_cast<Nanos>(options.duration_seconds * kNanosPerSecond)
                 : INT64_MAX) {
    if (options.rate.has_value()) arrivals_.emplace(*options.rate, options.seed);
  }

  LoadReport Run(const std::atomic<bool>& stop, const std::function<void()>& tick) {
    Nanos next_tick = SteadyNow();
    Nanos intended = NextIntended();
    std::unique_lock lock(mutex_);
    bool cancelled = false;
    while (true) {
      Collect();
      const Nanos now = SteadyNow();
      if (stop && !std::exchange(cancelled, true)) {
        lock.unlock();
        target_->CancelAll();
        lock.lock();
      }
      const bool more =
          !stop && next_number_ < last_number_ && (arrivals_.has_value() ? intended : now) < end_;
      if (!more && in_flight_ == 0) break;
      if (more && MaySend(now, intended)) {
        lock.unlock();
        Send(arrivals_.has_value() ? intended : now, now);
        if (arrivals_.has_value()) intended = NextIntended();
        lock.lock();
        continue;
      }
      if (now >= next_tick) {
        next_tick = now + kTick;
        lock.unlock();
        tick();
        lock.lock();
        continue;
      }
      Nanos until = next_tick;
      if (more && arrivals_.has_value() && in_flight_ < kMaxInFlight) {
        until = std::min(until, intended);
      }
      changed_.wait_for(lock, std::chrono::nanoseconds(std::max<Nanos>(0, until - now)),
                        [this] { return !ended_.empty(); });
    }
    report_.elapsed = last_end_ > 0 ? last_end_ - first_start_ : 0;
    return std::move(report_);
  }

 private:
  struct Ended {
    LoadResult result;
    Nanos intended;
    Nanos sent;
  };

  Nanos NextIntended() { return arrivals_.has_value() ? start_ + arrivals_->Next() : start_; }

  bool MaySend(Nanos now, Nanos intended) const {
    if (arrivals_.has_value()) return intended <= now && in_flight_ < kMaxInFlight;
    return in_flight_ < options_.concurrency;
  }

  void Send(Nanos intended, Nanos now) {
    if (first_start_ == 0) first_start_ = intended;
    ++in_flight_;
    ++meter_->started;
    target_->Send(next_number_++, [this, intended, now](LoadResult result) {
      ++meter_->ended;
      if (!result.error.empty() && !result.cancelled) ++meter_->failed;
      // Notified under the mutex: the phase may be gone once it is free.
      std::lock_guard lock(mutex_);
      ended_.push_back({std::move(result), intended, now});
      changed_.notify_one();
    });
  }

  void Collect() {
    for (const Ended& ended : ended_) {
      --in_flight_;
      last_end_ = std::max(last_end_, ended.result.done);
      Add(ended.result, ended.intended, ended.sent, &report_);
    }
    ended_.clear();
  }

  LoadTarget* const target_;
  LoadMeter* const meter_;
  const LoadOptions& options_;
  std::optional<PoissonArrivals> arrivals_;
  // Of the thread that runs it.
  int64_t next_number_;
  const int64_t last_number_;
  const Nanos start_;
  const Nanos end_;
  Nanos first_start_ = 0;
  Nanos last_end_ = 0;
  int64_t in_flight_ = 0;
  LoadReport report_;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Ended> ended_;  // guarded by mutex_
};

}  // namespace

LoadReport LoadGenerator::Run(const LoadOptions& options, const std::atomic<bool>& stop,
                              const std::function<void()>& tick) {
  TANDEM_CHECK(options.requests > 0 || options.duration_seconds > 0);
  TANDEM_CHECK(options.concurrency >= 1 && options.warmup >= 0);
  if (options.warmup > 0) {
    LoadOptions warmup = options;
    warmup.rate.reset();
    warmup.requests = options.warmup;
    warmup.duration_seconds = 0;
    Phase(target_, meter_, warmup, 0).Run(stop, tick);
  }
  return Phase(target_, meter_, options, options.warmup).Run(stop, tick);
}

}  // namespace tandem::cli
