// Sessions come to workers, leave them, and come to others.
#include <algorithm>

#include "engine/base/check.h"
#include "services/text/frame_packer.h"
#include "services/text/shard.h"

namespace tandem::text {

static_assert(FramePacker::kHandlesPerOpen >= kMaxChoices);

void Shard::PlaceWhatIsDue(uint64_t key, Entry& entry) {
  Session& session = *entry.session;
  const ServedModel& model = *session.request().model;
  while (const std::optional<Session::Opening> wanted = session.NextOpening(now_)) {
    const absl::StatusOr<WorkerRef> worker =
        wanted->again ? router_->PlaceAgain(model, wanted->choices, wanted->avoid,
                                            session.numerics_fingerprint())
                      : router_->Place(model, wanted->choices);
    SessionOutput output;
    if (worker.ok()) {
      const Session::Opening opened =
          session.Open(*wanted, worker->connection, *worker->model, now_, &output);
      entry.placements.push_back({.worker = *worker, .opening = opened, .settled = !wanted->again});
      OutgoingTo(worker->connection).openings.push_back({key, opened});
      if (wanted->again) {
        CountReopening(session, opened, *worker->model);
        LogReopening(entry, entry.placements.back());
      }
    } else {
      session.OnNoWorker(*wanted, worker.status(), absl::IsResourceExhausted(worker.status()), now_,
                         &output);
    }
    if (wanted->again) --opens_left_;
    Deliver(key, entry, output);
    if (Find(key) == nullptr) return;
  }
}

void Shard::Settle(Placement& placement) {
  if (placement.settled) return;
  placement.settled = true;
  router_->Settled(placement.worker.connection);
}

void Shard::EndPlacement(Placement& placement) {
  Settle(placement);
  router_->Release(placement.worker.connection, placement.opening.choices);
  if (placement.first_handle == 0) return;
  keys_.erase({placement.worker.connection, FramePacker::BlockOf(placement.first_handle)});
}

void Shard::DropPlacements(Entry& entry) {
  const auto is_left = [&](const Placement& placement) {
    const Session::Opening& opening = placement.opening;
    for (int32_t i = 0; i < opening.choices; ++i) {
      const Choice& choice = entry.session->choice(opening.first_choice + i);
      if (choice.has_ticket(opening.ticket)) return false;
    }
    return true;
  };
  for (Placement& placement : entry.placements) {
    if (is_left(placement)) EndPlacement(placement);
  }
  std::erase_if(entry.placements, is_left);
}

void Shard::AfterSend(uint64_t connection, WorkerLink* link, const std::vector<Opening>& openings,
                      const std::vector<uint64_t>& first_handles) {
  const bool gone = first_handles.size() != openings.size();
  for (size_t i = 0; i < openings.size(); ++i) {
    const auto& [key, opening] = openings[i];
    Entry* entry = Find(key);
    if (entry == nullptr && gone) continue;
    if (entry == nullptr) {
      for (int32_t c = 0; c < opening.choices; ++c) {
        AddCommand(connection, link).mutable_close()->set_handle(first_handles[i] + c);
      }
      continue;
    }
    SessionOutput output;
    if (gone) {
      entry->session->OnWorkerLost(connection, absl::UnavailableError("the worker was lost"), now_,
                                   &output);
    } else {
      for (Placement& placement : entry->placements) {
        if (placement.opening.ticket != opening.ticket) continue;
        placement.first_handle = first_handles[i];
        if (entry->trace != nullptr) {
          entry->trace->OnHandles(connection, first_handles[i], opening.first_choice,
                                  opening.choices, now_);
        }
        keys_[{connection, FramePacker::BlockOf(first_handles[i])}] = key;
      }
      entry->session->SetHandles(opening, connection, first_handles[i], &output);
    }
    Deliver(key, *entry, output);
  }
}

}  // namespace tandem::text
