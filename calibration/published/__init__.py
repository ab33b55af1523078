"""Published kernel timings: read, made into tables of measurements, and what is fitted to them."""
