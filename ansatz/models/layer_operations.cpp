// Kernels of a decoder layer in training on a CPU: the operations between its matrix products, forward and backward.
//
// Each does in one pass over memory what torch does in several operations, with the same bits: results are rounded to
// the model's type after the same operations, sums add up in torch's order, and a product is contracted with a sum
// where torch's own kernel does so. Whoever calls them compares the bits first (`layer_operations.py`).
//
// The compiler must not contract further products: -ffp-contract=off.

#include "cpu_numbers.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace {

constexpr int LANES = 8, ROWS = 4, LEVELS = 4;  // of torch's sums: of one register, side by side, and in the cascade
typedef float Floats __attribute__((vector_size(4 * LANES)));

inline Floats load(const float* source) {
    Floats values;
    std::memcpy(&values, source, sizeof values);
    return values;
}

// The sum of a row in torch's order (aten/src/ATen/native/cpu/SumKernel.cpp).
float total_of(const float* row, int64_t size) {
    const int64_t vectors = size / LANES, rounds = vectors / ROWS;
    int power = 0;
    while ((int64_t(1) << power) < rounds) ++power;
    power = std::max(4, power / LEVELS);
    const int64_t step = int64_t(1) << power;
    Floats sums[LEVELS][ROWS] = {};
    const auto add = [&](int64_t round) {
        for (int k = 0; k < ROWS; ++k) sums[0][k] += load(row + (round * ROWS + k) * LANES);
    };
    int64_t round = 0;
    while (round + step <= rounds) {
        for (const int64_t end = round + step; round < end; ++round) add(round);
        for (int level = 1; level < LEVELS; ++level) {
            for (int k = 0; k < ROWS; ++k) {
                sums[level][k] += sums[level - 1][k];
                sums[level - 1][k] = Floats{};
            }
            if (round & ((step - 1) << (level * power))) break;
        }
    }
    for (; round < rounds; ++round) add(round);
    for (int level = 1; level < LEVELS; ++level)
        for (int k = 0; k < ROWS; ++k) sums[0][k] += sums[level][k];
    Floats lanes = sums[0][0];
    for (int64_t vector = rounds * ROWS; vector < vectors; ++vector) lanes += load(row + vector * LANES);
    for (int k = 1; k < ROWS; ++k) lanes += sums[0][k];
    float total = 0.0f;
    for (int64_t i = vectors * LANES; i < size; ++i) total += row[i];
    for (int i = 0; i < LANES; ++i) total += lanes[i];
    return total;
}

// out = weight normal, with normal = x inverse and inverse = 1 / rms(x).
template <class T>
void normalise(const T* x, const T* weight, T* normal, T* out, float* inverse, float epsilon, int64_t rows, int64_t size,
               int threads) {
#pragma omp parallel num_threads(threads)
    {
        std::vector<float> square(size);
#pragma omp for schedule(static)
        for (int64_t row = 0; row < rows; ++row) {
            const int64_t from = row * size;
#pragma omp simd
            for (int64_t i = 0; i < size; ++i) square[i] = wide(x[from + i]) * wide(x[from + i]);
            const float factor = 1.0f / std::sqrt(total_of(square.data(), size) / float(size) + epsilon);
            inverse[row] = factor;
#pragma omp simd
            for (int64_t i = 0; i < size; ++i) {
                normal[from + i] = narrow<T>(wide(x[from + i]) * factor);
                out[from + i] = narrow<T>(wide(weight[i]) * wide(normal[from + i]));
            }
        }
    }
}

// grad_x = (weight grad - normal mean(weight grad normal)) inverse. product = grad normal, whose sum over the rows is the
// gradient of the weight.
template <class T>
void normalise_backward(const T* grad, const T* weight, const T* normal, const float* inverse, T* grad_x, T* product,
                        int64_t rows, int64_t size, int threads) {
#pragma omp parallel num_threads(threads)
    {
        std::vector<float> weighted(size), along(size);
#pragma omp for schedule(static)
        for (int64_t row = 0; row < rows; ++row) {
            const int64_t from = row * size;
#pragma omp simd
            for (int64_t i = 0; i < size; ++i) {
                product[from + i] = narrow<T>(wide(grad[from + i]) * wide(normal[from + i]));
                weighted[i] = rounded<T>(wide(grad[from + i]) * wide(weight[i]));
                along[i] = weighted[i] * wide(normal[from + i]);
            }
            const float mean = total_of(along.data(), size) / float(size);
#pragma omp simd
            for (int64_t i = 0; i < size; ++i)
                grad_x[from + i] = narrow<T>(std::fma(-wide(normal[from + i]), mean, weighted[i]) * inverse[row]);
        }
    }
}

// The two halves of each vector are rotated by the angle of its token. back: by the opposite angle, for gradients. Torch
// adds zeros to those, so that none is -0.
template <class T>
void rotate(const T* x, const T* cosine, const T* sine, T* out, int64_t back, int64_t tokens, int64_t heads, int64_t size,
            int threads) {
    const int64_t half = size / 2;
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t token = 0; token < tokens; ++token) {
        const T *cosines = cosine + token * size, *sines = sine + token * size;
        for (int64_t from = token * heads * size; from < (token + 1) * heads * size; from += size) {
            const T *low = x + from, *high = low + half;
            if (back) {
#pragma omp simd
                for (int64_t i = 0; i < half; ++i) {
                    const float first = rounded<T>(wide(low[i]) * wide(cosines[i]));
                    const float second = rounded<T>(wide(high[i]) * wide(cosines[half + i]));
                    out[from + i] = narrow<T>(first + rounded<T>(wide(high[i]) * wide(sines[half + i])) + 0.0f);
                    out[from + half + i] = narrow<T>(second - rounded<T>(wide(low[i]) * wide(sines[i])) + 0.0f);
                }
            } else {
#pragma omp simd
                for (int64_t i = 0; i < half; ++i) {
                    const float first = rounded<T>(wide(low[i]) * wide(cosines[i]));
                    const float second = rounded<T>(wide(high[i]) * wide(cosines[half + i]));
                    out[from + i] = narrow<T>(first + rounded<T>(-wide(high[i]) * wide(sines[i])));
                    out[from + half + i] = narrow<T>(second + rounded<T>(wide(low[i]) * wide(sines[half + i])));
                }
            }
        }
    }
}

// exp(x), with the bits of Sleef's expf of 1.0 ULP, which torch uses (sleefsimdsp.c, xexpf).
inline float exponential(float x) {
    const float power = std::nearbyint(x * 1.442695040888963407f);
    float rest = std::fma(power, -0.693145751953125f, x);
    rest = std::fma(power, -1.428606765330187045e-06f, rest);
    float sum = 0.000198527617612853646278381f;
    sum = std::fma(sum, rest, 0.00139304355252534151077271f);
    sum = std::fma(sum, rest, 0.00833336077630519866943359f);
    sum = std::fma(sum, rest, 0.0416664853692054748535156f);
    sum = std::fma(sum, rest, 0.166666671633720397949219f);
    sum = std::fma(sum, rest, 0.5f);
    sum = 1.0f + std::fma(rest * rest, sum, rest);
    const int32_t whole = int32_t(power), half = whole >> 1;
    sum = sum * bits_to_float(uint32_t(half + 127) << 23) * bits_to_float(uint32_t(whole - half + 127) << 23);
    sum = x < -104.0f ? 0.0f : sum;
    return x > 100.0f ? INFINITY : sum;
}

// out = silu(gate) up.
template <class T> void gate(const T* gate, const T* up, T* out, int64_t size, int threads) {
#pragma omp parallel for simd num_threads(threads) schedule(static)
    for (int64_t i = 0; i < size; ++i) {
        const float x = wide(gate[i]);
        out[i] = narrow<T>(rounded<T>(x / (1.0f + exponential(-x))) * wide(up[i]));
    }
}

template <class T>
void gate_backward(const T* grad, const T* gate, const T* up, T* grad_gate, T* grad_up, int64_t size, int threads) {
#pragma omp parallel for simd num_threads(threads) schedule(static)
    for (int64_t i = 0; i < size; ++i) {
        const float x = wide(gate[i]), above = 1.0f + exponential(-x), open = 1.0f / above;
        grad_up[i] = narrow<T>(wide(grad[i]) * rounded<T>(x / above));
        grad_gate[i] = narrow<T>(rounded<T>(wide(grad[i]) * wide(up[i])) * open * std::fma(x, 1.0f - open, 1.0f));
    }
}

}  // namespace

#define FUNCTIONS(NAME, T)                                                                                             \
    extern "C" void normalise_##NAME(const T* x, const T* weight, T* normal, T* out, float* inverse, double epsilon,   \
                                     int64_t rows, int64_t size, int threads) {                                        \
        normalise<T>(x, weight, normal, out, inverse, float(epsilon), rows, size, threads);                            \
    }                                                                                                                  \
    extern "C" void normalise_backward_##NAME(const T* grad, const T* weight, const T* normal, const float* inverse,   \
                                              T* grad_x, T* product, int64_t rows, int64_t size, int threads) {        \
        normalise_backward<T>(grad, weight, normal, inverse, grad_x, product, rows, size, threads);                    \
    }                                                                                                                  \
    extern "C" void rotate_##NAME(const T* x, const T* cosine, const T* sine, T* out, int64_t back, int64_t tokens,    \
                                  int64_t heads, int64_t size, int threads) {                                          \
        rotate<T>(x, cosine, sine, out, back, tokens, heads, size, threads);                                           \
    }                                                                                                                  \
    extern "C" void gate_##NAME(const T* gated, const T* up, T* out, int64_t size, int threads) {                      \
        gate<T>(gated, up, out, size, threads);                                                                        \
    }                                                                                                                  \
    extern "C" void gate_backward_##NAME(const T* grad, const T* gated, const T* up, T* grad_gate, T* grad_up,         \
                                         int64_t size, int threads) {                                                  \
        gate_backward<T>(grad, gated, up, grad_gate, grad_up, size, threads);                                          \
    }

FUNCTIONS(float32, float)
FUNCTIONS(bfloat16, bfloat16)
