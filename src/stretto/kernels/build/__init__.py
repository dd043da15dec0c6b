"""How kernels become machine code: linking helpers, stamping sources, storing and shipping what was compiled."""
