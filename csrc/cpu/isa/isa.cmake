# One object per instruction set; filled with the first vector kernels.
