//! The conversions and checks of the lanes, at every level. Oracle: exact arithmetic in wider types.

use ulpdrift_reference::simd::Level;

use crate::tensor_core::lanes::{self, LANES, Lanes, PairWords, Reals, Task};

/// Sixteen pairs of integers, and what the lanes make of them.
struct Sums<'a> {
    a: [i32; LANES],
    b: [i32; LANES],
    real: &'a mut Reals,
    overflow: &'a mut u16,
}

impl Task for Sums<'_> {
    fn run<V: Lanes>(self, lanes: V) {
        let load = |words: [i32; LANES]| {
            lanes.bits(lanes.load(&Reals(words.map(|word| f32::from_bits(word as u32)))))
        };
        let (a, b) = (load(self.a), load(self.b));
        let sum = lanes.add(a, b);
        lanes.store(lanes.to_real(a), self.real);
        *self.overflow = lanes.negative(lanes.flag_overflow(lanes.splat_int(0), a, b, sum));
    }
}

fn toward_zero(x: i32) -> f32 {
    let kept = f64::from(x).to_bits() & (u64::MAX << 29);
    f64::from_bits(kept) as f32
}

#[test]
fn integers_convert_toward_zero_and_overflow_is_seen() {
    let mut words = vec![0, 1, -1, i32::MAX, i32::MIN, i32::MIN + 1];
    for bit in 1..31 {
        for near in -3..=3 {
            words.extend([
                (1 << bit) + near,
                -(1 << bit) + near,
                i32::MAX.wrapping_sub(1 << bit).wrapping_add(near),
            ]);
        }
    }
    let mut state = 1_u32;
    words.extend((0..100_000).map(|_| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state as i32) >> (state >> 8 & 15)
    }));
    for level in Level::ALL {
        for a in words.as_chunks::<LANES>().0 {
            let mut b = *a;
            b.rotate_left(5);
            let (mut real, mut overflow) = (Reals([0.0; LANES]), 0);
            let sums = Sums {
                a: *a,
                b,
                real: &mut real,
                overflow: &mut overflow,
            };
            lanes::run(level, sums);
            for lane in 0..LANES {
                assert_eq!(real.0[lane], toward_zero(a[lane]), "{level} {}", a[lane]);
                let overflows = a[lane].checked_add(b[lane]).is_none();
                assert_eq!(overflow >> lane & 1 == 1, overflows, "{level} {lane} {a:?}");
            }
        }
    }
}

/// A square of values by rows, and its columns.
struct Transpose<'a> {
    rows: &'a [[f32; LANES]; LANES],
    columns: &'a mut [Reals; LANES],
}

impl Task for Transpose<'_> {
    fn run<V: Lanes>(self, lanes: V) {
        lanes.transpose(&self.rows.each_ref(), self.columns);
    }
}

#[test]
fn columns_are_columns() {
    let rows: [[f32; LANES]; LANES] =
        std::array::from_fn(|row| std::array::from_fn(|column| (row * 100 + column) as f32));
    for level in Level::ALL {
        let mut columns = [Reals([0.0; LANES]); LANES];
        let task = Transpose {
            rows: &rows,
            columns: &mut columns,
        };
        lanes::run(level, task);
        for (k, column) in columns.iter().enumerate() {
            assert_eq!(column.0, rows.map(|row| row[k]), "{level} {k}");
        }
    }
}

/// Sums of pairs, and the larger half of each.
struct Pairs<'a> {
    a: PairWords,
    b: PairWords,
    larger: &'a mut Reals,
    above: &'a mut u16,
}

impl Task for Pairs<'_> {
    fn run<V: Lanes>(self, lanes: V) {
        let sums = lanes.add_pairs(lanes.load_pairs(&self.a), lanes.load_pairs(&self.b));
        let larger = lanes.larger_half(sums);
        lanes.store(lanes.with_bits(larger), self.larger);
        *self.above = lanes.above(larger, lanes.splat_int(0x1234_5678));
    }
}

#[test]
fn alignments_saturate_and_the_larger_one_counts() {
    let mut state = 7_u32;
    let mut word = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        state ^ state >> 15
    };
    for _ in 0..2000 {
        let a = PairWords(std::array::from_fn(|_| word()));
        let b = PairWords(std::array::from_fn(|_| word()));
        for level in Level::ALL {
            let (mut larger, mut above) = (Reals([0.0; LANES]), 0);
            let pairs = Pairs {
                a,
                b,
                larger: &mut larger,
                above: &mut above,
            };
            lanes::run(level, pairs);
            for lane in 0..LANES {
                let half = |word: u32, half: u32| i32::from((word >> (16 * half)) as i16);
                let sum =
                    |at: u32| (half(a.0[lane], at) + half(b.0[lane], at)).clamp(-32768, 32767);
                let bits = larger.0[lane].to_bits();
                assert_eq!(half(bits, 1), sum(0).max(sum(1)), "{level}");
                assert_eq!(above >> lane & 1 == 1, bits > 0x1234_5678, "{level}");
            }
        }
    }
}
