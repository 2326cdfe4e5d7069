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

template <class T> inline float rounded(float value) { return wide(narrow<T>(value)); }

}  // namespace
