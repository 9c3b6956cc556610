//! One sentence per variant, with the numbers that led to it.
