//! Checkpoints as users meet them: whole, partial, foreign, broken and hostile.

mod chain_weights;
mod contradictions;
mod hostile;
mod inputs;
mod inspect;
mod mutations;
mod round_trip;
mod shared_expert;
mod support;
mod transformers;
