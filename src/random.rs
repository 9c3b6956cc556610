//! Random numbers that depend on what they are for, and on nothing else.
//!
//! A [`Stream`] is `ChaCha8` with its 256-bit key and 64-bit stream number filled in directly from
//! (seed, purpose, layer, token), so any two keys give independent streams and any of them can be
//! opened alone. It follows that fewer tokens are a prefix of more, and that neither the number of
//! threads nor the order of the work can change a bit.
//!
//! ```text
//! key    = seed (u64 LE) | purpose (u32 LE) | layer (u32 LE) | "ulpdrift" | 0 (u64)
//! stream = token (u64)
//! ```
//!
//! Normals come from the ziggurat of Marsaglia and Tsang in Doornik's variant ("ZIGNOR", 2005) with
//! 256 boxes. `rand_distr::StandardNormal` is the same algorithm, and the tests hold ours against
//! it; it is not used because its `exp` and `ln` are the system's as soon as any crate of the build
//! turns on `num-traits/std` (`ndarray` does), and those differ between C libraries and CPUs. Here
//! they are `libm`'s, the tables included, so that a synthetic checkpoint has the same bits
//! everywhere.

use std::sync::LazyLock;

use rand_chacha::{
    ChaCha8Rng,
    rand_core::{Rng, SeedableRng},
};

/// What a stream is for. The numbers are part of every synthetic checkpoint: never renumber.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum Purpose {
    /// The activations that both sites of a layer share; token = row.
    Activations = 1,
    /// The outlier dims of the BOS-like row; token = 0.
    Outlier = 2,
    /// How the four streams of `copies` differ; token = row.
    Copies = 3,
    /// The ids of the tokens whose embeddings a chain begins with; layer = 0, token = row.
    Tokens = 4,
    /// A perturbation of the streams before a layer; token = row.
    Perturbation = 5,
    /// What the tokens of a passage of `correlated` have in common; token = passage.
    Passages = 6,
    /// What the tokens of a phrase of `correlated` have in common; token = phrase.
    Phrases = 7,
    /// The parameters of a known bug of the indexer, and of the input that triggers it; token = bug.
    Fault = 8,
    /// A synthetic weight; layer and token say which one (see `checkpoint::synthetic`).
    Weight = 16,
    /// Where the wide entries of a heavy-tailed synthetic weight lie.
    WeightTail = 17,
    /// The inputs of recorded matrix instructions; layer = category, token = tile.
    Vectors = 32,
}

/// Names one stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Key {
    /// The user's seed.
    pub seed: u64,
    /// What the numbers are for.
    pub purpose: Purpose,
    /// The layer, or another 32-bit distinction.
    pub layer: u32,
    /// The token, or another 64-bit distinction.
    pub token: u64,
}

/// Words made at a time: two of the generator's own blocks, and little to lose where few are wanted.
const WORDS: usize = 64;

/// A word as the generator writes it, little-endian.
type Word = [u8; 8];

/// An endless stream of random numbers, determined by its [`Key`].
#[derive(Clone, Debug)]
pub struct Stream {
    generator: ChaCha8Rng,
    words: [Word; WORDS],
    /// How many of `words` are used up.
    used: usize,
}

impl Stream {
    /// Opens the stream of `key` at its beginning.
    #[must_use]
    pub fn new(key: Key) -> Self {
        let mut bytes = [0_u8; 32];
        bytes[..8].copy_from_slice(&key.seed.to_le_bytes());
        bytes[8..12].copy_from_slice(&(key.purpose as u32).to_le_bytes());
        bytes[12..16].copy_from_slice(&key.layer.to_le_bytes());
        bytes[16..24].copy_from_slice(b"ulpdrift");
        let mut generator = ChaCha8Rng::from_seed(bytes);
        generator.set_stream(key.token);
        Self {
            generator,
            words: [[0; 8]; WORDS],
            used: WORDS,
        }
    }

    /// Uniform over all 64-bit words.
    #[inline]
    pub fn word(&mut self) -> u64 {
        let word = self.ready()[0];
        self.used += 1;
        u64::from_le_bytes(word)
    }

    /// The words made and not yet used, at least one.
    #[inline]
    fn ready(&mut self) -> &[Word] {
        if self.used == WORDS {
            self.generator.fill_bytes(self.words.as_flattened_mut());
            self.used = 0;
        }
        &self.words[self.used..]
    }

    /// Uniform on the open interval (0, 1): odd multiples of 2⁻⁵³, so that its logarithm is finite.
    #[inline]
    pub fn unit(&mut self) -> f64 {
        ((self.word() >> 12) as f64 + 0.5) * (1.0 / (1_u64 << 52) as f64)
    }

    /// Uniform on (`low`, `high`).
    pub fn uniform(&mut self, low: f64, high: f64) -> f64 {
        low + (high - low) * self.unit()
    }

    /// Uniform on `0..bound`, `bound` at least 1; the bias is below `bound`/2⁶⁴.
    pub fn below(&mut self, bound: usize) -> usize {
        ((u128::from(self.word()) * bound as u128) >> 64) as usize
    }

    /// A standard normal number.
    #[inline]
    pub fn normal(&mut self) -> f64 {
        self.normal_from(&ZIGGURAT)
    }

    /// Fills `values` with standard normals, each rounded once to f32.
    pub fn fill_normal(&mut self, values: &mut [f32]) {
        let ziggurat = &*ZIGGURAT;
        let mut filled = 0;
        while filled < values.len() {
            let count = ziggurat.fill_inside(self.ready(), &mut values[filled..]);
            self.used += count;
            filled += count;
            // Out of words or of values, or at a word that needs more than itself.
            if filled < values.len() && self.used < WORDS {
                values[filled] = self.normal_from(ziggurat) as f32;
                filled += 1;
            }
        }
    }

    fn normal_from(&mut self, ziggurat: &Ziggurat) -> f64 {
        loop {
            let draw = Draw::new(self.word(), ziggurat);
            if draw.is_inside(ziggurat) {
                return draw.x;
            }
            if draw.layer == 0 {
                return self.tail(draw.position);
            }
            let density = &ziggurat.density[draw.layer..];
            let height = (self.word() >> 11) as f64 * (1.0 / (1_u64 << 53) as f64);
            if density[1] + (density[0] - density[1]) * height < libm::exp(-draw.x * draw.x / 2.0) {
                return draw.x;
            }
        }
    }

    /// Marsaglia's tail beyond the last edge, about one number in 4,000.
    #[cold]
    fn tail(&mut self, position: f64) -> f64 {
        loop {
            let x = libm::log(self.unit()) / LAST_EDGE;
            let y = libm::log(self.unit());
            if -2.0 * y >= x * x {
                return if position < 0.0 {
                    x - LAST_EDGE
                } else {
                    LAST_EDGE - x
                };
            }
        }
    }
}

/// Where the base box ends and the tail begins, for 256 boxes of equal area.
const LAST_EDGE: f64 = 3.654_152_885_361_009;

/// The width a rectangle of the base box's area (its tail included) would have.
const BASE_WIDTH: f64 = 3.910_757_959_537_09;

/// The box edges, descending from the base box's nominal width to 0, and exp(-x²/2) at each.
struct Ziggurat {
    edge: [f64; 257],
    density: [f64; 257],
}

/// What one word says: bits 0–7 choose the box, bits 12–63 the signed position in it.
struct Draw {
    layer: usize,
    /// In [-1, 1) of the box's width.
    position: f64,
    x: f64,
}

impl Draw {
    #[inline(always)]
    fn new(word: u64, ziggurat: &Ziggurat) -> Self {
        let layer = (word & 0xff) as usize;
        // [2, 4) by exponent bits, then to [-1, 1).
        let position = f64::from_bits(0x4000_0000_0000_0000 | (word >> 12)) - 3.0;
        Self {
            layer,
            position,
            x: position * ziggurat.edge[layer],
        }
    }

    /// Whether x lies below the density whatever its height: 99 of 100 do.
    #[inline(always)]
    fn is_inside(&self, ziggurat: &Ziggurat) -> bool {
        self.x.abs() < ziggurat.edge[self.layer + 1]
    }
}

impl Ziggurat {
    /// Turns words into normals up to the first word that needs more than itself; tells how many.
    fn fill_inside(&self, words: &[Word], values: &mut [f32]) -> usize {
        let mut count = 0;
        for (value, &word) in values.iter_mut().zip(words) {
            let draw = Draw::new(u64::from_le_bytes(word), self);
            if !draw.is_inside(self) {
                break;
            }
            *value = draw.x as f32;
            count += 1;
        }
        count
    }
}

static ZIGGURAT: LazyLock<Ziggurat> = LazyLock::new(|| {
    let density = |x: f64| libm::exp(-0.5 * x * x);
    let mut edge = [0.0; 257];
    let area = BASE_WIDTH * density(LAST_EDGE);
    edge[0] = BASE_WIDTH;
    edge[1] = LAST_EDGE;
    for layer in 2..256 {
        let previous = edge[layer - 1];
        edge[layer] = libm::sqrt(-2.0 * libm::log(area / previous + density(previous)));
    }
    Ziggurat {
        edge,
        density: edge.map(density),
    }
});

#[cfg(test)]
mod tests {
    use rand_distr::{Distribution, StandardNormal};

    use super::*;

    fn key(token: u64) -> Key {
        Key {
            seed: 42,
            purpose: Purpose::Activations,
            layer: 3,
            token,
        }
    }

    /// The oracle is the published sampler on the same generator: the same numbers, tail and
    /// rejections included, but for the last bits of a table entry.
    #[test]
    fn normals_are_those_of_rand_distr() {
        let mut theirs = Stream::new(key(0)).generator;
        let mut ours = Stream::new(key(0));
        for index in 0..200_000 {
            let want: f64 = StandardNormal.sample(&mut theirs);
            let got = ours.normal();
            assert!(
                (got - want).abs() <= 2e-13,
                "number {index}: {got} against {want}"
            );
        }
    }

    #[test]
    fn chacha8_is_the_published_one() {
        let mut generator = ChaCha8Rng::seed_from_u64(42);
        assert_eq!(generator.next_u64(), 0xae90_bfb5_395d_5ba1);
    }

    #[test]
    fn golden_bits() {
        let mut stream = Stream::new(key(7));
        let words: [u64; 2] = [stream.word(), stream.word()];
        let mut normals = [0.0_f32; 4];
        stream.fill_normal(&mut normals);
        let tail = Stream::new(key(9)).tail(1.0);
        assert_eq!(words, [0x01a2_2126_ed63_f075, 0x47a3_33e6_2852_080c]);
        assert_eq!(
            normals.map(f32::to_bits),
            [0xbf11_38db, 0x3f94_57bc, 0x3fc1_28ca, 0x3f46_ab24]
        );
        assert_eq!(tail.to_bits(), 0x400e_89bc_98e0_e728);
    }

    /// However words and fills of any length take turns, the numbers are those one at a time.
    #[test]
    fn filling_takes_the_numbers_one_at_a_time_would() {
        let (mut whole, mut single) = (Stream::new(key(3)), Stream::new(key(3)));
        let mut theirs = single.generator.clone();
        for length in (0..400).chain([5000]) {
            let mut values = vec![0.0_f32; length];
            whole.fill_normal(&mut values);
            for (index, value) in values.into_iter().enumerate() {
                let want: f64 = StandardNormal.sample(&mut theirs);
                assert!(
                    (f64::from(value) - want).abs() <= 1e-7 * want.abs() + 2e-13,
                    "number {index} of {length}: {value} against {want}"
                );
                assert_eq!(value.to_bits(), (single.normal() as f32).to_bits());
            }
            let word = theirs.next_u64();
            assert_eq!([whole.word(), single.word()], [word; 2], "after {length}");
        }
    }

    #[test]
    fn moments_of_a_million_normals() {
        let mut values = vec![0.0_f32; 1_000_000];
        Stream::new(key(0)).fill_normal(&mut values);
        let moment = |power: i32| {
            values
                .iter()
                .map(|&v| f64::from(v).powi(power))
                .sum::<f64>()
                / values.len() as f64
        };
        // Four standard errors: 1/√n, √2/√n, √15/√n, √96/√n.
        assert!(moment(1).abs() < 0.004);
        assert!((moment(2) - 1.0).abs() < 0.0057);
        assert!(moment(3).abs() < 0.0155);
        assert!((moment(4) - 3.0).abs() < 0.0392);
        let beyond = values.iter().filter(|v| v.abs() > LAST_EDGE as f32).count();
        // 2·(1 − Φ(3.654)) = 2.58e-4.
        assert!(
            (190..330).contains(&beyond),
            "{beyond} beyond the last edge"
        );
    }

    #[test]
    fn every_part_of_the_key_gives_another_stream() {
        let base = key(0);
        let first = |key| Stream::new(key).word();
        let others = [
            Key { seed: 43, ..base },
            Key {
                purpose: Purpose::Outlier,
                ..base
            },
            Key { layer: 4, ..base },
            Key { token: 1, ..base },
        ];
        for other in others {
            assert_ne!(first(base), first(other), "{other:?}");
        }
    }

    #[test]
    fn ranges_hold() {
        let mut stream = Stream::new(key(0));
        for _ in 0..10_000 {
            let unit = stream.unit();
            assert!(unit > 0.0 && unit < 1.0);
            assert!(stream.below(3) < 3);
            assert!((2.0..5.0).contains(&stream.uniform(2.0, 5.0)));
        }
    }
}
