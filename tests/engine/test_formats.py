"""Q4: every tensor has a type of its own. Files in which all gates, ups and downs differ, against the reference."""

import numpy as np
import pytest
import reference
import synthetic
from engine_cases import least_slots, open_engine, prompt, run
from strata import _core

# 256 values to a row, so that every type fits. Each row of the table is a layer: gate, up, down.
EXPERTS = [
    ("Q4_K", "IQ2_XXS", "Q5_0"),
    ("IQ3_S", "Q6_K", "Q2_0"),
    ("F16", "Q2_K", "IQ4_XS"),
    ("Q3_K", "MXFP4", "IQ2_S"),
    ("Q8_0", "IQ3_XXS", "Q4_1"),
    ("IQ4_NL", "Q5_K", "BF16"),
]
MORE = [
    ("IQ1_S", "TQ1_0", "Q4_0"),
    ("TQ2_0", "IQ1_M", "Q5_1"),
    ("NVFP4", "Q1_0", "IQ2_XS"),
    ("F32", "Q4_K", "TQ2_0"),
    ("Q2_0", "Q8_0", "IQ1_S"),
    ("IQ2_XS", "F32", "MXFP4"),
]
REST = ["Q5_K", "Q8_0", "IQ4_XS", "Q6_K", "F16", "IQ4_NL", "Q4_K", "BF16", "F32", "Q5_1", "Q3_K"]


def model(path, table):
    cfg = synthetic.config(256, "ddadda", moe_intermediate_size=256, shared_expert_intermediate_size=256)

    def types(name):
        if "_exps." in name:
            return table[int(name.split(".")[1])][("gate", "up", "down").index(name.split("_")[1])]
        return REST[sum(name.encode()) % len(REST)]

    return synthetic.make(str(path), cfg, types)


def test_every_type_is_an_experts_type_somewhere():
    assert {t for table in (EXPERTS, MORE) for row in table for t in row} == {name for name, *_ in _core.quant_types()}


@pytest.mark.parametrize("table", [EXPERTS, MORE], ids=["first", "second"])
def test_six_layers_of_six_formats(table, tmp_path):
    path = tmp_path / "mixed.gguf"
    used = model(path, table)
    assert len(set(used.values())) > 15
    ids, taps = prompt("tiny", 100), {}
    want, _ = reference.run(reference.Model(str(path), np.float64), ids, None, taps)
    gap = min(v.min() for k, v in taps.items() if k.endswith("_gap"))
    assert gap > 1e-6
    whole = run(path, ids, tmp_path / "dump")
    for layer in range(6):
        chosen = whole.arrays[layer, "ids"]
        assert (chosen == taps[f"L{layer}/router_ids"]).all(), f"layer {layer}"
        error = np.abs(whole.arrays[layer, "out"] - taps[f"L{layer}/moe_out"]).max()
        assert error <= 1e-4 * max(1, np.abs(taps[f"L{layer}/moe_out"]).max()), f"layer {layer}"
    assert np.abs(whole.logits - want).max() <= 2e-4
    # The smallest arena: slots that hold experts of other sizes in turn.
    assert open_engine(path).info["experts_total"] == 48
    for chunk in (1, 64):
        small = run(path, ids, tmp_path / "dump", arena_slots=least_slots(path), prompt_sweep=chunk)
        assert small.differs(whole) == ""
        assert small.stats["bytes_read"] > whole.stats["bytes_read"]
