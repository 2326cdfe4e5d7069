// Numbers of the types that models compute in, for kernels on a CPU. They are computed with as float32.

#pragma once

#include <cstdint>
#include <cstring>

namespace {

enum class bfloat16 : uint16_t {};  // its bits

inline float bits_to_float(uint32_t bits) {
    float value;
    std::memcpy(&value, &bits, sizeof value);
    return value;
}

inline uint32_t float_to_bits(float value) {
    uint32_t bits;
    std::memcpy(&bits, &value, sizeof bits);
    return bits;
}

inline float wide(float value) { return value; }
inline float wide(bfloat16 value) { return bits_to_float(uint32_t(value) << 16); }

template <class T> inline T narrow(float value);
template <> inline float narrow<float>(float value) { return value; }
template <> inline bfloat16 narrow<bfloat16>(float value) {  // to the nearest, of two equally near ones to the even one
    uint32_t bits = float_to_bits(value);
    uint32_t rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16;
    return bfloat16(uint16_t((bits & 0x7FFFFFFF) > 0x7F800000 ? 0x7FC0 : rounded));
}

// exp(x) to two units in the last place, with x cut to what a float can hold. nan stays nan. F: a float or a vector of
// them, W: as many 32-bit words.
template <class W, class F> inline F exponential(F x) {
    x = x < -87.0f ? F{} - 87.0f : x;
    x = x > 88.0f ? F{} + 88.0f : x;
    F whole = x * 1.44269504f + 12582912.0f;  // adding 1.5 x 2^23 rounds to a whole number
    W power, bits;
    std::memcpy(&power, &whole, sizeof power);
    whole -= 12582912.0f;
    F rest = (x - whole * 0.693359375f) + whole * 2.12194440e-4f;
    F sum = rest * 1.9875691500e-4f + 1.3981999507e-3f;
    sum = sum * rest + 8.3334519073e-3f;
    sum = sum * rest + 4.1665795894e-2f;
    sum = sum * rest + 1.6666665459e-1f;
    sum = sum * rest + 5.0000001201e-1f;
    sum = sum * rest * rest + rest + 1.0f;
    std::memcpy(&bits, &sum, sizeof bits);
    bits += power << 23;
    std::memcpy(&sum, &bits, sizeof sum);
    return sum;
}

template <class T> inline float rounded(float value) { return wide(narrow<T>(value)); }

}  // namespace
