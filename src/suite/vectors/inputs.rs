//! Inputs worth recording: tiles by category, each a place where one rule of the unit shows.
//!
//! Everything follows from the seed: a tile is drawn from the stream (seed, category, tile), so that a category keeps
//! its tiles whatever stands before it. Exponents are clamped to what the operand format has, so in f16
//! and e4m3 a category may be tamer than its name.

use crate::{
    backend::tiles::{COLS, ROWS},
    format::Rounding,
    random::{Key, Purpose, Stream},
    tensor_core::{Instruction, Operand},
};

/// Tiles of each category.
pub const TILES: usize = 24;
/// Words of each kind for the conversions.
const WORDS: usize = 4096;
/// The `layer` of the conversions' stream: no category's number.
const CONVERSIONS: u32 = 0xffff;
/// The bits of a tf32 register that the unit does not read.
const UNREAD: u32 = 0x1fff;

/// The inputs of a recording of tiles.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TileInputs {
    /// Names of the categories.
    pub categories: Vec<&'static str>,
    /// Category of each tile.
    pub category: Vec<u8>,
    /// a [tiles, 16, k], a code per word.
    pub a: Vec<u32>,
    /// b [tiles, k, 8], likewise.
    pub b: Vec<u32>,
    /// c [tiles, 16, 8], fp32 bits.
    pub c: Vec<u32>,
}

impl TileInputs {
    /// [`TILES`] tiles of every category.
    #[must_use]
    pub fn new(instruction: Instruction, seed: u64) -> Self {
        let mut inputs = Self {
            categories: Vec::new(),
            category: Vec::new(),
            a: Vec::new(),
            b: Vec::new(),
            c: Vec::new(),
        };
        let of_operand =
            |category: &&Category| category.only.is_none_or(|only| only == instruction.operand);
        for (number, category) in (0_u8..).zip(CATEGORIES.iter().filter(of_operand)) {
            inputs.categories.push(category.name);
            for tile in 0..TILES {
                let stream = Stream::new(Key {
                    seed,
                    purpose: Purpose::Vectors,
                    layer: u32::from(number),
                    token: tile as u64,
                });
                let mut tile = Tile::ordinary(instruction, stream);
                (category.change)(&mut tile);
                inputs.category.push(number);
                inputs.a.extend(tile.a);
                inputs.b.extend(tile.b);
                inputs.c.extend(tile.c);
            }
        }
        inputs
    }
}

/// fp32 words for the conversions: raw, at and beside the ties of both formats, and special ones.
#[must_use]
pub fn words(seed: u64) -> Vec<u32> {
    const LOW: [u32; 8] = [0x0fff, 0x1000, 0x1001, 0x7fff, 0x8000, 0x8001, 0xffff, 0];
    const SPECIAL: [u32; 8] = [
        0,
        1,
        UNREAD,
        0x007f_ffff,
        0x7f7f_ffff,
        0x7f80_0000,
        0x7f80_0001,
        0x7fc1_2345,
    ];
    let mut stream = Stream::new(Key {
        seed,
        purpose: Purpose::Vectors,
        layer: CONVERSIONS,
        token: 0,
    });
    let raw = (0..WORDS).map(|_| stream.word() as u32).collect::<Vec<_>>();
    let tie = |&raw: &u32| (raw & 0xffff_0000) | LOW[raw as usize % LOW.len()];
    // Every exponent beside the largest, which rounding carries into infinity, and the special words.
    let special = |(index, &raw): (usize, &u32)| match index % 3 {
        0 => (raw & 0x8000_ffff) | 0x7f7f_0000,
        1 => (raw & 0x8000_0000) | SPECIAL[index / 3 % SPECIAL.len()],
        _ => raw & 0x807f_ffff,
    };
    let ties = raw.iter().map(tie);
    let specials = raw.iter().enumerate().map(special);
    raw.iter().copied().chain(ties).chain(specials).collect()
}

/// A kind of input.
struct Category {
    name: &'static str,
    /// The one operand format in which there is such a thing.
    only: Option<Operand>,
    /// Makes an ordinary tile one of its kind.
    change: fn(&mut Tile),
}

const fn category(name: &'static str, change: fn(&mut Tile)) -> Category {
    Category {
        name,
        only: None,
        change,
    }
}

/// The order is part of every recording: append, and keep those of one format last.
static CATEGORIES: &[Category] = &[
    category("normal", |_| {}),
    category("from_zero", |tile| tile.c.fill(0)),
    category("outliers", outliers),
    category("wide_exponents", wide_exponents),
    category("full_range", full_range),
    category("cancelling", |tile| cancelling(tile, 0)),
    category("nearly_cancelling", |tile| {
        cancelling(tile, tile.unit_code());
    }),
    category("subnormal", subnormal),
    category("underflow", underflow),
    category("overflow", overflow),
    category("special_values", special_values),
    category("signed_zeros", signed_zeros),
    category("large_accumulator", large_accumulator),
    category("window_edge", window_edge),
    category("rounding_edge", rounding_edge),
    category("largest_significands", largest_significands),
    category("zero_times_huge", zero_times_huge),
    category("raw_bits", raw_bits),
    Category {
        name: "dirty_low_bits",
        only: Some(Operand::Tf32),
        change: dirty_low_bits,
    },
];

/// A few columns of a as large as the outlier dims of a BOS token.
fn outliers(tile: &mut Tile) {
    for _ in 0..2 {
        let k = tile.stream.below(tile.k);
        for row in 0..ROWS {
            let exponent = tile.between(10, 16);
            tile.a[row * tile.k + k] = tile.operand_at(exponent);
        }
    }
}

fn wide_exponents(tile: &mut Tile) {
    let span = tile.max_exponent() / 4;
    tile.operands(|tile| {
        let exponent = tile.between(-span, span);
        tile.operand_at(exponent)
    });
    tile.accumulators(|tile| {
        let exponent = tile.between(-2 * span, 2 * span);
        tile.f32_at(exponent)
    });
}

fn full_range(tile: &mut Tile) {
    let (low, high) = (tile.min_exponent(), tile.max_exponent());
    tile.operands(|tile| {
        let exponent = tile.between(low, high);
        tile.operand_at(exponent)
    });
    tile.accumulators(|tile| {
        let exponent = tile.between(-126, 127);
        tile.f32_at(exponent)
    });
}

/// Products in pairs of opposite sign; the second factor of each pair differs by `apart`.
fn cancelling(tile: &mut Tile, apart: u32) {
    for k in (1..tile.k).step_by(2) {
        for row in 0..ROWS {
            let at = row * tile.k + k;
            tile.a[at] = tile.negated(tile.a[at - 1]);
        }
        for col in 0..COLS {
            tile.b[k * COLS + col] = tile.b[(k - 1) * COLS + col] ^ apart;
        }
    }
    tile.accumulators(|tile| {
        let exponent = tile.between(-40, -10);
        tile.f32_at(exponent)
    });
}

/// Subnormal a, b of any size; half the accumulators subnormal.
fn subnormal(tile: &mut Tile) {
    let (low, high) = (tile.min_exponent(), tile.max_exponent());
    for at in 0..tile.a.len() {
        tile.a[at] = tile.subnormal_operand();
    }
    for at in 0..tile.b.len() {
        let exponent = tile.between(low, high);
        tile.b[at] = tile.operand_at(exponent);
    }
    tile.accumulators(|tile| {
        let exponent = tile.between(2 * low, high);
        if tile.flip() {
            tile.subnormal_f32()
        } else {
            tile.f32_at(exponent)
        }
    });
}

/// Products about 2⁻¹⁵⁰, where neither floor nor least subnormal is far.
fn underflow(tile: &mut Tile) {
    let about = tile.between(-150, -126);
    tile.products(|tile| about + tile.between(-4, 2));
    tile.accumulators(|tile| if tile.flip() { 0 } else { tile.subnormal_f32() });
}

/// Products about 2¹²⁷ beside accumulators of that size.
fn overflow(tile: &mut Tile) {
    tile.products(|tile| tile.between(122, 128));
    tile.accumulators(|tile| tile.f32_at(127));
}

fn special_values(tile: &mut Tile) {
    const SPECIAL: [f32; 4] = [f32::INFINITY, f32::NEG_INFINITY, f32::NAN, 0.0];
    for at in 0..tile.a.len() {
        if tile.stream.below(40) == 0 {
            tile.a[at] = tile.operand.to_code(SPECIAL[tile.stream.below(4)]);
        }
    }
    for at in 0..tile.b.len() {
        if tile.stream.below(40) == 0 {
            tile.b[at] = tile.operand.to_code(SPECIAL[tile.stream.below(4)]);
        }
    }
    for at in 0..tile.c.len() {
        if tile.stream.below(10) == 0 {
            tile.c[at] = SPECIAL[tile.stream.below(4)].to_bits();
        }
    }
}

fn signed_zeros(tile: &mut Tile) {
    for at in 0..tile.a.len() {
        if tile.stream.below(32) != 0 {
            tile.a[at] = tile.zero();
        }
    }
    tile.accumulators(|tile| if tile.flip() { 0 } else { (-0.0_f32).to_bits() });
}

fn large_accumulator(tile: &mut Tile) {
    tile.accumulators(|tile| {
        let exponent = tile.between(10, 40);
        tile.f32_at(exponent)
    });
}

/// Accumulators so far above the products that each place of these is cut in some output.
fn window_edge(tile: &mut Tile) {
    let about = tile.between(-12, -6);
    tile.products(|_| about);
    tile.accumulators(|tile| {
        let exponent = about + tile.between(2, 28);
        tile.f32_at(exponent)
    });
}

/// Two products at the accumulator's last place, its fraction about to carry or to borrow.
fn rounding_edge(tile: &mut Tile) {
    const FRACTIONS: [u32; 4] = [0, 1, 0x7f_fffe, 0x7f_ffff];
    let about = tile.between(-12, -6);
    tile.products(|_| about);
    for at in 0..tile.a.len() {
        if at % tile.k >= 2 {
            tile.a[at] = 0;
        }
    }
    tile.accumulators(|tile| {
        let exponent = about + tile.between(21, 26);
        let fraction = FRACTIONS[tile.stream.below(4)];
        (tile.f32_at(exponent) & 0xff80_0000) | fraction
    });
}

/// All of one sign with every fraction bit set: the most that can carry.
fn largest_significands(tile: &mut Tile) {
    let largest = 2.0 - tile.operand.format().ulp_at(1.0) as f32;
    tile.operands(|tile| tile.operand.to_code(largest));
    tile.accumulators(|tile| {
        let exponent = tile.between(0, 6);
        (tile.f32_at(exponent) & 0x7fff_ffff) | 0x7f_ffff
    });
}

/// Every other product is zero times the largest there is.
fn zero_times_huge(tile: &mut Tile) {
    let huge = tile.max_exponent();
    tile.products(|tile| tile.between(-12, -4));
    for k in (0..tile.k).step_by(2) {
        for row in 0..ROWS {
            tile.a[row * tile.k + k] = tile.zero();
        }
        for col in 0..COLS {
            tile.b[k * COLS + col] = tile.operand_at(huge);
        }
    }
    tile.accumulators(|tile| {
        let exponent = tile.between(-30, 0);
        tile.f32_at(exponent)
    });
}

fn raw_bits(tile: &mut Tile) {
    let unused = 32 - 8 * tile.operand.code_bytes() as u32;
    tile.operands(|tile| tile.stream.word() as u32 >> unused);
    tile.accumulators(|tile| tile.stream.word() as u32);
}

/// Ordinary words whose unread bits are set, and words that have no other.
fn dirty_low_bits(tile: &mut Tile) {
    tile.operands(|tile| {
        let low = tile.stream.word() as u32 & UNREAD;
        match tile.stream.below(48) {
            // A NaN that the unit takes for an infinity, and a subnormal that it takes for zero.
            0 => 0x7f80_0000 | low,
            1 => low,
            _ => tile.normal() | low,
        }
    });
}

/// A tile under construction.
struct Tile {
    operand: Operand,
    k: usize,
    stream: Stream,
    a: Vec<u32>,
    b: Vec<u32>,
    c: Vec<u32>,
}

impl Tile {
    /// Standard normals throughout.
    fn ordinary(instruction: Instruction, stream: Stream) -> Self {
        let Instruction { operand, k, .. } = instruction;
        let mut tile = Self {
            operand,
            k,
            stream,
            a: vec![0; ROWS * k],
            b: vec![0; k * COLS],
            c: vec![0; ROWS * COLS],
        };
        tile.operands(Self::normal);
        tile.accumulators(|tile| (tile.stream.normal() as f32).to_bits());
        tile
    }

    fn operands(&mut self, mut draw: impl FnMut(&mut Self) -> u32) {
        for at in 0..self.a.len() {
            self.a[at] = draw(self);
        }
        for at in 0..self.b.len() {
            self.b[at] = draw(self);
        }
    }

    fn accumulators(&mut self, mut draw: impl FnMut(&mut Self) -> u32) {
        for at in 0..self.c.len() {
            self.c[at] = draw(self);
        }
    }

    /// Operands whose products have the exponent drawn for their k, as far as the format goes.
    fn products(&mut self, mut exponent: impl FnMut(&mut Self) -> i32) {
        for k in 0..self.k {
            let both = exponent(self);
            let first = both / 2 + self.between(-2, 2);
            for row in 0..ROWS {
                self.a[row * self.k + k] = self.operand_at(first);
            }
            for col in 0..COLS {
                self.b[k * COLS + col] = self.operand_at(both - first);
            }
        }
    }

    fn min_exponent(&self) -> i32 {
        self.operand.format().min_exponent()
    }

    fn max_exponent(&self) -> i32 {
        self.operand
            .exponent(self.operand.format().largest() as f32)
            .unwrap_or(0)
    }

    /// The distance of neighbouring codes.
    fn unit_code(&self) -> u32 {
        if self.operand == Operand::Tf32 {
            UNREAD + 1
        } else {
            1
        }
    }

    fn flip(&mut self) -> bool {
        self.stream.below(2) == 1
    }

    /// Uniform on `low..=high`.
    fn between(&mut self, low: i32, high: i32) -> i32 {
        low + self.stream.below((high - low + 1) as usize) as i32
    }

    fn normal(&mut self) -> u32 {
        let value = self.stream.normal();
        let rounded = self
            .operand
            .format()
            .round_f64(value, Rounding::NearestEven);
        self.operand.to_code(rounded)
    }

    fn negated(&self, code: u32) -> u32 {
        self.operand.to_code(-self.operand.from_code(code))
    }

    fn zero(&mut self) -> u32 {
        let zero = if self.flip() { 0.0 } else { -0.0 };
        self.operand.to_code(zero)
    }

    /// Any sign and fraction with this exponent, or the nearest that the format has.
    fn operand_at(&mut self, exponent: i32) -> u32 {
        let exponent = exponent.clamp(self.min_exponent(), self.max_exponent());
        let any = f32::from_bits(self.f32_at(exponent));
        let cut = self.operand.format().round_f32(any, Rounding::TowardZero);
        self.operand.to_code(cut)
    }

    fn subnormal_operand(&mut self) -> u32 {
        let bits = self.operand.fraction_bits();
        let fraction = 1 + self.stream.below((1 << bits) - 1);
        let unit = self.operand.format().ulp_at(0.0);
        let sign = if self.flip() { 1.0 } else { -1.0 };
        self.operand.to_code((sign * fraction as f64 * unit) as f32)
    }

    /// The bits of an f32 of this exponent, or of the nearest it has, with any sign and fraction.
    fn f32_at(&mut self, exponent: i32) -> u32 {
        let biased = (exponent.clamp(-126, 127) + 127) as u32;
        (self.stream.word() as u32 & 0x807f_ffff) | biased << 23
    }

    fn subnormal_f32(&mut self) -> u32 {
        self.stream.word() as u32 & 0x807f_ffff
    }
}

#[cfg(test)]
mod tests;
