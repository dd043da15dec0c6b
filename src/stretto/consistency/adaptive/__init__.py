"""Settings that are tuned while a run makes progress: `controller` decides, `progress` compares windows."""
