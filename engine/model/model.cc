#include "engine/model/model.h"

#include <algorithm>
#include <string>
#include <utility>

#include "engine/base/check.h"
#include "engine/base/status.h"
#include "engine/model/rope.h"
#include "engine/model/weights.h"

namespace tandem {

struct Model::State {
  kernels::Ops& ops;
  const ModelConfig config;
  const int32_t context_length;
  const int32_t max_rows;

  std::vector<LayerGroup> groups;
  struct Place {
    int32_t group = 0;
    int32_t layer_in_group = 0;
  };
  std::vector<Place> places;  // [num_layers]

  ModelWeights weights;
  kernels::Buffer rope_cos;  // [context_length, rotary_dim / 2]
  kernels::Buffer rope_sin;

  // Activations of a step; every layer writes over them.
  kernels::Buffer residual;   // fp32 [max_rows, hidden_size]
  kernels::Buffer q;          // act [max_rows, num_heads * head_dim]
  kernels::Buffer attention;  // act [max_rows, num_heads * head_dim]
  kernels::Buffer gated;      // act [max_rows, ffn_size]

  kernels::Buffer non_finite;  // NonFinite [max_rows]; null unless checked

  absl::Status BuildRopeTables();
  absl::Status AllocateActivations();
  void Check(const kernels::CheckFiniteArgs& args) const;
};

namespace {

using kernels::CheckedOutput;

absl::StatusOr<int32_t> ChooseContextLength(const ModelConfig& config, int32_t asked) {
  if (asked == 0) return config.context_length;
  if (asked < 0 || asked > config.context_length) {
    return InvalidArgument("context_length is ", asked, ": it must be 1 to ", config.context_length,
                           ", the model's own, or 0 for that");
  }
  return asked;
}

absl::Status CheckAttentionSupport(const ModelConfig& config, const std::vector<LayerGroup>& groups,
                                   kernels::KvFormat kv_format, const kernels::Ops& ops) {
  for (const LayerGroup& group : groups) {
    RETURN_IF_ERROR(ops.SupportsAttention(config.attention, kv_format, config.attention_soft_cap,
                                          group.window));
  }
  return absl::OkStatus();
}

const kernels::Norm* NormOrNull(const std::optional<NormWeights>& norm) {
  return norm.has_value() ? &norm->norm : nullptr;
}

}  // namespace

std::vector<LayerGroup> LayerGroups(const ModelConfig& config) {
  TANDEM_CHECK(static_cast<int32_t>(config.layer_windows.size()) == config.num_layers)
      << config.layer_windows.size() << " windows for " << config.num_layers << " layers";
  std::vector<LayerGroup> groups;
  for (int32_t layer = 0; layer < config.num_layers; ++layer) {
    const int32_t window = config.layer_windows[static_cast<size_t>(layer)];
    auto group = std::find_if(groups.begin(), groups.end(), [window](const LayerGroup& candidate) {
      return candidate.window == window;
    });
    if (group == groups.end()) group = groups.insert(groups.end(), LayerGroup{.window = window});
    group->layers.push_back(layer);
  }
  return groups;
}

absl::Status Model::State::BuildRopeTables() {
  // Filled in pieces, so that a long context costs no second copy in host memory.
  constexpr int32_t kPositionsAtOnce = 4096;
  const RopeFrequencies frequencies = ComputeRopeFrequencies(config);
  const auto num_pairs = static_cast<int64_t>(frequencies.inverse.size());
  const int64_t line_bytes = num_pairs * int64_t{sizeof(float)};
  ASSIGN_OR_RETURN(rope_cos, ops.Allocate(context_length * line_bytes, "RoPE cosines"));
  ASSIGN_OR_RETURN(rope_sin, ops.Allocate(context_length * line_bytes, "RoPE sines"));
  std::vector<float> cos(static_cast<size_t>(kPositionsAtOnce * num_pairs));
  std::vector<float> sin(cos.size());
  for (int32_t first = 0; first < context_length; first += kPositionsAtOnce) {
    const int32_t count = std::min(kPositionsAtOnce, context_length - first);
    FillRopeTables(frequencies, first, count, cos.data(), sin.data());
    ops.CopyToDevice(rope_cos.as<float>() + first * num_pairs, cos.data(), count * line_bytes);
    ops.CopyToDevice(rope_sin.as<float>() + first * num_pairs, sin.data(), count * line_bytes);
  }
  return absl::OkStatus();
}

absl::Status Model::State::AllocateActivations() {
  const int64_t rows = max_rows;
  const int64_t act = ops.info().act_bytes;
  const int64_t attention_width = int64_t{config.attention.num_heads} * config.attention.head_dim;
  ASSIGN_OR_RETURN(residual, ops.Allocate(rows * config.hidden_size * int64_t{sizeof(float)},
                                          "residual stream"));
  ASSIGN_OR_RETURN(q, ops.Allocate(rows * attention_width * act, "queries"));
  ASSIGN_OR_RETURN(attention, ops.Allocate(rows * attention_width * act, "attention output"));
  ASSIGN_OR_RETURN(gated, ops.Allocate(rows * config.ffn_size * act, "gated activations"));
  return absl::OkStatus();
}

void Model::State::Check(const kernels::CheckFiniteArgs& args) const {
  if (non_finite.data() == nullptr) return;
  kernels::CheckFiniteArgs filled = args;
  if (filled.line_rows == nullptr) filled.num_lines = args.rows.num_rows;
  filled.found = non_finite.as<kernels::NonFinite>();
  ops.CheckFinite(filled);
}

absl::StatusOr<std::unique_ptr<Model>> Model::Load(const Checkpoint& checkpoint,
                                                   kernels::KvFormat kv_format,
                                                   const Options& options, kernels::Ops& ops,
                                                   const Progress& progress) {
  if (options.max_rows < 1) {
    return InvalidArgument("max_rows is ", options.max_rows, ": it must be at least 1");
  }
  const ModelConfig& config = checkpoint.config();
  ASSIGN_OR_RETURN(const int32_t context_length,
                   ChooseContextLength(config, options.context_length));
  std::unique_ptr<State> state(new State{ops, config, context_length, options.max_rows});
  state->groups = LayerGroups(config);
  RETURN_IF_ERROR(CheckAttentionSupport(config, state->groups, kv_format, ops));
  state->places.resize(static_cast<size_t>(config.num_layers));
  for (size_t group = 0; group < state->groups.size(); ++group) {
    const std::vector<int32_t>& layers = state->groups[group].layers;
    for (size_t i = 0; i < layers.size(); ++i) {
      state->places[static_cast<size_t>(layers[i])] = {static_cast<int32_t>(group),
                                                       static_cast<int32_t>(i)};
    }
  }
  // Small things first: what does not fit is known before gigabytes are read.
  RETURN_IF_ERROR(state->BuildRopeTables());
  RETURN_IF_ERROR(state->AllocateActivations());
  if (options.checked) {
    ASSIGN_OR_RETURN(state->non_finite,
                     ops.Allocate(options.max_rows * int64_t{sizeof(kernels::NonFinite)},
                                  "reports of the checked mode"));
  }
  ASSIGN_OR_RETURN(state->weights, LoadWeights(checkpoint, ops, progress));
  RETURN_IF_ERROR(ops.Finish(ops.Mark()));
  return std::unique_ptr<Model>(new Model(std::move(state)));
}

Model::Model(std::unique_ptr<State> state) : state_(std::move(state)) {}
Model::~Model() = default;

const ModelConfig& Model::config() const { return state_->config; }
const std::vector<LayerGroup>& Model::layer_groups() const { return state_->groups; }
int32_t Model::context_length() const { return state_->context_length; }
int32_t Model::max_rows() const { return state_->max_rows; }
const kernels::NonFinite* Model::non_finite() const {
  return state_->non_finite.as<kernels::NonFinite>();
}

void Model::Forward(const ForwardArgs& args) {
  const State& s = *state_;
  const ModelConfig& config = s.config;
  const kernels::StepRows& rows = args.rows;
  TANDEM_CHECK(rows.num_rows >= 1 && rows.num_rows <= s.max_rows)
      << rows.num_rows << " rows, at most " << s.max_rows;
  TANDEM_CHECK(args.pools.size() == s.groups.size())
      << args.pools.size() << " pools for " << s.groups.size() << " groups";
  const kernels::Rope rope = {.cos = s.rope_cos.as<float>(),
                              .sin = s.rope_sin.as<float>(),
                              .context_length = s.context_length,
                              .rotary_dim = config.rotary_dim,
                              .pairs = config.rope_pairs};
  const int32_t attention_width = config.attention.num_heads * config.attention.head_dim;

  // Which token stands at which position: known on the device alone for rows that continue from a
  // draw.
  s.ops.PrepareRows(rows, args.slots);

  // Token ids become the first residual stream.
  s.ops.Embed({.rows = rows,
               .table = &s.weights.embedding,
               .scale = config.embedding_scale,
               .residual = s.residual.as<float>()});
  s.Check({.rows = rows,
           .output = CheckedOutput::kEmbedding,
           .values = s.residual.data(),
           .width = config.hidden_size,
           .first = true});

  for (int32_t layer = 0; layer < config.num_layers; ++layer) {
    const LayerWeights& w = s.weights.layers[static_cast<size_t>(layer)];
    const State::Place place = s.places[static_cast<size_t>(layer)];
    const kernels::KvPool& kv = args.pools[static_cast<size_t>(place.group)];

    // Norm, q k v, RoPE; keys and values go into the cache, queries stay.
    s.ops.Qkv({.rows = rows,
               .residual = s.residual.as<float>(),
               .norm = w.attention_norm.norm,
               .qkv = &w.qkv,
               .bias = w.qkv_bias.as<float>(),
               .q_norm = NormOrNull(w.q_norm),
               .k_norm = NormOrNull(w.k_norm),
               .rope = rope,
               .shape = config.attention,
               .kv = kv,
               .layer = place.layer_in_group,
               .q = s.q.data()});
    s.Check({.rows = rows,
             .output = CheckedOutput::kQueries,
             .layer = layer,
             .values = s.q.data(),
             .is_act = true,
             .width = attention_width});
    s.Check({.rows = rows,
             .output = CheckedOutput::kCache,
             .layer = layer,
             .kv = &kv,
             .kv_layer = place.layer_in_group,
             .width = 2 * config.attention.num_kv_heads * config.attention.head_dim});

    // Each query over its own sequence's cache, up to and with its own position.
    s.ops.Attention({.rows = rows,
                     .q = s.q.data(),
                     .shape = config.attention,
                     .kv = kv,
                     .layer = place.layer_in_group,
                     .scale = config.attention_scale,
                     .soft_cap = config.attention_soft_cap,
                     .window = s.groups[static_cast<size_t>(place.group)].window,
                     .out = s.attention.data()});
    s.Check({.rows = rows,
             .output = CheckedOutput::kAttention,
             .layer = layer,
             .values = s.attention.data(),
             .is_act = true,
             .width = attention_width});

    // Output projection, added to the residual stream.
    s.ops.Project({.rows = rows,
                   .x = s.attention.data(),
                   .weight = &w.o,
                   .bias = w.o_bias.as<float>(),
                   .post_norm = NormOrNull(w.post_attention_norm),
                   .residual = s.residual.as<float>()});
    s.Check({.rows = rows,
             .output = CheckedOutput::kAttentionProjection,
             .layer = layer,
             .values = s.residual.data(),
             .width = config.hidden_size});

    // Norm, gate and up, the gated product.
    s.ops.GateUp({.rows = rows,
                  .residual = s.residual.as<float>(),
                  .norm = w.ffn_norm.norm,
                  .gate_up = &w.gate_up,
                  .bias = nullptr,
                  .kind = config.gate,
                  .out = s.gated.data()});
    s.Check({.rows = rows,
             .output = CheckedOutput::kGate,
             .layer = layer,
             .values = s.gated.data(),
             .is_act = true,
             .width = config.ffn_size});

    // Down projection, added to the residual stream.
    s.ops.Project({.rows = rows,
                   .x = s.gated.data(),
                   .weight = &w.down,
                   .bias = nullptr,
                   .post_norm = NormOrNull(w.post_ffn_norm),
                   .residual = s.residual.as<float>()});
    s.Check({.rows = rows,
             .output = CheckedOutput::kDownProjection,
             .layer = layer,
             .values = s.residual.data(),
             .width = config.hidden_size});
  }

  // Final norm and logits, only for the rows that somebody waits for.
  if (args.num_logits_rows == 0) return;
  s.ops.Head({.rows = rows,
              .residual = s.residual.as<float>(),
              .num_logits_rows = args.num_logits_rows,
              .logits_rows = args.logits_rows,
              .norm = s.weights.output_norm.norm,
              .output = &s.weights.OutputMatrix(),
              .bias = nullptr,
              .logit_scale = config.logit_scale,
              .soft_cap = config.final_soft_cap,
              .logits = args.logits});
  s.Check({.rows = rows,
           .output = CheckedOutput::kLogits,
           .values = args.logits,
           .width = config.vocab_size,
           .num_lines = args.num_logits_rows,
           .line_rows = args.logits_rows});
}

}  // namespace tandem
