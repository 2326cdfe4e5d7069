// Kernels of a decode step on a CPU: what happens between its matrix products, and the choice of the tokens.
//
// They compute what those of kernels.py and gumbel_kernels.py do. Sums are float32, and results are rounded to the
// model's type where training rounds them on a CPU, so that both give nearly the same log-probs. A row, or a row and a
// key/value head, is computed by one thread in an order that only sizes of the model determine, so it has the same bits
// in every batch. The products are those of packed_products.h, or torch's own where no weights are packed.
//
// Sizes: rows, heads = key/value heads, group = query heads per key/value head, head = head size, span = cached
// positions of a slot, columns = cached positions of a shared prompt. A row is one token: the next one of its slot, or
// in a prefill one of several tokens of its slot, which sees those before it.

#include "packed_products.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

namespace {

typedef int32_t Places __attribute__((vector_size(4 * LANES)));
typedef uint16_t Halves __attribute__((vector_size(2 * LANES)));

inline Floats load(const float* source) { return read<Floats>(source); }

inline Floats load(const bfloat16* source) {
    return (Floats)(__builtin_convertvector(read<Halves>(source), Words) << 16);
}

inline void store(float* target, Floats values) { std::memcpy(target, &values, sizeof values); }

inline Words to_halves(Floats values) {  // as `narrow`
    Words bits = (Words)values, half = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16;
    return (bits & 0x7FFFFFFF) > 0x7F800000 ? half * 0 + 0x7FC0 : half;
}

inline void store(bfloat16* target, Floats values) {
    Halves halves = __builtin_convertvector(to_halves(values), Halves);
    std::memcpy(target, &halves, sizeof halves);
}

template <class T> inline Floats all_rounded(Floats values) {
    return sizeof(T) == sizeof(float) ? values : (Floats)(to_halves(values) << 16);
}

template <class T> inline float inverse_rms(const T* value, int64_t size, float epsilon) {
    float total = 0.0f;
#pragma omp simd reduction(+ : total)
    for (int64_t i = 0; i < size; ++i) total += wide(value[i]) * wide(value[i]);
    return 1.0f / std::sqrt(total / float(size) + epsilon);
}

template <class T> inline T normalised(T value, float inverse, T weight) {
    return narrow<T>(rounded<T>(wide(value) * inverse) * wide(weight));
}

template <class T>
void add_and_normalise(T* hidden, const T* delta, const T* weight, T* out, float epsilon, int64_t rows, int64_t size,
                       int threads) {
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t row = 0; row < rows; ++row) {
        T* value = hidden + row * size;
        if (delta) {
#pragma omp simd
            for (int64_t i = 0; i < size; ++i) value[i] = narrow<T>(wide(value[i]) + wide(delta[row * size + i]));
        }
        float inverse = inverse_rms(value, size, epsilon);
#pragma omp simd
        for (int64_t i = 0; i < size; ++i) out[row * size + i] = normalised(value[i], inverse, weight[i]);
    }
}

template <class T> inline void gate_lanes(T* gates, const T* ups) {
    Floats x = load(gates);
    store(gates, x / (exponential<Words>(-x) + 1.0f));
    store(gates, load(gates) * load(ups));
}

template <class T> void gate(T* gates, const T* ups, int64_t rows, int64_t size, int threads) {
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t row = 0; row < rows; ++row) {
        T *value = gates + row * size, last[2][LANES] = {};
        const T* up = ups + row * size;
        int64_t i = 0;
        for (; i + LANES <= size; i += LANES) gate_lanes(value + i, up + i);
        std::copy(value + i, value + size, last[0]);
        std::copy(up + i, up + size, last[1]);
        gate_lanes(last[0], last[1]);
        std::copy(last[0], last[0] + (size - i), value + i);
    }
}

// Norm, if there is one, and rotation of the two halves of a vector. The first half of the sine is negated.
template <class T>
inline void rotate(const T* source, T* target, const T* cosine, const T* sine, const T* norm, float epsilon,
                   int64_t head) {
    int64_t half = head / 2;
    float inverse = norm ? inverse_rms(source, head, epsilon) : 0.0f;
#pragma omp simd
    for (int64_t i = 0; i < half; ++i) {
        T first = norm ? normalised(source[i], inverse, norm[i]) : source[i];
        T second = norm ? normalised(source[half + i], inverse, norm[half + i]) : source[half + i];
        float low = wide(first), high = wide(second);
        target[i] = narrow<T>(rounded<T>(low * wide(cosine[i])) + rounded<T>(high * wide(sine[i])));
        target[half + i] =
            narrow<T>(rounded<T>(high * wide(cosine[half + i])) + rounded<T>(low * wide(sine[half + i])));
    }
}

template <class T>
void rotate_and_write(T* query, const T* key, const T* value, const T* cosine, const T* sine, const T* query_norm,
                      const T* key_norm, float epsilon, const int64_t* absolute, const int64_t* slot,
                      const int64_t* place, T* cached_key, T* cached_value, int64_t rows, int64_t heads, int64_t group,
                      int64_t head, int64_t span, int threads) {
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t row = 0; row < rows; ++row) {
        const T *cosines = cosine + absolute[row] * head, *sines = sine + absolute[row] * head;
        for (int64_t i = row * heads * group; i < (row + 1) * heads * group; ++i)
            rotate(query + i * head, query + i * head, cosines, sines, query_norm, epsilon, head);
        for (int64_t i = row * heads; i < (row + 1) * heads; ++i) {
            int64_t cell = ((slot[row] * heads + i - row * heads) * span + place[row]) * head;
            rotate(key + i * head, cached_key + cell, cosines, sines, key_norm, epsilon, head);
            std::memcpy(cached_value + cell, value + i * head, head * sizeof(T));
        }
    }
}

#if defined(__clang__)
#define CHOOSE(a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#else
#define CHOOSE(a, b, ...) __builtin_shuffle(a, b, Places{__VA_ARGS__})
#endif

// The sums of as many vectors as there are lanes, in their order. It overwrites the vectors.
#ifdef __AVX512F__
inline Floats sums_of(Floats* part) {
#pragma GCC unroll 8
    for (int i = 0; i < 8; ++i)
        part[i] = CHOOSE(part[i], part[i + 8], 0, 1, 2, 3, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23) +
                  CHOOSE(part[i], part[i + 8], 8, 9, 10, 11, 12, 13, 14, 15, 24, 25, 26, 27, 28, 29, 30, 31);
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i)
        part[i] = CHOOSE(part[i], part[i + 4], 0, 1, 2, 3, 16, 17, 18, 19, 8, 9, 10, 11, 24, 25, 26, 27) +
                  CHOOSE(part[i], part[i + 4], 4, 5, 6, 7, 20, 21, 22, 23, 12, 13, 14, 15, 28, 29, 30, 31);
#pragma GCC unroll 2
    for (int i = 0; i < 2; ++i)
        part[i] = CHOOSE(part[i], part[i + 2], 0, 1, 16, 17, 4, 5, 20, 21, 8, 9, 24, 25, 12, 13, 28, 29) +
                  CHOOSE(part[i], part[i + 2], 2, 3, 18, 19, 6, 7, 22, 23, 10, 11, 26, 27, 14, 15, 30, 31);
    return CHOOSE(part[0], part[1], 0, 16, 2, 18, 4, 20, 6, 22, 8, 24, 10, 26, 12, 28, 14, 30) +
           CHOOSE(part[0], part[1], 1, 17, 3, 19, 5, 21, 7, 23, 9, 25, 11, 27, 13, 29, 15, 31);
}
#else
inline Floats sums_of(Floats* part) {
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i)
        part[i] = CHOOSE(part[i], part[i + 4], 0, 1, 2, 3, 8, 9, 10, 11) +
                  CHOOSE(part[i], part[i + 4], 4, 5, 6, 7, 12, 13, 14, 15);
#pragma GCC unroll 2
    for (int i = 0; i < 2; ++i)
        part[i] = CHOOSE(part[i], part[i + 2], 0, 1, 8, 9, 4, 5, 12, 13) +
                  CHOOSE(part[i], part[i + 2], 2, 3, 10, 11, 6, 7, 14, 15);
    return CHOOSE(part[0], part[1], 0, 8, 2, 10, 4, 12, 6, 14) + CHOOSE(part[0], part[1], 1, 9, 3, 11, 5, 13, 7, 15);
}
#endif

// The numbers of two vectors: of float32 the first and the second half, of bfloat16 the even and the odd ones, which
// takes no shuffles. Sums of products do not depend on that order; `to_order` puts those of `add_values` into the right
// one.
struct Both {
    Floats low, high;
};

inline Both load_both(const float* source) { return {load(source), load(source + LANES)}; }

inline Both load_both(const bfloat16* source) {
    const Words pairs = read<Words>(source);
    return {(Floats)(pairs << 16), (Floats)(pairs & 0xFFFF0000)};
}

inline Both to_order(Both sums, float) { return sums; }

inline Both to_order(Both sums, bfloat16) {
#ifdef __AVX512F__
    return {CHOOSE(sums.low, sums.high, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23),
            CHOOSE(sums.low, sums.high, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31)};
#else
    return {CHOOSE(sums.low, sums.high, 0, 8, 1, 9, 2, 10, 3, 11),
            CHOOSE(sums.low, sums.high, 4, 12, 5, 13, 6, 14, 7, 15)};
#endif
}

// HEAD: the head size if it is a multiple of 32 that the compiler knows, otherwise 0.
template <class T, int HEAD>
inline void score_range(const T* query, const T* key, float* score, int64_t positions, int64_t size) {
    if constexpr (HEAD == 0) {
        for (int64_t position = 0; position < positions; ++position) {
            float total = 0.0f;
#pragma omp simd reduction(+ : total)
            for (int64_t i = 0; i < size; ++i) total += wide(query[i]) * wide(key[position * size + i]);
            score[position] = total;
        }
    } else {
        for (int64_t first = 0; first < positions; first += LANES) {
            int64_t count = std::min<int64_t>(LANES, positions - first);
            Floats part[LANES];
#pragma GCC unroll 16
            for (int64_t each = 0; each < LANES; ++each) {  // those beyond the end repeat the last one
                const T* source = key + (first + std::min(each, count - 1)) * HEAD;
                part[each] = Floats{};
#pragma GCC unroll 4
                for (int i = 0; i < HEAD; i += 2 * LANES) {
                    Both asked = load_both(query + i), both = load_both(source + i);
                    part[each] += asked.low * both.low + asked.high * both.high;
                }
            }
            Floats sums = sums_of(part);
            std::memcpy(score + first, &sums, count * sizeof(float));
        }
    }
}

// What a row sees for one key/value head: positions of its prompt, or its own.
template <class T> struct Seen {
    const T *key, *value;
    int64_t positions;
};

template <class T, int HEAD>
inline void add_values(const float* weight, const Seen<T> (&seen)[2], T* out, float* sum, int64_t size) {
    if constexpr (HEAD == 0) {
        std::fill(sum, sum + size, 0.0f);
        for (const Seen<T>& part : seen)
            for (int64_t position = 0; position < part.positions; ++position, ++weight) {
#pragma omp simd
                for (int64_t i = 0; i < size; ++i) sum[i] += *weight * wide(part.value[position * size + i]);
            }
        for (int64_t i = 0; i < size; ++i) out[i] = narrow<T>(sum[i]);
    } else {
        constexpr int PAIRS = HEAD / (2 * LANES);
        Both sums[PAIRS] = {};
        for (const Seen<T>& part : seen)
            for (int64_t position = 0; position < part.positions; ++position, ++weight) {
#pragma GCC unroll 4
                for (int i = 0; i < PAIRS; ++i) {
                    Both both = load_both(part.value + position * HEAD + 2 * LANES * i);
                    sums[i].low += *weight * both.low;
                    sums[i].high += *weight * both.high;
                }
            }
        for (int i = 0; i < PAIRS; ++i, out += 2 * LANES) {
            Both ordered = to_order(sums[i], T());
            store(out, ordered.low);
            store(out + LANES, ordered.high);
        }
    }
}

// Replace scores by their softmax. There is room for a vector after the last one.
template <class T> inline void turn_into_weights(float* score, int64_t count) {
    std::fill(score + count, score + count + LANES, -1e30f);
    Floats largest = all_rounded<T>(load(score)), total = {};
    for (int64_t i = 0; i < count; i += LANES) {
        Floats other = all_rounded<T>(load(score + i));
        store(score + i, other);
        largest = other > largest ? other : largest;
    }
    float most = largest[0], sum = 0.0f;
    for (int i = 1; i < LANES; ++i) most = largest[i] > most ? largest[i] : most;
    for (int64_t i = 0; i < count; i += LANES) {
        Floats weight = exponential<Words>(load(score + i) - most);
        total += weight;
        store(score + i, weight);
    }
    for (int i = 0; i < LANES; ++i) sum += total[i];
    for (int64_t i = 0; i < count; i += LANES) store(score + i, all_rounded<T>(load(score + i) / sum));
}

template <class T, int HEAD>
void attend(const T* query, const T* key, const T* value, const T* prompt_key, const T* prompt_value,
            const int64_t* slot, const int64_t* place, const int64_t* prompt, const int64_t* shared, T* out,
            float scale, int64_t rows, int64_t heads, int64_t group, int64_t size, int64_t span, int64_t columns,
            int threads) {
    const int64_t head = HEAD ? HEAD : size;
    const int64_t chunk = std::clamp<int64_t>(rows * heads / (8 * threads), 1, 32);
#pragma omp parallel num_threads(threads)
    {
        std::vector<T> asked(head);
        std::vector<float> sum(head), scores;
#pragma omp for schedule(dynamic, chunk)  // the tokens of a prompt see more and more
        for (int64_t pair = 0; pair < rows * heads; ++pair) {
            int64_t row = pair / heads, num_own = place[row] + 1;
            // A row that only rounds the batch up may still hold the length of a prompt that is gone.
            int64_t num_shared = prompt[row] < 0 ? 0 : std::min(shared[row], columns), num_seen = num_shared + num_own;
            const int64_t common = (std::max<int64_t>(prompt[row], 0) * heads + pair % heads) * columns * head;
            const int64_t own = (slot[row] * heads + pair % heads) * span * head;
            const Seen<T> seen[2] = {{prompt_key + common, prompt_value + common, num_shared},
                                     {key + own, value + own, num_own}};
            scores.resize(std::max<size_t>(scores.size(), num_seen + LANES));
            for (int64_t at = pair * group * head; at < (pair + 1) * group * head; at += head) {
#pragma omp simd
                for (int64_t i = 0; i < head; ++i) asked[i] = narrow<T>(wide(query[at + i]) * scale);
                score_range<T, HEAD>(asked.data(), seen[0].key, scores.data(), num_shared, size);
                score_range<T, HEAD>(asked.data(), seen[1].key, scores.data() + num_shared, num_own, size);
                turn_into_weights<T>(scores.data(), num_seen);
                add_values<T, HEAD>(scores.data(), seen, out + at, sum.data(), size);
            }
        }
    }
}

template <class T> auto attend_for(int64_t head) {
    return head == 32    ? attend<T, 32>
           : head == 64  ? attend<T, 64>
           : head == 96  ? attend<T, 96>
           : head == 128 ? attend<T, 128>
                         : attend<T, 0>;
}

// What torch's library offers to C: tensors over given memory, and its own products of matrices.
struct Torch {
    int32_t (*from_blob)(const void*, int64_t, const int64_t*, const int64_t*, int64_t, int32_t, int32_t, int32_t,
                         void**);
    int32_t (*remove)(void*);
    int32_t (*multiply)(void* out, void* left, void* right);
    int32_t (*multiply_and_add)(void* out, void* added, void* left, void* right, double, double);
    int64_t type, device;
};

// A matrix [rows, columns], or its transpose, as a tensor of torch.
struct Matrix {
    const Torch& torch;
    void* tensor = nullptr;

    Matrix(const Torch& torch, const void* data, int64_t rows, int64_t columns, bool turned = false) : torch(torch) {
        const int64_t sizes[] = {turned ? columns : rows, turned ? rows : columns};
        const int64_t strides[] = {turned ? 1 : columns, turned ? columns : 1};
        if (torch.from_blob(data, 2, sizes, strides, 0, torch.type, torch.device, 0, &tensor)) tensor = nullptr;
    }
    Matrix(const Matrix&) = delete;
    ~Matrix() {
        if (tensor) torch.remove(tensor);
    }
};

template <class T> struct Linear {
    const T *weight, *bias, *panels;  // bias: null for none; panels: the packed weight, null where torch multiplies
};

template <class T> struct Layer {
    const T* norm_before;
    Linear<T> query, key, value, output;
    const T *query_norm, *key_norm, *norm_after;  // both null, or neither
    Linear<T> gate, up, down;
    T *cached_key, *cached_value;
    const T *prompt_key, *prompt_value;
};

// What all rows of a step share. torch: null if every weight is packed. block: products with at least min_terms terms
// have this number of rows, because their bits depend on it; 0 if no product is so.
template <class T> struct Step {
    const Torch* torch;
    const Layer<T>* layers;
    const T *embedding, *norm, *cosine, *sine;
    const int64_t *token, *absolute, *slot, *place, *prompt, *shared;
    T* out;
    double epsilon, head_epsilon, scale;
    int64_t rows, num_layers, hidden, heads, group, head, intermediate, span, columns, block, min_terms;

    bool linear(const Linear<T>& linear, const T* input, T* output, int64_t count, int64_t terms, int64_t width,
                int threads) const {
        if (linear.panels) {
            multiply(input, linear.panels, linear.bias, output, count, terms, width, threads);
            return true;
        }
        const int64_t step = block && terms >= min_terms ? block : count;
        Matrix weight(*torch, linear.weight, width, terms, true), bias(*torch, linear.bias, 1, width);
        for (int64_t first = 0; first < count; first += step) {  // the last block goes on beyond the rows
            Matrix left(*torch, input + first * terms, step, terms), out(*torch, output + first * width, step, width);
            if (!weight.tensor || !left.tensor || !out.tensor) return false;
            if (linear.bias ? torch->multiply_and_add(out.tensor, bias.tensor, left.tensor, weight.tensor, 1.0, 1.0)
                            : torch->multiply(out.tensor, left.tensor, weight.tensor))
                return false;
        }
        return true;
    }

    // All layers for `count` rows from row `first` on.
    bool run(int64_t first, int64_t count, int threads) const {
        const int64_t room = block ? (count + block - 1) / block * block : count;
        const int64_t queries = heads * group * head, keys = heads * head;
        std::vector<T> memory(room * (3 * hidden + 2 * queries + 2 * keys + 2 * intermediate));
        T* next = memory.data();
        const auto take = [&](int64_t width) { return std::exchange(next, next + room * width); };
        T *state = take(hidden), *normed = take(hidden), *delta = take(hidden), *query = take(queries);
        T *key = take(keys), *value = take(keys), *seen = take(queries);
        T *gates = take(intermediate), *ups = take(intermediate);
        for (int64_t row = 0; row < count; ++row)
            std::memcpy(state + row * hidden, embedding + token[first + row] * hidden, hidden * sizeof(T));
        add_and_normalise<T>(state, nullptr, layers[0].norm_before, normed, epsilon, count, hidden, threads);
        for (int64_t index = 0; index < num_layers; ++index) {
            const Layer<T>& layer = layers[index];
            if (!linear(layer.query, normed, query, count, hidden, queries, threads) ||
                !linear(layer.key, normed, key, count, hidden, keys, threads) ||
                !linear(layer.value, normed, value, count, hidden, keys, threads))
                return false;
            rotate_and_write<T>(query, key, value, cosine, sine, layer.query_norm, layer.key_norm, head_epsilon,
                                absolute + first, slot + first, place + first, layer.cached_key, layer.cached_value,
                                count, heads, group, head, span, threads);
            attend_for<T>(head)(query, layer.cached_key, layer.cached_value, layer.prompt_key, layer.prompt_value,
                                slot + first, place + first, prompt + first, shared + first, seen, scale, count, heads,
                                group, head, span, columns, threads);
            if (!linear(layer.output, seen, delta, count, queries, hidden, threads)) return false;
            add_and_normalise<T>(state, delta, layer.norm_after, normed, epsilon, count, hidden, threads);
            if (!linear(layer.gate, normed, gates, count, hidden, intermediate, threads) ||
                !linear(layer.up, normed, ups, count, hidden, intermediate, threads))
                return false;
            gate<T>(gates, ups, count, intermediate, threads);
            if (!linear(layer.down, gates, delta, count, intermediate, hidden, threads)) return false;
            const bool is_last = index + 1 == num_layers;
            add_and_normalise<T>(state, delta, is_last ? norm : layers[index + 1].norm_before,
                                 is_last ? out + first * hidden : normed, epsilon, count, hidden, threads);
        }
        return true;
    }
};

// A whole step. Each thread takes `share` rows through all layers by itself, because some products have other bits with
// other numbers of threads; 0: all threads share each operation. Returns 0, or 1 if torch could not multiply.
template <class T> int64_t decode(const Step<T>& step, int64_t share, int threads) {
    if (share == 0) return step.run(0, step.rows, threads) ? 0 : 1;
    const int64_t shares = (step.rows + share - 1) / share;
    bool is_done = true;
#pragma omp parallel for num_threads(threads) schedule(static, 1) reduction(&& : is_done)
    for (int64_t index = 0; index < shares; ++index) {
        const int64_t first = index * share;
        is_done = step.run(first, std::min(share, step.rows - first), 1) && is_done;
    }
    return is_done ? 0 : 1;
}

// Bits of the noise of tokens, as sampling._mix computes them. half: 0 for the upper ones.
template <class W> inline W noise_bits(W token, const uint32_t* seeds, int half) {
    W value = token * 0x9E3779B1u + seeds[2 * half];
    value = (value ^ (value >> 16)) * 0x21F0AAADu;
    value = value ^ seeds[2 * half + 1];
    value = (value ^ (value >> 15)) * 0x735A2D97u;
    return value ^ (value >> 15);
}

// A product and a sum that are rounded once would have other bits than torch's operations, so neither is contracted.
#if defined(__clang__)
#define AS_WRITTEN
#define NOT_CONTRACTED _Pragma("clang fp contract(off)")
#else
#define AS_WRITTEN __attribute__((noinline, optimize("fp-contract=off")))
#define NOT_CONTRACTED
#endif

AS_WRITTEN double series(double exponent, double quotient) {  // sampling._log
    NOT_CONTRACTED
    double square = quotient * quotient, total = square * (1.0 / 13) + 1.0 / 11;
    for (int power = 9; power > 0; power -= 2) total = total * square + 1.0 / power;
    return exponent * 0.6931471805599453 + (2 * quotient) * total;
}

AS_WRITTEN double logarithm(double y) {  // sampling._log(*sampling._split(y))
    NOT_CONTRACTED
    constexpr int64_t sqrt_half = 0x3FE6A09E667F3BCD;
    int64_t bits, mantissa;
    std::memcpy(&bits, &y, sizeof bits);
    bits -= sqrt_half;
    mantissa = (bits & 0x000FFFFFFFFFFFFF) + sqrt_half;
    double m;
    std::memcpy(&m, &mantissa, sizeof m);
    return series(double(bits >> 52), (m - 1) / (m + 1));
}

AS_WRITTEN double noise_of(uint32_t token, const uint32_t* seeds) {  // sampling.draw_noise
    NOT_CONTRACTED
    int64_t high = noise_bits(token, seeds, 0) & 0x7FFFFFFF, low = noise_bits(token, seeds, 1);
    double x = std::min((double((high << 32) | low) + 0.5) * 0x1p-63, 1 - 0x1p-53);
    double exponential = -(x < 0.25 ? series(0.0, x / (x - 2)) : logarithm(1 - x));
    return -logarithm(exponential);
}

// Tokens win by exp(logit) / E with E = -log(1 - x), which lies between x and x / (1 - x). These bounds leave few tokens
// that could win, and only those get their exact noise.
void find_winners(const float* logits, const uint32_t* seeds, int64_t* winners, float* log_totals, int64_t rows,
                  int64_t vocab, int threads) {
    constexpr float nothing = -std::numeric_limits<float>::infinity();
    constexpr float rounding = 1e-5f;  // of a bound, at most
#pragma omp parallel num_threads(threads)
    {
        std::vector<float> bound(vocab + LANES);
#pragma omp for schedule(static)
        for (int64_t row = 0; row < rows; ++row) {
            const float* logit = logits + row * vocab;
            const uint32_t* seed = seeds + 4 * row;
            float highest = nothing, total = 0.0f, reached = 0.0f, last[LANES];
#pragma omp simd reduction(max : highest)
            for (int64_t i = 0; i < vocab; ++i) highest = std::max(highest, logit[i]);
            Floats totals = {}, least = {};
            Words lane;
            for (int i = 0; i < LANES; ++i) lane[i] = i;
            for (int64_t i = 0; i < vocab; i += LANES) {
                const float* from = logit + i;
                if (i + LANES > vocab) {
                    std::fill(last, last + LANES, nothing);
                    from = (std::copy(from, logit + vocab, last), last);
                }
                Floats values = load(from), mass = exponential<Words>(values - highest);
                mass = values == nothing ? Floats{} : mass;
                totals += mass;
                Words high = noise_bits(lane + uint32_t(i), seed, 0) & 0x7FFFFFFF;
                Floats x = __builtin_convertvector((Places)high, Floats) * 0x1p-31f, above = x + 0x1p-31f;
                Floats lower = mass * (1.0f - 2e-7f - above) / above;
                least = lower > least ? lower : least;
                store(&bound[i], mass / (x > 0.0f ? x : Floats{} + 0x1p-64f));
            }
            for (int i = 0; i < LANES; ++i) total += totals[i], reached = std::max(reached, least[i]);
            double best = -std::numeric_limits<double>::infinity();
            winners[row] = 0;
            for (int64_t i = 0; i < vocab; ++i) {
                if (bound[i] < reached * (1 - rounding) || logit[i] == nothing) continue;
                double noisy = double(logit[i]) + noise_of(uint32_t(i), seed);
                if (noisy > best) best = noisy, winners[row] = i;
            }
            log_totals[row] = highest + std::log(total);
        }
    }
}

}  // namespace

extern "C" void find_winners_float32(const float* logits, const uint32_t* seeds, int64_t* winners, float* log_totals,
                                     int64_t rows, int64_t vocab, int threads) {
    find_winners(logits, seeds, winners, log_totals, rows, vocab, threads);
}

// What a test compares with the noise of torch.
extern "C" void noise_float32(const uint32_t* seeds, double* out, int64_t rows, int64_t tokens, int) {
    for (int64_t row = 0; row < rows; ++row)
        for (int64_t token = 0; token < tokens; ++token) out[row * tokens + token] = noise_of(token, seeds + 4 * row);
}

#define FUNCTIONS(NAME, T)                                                                                             \
    extern "C" void add_and_normalise_##NAME(T* hidden, const T* delta, const T* weight, T* out, double epsilon,       \
                                             int64_t rows, int64_t size, int threads) {                                \
        add_and_normalise<T>(hidden, delta, weight, out, float(epsilon), rows, size, threads);                         \
    }                                                                                                                  \
    extern "C" void gate_##NAME(T* gates, const T* ups, int64_t rows, int64_t size, int threads) {                     \
        gate<T>(gates, ups, rows, size, threads);                                                                      \
    }                                                                                                                  \
    extern "C" void rotate_and_write_##NAME(T* query, const T* key, const T* value, const T* cosine, const T* sine,    \
                                            const T* query_norm, const T* key_norm, double epsilon,                    \
                                            const int64_t* absolute, const int64_t* slot, const int64_t* place,        \
                                            T* cached_key, T* cached_value, int64_t rows, int64_t heads,               \
                                            int64_t group, int64_t head, int64_t span, int threads) {                  \
        rotate_and_write<T>(query, key, value, cosine, sine, query_norm, key_norm, float(epsilon), absolute, slot,     \
                            place, cached_key, cached_value, rows, heads, group, head, span, threads);                 \
    }                                                                                                                  \
    extern "C" void attend_##NAME(const T* query, const T* key, const T* value, const T* prompt_key,                   \
                                  const T* prompt_value, const int64_t* slot, const int64_t* place,                    \
                                  const int64_t* prompt, const int64_t* shared, T* out, double scale, int64_t rows,    \
                                  int64_t heads, int64_t group, int64_t head, int64_t span, int64_t columns,           \
                                  int threads) {                                                                       \
        attend_for<T>(head)(query, key, value, prompt_key, prompt_value, slot, place, prompt, shared, out,             \
                            float(scale), rows, heads, group, head, span, columns, threads);                           \
    }                                                                                                                  \
    extern "C" void pack_##NAME(const T* weight, T* panels, int64_t columns, int64_t terms, int threads) {             \
        pack<T>(weight, panels, columns, terms, threads);                                                              \
    }                                                                                                                  \
    extern "C" void multiply_##NAME(const T* rows, const T* panels, const T* bias, T* out, int64_t count,              \
                                    int64_t terms, int64_t columns, int threads) {                                     \
        multiply<T>(rows, panels, bias, out, count, terms, columns, threads);                                          \
    }                                                                                                                  \
    extern "C" int64_t decode_##NAME(const Step<T>* step, int64_t share, int threads) {                                \
        return decode<T>(*step, share, threads);                                                                       \
    }

FUNCTIONS(float32, float)
FUNCTIONS(bfloat16, bfloat16)
