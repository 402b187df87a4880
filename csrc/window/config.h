// What the caller decides about a loaded model; the names are those of the knobs (python/strata/config.py).
#pragma once

#include <cstdint>
#include <string>

namespace strata::window {

struct EngineConfig {
  std::string activations = "auto";  // "auto" (= "int16"), "int16", "int8", "f32"
  std::string kv_type = "auto";      // "auto", "f16", "f32"
  std::string backend = "cpu";       // "cpu", "reference"
  std::string isa = "auto";
  int64_t context = 0;               // tokens, 0 = automatic
  int64_t prompt_chunk = 0;          // rows that go through a mixer together, 0 = automatic
  int64_t prompt_sweep = 0;          // rows that go through a layer's experts together, 0 = automatic
  double arena_gb = 0;               // 0 = automatic; in units of 1e9 bytes
  int64_t arena_slots = 0;           // 0 = from arena_gb
  int threads = 0;                   // 0 = the cores this process may use
  int io_threads = 0;                // 0 = 4
  int prompt_pred = 1;               // -1 no read-ahead, 0 popularity, 1 next layer's router, 2 random (tests)
  int prompt_pred_min = 1;           // tokens that must be predicted for an expert
  bool ple_async = true;             // n-gram rows are read beside the first layers
  std::string direct_io = "auto";    // "auto", "on", "off"
  bool stream_fake = false;          // experts count as present: times the arithmetic, results mean nothing
  int qsa_ratio = 0;                 // 0 = as the file says
  std::string dump_moe;              // folder, "" = no dump
  std::string trace;                 // file for what ran when, "" = none
  bool profile = false;              // time every op (cpu/profile.h)
  double ram_gb = 0;                 // memory to plan for, 0 = what is available now
  double sweep_seconds = 120;        // of computation, for an automatic sweep at most (tests)
  // Faults for tests (stream/source.h).
  int fault_delay_us = 0;
  int64_t fault_eio_at = -1, fault_short_reads = 0;
};

}  // namespace strata::window
