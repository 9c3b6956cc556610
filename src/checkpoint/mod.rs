//! Finds and reads the few tensors needed out of shards that may be hundreds of GB.
