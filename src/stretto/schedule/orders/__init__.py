"""Static schedules: partial orders over block visits (rotation, wavefront, conflict-free waves), and their bounds."""
