#include "base/error.h"

#include <cstring>

namespace strata {

ModelFormatError::ModelFormatError(const std::string& what, std::string file_, std::optional<uint64_t> offset_)
    : Error((file_.empty() ? std::string() : file_ + ": ") + what +
            (offset_ ? " (at byte " + std::to_string(*offset_) + ")" : std::string())),
      file(std::move(file_)),
      offset(offset_) {}

ConfigError::ConfigError(std::string knob_, std::string value_, std::string allowed_)
    : Error(knob_ + " = " + value_ + ": allowed is " + allowed_),
      knob(std::move(knob_)),
      value(std::move(value_)),
      allowed(std::move(allowed_)) {}

static std::string describe_io(const std::string& what, const std::string& file, uint64_t offset, int err, int layer,
                               int expert) {
  std::string s = file + ": " + what + " at byte " + std::to_string(offset);
  if (layer >= 0) s += ", layer " + std::to_string(layer);
  if (expert >= 0) s += ", expert " + std::to_string(expert);
  if (err) s += std::string(": ") + std::strerror(err);
  return s;
}

StreamIOError::StreamIOError(const std::string& what, std::string file_, uint64_t offset_, int err_, int layer_,
                             int expert_)
    : Error(describe_io(what, file_, offset_, err_, layer_, expert_)),
      file(std::move(file_)),
      offset(offset_),
      err(err_),
      layer(layer_),
      expert(expert_) {}

OutOfMemoryPlanError::OutOfMemoryPlanError(const std::string& what, std::string plan_, uint64_t needed_,
                                           uint64_t available_)
    : Error(what + "\n" + plan_), plan(std::move(plan_)), needed(needed_), available(available_) {}

}  // namespace strata
