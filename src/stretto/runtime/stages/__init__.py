"""Running the stages of tasks: one open session of a runtime, one job over tables for each stage."""
