//! The inputs x of a site: a named, seeded distribution, or a file.
