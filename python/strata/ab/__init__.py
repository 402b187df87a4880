"""Comparison of builds and settings: is it faster, and is it still the same bits?

result = strata.ab.compare("base", "patched", pairs=20)
print(result.sentence("patched"))
"""

from strata.ab.arms import PRESETS, Arm, parse_arm, parse_arms
from strata.ab.dumps import Difference, DumpComparison
from strata.ab.dumps import compare as compare_dumps
from strata.ab.gates import Limits, Reading, System
from strata.ab.metrics import METRICS, Metric
from strata.ab.results import ArmInfo, Comparison, Run, load
from strata.ab.runner import Options, compare, run_comparison
from strata.ab.stats import Drift, Plan, Sample, Verdict

__all__ = [
    "METRICS",
    "PRESETS",
    "Arm",
    "ArmInfo",
    "Comparison",
    "Difference",
    "Drift",
    "DumpComparison",
    "Limits",
    "Metric",
    "Options",
    "Plan",
    "Reading",
    "Run",
    "Sample",
    "System",
    "Verdict",
    "compare",
    "compare_dumps",
    "load",
    "parse_arm",
    "parse_arms",
    "run_comparison",
]
