// Encoding of rows.
#include <string>

#include "base/error.h"
#include "quant/quant.h"

namespace strata::quant {

void quantize_row(uint32_t type, const float*, void*, int64_t) {
  throw InputError("type " + std::to_string(type) + " cannot be encoded");
}

}  // namespace strata::quant
