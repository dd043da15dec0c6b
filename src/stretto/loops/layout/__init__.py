"""Layout of loops: cutting iterations into visits, their order, and the arrays that nodes need."""
