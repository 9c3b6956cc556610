//! The bit-exact model of NVIDIA's matrix units.
