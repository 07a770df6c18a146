"""Random vibration of one oscillator for many samples: traced steps, and noise drawn from counters."""
