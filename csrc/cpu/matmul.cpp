// Products with quantised weights, and the routed experts built on them.
//
// 16 weight rows x 256 values are decoded once into a panel in the first-level cache (lane = weight row) and used for all
// rows of a task. Per output: a fused multiply-add chain in rising k within 256 values, the partial sums added in rising k.
#include <algorithm>
#include <cstring>

#include "cpu/reference.h"
#include "cpu/scratch.h"
#include "quant/quant.h"

namespace strata::cpu {

void Backend::unpack(const Matrix& w, int64_t row, int64_t k0, int kn, Scratch& s) const {
  const int64_t n = std::min<int64_t>(kPanel, w.rows - row);
  const quant::TypeInfo& type = *quant::type_info(w.type);
  const uint64_t skip = quant::row_bytes(type, static_cast<uint64_t>(k0));
  for (int64_t j = 0; j < n; ++j)
    quant::dequantize_row(w.type, w.data + static_cast<uint64_t>(row + j) * w.row_bytes + skip, s.rows + j * kBlockK, kn);
  for (int64_t j = n; j < kPanel; ++j) std::memset(s.rows + j * kBlockK, 0, sizeof(float) * static_cast<size_t>(kn));
  k_.transpose_panel(s.rows, kn, s.panel);
}

// s.acc[r][j] = w[row + j] . x[r]
void Backend::panel(const Matrix& w, int64_t row, const float* const* x, int64_t m, Scratch& s) const {
  for (int64_t k0 = 0; k0 < w.cols; k0 += kBlockK) {
    const int kn = static_cast<int>(std::min<int64_t>(kBlockK, w.cols - k0));
    unpack(w, row, k0, kn, s);
    k_.panel_mac(s.panel, kn, x, k0, static_cast<int>(m), k0 == 0, s.acc);
  }
}

template <class Done>
void Backend::panels(const Matrix& w, const float* const* x, int64_t m, Cancel* cancel, Done&& done) {
  const int64_t n_panel = (w.rows + kPanel - 1) / kPanel;
  // Few panels and many rows: share the rows out too, at the price of decoding the weights once per block of rows.
  const int64_t want = std::max<int64_t>(1, 4 * threads() / n_panel);
  const int64_t block = std::clamp<int64_t>((m + want - 1) / want, std::min<int64_t>(m, 16), kRowBlock);
  const int64_t n_block = (m + block - 1) / block;
  pool_.run(n_panel * n_block,
            [&](int64_t task, int thread) {
              const int64_t row = task / n_block * kPanel, r0 = task % n_block * block;
              const int64_t rows = std::min(block, m - r0);
              Scratch& s = scratch(thread);
              panel(w, row, x + r0, rows, s);
              done(r0, rows, row, static_cast<int>(std::min<int64_t>(kPanel, w.rows - row)), s.acc);
            },
            cancel);
}

void Backend::matmul(const Call& c) {
  const program::Ref &xr = c.op.in[0], &yr = c.op.out[0];
  const Matrix& w = matrix_[static_cast<size_t>(c.op.in[1].id)];
  const float* x = c.f32(xr);
  float* y = c.f32(yr);
  const int64_t m = c.frame.rows, x_stride = c.stride(xr), y_stride = c.stride(yr);
  row_ptrs_.resize(static_cast<size_t>(m));
  for (int64_t t = 0; t < m; ++t) row_ptrs_[static_cast<size_t>(t)] = x + t * x_stride;
  panels(w, row_ptrs_.data(), m, c.cancel, [&](int64_t r0, int64_t rows, int64_t n0, int n, const float* acc) {
    for (int64_t r = 0; r < rows; ++r)
      std::memcpy(y + (r0 + r) * y_stride + n0, acc + r * kPanel, static_cast<size_t>(n) * sizeof(float));
  });
}

void Backend::experts_gate_up(const ExpertPass& pass, const std::vector<ExpertRun>& group, Cancel* cancel) {
  if (reference_) {
    for (const ExpertRun& run : group) reference::expert_gate_up(pass, run);
    return;
  }
  // One task: 16 columns of one expert's h for a block of its rows.
  struct Task {
    const ExpertRun* run;
    int64_t column, row;
  };
  std::vector<Task> tasks;
  for (const ExpertRun& run : group)
    for (int64_t r = 0; r < run.rows; r += kRowBlock)
      for (int64_t n = 0; n < pass.width; n += kPanel) tasks.push_back({&run, n, r});
  pool_.run(static_cast<int64_t>(tasks.size()),
            [&](int64_t i, int thread) {
              const Task& task = tasks[static_cast<size_t>(i)];
              const ExpertRun& run = *task.run;
              const int64_t rows = std::min(kRowBlock, run.rows - task.row);
              Scratch& s = scratch(thread);
              std::vector<const float*> x(static_cast<size_t>(rows));
              for (int64_t r = 0; r < rows; ++r) x[static_cast<size_t>(r)] = pass.x + run.slots[task.row + r] / pass.k * pass.hidden;
              panel(run.up, task.column, x.data(), rows, s);
              std::swap(s.acc, s.up);
              panel(run.gate, task.column, x.data(), rows, s);
              const int n = static_cast<int>(std::min<int64_t>(kPanel, pass.width - task.column));
              for (int64_t r = 0; r < rows; ++r)
                k_.swiglu(s.acc + r * kPanel, s.up + r * kPanel, pass.h + run.slots[task.row + r] * pass.width + task.column, n);
            },
            cancel);
}

void Backend::experts_down(const ExpertPass& pass, const std::vector<ExpertRun>& group, Cancel* cancel) {
  if (reference_) {
    for (const ExpertRun& run : group) reference::expert_down(pass, run);
    return;
  }
  // One task: 16 columns of the output for all experts of the group in their order, so each value has one writer.
  const int64_t n_panel = (pass.hidden + kPanel - 1) / kPanel;
  pool_.run(n_panel,
            [&](int64_t task, int thread) {
              const int64_t column = task * kPanel;
              const int n = static_cast<int>(std::min<int64_t>(kPanel, pass.hidden - column));
              Scratch& s = scratch(thread);
              std::vector<const float*> h(static_cast<size_t>(kRowBlock));
              for (const ExpertRun& run : group)
                for (int64_t r0 = 0; r0 < run.rows; r0 += kRowBlock) {
                  const int64_t rows = std::min(kRowBlock, run.rows - r0);
                  for (int64_t r = 0; r < rows; ++r) h[static_cast<size_t>(r)] = pass.h + run.slots[r0 + r] * pass.width;
                  panel(run.down, column, h.data(), rows, s);
                  for (int64_t r = 0; r < rows; ++r) {
                    const int64_t slot = run.slots[r0 + r];
                    k_.axpy(pass.out + slot / pass.k * pass.hidden + column, pass.weights[slot], s.acc + r * kPanel, n);
                    if (pass.rows_out)
                      std::memcpy(pass.rows_out + slot * pass.hidden + column, s.acc + r * kPanel, static_cast<size_t>(n) * sizeof(float));
                  }
                }
            },
            cancel);
}

}  // namespace strata::cpu
