// The known-answer test before a worker says SERVING.
//
// The bits contract is the known answer: a prompt prefilled in one step and then decoded by one
// token must give, bit for bit, the logits of the same tokens prefilled in small chunks, and a row
// computed again must give what its step gave. That walks every operation of the backend with one
// and with several rows, warms up memory and threads, and finds a broken kernel, a damaged page
// table or a device that computes wrongly.
#pragma once

#include "absl/status/status.h"
#include "engine/decode_engine.h"
#include "engine/model/model.h"
#include "kernels/ops.h"

namespace tandem {

// Runs two small engines of its own on model and ops, one after the other, with the KV format of
// `format`. INTERNAL: logits that differ or are not finite, with the id and both values; else what
// the engine reports.
absl::Status SelfTest(kernels::KvFormat format, Model& model, kernels::Ops& ops);

}  // namespace tandem
