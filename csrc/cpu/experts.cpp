// The routed experts of a layer, expert by expert: gate and up fused with SwiGLU, then down, added in rising number.
#include <cstring>

#include "cpu/reference.h"
#include "cpu/scratch.h"

namespace strata::cpu {

// Rows of one expert that fit a task, and where they start among the batch's quantised rows.
struct Backend::Segment {
  const ExpertRun* run;
  int64_t row, rows, first;
};

namespace {

// Cuts the experts' rows into batches of segments that are quantised together, and hands each batch to fn.
template <class Segment, class F>
void batches(const std::vector<ExpertRun>& group, F&& fn) {
  std::vector<Segment> batch;
  int64_t rows = 0;
  for (const ExpertRun& run : group)
    for (int64_t r = 0; r < run.rows; r += kRowBlock) {
      const int64_t n = std::min(kRowBlock, run.rows - r);
      if (rows + n > kBatchRows) {
        fn(batch);
        batch.clear();
        rows = 0;
      }
      batch.push_back({&run, r, n, rows});
      rows += n;
    }
  if (!batch.empty()) fn(batch);
}

}  // namespace

// One Quantised per segment; row(slot) is the float row of a slot.
template <class Row>
void Backend::quantise_segments(const std::vector<Segment>& segments, int64_t cols, Form form, bool minimums, std::vector<Quantised>& out,
                                Cancel* cancel, Row&& row) {
  struct Tile {
    size_t segment;
    int64_t tile;
  };
  std::vector<Tile> tiles;
  out.clear();
  for (size_t i = 0; i < segments.size(); ++i) {
    out.push_back(quantised_.rows(k_, segments[i].first, segments[i].rows, cols, form, minimums));
    for (int64_t t = 0; t < out.back().tiling.tiles; ++t) tiles.push_back({i, t});
  }
  run_tasks(pool_, static_cast<int64_t>(tiles.size()), cols * k_.row_tile, cancel, [&](int64_t i, int) {
    const Tile& t = tiles[static_cast<size_t>(i)];
    const Segment& s = segments[t.segment];
    const Quantised& q = out[t.segment];
    const int32_t* slots = s.run->slots + s.row + q.tiling.first(t.tile);
    const float* x[64];
    for (int r = 0; r < q.tiling.height(t.tile); ++r) x[r] = row(slots[r]);
    quantise_tile(k_, q, x, t.tile);
  });
}

void Backend::gate_up(const ExpertPass& pass, const std::vector<ExpertRun>& group, Cancel* cancel) {
  if (reference_) {
    for (const ExpertRun& run : group) reference::expert_gate_up(pass, run);
    return;
  }
  const int64_t n_panel = (pass.width + kPanel - 1) / kPanel;
  const auto x_row = [&](int32_t slot) { return pass.x + slot / pass.k * pass.hidden; };
  std::vector<Quantised> xq;
  batches<Segment>(group, [&](const std::vector<Segment>& batch) {
    const ExpertRun& any = *batch.front().run;
    const bool ints = integer(any.gate) && integer(any.up);
    if (ints)
      quantise_segments(batch, pass.hidden, form_of(k_, int8(), any.gate.type, any.up.type),
                        code_format(any.gate.type)->m_group || code_format(any.up.type)->m_group, xq, cancel, x_row);
    const auto segments = static_cast<int64_t>(batch.size());
    const int64_t run = panels_per_task(segments * n_panel, threads()), n_run = (n_panel + run - 1) / run;
    pool_.run(segments * n_run,
              [&](int64_t task, int thread) {
                const auto i = static_cast<size_t>(task / n_run);
                const Segment& seg = batch[i];
                const Matrix &gate = seg.run->gate, &up = seg.run->up;
                const int32_t* slots = seg.run->slots + seg.row;
                Scratch& s = scratch(thread);
                if (!ints)
                  for (int64_t r = 0; r < seg.rows; ++r) s.x[r] = x_row(slots[r]);
                const int64_t end = std::min(pass.width, (task % n_run + 1) * run * kPanel);
                for (int64_t column = task % n_run * run * kPanel; column < end; column += kPanel) {
                  if (ints) {
                    panel_int(k_, up, column, xq[i], 0, xq[i].tiling.tiles, s, Ahead(gate, column));
                    std::swap(s.acc, s.up);
                    panel_int(k_, gate, column, xq[i], 0, xq[i].tiling.tiles, s,
                              column + kPanel < end ? Ahead(up, column + kPanel) : Ahead());
                  } else {
                    panel_f32(k_, up, column, s.x, seg.rows, s);
                    std::swap(s.acc, s.up);
                    panel_f32(k_, gate, column, s.x, seg.rows, s);
                  }
                  const int n = static_cast<int>(std::min<int64_t>(kPanel, pass.width - column));
                  for (int64_t r = 0; r < seg.rows; ++r)
                    k_.swiglu(s.acc + r * kPanel, s.up + r * kPanel, pass.h + slots[r] * pass.width + column, n);
                }
              },
              cancel);
  });
}

void Backend::down(const ExpertPass& pass, const std::vector<ExpertRun>& group, Cancel* cancel) {
  if (reference_) {
    for (const ExpertRun& run : group) reference::expert_down(pass, run);
    return;
  }
  // One task: some panels of the output for all experts of a batch in their order, so each value has one writer.
  const int64_t n_panel = (pass.hidden + kPanel - 1) / kPanel;
  const int64_t run = panels_per_task(n_panel, threads()), n_run = (n_panel + run - 1) / run;
  const auto h_row = [&](int32_t slot) { return static_cast<const float*>(pass.h) + slot * pass.width; };
  std::vector<Quantised> hq;
  batches<Segment>(group, [&](const std::vector<Segment>& batch) {
    const Matrix& any = batch.front().run->down;
    const bool ints = integer(any);
    if (ints)
      quantise_segments(batch, pass.width, form_of(k_, int8(), any.type), code_format(any.type)->m_group != 0, hq, cancel, h_row);
    pool_.run(n_run,
              [&](int64_t task, int thread) {
                const int64_t begin = task * run * kPanel, end = std::min(pass.hidden, begin + run * kPanel);
                Scratch& s = scratch(thread);
                for (size_t i = 0; i < batch.size(); ++i) {
                  const Segment& seg = batch[i];
                  const Matrix& w = seg.run->down;
                  const int32_t* slots = seg.run->slots + seg.row;
                  if (!ints)
                    for (int64_t r = 0; r < seg.rows; ++r) s.x[r] = h_row(slots[r]);
                  for (int64_t column = begin; column < end; column += kPanel) {
                    if (ints) {
                      const Ahead next = column + kPanel < end    ? Ahead(w, column + kPanel)
                                         : i + 1 < batch.size() ? Ahead(batch[i + 1].run->down, begin)
                                                                : Ahead();
                      panel_int(k_, w, column, hq[i], 0, hq[i].tiling.tiles, s, next);
                    } else {
                      panel_f32(k_, w, column, s.x, seg.rows, s);
                    }
                    const int n = static_cast<int>(std::min<int64_t>(kPanel, pass.hidden - column));
                    for (int64_t r = 0; r < seg.rows; ++r) {
                      const int64_t slot = slots[r];
                      k_.axpy(pass.out + slot / pass.k * pass.hidden + column, pass.weights[slot], s.acc + r * kPanel, n);
                      if (pass.rows_out)
                        std::memcpy(pass.rows_out + slot * pass.hidden + column, s.acc + r * kPanel, static_cast<size_t>(n) * sizeof(float));
                    }
                  }
                }
              },
              cancel);
  });
}

}  // namespace strata::cpu
