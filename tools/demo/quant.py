"""Fake quantisation of the routed experts (straight-through) and exact packing: IQ2_XS for gate/up, Q2_0 for down.

IQ2_XS: 256 weights a block; value = d * (0.5 + s) / 4 * grid * sign, s a 4-bit scale for 16 weights, grid one of 512 rows of 8 magnitudes for 8 weights
(table iq2xs.npy, the format's data), and an even number of minus signs in each 8. Q2_0: 64 weights a block; value = d * (code - 1), code 0..3.
Not run by itself: train.py --qat uses Fake, which re-quantises every `every` steps; `save` writes the packed bytes.
"""

import os
import numpy as np, torch


class Fake:
    def __init__(s, dev, every=8):
        s.grid = torch.from_numpy(
            np.load(os.path.join(os.path.dirname(os.path.abspath(__file__)), "iq2xs.npy")).astype(np.float32)
        ).to(dev)
        s.g2 = (s.grid**2).sum(-1)
        s.every, s.cache, s.count, s.frozen = every, {}, {}, False

    def nearest(s, mag, w=None):
        """mag [n, 8] -> index of the nearest grid row (plain squared error)."""
        return torch.cat([(s.g2 - 2 * m @ s.grid.T).argmin(-1) for m in mag.split(1 << 18)])

    @torch.no_grad()
    def iq2(s, w):
        """w [..., 256] float32 -> (values, codes). One block a row."""
        x = w.reshape(-1, 16, 2, 8).float()
        n = len(x)
        neg = x < 0
        odd = neg.sum(-1) % 2 == 1
        small = x.abs().argmin(-1, keepdim=True)
        flip = torch.zeros_like(neg).scatter_(-1, small, odd.unsqueeze(-1))
        sgn = neg ^ flip
        a = torch.where(flip, -x.abs(), x.abs())  # the flipped weight counts as negative magnitude
        rms = x.pow(2).mean((-1, -2)).sqrt().clamp_min(1e-9)  # [n, 16]
        best = torch.full((n, 16), 1e30, device=x.device)
        bs = torch.ones_like(rms)
        for f in (0.045, 0.055, 0.065, 0.075):  # db candidates: grid magnitudes are 8, 25, 43
            db = rms * f
            q = s.grid[s.nearest((a / db[..., None, None]).reshape(-1, 8))].view(n, 16, 2, 8)
            num = (q * a).sum((-1, -2))
            den = (q * q).sum((-1, -2))
            sc = num / den
            err = (a * a).sum((-1, -2)) - num * sc
            t = (err < best) & (sc > 0)
            best = torch.where(t, err, best)
            bs = torch.where(t, sc, bs)
        d = (bs.amax(-1, keepdim=True) / (15.5 / 4)).half().float().clamp_min(6e-8)
        sc = (bs / d * 4 - 0.5).round().clamp(0, 15)
        db = d * (0.5 + sc) * 0.25
        gi = s.nearest((a / db[..., None, None]).reshape(-1, 8)).view(n, 16, 2)
        q = s.grid[gi]
        val = db[..., None, None] * q * torch.where(sgn, -1.0, 1.0)
        return val.reshape(w.shape), (d, sc, gi, sgn)

    @torch.no_grad()
    def q2(s, w):
        """w [..., k*64] -> (values, codes)."""
        x = w.reshape(-1, 64).float()
        best = torch.full((len(x), 1), 1e30, device=x.device)
        bd = torch.ones_like(best)
        r = x.pow(2).mean(-1, keepdim=True).sqrt().clamp_min(1e-9)
        for f in (0.8, 1.0, 1.2, -0.8, -1.0, -1.2):
            q = (x / (r * f)).round().clamp(-1, 2)
            den = (q * q).sum(-1, keepdim=True).clamp_min(1e-9)
            num = (q * x).sum(-1, keepdim=True)
            d = num / den
            err = (x * x).sum(-1, keepdim=True) - num * d
            t = (err < best) & (d * f > 0)
            best = torch.where(t, err, best)
            bd = torch.where(t, d, bd)
        d = bd.half().float()
        d = torch.where(d.abs() < 6e-8, torch.full_like(d, 6e-8), d)
        q = (x / d).round().clamp(-1, 2)
        return (d * q).reshape(w.shape), (d, q)

    def __call__(s, i, gu, dn):
        k = s.count.get(i, 0)
        train = torch.is_grad_enabled()
        if (train and (k + i) % s.every == 0) or i not in s.cache:
            s.cache[i] = ((s.iq2(gu)[0] - gu).detach().bfloat16(), (s.q2(dn)[0] - dn).detach().bfloat16())
        if train:
            s.count[i] = k + 1
            a, b = s.cache[i]
            return gu + a, dn + b
        if not s.frozen:
            return s.iq2(gu)[0], s.q2(dn)[0]
        if ("v", i) not in s.cache:
            s.cache["v", i] = (s.iq2(gu)[0], s.q2(dn)[0])
        return s.cache["v", i]

    def save(s, m, path):
        """Packed bytes of every expert tensor: path/experts.npz with gate_up [E, 2I, 74 bytes] and down [E, H, I/64*18 bytes]."""
        out = {}
        for n, key in m.names.items():
            if n.endswith("experts.gate_up_proj"):
                w = m.p[key].detach()
                (d, sc, gi, sgn) = [z.cpu() for z in s.iq2(w)[1]]
                bits = (sgn[..., :7].long() << torch.arange(7)).sum(-1)
                qs = (gi.long() | (bits << 9)).numpy().astype(np.uint16).reshape(len(d), 32)
                sc = sc.numpy().astype(np.uint8)
                sb = sc[:, 0::2] | (sc[:, 1::2] << 4)
                out[n] = np.concatenate(
                    [
                        d.numpy().astype(np.float16).view(np.uint8).reshape(-1, 2),
                        qs.view(np.uint8).reshape(len(d), 64),
                        sb,
                    ],
                    1,
                ).reshape(*w.shape[:2], 74)
            elif n.endswith("experts.down_proj"):
                w = m.p[key].detach()
                d, q = [z.cpu() for z in s.q2(w)[1]]
                q = (q + 1).numpy().astype(np.uint8).reshape(len(d), 16, 4)
                b = q[..., 0] | (q[..., 1] << 2) | (q[..., 2] << 4) | (q[..., 3] << 6)
                out[n] = np.concatenate([d.numpy().astype(np.float16).view(np.uint8).reshape(-1, 2), b], 1).reshape(
                    *w.shape[:2], -1
                )
        np.savez(os.path.join(path, "experts.npz"), **out)
