// Dumps of the mixture of experts (DUMP_MOE): for every layer one file per kind, rows in token order whatever the chunking.
// Format: docs/dumps.md.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "cpu/backend.h"

namespace strata::window {

// 64 bytes at the start of each file, little-endian.
struct DumpHeader {
  char magic[8] = {'S', 'T', 'R', 'D', 'U', 'M', 'P', '1'};
  char dtype[4] = {0, 0, 0, 0};  // "f32", "i32"
  uint32_t n_dims = 2;           // 2: [rows, d1]; 3: [rows, d1, d2]
  uint64_t rows = 0;             // complete rows; written last, so an interrupted dump says how far it came
  uint64_t d1 = 0, d2 = 0;       // 0 where there is no such dimension
  int32_t layer = 0;
  uint32_t reserved = 0;
  uint64_t first_row = 0;        // position in the sequence of row 0
  uint64_t reserved2 = 0;
};

class Dump : public cpu::TapSink {
 public:
  // Creates the folder when there is none. A dump holds the rows of one call, which starts at `first_row`.
  Dump(std::string folder, int64_t first_row, int n_layer, int k);
  ~Dump() override;

  bool wants(const char* tap, int layer) const override;
  void rows(const char* tap, int layer, int64_t first_position, int64_t rows, int64_t cols, program::DType dtype,
            const std::byte* data, uint64_t stride) override;
  // The first `rows` rows are complete: says so in every file's header.
  void commit(int64_t rows);

 private:
  struct File;
  File& file(const std::string& name, int layer, int64_t cols, program::DType dtype, int64_t d2);
  std::string folder_;
  int64_t first_row_;
  int n_layer_, k_;
  std::map<std::string, std::unique_ptr<File>> files_;
};

}  // namespace strata::window
