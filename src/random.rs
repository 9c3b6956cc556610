//! Counter-based random streams: the same (seed, purpose, layer, token) gives the same numbers anywhere.
