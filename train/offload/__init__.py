"""More model than device memory: parameters, gradients and moments on the host, a moving window of layers on the device."""
