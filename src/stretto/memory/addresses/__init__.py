"""Device addresses: choose an address for every allocation, and make torch's allocator use it."""
