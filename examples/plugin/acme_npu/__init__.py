"""Support for an imaginary chip, the Acme NPU, in layoutopt."""
