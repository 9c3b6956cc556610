//! Which keys a candidate selects, against those of the truth: what continuous error measures cannot show.
//!
//! S `[N]` are the fp64 reference's scores of the keys that one query sees, A its top k, the k largest by the order
//! of [`crate::ranking`]; g `[N]` the candidate's scores (fp32), B the different, visible keys it chose. n = min(k, N), S₍ⱼ₎ the
//! j-th largest reference score.
//!
//! | measure | definition |
//! |---|---|
//! | `recall` | \|A∩B\| / n; 1 if nothing is visible |
//! | `kept_at` | the same with B of a larger k′: what raising the model's k to k′ buys |
//! | `jaccard` | \|A∩B\| / \|A∪B\| |
//! | `tie_adjusted_recall` | (\|{i ∈ B : Sᵢ > S₍ₙ₎}\| + min(\|{i ∈ B : Sᵢ = S₍ₙ₎}\|, r)) / n, r = n − \|{i : Sᵢ > S₍ₙ₎}\|: any of the keys that tie for the last r places is right, and none makes up for a better one |
//! | `value_recall` | Σ_B (Sᵢ − m) / Σ_A (Sᵢ − m), m the least visible score |
//! | `score_mass_lost` | Σ_{A∖B} max(Sᵢ, 0) / Σ_A max(Sᵢ, 0); absent if no score of A is positive |
//! | `best_lost_rank` | the smallest reference rank, from 1, in A∖B; absent if that is empty |
//! | `ties_ref`, `ties_got` | visible keys whose score equals the n-th largest of S, of g |
//! | `margin` | S₍ₖ₎ − S₍ₖ₊₁₎; absent if no more than k keys are visible, as are the next two |
//! | `margin_over_error` | the median of the 2h−1 gaps between neighbours of ranks k−h+1 to k+h, over the rms of g − S at these ranks, with h = min(64, k, N−k); +Inf if that is 0 |
//! | `inside_error` | keys within that rms of the middle of S₍ₖ₎ and S₍ₖ₊₁₎: those whose selection the error can turn |
//! | `nan_got` | NaNs among the visible scores of g |
//!
//! **Value recall and tie-adjusted recall.** Tie-adjusted recall asks of every chosen key whether it belongs to *a* top k, and a
//! key that misses the cut by nothing to speak of is as wrong as one that is the worst of all. Value recall weighs each key by
//! what it scores above the worst: keys of much the same score may be swapped for next to nothing. It is in [0, 1] for at most k
//! keys, 1 exactly for a set that loses nothing but ties, and is computed from A∖B and B∖A, so that equal sets cancel exactly.
//! Where all visible scores are equal it is the tie-adjusted recall.
//!
//! **NaN.** A NaN in S or in g is behind every number. A NaN score at the ranks around the cut makes `margin_over_error` NaN and counts
//! every visible key as inside the error; one in S makes the measures that sum it NaN. Indices out of range, not visible or
//! repeated are no keys (a [certificate](super::certificate) reports them).

mod query;
mod summary;
#[cfg(test)]
mod tests;

pub use query::{Chosen, Selection, Truth};
pub use summary::{Spread, Summary};
