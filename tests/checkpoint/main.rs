//! Checkpoints as users meet them: whole, partial, foreign, broken and hostile.

mod against;
mod broken;
mod chain_weights;
mod contradictions;
mod hostile;
mod index_inputs;
mod indexer;
mod inputs;
mod inspect;
mod memory;
mod mutations;
mod rope;
mod round_trip;
mod shared_expert;
mod spellings;
mod support;
mod transformers;
