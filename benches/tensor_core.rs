//! Products per second of the vectorised tensor-core model.
fn main() {}
