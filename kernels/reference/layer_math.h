// The arithmetic of the layers on one row at a time, in fp64 inside, fp32 at its borders.
#pragma once

#include <cstdint>
#include <span>

#include "kernels/ops.h"
#include "kernels/reference/reference_ops.h"

namespace tandem::kernels {

// A value as an activation holds it: fp32, or rounded to bf16.
float RoundToAct(ActDType act, float value);

// x / sqrt(mean(x^2) + epsilon) * (offset + weight) of x [norm.width] into out, which may be x. The
// normed value and the product are rounded to fp32 and then, where rounding is kBF16, as norm.order
// says; kF32 is also the form of q/k norms and post norms, whose results stay fp32.
void ApplyNorm(const Norm& norm, ActDType rounding, const float* x, float* out);

// Turns one head's vector [head_dim] by the table's angles at position.
void ApplyRope(const Rope& rope, int32_t position, float* head);

// kind(gate) * up.
float Gated(GateKind kind, float gate, float up);

// cap * tanh(x / cap), x where cap is 0.
double SoftCap(double x, float cap);

// Sum of a[i] * b[i] over i < count.
double Dot(const float* a, const float* b, int32_t count);

// x W^T + bias for one row: x [weight.cols], out [weight.rows], each sum rounded to fp32 before the
// bias is added in fp32. weight is as PrepareWeight makes it. bias may be null.
void Product(const Weight& weight, const float* bias, const float* x, float* out);

}  // namespace tandem::kernels
