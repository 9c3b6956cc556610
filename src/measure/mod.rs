//! Error and bound measures of got against truth.

pub mod value;
