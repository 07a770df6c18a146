"""The scalars of Krylov methods on the host: NumPy twins of `ensemble._kernels.krylov.device_scalars`."""
