// Products with packed weights, out = rows x weight^T + bias, in which a row has the same bits whatever is computed with
// it.
//
// The columns of out are packed into panels of two vectors. A tile of a few rows by one panel keeps its sums in
// registers. The terms come in blocks that stay in the first cache. Each block is summed in the order of its terms, and
// the blocks are added in their order, so neither rows nor threads nor panels change a sum. Of bfloat16, two
// neighbouring terms lie side by side.

#pragma once

#include "cpu_numbers.h"

#include <algorithm>
#if defined(__AVX512BF16__)
#include <immintrin.h>
#endif

namespace {

#ifdef __AVX512F__
constexpr int LANES = 16;  // of one register
#else
constexpr int LANES = 8;
#endif
typedef float Floats __attribute__((vector_size(4 * LANES)));
typedef uint32_t Words __attribute__((vector_size(4 * LANES)));

constexpr int TILE = LANES == 16 ? 12 : 6;  // rows whose sums fit into the registers
constexpr int PANEL = 2 * LANES, BLOCK = 192, GROUP = 16 * TILE;  // columns; terms; rows that share a panel's blocks
template <class T> constexpr int TERMS = 4 / sizeof(T);           // that are added at once

template <class V, class T> inline V read(const T* source) {
    V value;
    std::memcpy(&value, source, sizeof value);
    return value;
}

inline Floats add_terms(Floats sum, const float* term, const float* weights) {
    return sum + *term * read<Floats>(weights);
}

inline Floats add_terms(Floats sum, const bfloat16* terms, const bfloat16* weights) {
    const uint32_t pair = read<uint32_t>(terms);
#if defined(__AVX512BF16__)
    return (Floats)_mm512_dpbf16_ps((__m512)sum, (__m512bh)_mm512_set1_epi32(int(pair)), read<__m512bh>(weights));
#else
    const Words both = read<Words>(weights);
    sum += bits_to_float(pair << 16) * (Floats)(both << 16);
    return sum + bits_to_float(pair & 0xFFFF0000) * (Floats)(both & 0xFFFF0000);
#endif
}

// Add a block of terms to the sums [COUNT, PANEL]. The loops over rows are unrolled, or the sums would be in memory.
template <class T, int COUNT>
inline void add_tile(const T* rows, int64_t stride, const T* panel, float* sums, int64_t terms) {
    Floats low[COUNT] = {}, high[COUNT] = {};
    for (int64_t term = 0; term < terms; term += TERMS<T>) {
        const T* weights = panel + term * PANEL;
#pragma GCC unroll 12
        for (int row = 0; row < COUNT; ++row) {
            low[row] = add_terms(low[row], rows + row * stride + term, weights);
            high[row] = add_terms(high[row], rows + row * stride + term, weights + LANES * TERMS<T>);
        }
    }
#pragma GCC unroll 12
    for (int row = 0; row < COUNT; ++row) {
        float* target = sums + row * PANEL;
        const Floats first = read<Floats>(target) + low[row], second = read<Floats>(target + LANES) + high[row];
        std::memcpy(target, &first, sizeof first);
        std::memcpy(target + LANES, &second, sizeof second);
    }
}

template <class T, int COUNT = TILE - 1>
inline void add_last_rows(const T* rows, int64_t stride, const T* panel, float* sums, int64_t terms, int64_t count) {
    if (count == COUNT) return add_tile<T, COUNT>(rows, stride, panel, sums, terms);
    if constexpr (COUNT > 1) add_last_rows<T, COUNT - 1>(rows, stride, panel, sums, terms, count);
}

// rows [count, terms], panels as `pack` writes them, bias [columns] or null, out [count, columns].
template <class T>
void multiply(const T* rows, const T* panels, const T* bias, T* out, int64_t count, int64_t terms, int64_t columns,
              int threads) {
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t index = 0; index < (columns + PANEL - 1) / PANEL; ++index) {
        const T* panel = panels + index * PANEL * terms;
        const int64_t first_column = index * PANEL, width = std::min<int64_t>(PANEL, columns - first_column);
        alignas(64) float sums[GROUP * PANEL];
        for (int64_t first = 0; first < count; first += GROUP) {
            const int64_t in_group = std::min<int64_t>(GROUP, count - first);
            std::fill(sums, sums + in_group * PANEL, 0.0f);
            for (int64_t term = 0; term < terms; term += BLOCK) {
                const int64_t in_block = std::min<int64_t>(BLOCK, terms - term);
                const T *left = rows + first * terms + term, *block = panel + term * PANEL;
                int64_t row = 0;
                for (; row + TILE <= in_group; row += TILE)
                    add_tile<T, TILE>(left + row * terms, terms, block, sums + row * PANEL, in_block);
                add_last_rows<T>(left + row * terms, terms, block, sums + row * PANEL, in_block, in_group - row);
            }
            for (int64_t row = 0; row < in_group; ++row) {
                T* target = out + (first + row) * columns + first_column;
                for (int64_t i = 0; i < width; ++i)
                    target[i] = narrow<T>(sums[row * PANEL + i] + (bias ? wide(bias[first_column + i]) : 0.0f));
            }
        }
    }
}

// weight [columns, terms], terms a multiple of TERMS. Columns that fill up the last panel are 0.
template <class T> void pack(const T* weight, T* panels, int64_t columns, int64_t terms, int threads) {
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t index = 0; index < (columns + PANEL - 1) / PANEL; ++index) {
        T* target = panels + index * PANEL * terms;
        for (int64_t first = 0; first < terms; first += TERMS<T>)
            for (int64_t column = index * PANEL; column < (index + 1) * PANEL; ++column)
                for (int64_t term = first; term < first + TERMS<T>; ++term)
                    *target++ = column < columns ? weight[column * terms + term] : T{};
    }
}

}  // namespace
