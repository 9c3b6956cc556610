//! Products of a vendor's library: variants with a name and no recipe.
//!
//! What such a product computes can be measured, on a device, and not emulated: the order it sums in is the
//! library's secret, and changes with the shape, the device and the version. What it does to its operands
//! shows in products of one number: x·1 with zeros everywhere else.

use wildmatch::WildMatch;

use super::{MixRecipe, Storage, catalogue};
use crate::format::{Rounding, tf32};

/// A product of cuBLAS, by what it is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum LibraryProduct {
    /// fp32 operands, fp32 arithmetic.
    Fp32Pedantic,
    /// fp32 operands that the library may round to TF32.
    Tf32,
    /// bf16 operands, fp32 sums.
    Bf16,
}

impl LibraryProduct {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Fp32Pedantic, Self::Tf32, Self::Bf16];

    /// Its name as a variant.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Fp32Pedantic => "cublas-fp32-pedantic",
            Self::Tf32 => "cublas-tf32",
            Self::Bf16 => "cublas-bf16",
        }
    }

    /// One line about it.
    #[must_use]
    pub fn summary(self) -> &'static str {
        match self {
            Self::Fp32Pedantic => "fp32 x and weight, fp32 arithmetic",
            Self::Tf32 => "fp32 x and weight, which the library may round to TF32",
            Self::Bf16 => "bf16 x and weight (nearest-even), fp32 result",
        }
    }

    /// The compute type that the library is asked for, by its own name.
    #[must_use]
    pub fn compute_type(self) -> &'static str {
        match self {
            Self::Fp32Pedantic => "CUBLAS_COMPUTE_32F_PEDANTIC",
            Self::Tf32 => "CUBLAS_COMPUTE_32F_FAST_TF32",
            Self::Bf16 => "CUBLAS_COMPUTE_32F",
        }
    }

    /// The format that both operands are handed over in.
    #[must_use]
    pub fn operands(self) -> Storage {
        match self {
            Self::Fp32Pedantic | Self::Tf32 => Storage::F32,
            Self::Bf16 => Storage::Bf16,
        }
    }

    /// Those whose names match a pattern.
    #[must_use]
    pub fn matching(pattern: &str) -> Vec<Self> {
        let glob = WildMatch::new(pattern);
        let matches = |product: &Self| glob.matches(product.name());
        Self::ALL.into_iter().filter(matches).collect()
    }

    /// What surrounds the product: everything of recipe `fp32` but the projection's arithmetic, under this
    /// name.
    #[must_use]
    pub fn surroundings(self) -> MixRecipe {
        MixRecipe {
            name: self.name().to_owned(),
            summary: self.summary().to_owned(),
            engine: "cuBLAS".to_owned(),
            ..catalogue::fp32()
        }
    }

    /// Numbers whose products with 1 tell what happens to an operand.
    #[must_use]
    pub fn probes(self) -> &'static [u32] {
        match self.operands() {
            Storage::F32 => &F32_PROBES,
            Storage::Bf16 => &BF16_PROBES,
        }
    }
}

/// fp32 bits: two ties between TF32 values, whose even neighbour is once below and once above; just below
/// and just above a tie; the ties with a minus sign; all of the fraction.
const F32_PROBES: [u32; 7] = [
    0x3f80_1000,
    0x3f80_3000,
    0x3f80_0fff,
    0x3f80_1001,
    0xbf80_1000,
    0xbf80_3000,
    0x3fff_ffff,
];

/// fp32 bits of bf16 numbers.
const BF16_PROBES: [u32; 4] = [0x3f81_0000, 0x3fff_0000, 0xbf83_0000, 0x0081_0000];

/// What happens to an operand on its way into a product.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InputRounding {
    /// Nothing.
    AsItIs,
    /// Rounded to TF32.
    Tf32(Rounding),
    /// Something else.
    Unknown,
}

impl InputRounding {
    /// What turns each of `probes` into its product with 1, fp32 bits both.
    #[must_use]
    pub fn of(probes: &[u32], products: &[u32]) -> Self {
        let explains = |rounding: &Self| {
            let rounded = probes.iter().map(|&probe| rounding.applied(probe));
            rounded.eq(products.iter().map(|&product| Some(product)))
        };
        [
            Self::AsItIs,
            Self::Tf32(Rounding::NearestEven),
            Self::Tf32(Rounding::NearestAway),
            Self::Tf32(Rounding::TowardZero),
        ]
        .into_iter()
        .find(explains)
        .unwrap_or(Self::Unknown)
    }

    fn applied(self, bits: u32) -> Option<u32> {
        match self {
            Self::AsItIs => Some(bits),
            Self::Tf32(rounding) => Some(tf32::round_bits(bits, rounding)),
            Self::Unknown => None,
        }
    }

    fn words(self, operand: &str) -> String {
        match self {
            Self::AsItIs => format!("takes {operand} as handed over"),
            Self::Tf32(Rounding::NearestEven) => {
                format!("rounds {operand} to TF32, nearest, ties to even")
            }
            Self::Tf32(Rounding::NearestAway) => {
                format!("rounds {operand} to TF32, nearest, ties away from zero")
            }
            Self::Tf32(Rounding::TowardZero) => format!("truncates {operand} to TF32"),
            Self::Unknown => format!("changes {operand} in a way that is no rounding to TF32"),
        }
    }
}

/// What a product does to its operands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InputRoundings {
    /// To x.
    pub x: InputRounding,
    /// To `hc_fn`.
    pub weight: InputRounding,
}

impl InputRoundings {
    /// In words that follow the product's name: `rounds its operands to TF32, nearest, ties to even`.
    #[must_use]
    pub fn words(self, product: LibraryProduct) -> String {
        let format = match product.operands() {
            Storage::F32 => "fp32",
            Storage::Bf16 => "bf16",
        };
        if self.x == self.weight {
            return self.x.words(&format!("its {format} operands"));
        }
        let (x, weight) = (self.x.words("x"), self.weight.words("hc_fn"));
        format!("{x}, and {weight}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 1 + 2⁻¹¹ and its like, worked by hand: TF32 steps at 1 are 2000 in hexadecimal.
    #[test]
    fn every_rounding_is_told_from_the_others() {
        let even = [
            0x3f80_0000,
            0x3f80_4000,
            0x3f80_0000,
            0x3f80_2000,
            0xbf80_0000,
            0xbf80_4000,
            0x4000_0000,
        ];
        let away = [
            0x3f80_2000,
            0x3f80_4000,
            0x3f80_0000,
            0x3f80_2000,
            0xbf80_2000,
            0xbf80_4000,
            0x4000_0000,
        ];
        let truncated = [
            0x3f80_0000,
            0x3f80_2000,
            0x3f80_0000,
            0x3f80_0000,
            0xbf80_0000,
            0xbf80_2000,
            0x3fff_e000,
        ];
        let upward = [
            0x3f80_2000,
            0x3f80_4000,
            0x3f80_2000,
            0x3f80_2000,
            0xbf80_0000,
            0xbf80_2000,
            0x4000_0000,
        ];
        let of_zeros = [0; 7];
        for (products, expected) in [
            (F32_PROBES, InputRounding::AsItIs),
            (even, InputRounding::Tf32(Rounding::NearestEven)),
            (away, InputRounding::Tf32(Rounding::NearestAway)),
            (truncated, InputRounding::Tf32(Rounding::TowardZero)),
            (upward, InputRounding::Unknown),
            (of_zeros, InputRounding::Unknown),
        ] {
            let found = InputRounding::of(LibraryProduct::Tf32.probes(), &products);
            assert_eq!(found, expected, "{products:08x?}");
        }
        let bf16 = LibraryProduct::Bf16.probes();
        assert_eq!(InputRounding::of(bf16, bf16), InputRounding::AsItIs);
        assert_eq!(InputRounding::of(bf16, &bf16[1..]), InputRounding::Unknown);
    }

    #[test]
    fn findings_in_words() {
        let even = InputRounding::Tf32(Rounding::NearestEven);
        let words = |x, weight, product| InputRoundings { x, weight }.words(product);
        assert_eq!(
            words(even, even, LibraryProduct::Tf32),
            "rounds its fp32 operands to TF32, nearest, ties to even"
        );
        let as_it_is = InputRounding::AsItIs;
        assert_eq!(
            words(as_it_is, as_it_is, LibraryProduct::Bf16),
            "takes its bf16 operands as handed over"
        );
        let truncated = InputRounding::Tf32(Rounding::TowardZero);
        assert_eq!(
            words(as_it_is, truncated, LibraryProduct::Tf32),
            "takes x as handed over, and truncates hc_fn to TF32"
        );
    }

    #[test]
    fn names_by_pattern() {
        assert_eq!(LibraryProduct::matching("*"), LibraryProduct::ALL);
        assert_eq!(LibraryProduct::matching("*tf32"), [LibraryProduct::Tf32]);
        assert_eq!(LibraryProduct::matching("tf32"), []);
    }
}
