//! Parse, dispatch, exit code: nothing else.

fn main() {}
