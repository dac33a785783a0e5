// A simulator of DecodeEngine: many requests on one engine, in virtual time, from one seed.
//
// The engine under test is the real one, with its scheduler, page pool and prefix cache, and the
// real Model::Forward drives it; only the backend is fake (FakeOps: hashes for activations). Around
// it stand text replicas (Replica) with one stream each. Commands and events take random times in
// both directions, in order within a stream; steps are launched and collected at random moments;
// streams are lost, the worker drains. Everything follows from the seed: the same seed gives the
// same trace on every machine.
//
// What is checked, after every call of the engine:
//   FakeOps   pages that are written have one owner, pages of steps in flight have owners, nothing
//             is read that was not written, the contract of kernels/ops.h
//   Monitor   every event against engine/decode_engine.h: order, epochs, positions, the hash of
//             the row and of the tokens that it counted, one Closed for each handle; progress,
//             fairness, preemption, drain, bounds
//   Replica   a request that was opened again, however often, ends with the tokens that it has when
//             it runs alone (Script, ListModel)
//   engine    CheckInvariants, and CheckQuiescent at the end
//
// To replay a seed, with a trace of commands and events:
//   tandem-simulation --seed 17 --trace
// Tests print such a line for what they find, made as short as possible (shrink.h).
#pragma once

#include <cstdint>
#include <ostream>
#include <string>

#include "engine/base/planted_bugs.h"
#include "tests/simulation/counters.h"
#include "tests/simulation/features.h"

namespace tandem::test {

struct Scenario {
  uint64_t seed = 1;
  int32_t num_requests = 50;
  Features features = Features::All();
  Bug bug = Bug::kNone;
};

// The command line that replays it.
std::string CommandLine(const Scenario& scenario);
// By the names of engine/base/planted_bugs.h, without the k. kEnd: no such name.
std::string BugName(Bug bug);
Bug BugByName(const std::string& name);

struct Outcome {
  std::string violation;  // empty: none
  Counters counters;
};

// trace: null, or gets a line for each command and event.
Outcome Simulate(const Scenario& scenario, std::ostream* trace);

}  // namespace tandem::test
