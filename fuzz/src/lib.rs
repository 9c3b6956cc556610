//! What the fuzz targets share: the laws that they check, and the changes that they make to inputs.

pub mod laws;
pub mod mutate;
