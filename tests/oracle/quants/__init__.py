"""Numpy references of the block formats: dequantiser, quantisers, guarded buffers."""
