#include "model/kinds.h"

#include <algorithm>

#include "base/error.h"
#include "gguf/text.h"
#include "model/meta.h"

namespace strata::model {

using gguf::quote;

int block_of(std::string_view name) {
  if (!name.starts_with("blk.")) return -1;
  int n = 0;
  size_t i = 4;
  for (; i < name.size() && name[i] >= '0' && name[i] <= '9' && n < 100000; ++i) n = n * 10 + (name[i] - '0');
  return i > 4 && i < name.size() && name[i] == '.' ? n : -1;
}

void refuse_other_kinds(const gguf::FileSet& files) {
  const Meta meta(files);
  const std::string& arch = meta.text("general.architecture");
  const std::string type = meta.text_if("general.type").value_or("model");
  if (arch == "clip" || type == "mmproj")
    meta.fail(
        "general.architecture",
        "is " + quote(arch) +
            ": the file is a multimodal projector (image encoder) that accompanies a model, not the model itself");
  if (type == "adapter") meta.fail("general.type", "is 'adapter': the file is a LoRA adapter, not a model");
  if (type == "imatrix" || arch == "imatrix")
    meta.fail("general.type", "is " + quote(type) + ": the file holds importance figures for quantising, not a model");
  if (arch == "qwen4_exp")
    meta.fail("general.architecture",
              "is 'qwen4_exp': another dialect of this model's files (other tensor names, value heads in another "
              "order); convert the model to 'qwen4exp'");
  if (arch != "qwen4exp")
    meta.fail("general.architecture",
              "is " + quote(arch) + ": strata runs 'qwen4exp' models only; the file itself is intact");
  const auto& tensors = files.tensors();
  if (tensors.empty())
    throw ModelFormatError("holds no tensors: a vocabulary or metadata file, not a model", files.files()[0].path());
  const auto any = [&](const auto& test) { return std::any_of(tensors.begin(), tensors.end(), test); };
  const bool first = any([](const auto& t) { return block_of(t.name) == 0; });
  const bool later = any([](const auto& t) { return block_of(t.name) > 0; });
  if (!first && later)
    throw ModelFormatError(
        "holds a draft head only (it has no tensors 'blk.0.'): it runs beside the model it belongs to, not by itself",
        files.files()[0].path());
}

void refuse_scales(const gguf::FileSet& files, const HParams& hp) {
  for (const auto& t : files.tensors())
    if (t.name.ends_with(".scale") && block_of(t.name) < hp.n_layer)
      throw ModelFormatError("tensor " + quote(t.name) +
                                 " is a second-level scale, as NVFP4 files have beside their weights: strata does not "
                                 "apply these, so the result would be wrong; "
                                 "use a file of another type",
                             files.files()[t.where.file].path(), t.entry_offset);
}

void warn_unused(const gguf::FileSet& files, Model& model) {
  std::string names;
  size_t n = 0;
  for (size_t i = 0; i < model.placement.size(); ++i) {
    const auto& name = files.tensors()[i].name;
    const int block = block_of(name);
    if (model.placement[i] != Placement::Unused || block >= model.hp.n_layer) continue;  // draft head
    if (block >= 0 && model.layers[static_cast<size_t>(block)].attn.index_q < 0 &&
        name.find(".indexer.") != std::string::npos)
      continue;  // ratio 0
    if (n++ < 3) names += (names.empty() ? "" : ", ") + quote(name);
  }
  if (n > 0)
    model.warnings.push_back(std::to_string(n) +
                             (n == 1 ? " tensor of the file has a name" : " tensors of the file have names") +
                             " that strata does not use: " + names + (n > 3 ? ", ..." : "") + ".");
}

}  // namespace strata::model
