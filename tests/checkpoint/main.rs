//! Checkpoints as users meet them: whole, partial, foreign, broken and hostile.

mod hostile;
mod inputs;
mod inspect;
mod round_trip;
mod support;
mod transformers;
