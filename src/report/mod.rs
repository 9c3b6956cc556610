//! Rows and provenance, and the formats they are written in.
