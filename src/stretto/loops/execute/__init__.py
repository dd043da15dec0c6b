"""Running a planned loop: buffers, passes, rounds."""
