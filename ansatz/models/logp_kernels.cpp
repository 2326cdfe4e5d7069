// Log-probs and entropies from the logits of a large vocabulary on a CPU, and the gradient of the logits, each in one
// pass over memory. With z the logits, t = logsumexp(z) and p = exp(z - t):
//
//     logp = z_y - t        entropy = t - sum p z
//     d logp / dz = onehot_y - p        d entropy / dz = -p (z - t + entropy)
//
// A logit of -inf counts as one 87 below the largest, whose share no sum sees.

#include "cpu_numbers.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace {

constexpr float LEAST = -87.0f;
constexpr int64_t BLOCK = 2048;  // logits that are added up in float32

template <class T>
void measure(const T* logits, const int64_t* target, float* logp, float* entropy, float* log_total, int64_t rows,
             int64_t vocab, int threads) {
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t row = 0; row < rows; ++row) {
        const T* z = logits + row * vocab;
        float highest = -std::numeric_limits<float>::infinity();
#pragma omp simd reduction(max : highest)
        for (int64_t i = 0; i < vocab; ++i) highest = std::max(highest, wide(z[i]));
        double total = 0.0, weighted = 0.0;
        for (int64_t first = 0; first < vocab; first += BLOCK) {
            float mass = 0.0f, moment = 0.0f;
            const int64_t end = std::min(first + BLOCK, vocab);
#pragma omp simd reduction(+ : mass, moment)
            for (int64_t i = first; i < end; ++i) {
                const float below = wide(z[i]) - highest, share = exponential<uint32_t>(below);
                mass += share;
                moment += share * (below < LEAST ? LEAST : below);
            }
            total += mass;
            weighted += moment;
        }
        log_total[row] = highest + float(std::log(total));
        logp[row] = wide(z[target[row]]) - log_total[row];
        entropy[row] = float(std::log(total) - weighted / total);
    }
}

template <class T>
void differentiate(const T* logits, const int64_t* target, const float* entropy, const float* log_total,
                   const float* grad_logp, const float* grad_entropy, T* out, int64_t rows, int64_t vocab, int threads) {
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t row = 0; row < rows; ++row) {
        const T* z = logits + row * vocab;
        T* grad = out + row * vocab;
        const float total = log_total[row], of_logp = grad_logp[row], of_entropy = grad_entropy[row];
        const float mean = entropy[row];
#pragma omp simd
        for (int64_t i = 0; i < vocab; ++i) {
            const float surprise = wide(z[i]) - total, share = exponential<uint32_t>(surprise);
            const float beyond = (surprise < LEAST ? LEAST : surprise) + mean;
            grad[i] = narrow<T>(-share * (of_logp + of_entropy * beyond));
        }
        const float surprise = std::max(wide(z[target[row]]) - total, LEAST), share = exponential<uint32_t>(surprise);
        grad[target[row]] = narrow<T>(of_logp - share * (of_logp + of_entropy * (surprise + mean)));
    }
}

}  // namespace

#define FUNCTIONS(NAME, T)                                                                                             \
    extern "C" void measure_##NAME(const T* logits, const int64_t* target, float* logp, float* entropy,                \
                                   float* log_total, int64_t rows, int64_t vocab, int threads) {                       \
        measure<T>(logits, target, logp, entropy, log_total, rows, vocab, threads);                                    \
    }                                                                                                                  \
    extern "C" void differentiate_##NAME(const T* logits, const int64_t* target, const float* entropy,                 \
                                         const float* log_total, const float* grad_logp, const float* grad_entropy,    \
                                         T* out, int64_t rows, int64_t vocab, int threads) {                           \
        differentiate<T>(logits, target, entropy, log_total, grad_logp, grad_entropy, out, rows, vocab, threads);      \
    }

FUNCTIONS(float32, float)
FUNCTIONS(bfloat16, bfloat16)
