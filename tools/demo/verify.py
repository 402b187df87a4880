"""Compares model.py with transformers' Qwen4ExpForCausalLM in float32 on the CPU.  Run: python verify.py [checkpoint.pt]"""

import sys, torch
from transformers.models.qwen4_exp.configuration_qwen4_exp import Qwen4ExpTextConfig
from transformers.models.qwen4_exp.modeling_qwen4_exp import Qwen4ExpForCausalLM
from model import Model, CFG


def reference(sd):
    hf = Qwen4ExpForCausalLM(Qwen4ExpTextConfig(**CFG)).float().eval()
    sd = {k: v.float() if v.is_floating_point() else v for k, v in sd.items()}
    sd["lm_head.weight"] = sd["model.embed_tokens.weight"]
    print(hf.load_state_dict(sd, strict=False))
    return hf


if __name__ == "__main__":
    torch.manual_seed(0)
    m = Model(std=0.06)
    if len(sys.argv) > 1:
        m.load(torch.load(sys.argv[1], map_location="cpu"))
    else:
        for p in m.p.values():
            p.data += torch.randn_like(p) * 0.02
    hf = reference(m.state())
    ids = torch.randint(0, 3000, (2, 300))
    ids[0, 50] = ids[1, 120] = ids[1, 121] = CFG["eos_token_id"]
    with torch.no_grad():
        a = m(ids)
        b = hf(ids).logits
    print(
        "max |difference|",
        (a - b).abs().max().item(),
        "of logits up to",
        b.abs().max().item(),
        "argmax agree",
        (a.argmax(-1) == b.argmax(-1)).float().mean().item(),
    )
    d = (a - b).abs().amax(-1)
    print("first positions with difference over 1e-3:", (d > 1e-3).nonzero()[:5].tolist())
