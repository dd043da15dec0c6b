"""For us and for those who extend us: the reference interpreter, which defines the bits compiled loops must give."""
