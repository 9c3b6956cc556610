//! What a tensor's values look like, read piece by piece.
//!
//! Squares are summed over 16 interleaved lanes (k mod 16 within a piece), lanes in halves and pieces in
//! order, so that the bits do not depend on the vector width or the number of threads.

use ulpdrift_reference::simd::{self, Level, Task};

use super::{Checkpoint, CheckpointError, StoredType, locate::Located};

/// Statistics of one tensor. FP8 weights enter as codes, without their block scales.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TensorStats {
    /// How many values there are.
    pub values: u64,
    /// √(mean of squares) of the finite values, 0 if there are none.
    pub rms: f64,
    /// The largest magnitude of a finite value, 0 if there are none.
    pub abs_max: f64,
    /// How many values are NaN or infinite.
    pub nonfinite: u64,
}

/// Buffers that one tensor after another is read through.
#[derive(Debug, Default)]
pub struct ReadBuffers {
    bytes: Vec<u8>,
    decoded: Vec<f32>,
}

/// Reads a tensor once; `None` if its type is not one the tool decodes.
pub(super) fn measure(
    checkpoint: &Checkpoint,
    located: &Located,
    buffers: &mut ReadBuffers,
) -> Result<Option<TensorStats>, CheckpointError> {
    let Some(stored) = StoredType::from_name(&located.dtype) else {
        return Ok(None);
    };
    let level = Level::detect();
    let ReadBuffers { bytes, decoded } = buffers;
    let mut total = Sums::default();
    checkpoint.visit(located, bytes, |bytes| {
        total.join(&match stored {
            // Where decoding is a copy, there is none.
            StoredType::F32 => simd::run(level, F32Bytes(bytes)),
            _ => {
                decoded.clear();
                stored.decode_into(bytes, decoded);
                simd::run(level, Decoded(decoded))
            }
        });
    })?;
    let finite = total.values - total.nonfinite;
    let rms = if finite == 0 {
        0.0
    } else {
        (total.squares / finite as f64).sqrt()
    };
    Ok(Some(TensorStats {
        values: total.values,
        rms,
        abs_max: f64::from(f32::from_bits(total.abs_max)),
        nonfinite: total.nonfinite,
    }))
}

/// What a piece adds up to.
#[derive(Default)]
struct Sums {
    values: u64,
    squares: f64,
    /// Bits of the largest finite magnitude, which order as it does.
    abs_max: u32,
    nonfinite: u64,
}

impl Sums {
    fn join(&mut self, piece: &Self) {
        self.values += piece.values;
        self.squares += piece.squares;
        self.abs_max = self.abs_max.max(piece.abs_max);
        self.nonfinite += piece.nonfinite;
    }
}

const LANES: usize = 16;
const INFINITY: u32 = 0x7f80_0000;

/// Values to be summed up.
struct Decoded<'a>(&'a [f32]);

impl Task for Decoded<'_> {
    type Output = Sums;

    #[inline(always)]
    fn run(self) -> Sums {
        sum(self.0, |&value| value)
    }
}

/// Little-endian f32 values to be summed up, at any alignment.
struct F32Bytes<'a>(&'a [u8]);

impl Task for F32Bytes<'_> {
    type Output = Sums;

    #[inline(always)]
    fn run(self) -> Sums {
        sum(self.0.as_chunks().0, |&bytes| f32::from_le_bytes(bytes))
    }
}

#[inline(always)]
fn sum<T>(values: &[T], value: impl Fn(&T) -> f32) -> Sums {
    let mut lanes = Lanes::default();
    let (chunks, rest) = values.as_chunks::<LANES>();
    for chunk in chunks {
        for (lane, item) in chunk.iter().enumerate() {
            lanes.take(lane, value(item));
        }
    }
    for (lane, item) in rest.iter().enumerate() {
        lanes.take(lane, value(item));
    }
    lanes.fold(values.len())
}

#[derive(Default)]
struct Lanes {
    squares: [f64; LANES],
    abs_max: [u32; LANES],
    /// A piece is too short for these to overflow.
    nonfinite: [u32; LANES],
}

impl Lanes {
    #[inline(always)]
    fn take(&mut self, lane: usize, value: f32) {
        let magnitude = value.to_bits() & 0x7fff_ffff;
        let finite = if magnitude < INFINITY { magnitude } else { 0 };
        // The square of an f32 is exact in f64 and cannot overflow it.
        let size = f64::from(f32::from_bits(finite));
        self.squares[lane] += size * size;
        self.abs_max[lane] = self.abs_max[lane].max(finite);
        self.nonfinite[lane] += u32::from(magnitude >= INFINITY);
    }

    #[inline(always)]
    fn fold(mut self, values: usize) -> Sums {
        let mut width = LANES / 2;
        while width > 0 {
            for lane in 0..width {
                self.squares[lane] += self.squares[lane + width];
            }
            width /= 2;
        }
        Sums {
            values: values as u64,
            squares: self.squares[0],
            abs_max: self.abs_max.into_iter().max().unwrap_or(0),
            nonfinite: self.nonfinite.iter().map(|&count| u64::from(count)).sum(),
        }
    }
}
