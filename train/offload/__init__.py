"""Train a model larger than device memory: its state on the host, a moving window of layers on the device."""
