//! The Hadamard rotation of a row: Sylvester's matrix in natural order, times W^-½.
//!
//! Stages of stride 1, 2, …, W/2, each (a, b) → (a + b, a − b) in fp32, then one product with f32(W^-½).
//! The matrix is orthogonal: rotating q and k alike leaves q·k as it is, in exact arithmetic.

/// Rotates `row`, whose length is a power of two.
///
/// # Panics
/// The length is not a power of two.
pub fn rotate(row: &mut [f32]) {
    let width = row.len();
    assert!(
        width.is_power_of_two(),
        "a row of {width} has no Hadamard matrix here: the length must be a power of two"
    );
    let mut stride = 1;
    while stride < width {
        for pair in row.chunks_exact_mut(2 * stride) {
            let (low, high) = pair.split_at_mut(stride);
            for (a, b) in low.iter_mut().zip(high) {
                (*a, *b) = (*a + *b, *a - *b);
            }
        }
        stride *= 2;
    }
    let scale = (1.0 / (width as f64).sqrt()) as f32;
    for x in row {
        *x *= scale;
    }
}
