"""Read published kernel timings, make tables of measurements, and fit whole layers."""
