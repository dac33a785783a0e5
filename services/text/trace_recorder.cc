#include "services/text/trace_recorder.h"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <utility>

#include <unistd.h>

#include "engine/base/status.h"
#include "services/common/decode_codec.h"
#include "services/common/logging.h"
#include "services/trace/trace_file.h"

namespace tandem::text {
namespace {

namespace pb = trace::v1;

constexpr char kContents[] =
    "Prompt and output of one request, as token ids and as texts, with what decided each token. As "
    "private as they are.";
constexpr size_t kMaxNameBytes = 64;

int64_t UnixMillis() {
  return std::chrono::duration_cast<std::chrono::milliseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

// What a file name may have of a request id, which is the client's to choose.
std::string NameOf(const std::string& request_id) {
  std::string out = request_id.substr(0, kMaxNameBytes);
  for (char& c : out) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
    if (!plain && c != '-' && c != '_') c = '_';
  }
  return out;
}

pb::Header HeaderOf(const GenerationRequest& request) {
  pb::Header out;
  const ServedModel& model = *request.model;
  out.set_version(kTraceVersion);
  out.set_contents(kContents);
  out.set_request_id(request.request_id);
  out.set_unix_millis(UnixMillis());
  out.set_model(model.name);
  out.set_weights_fingerprint(model.weights_fingerprint);
  out.set_tokenizer_fingerprint(model.tokenizer_fingerprint);
  out.set_numerics_fingerprint(model.numerics_fingerprint);
  out.set_vocab_size(model.vocab_size);
  out.mutable_defined()->Add(model.defined_bits.begin(), model.defined_bits.end());
  ToProto(request.sampling, out.mutable_draw());
  TokensToProto(request.prompt, out.mutable_prompt());
  TokensToProto(request.resume, out.mutable_resume());
  out.set_choices(request.choices);
  out.set_first_choice(request.first_choice);
  if (request.max_tokens.has_value()) out.set_max_tokens(*request.max_tokens);
  for (const std::string& stop : request.stop_strings) out.add_stop_strings(stop);
  out.mutable_stop_token_ids()->Add(request.stop_token_ids.begin(), request.stop_token_ids.end());
  out.set_ignore_eos(request.ignore_eos);
  out.set_include_stop(request.include_stop);
  out.set_run_ahead(request.run_ahead);
  out.set_drafts(request.drafts);
  return out;
}

// The ids that a record names, but for whole rows.
template <typename Add>
void ForEachId(const pb::Record& record, const Add& add) {
  const auto all = [&](const auto& ids) {
    for (const uint32_t id : ids) add(id);
  };
  const auto lists = [&](const decode::v1::Lists& from) {
    all(from.top_ids());
    all(from.perturbed_ids());
  };
  all(record.header().prompt());
  all(record.header().resume());
  all(record.command().extend().tokens());
  lists(record.event().candidates().lists());
  lists(record.event().fetched().more());
  if (record.ended().has_last_token()) add(record.ended().last_token());
}

}  // namespace

struct RequestTrace::File {
  std::string path;
  std::shared_ptr<const ServedModel> model;
  std::vector<bool> has_text;       // by id
  std::unique_ptr<TraceFile> file;  // null: closed, or could not be made
};

RequestTrace::RequestTrace(TraceRecorder* recorder, std::shared_ptr<File> file, Nanos begin)
    : recorder_(recorder), file_(std::move(file)), begin_(begin) {}

RequestTrace::~RequestTrace() {
  if (!ended_) recorder_->Push({.file = file_, .closes = true});
}

pb::Record RequestTrace::MakeRecord(uint64_t connection, Nanos now) const {
  pb::Record record;
  record.set_nanos(now - begin_);
  record.set_connection(connection);
  return record;
}

void RequestTrace::Push(pb::Record record) {
  if (ended_) return;
  const int64_t bytes = static_cast<int64_t>(record.ByteSizeLong());
  if (recorder_->Push({.file = file_, .record = std::move(record), .bytes = bytes})) return;
  ended_ = true;
  pb::Record end;
  end.mutable_end()->set_reason(pb::End::REASON_OVERFLOW);
  recorder_->Push({.file = file_, .record = std::move(end), .closes = true});
}

void RequestTrace::OnCommand(uint64_t connection, const decode::v1::Command& command, Nanos now) {
  if (ended_) return;
  pb::Record record = MakeRecord(connection, now);
  *record.mutable_command() = command;
  Push(std::move(record));
}

void RequestTrace::OnEvent(uint64_t connection, const decode::v1::Event& event, Nanos now) {
  if (ended_) return;
  pb::Record record = MakeRecord(connection, now);
  *record.mutable_event() = event;
  Push(std::move(record));
}

void RequestTrace::OnHandles(uint64_t connection, uint64_t first_handle, int32_t first_choice,
                             int32_t choices, Nanos now) {
  pb::Record record = MakeRecord(connection, now);
  record.mutable_handles()->set_first_handle(first_handle);
  record.mutable_handles()->set_first_choice(first_choice);
  record.mutable_handles()->set_choices(choices);
  Push(std::move(record));
}

void RequestTrace::OnLost(uint64_t connection, const absl::Status& why, Nanos now) {
  pb::Record record = MakeRecord(connection, now);
  record.mutable_lost()->set_why(std::string(why.message()));
  Push(std::move(record));
}

void RequestTrace::OnFinished(const v1::Finished& finished, std::span<const int32_t> tokens,
                              Nanos now) {
  pb::Record record = MakeRecord(/*connection=*/0, now);
  *record.mutable_ended()->mutable_finished() = finished;
  record.mutable_ended()->set_total_tokens(static_cast<int32_t>(tokens.size()));
  if (finished.usage().output_tokens() > 0) {
    record.mutable_ended()->set_last_token(static_cast<uint32_t>(tokens.back()));
  }
  Push(std::move(record));
}

void RequestTrace::End(const absl::Status& status) {
  if (ended_) return;
  ended_ = true;
  pb::Record record;
  record.mutable_end()->set_reason(pb::End::REASON_DONE);
  if (!status.ok()) record.mutable_end()->set_detail(std::string(status.message()));
  recorder_->Push({.file = file_, .record = std::move(record), .closes = true});
}

absl::StatusOr<std::unique_ptr<TraceRecorder>> TraceRecorder::Start(const TraceOptions& options) {
  if (!std::filesystem::is_directory(options.folder) ||
      access(options.folder.c_str(), W_OK | X_OK) != 0) {
    return InvalidArgument("--trace-dir ", options.folder,
                           ": it must be a folder that can be written to");
  }
  if (options.requests < 1 || options.requests > kMaxTraceRequests) {
    return InvalidArgument("--trace-requests is ", options.requests, ": it must be 1 to ",
                           kMaxTraceRequests);
  }
  if (options.bytes < kMinTraceFile || options.bytes > kMaxTraceFile) {
    return InvalidArgument("--trace-bytes is ", options.bytes, ": it must be ", kMinTraceFile,
                           " to ", kMaxTraceFile);
  }
  return std::unique_ptr<TraceRecorder>(new TraceRecorder(options));
}

TraceRecorder::TraceRecorder(const TraceOptions& options) : options_(options) {
  thread_ = std::thread([this] { Run(); });
}

TraceRecorder::~TraceRecorder() {
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_one();
  thread_.join();
}

std::unique_ptr<RequestTrace> TraceRecorder::Begin(const GenerationRequest& request, Nanos now) {
  auto file = std::make_shared<RequestTrace::File>();
  {
    std::lock_guard lock(mutex_);
    if (active_ >= options_.requests) return nullptr;
    ++active_;
    ++last_number_;
    file->path = absl::StrCat(options_.folder, "/trace-", UnixMillis(), "-", last_number_, "-",
                              NameOf(request.request_id), ".trace");
  }
  file->model = request.model;
  std::unique_ptr<RequestTrace> out(new RequestTrace(this, std::move(file), now));
  pb::Record record;
  *record.mutable_header() = HeaderOf(request);
  out->Push(std::move(record));
  return out;
}

bool TraceRecorder::Push(Item item) {
  {
    std::lock_guard lock(mutex_);
    if (!item.closes && queued_bytes_ + item.bytes > options_.queue_bytes) return false;
    queued_bytes_ += item.bytes;
    queue_.push_back(std::move(item));
  }
  changed_.notify_one();
  return true;
}

void TraceRecorder::Run() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return stop_ || !queue_.empty(); });
    if (queue_.empty()) return;
    const std::vector<Item> items = std::move(queue_);
    queue_.clear();
    lock.unlock();
    int64_t bytes = 0;
    int32_t closed = 0;
    for (const Item& item : items) {
      Write(item);
      bytes += item.bytes;
      closed += item.closes;
    }
    lock.lock();
    queued_bytes_ -= bytes;
    active_ -= closed;
  }
}

// Of the files that exist the oldest that is closed goes; so many are never open at once that there
// is none.
void TraceRecorder::MakeRoom() {
  while (static_cast<int32_t>(files_.size()) >= options_.requests) {
    const auto closed = std::find_if(files_.begin(), files_.end(),
                                     [](const auto& each) { return each->file == nullptr; });
    if (closed == files_.end()) return;
    std::error_code ignored;  // somebody may have moved it
    std::filesystem::remove((*closed)->path, ignored);
    files_.erase(closed);
  }
}

void TraceRecorder::OnDisk(const absl::Status& status) {
  if (!status.ok() && !disk_failed_) {
    LogWarning("traces are lost: ", std::string(status.message()));
  }
  disk_failed_ = !status.ok();
}

void TraceRecorder::Create(const std::shared_ptr<RequestTrace::File>& file) {
  MakeRoom();
  absl::StatusOr<std::unique_ptr<TraceFile>> created =
      TraceFile::Create(file->path, options_.bytes);
  if (!created.ok()) return OnDisk(created.status());
  file->file = *std::move(created);
  file->has_text.resize(static_cast<size_t>(file->model->vocab_size));
  files_.push_back(file);
}

void TraceRecorder::Append(RequestTrace::File& file, const pb::Record& record) {
  if (file.file->ended()) return;
  const absl::Status status = file.file->Append(record);
  // A file that is full says so itself.
  if (!absl::IsResourceExhausted(status)) OnDisk(status);
}

void TraceRecorder::Write(const Item& item) {
  RequestTrace::File& file = *item.file;
  const pb::Record& record = item.record;
  if (record.has_header()) Create(item.file);
  if (file.file != nullptr && record.has_end()) {
    file.file->End(record.end().reason(), record.end().detail());
  } else if (file.file != nullptr && record.record_case() != pb::Record::RECORD_NOT_SET) {
    // The header is the first record of all; else texts come before what names their ids.
    if (record.has_header()) Append(file, record);
    pb::Record texts;
    const Tokenizer& tokenizer = file.model->tokenizer();
    ForEachId(record, [&](uint32_t id) {
      if (id >= file.has_text.size() || file.has_text[id]) return;
      file.has_text[id] = true;
      if (static_cast<int32_t>(id) >= tokenizer.vocab_size()) return;
      texts.mutable_texts()->add_ids(id);
      texts.mutable_texts()->add_texts(tokenizer.TokenBytes(static_cast<int32_t>(id),
                                                            /*first=*/false,
                                                            /*include_special=*/true));
    });
    texts.set_nanos(record.nanos());
    if (texts.has_texts()) Append(file, texts);
    if (!record.has_header()) Append(file, record);
  }
  if (!item.closes) return;
  file.file = nullptr;
  file.model = nullptr;
}

}  // namespace tandem::text
