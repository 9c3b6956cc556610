//! Which architecture executes which block-scaled instruction, and by which parameters.
//!
//! Source: published models, whose authors validated them on a B200 and an RTX PRO 6000; no recordings
//! of ours.

use std::{fmt, str::FromStr};

use super::super::{
    Arch, Family,
    arch::{UnknownInstruction, depth_of_shape},
};
use crate::format::{Format, ue4m3, ue8m0};

/// What a block-scaled instruction multiplies, and how its k are grouped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// `kind::mxf8f6f4` with E4M3 operands: 32 products, each a term of its own.
    Mxf8f6f4,
    /// `kind::mxf4`: 64 products of E2M1 operands in four exact groups, a UE8M0 scale per 32 k.
    Mxf4,
    /// `kind::mxf4nvf4`: the same with a UE4M3 scale per 16 k.
    Mxf4nvf4,
}

impl Kind {
    /// All kinds.
    pub const ALL: [Self; 3] = [Self::Mxf8f6f4, Self::Mxf4, Self::Mxf4nvf4];

    /// The format of both operands.
    #[must_use]
    pub const fn operand(self) -> Format {
        match self {
            Self::Mxf8f6f4 => Format::E4m3,
            Self::Mxf4 | Self::Mxf4nvf4 => Format::E2m1,
        }
    }

    /// The format of both scales.
    #[must_use]
    pub const fn scale(self) -> ScaleFormat {
        match self {
            Self::Mxf8f6f4 | Self::Mxf4 => ScaleFormat::Ue8m0,
            Self::Mxf4nvf4 => ScaleFormat::Ue4m3,
        }
    }

    /// k that share a scale.
    #[must_use]
    pub const fn scale_block(self) -> usize {
        match self {
            Self::Mxf8f6f4 | Self::Mxf4 => 32,
            Self::Mxf4nvf4 => 16,
        }
    }

    /// L: products per output and instruction, all of one block.
    #[must_use]
    pub const fn k(self) -> usize {
        match self {
            Self::Mxf8f6f4 => 32,
            Self::Mxf4 | Self::Mxf4nvf4 => 64,
        }
    }

    /// Whether `bits` are a code of the operand format: E2M1 fills the lower four.
    #[must_use]
    pub const fn is_code(self, bits: u8) -> bool {
        match self {
            Self::Mxf8f6f4 => true,
            Self::Mxf4 | Self::Mxf4nvf4 => bits < 16,
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Mxf8f6f4 => "mxf8f6f4",
            Self::Mxf4 => "mxf4",
            Self::Mxf4nvf4 => "mxf4nvf4",
        })
    }
}

/// The format of a block's scale.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ScaleFormat {
    /// A power of two, see [`ue8m0`].
    Ue8m0,
    /// The magnitude of an E4M3 code, see [`ue4m3`].
    Ue4m3,
}

impl ScaleFormat {
    /// The value of a scale's code.
    #[must_use]
    pub const fn from_code(self, code: u8) -> f32 {
        match self {
            Self::Ue8m0 => ue8m0::from_bits(code),
            Self::Ue4m3 => ue4m3::from_bits(code),
        }
    }

    /// The exponent by which the unit aligns what a scale's code is a factor of.
    #[must_use]
    pub const fn exponent(self, code: u8) -> i32 {
        match self {
            Self::Ue8m0 => code as i32 - 127,
            Self::Ue4m3 => match (code >> 3) & 15 {
                // Subnormals have the exponent of the least normal number.
                0 => -6,
                biased => biased as i32 - 7,
            },
        }
    }
}

impl fmt::Display for ScaleFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Ue8m0 => "ue8m0",
            Self::Ue4m3 => "ue4m3",
        })
    }
}

/// A block-scaled matrix instruction with an fp32 accumulator, as far as its bits depend on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ScaledInstruction {
    /// The instruction's family.
    pub family: Family,
    /// What it multiplies.
    pub kind: Kind,
}

impl fmt::Display for ScaledInstruction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} k{}", self.family, self.kind, self.kind.k())
    }
}

impl FromStr for ScaledInstruction {
    type Err = UnknownInstruction;

    /// Reads a PTX name, its shape included:
    /// `mma.sync.aligned.m16n8k64.row.col.kind::mxf4.block_scale.scale_vec::2X.f32.e2m1.e2m1.f32.ue8m0`.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let parse = || {
            let parts: Vec<&str> = text.split('.').collect();
            let family = match parts[0] {
                "mma" => Family::MmaSync,
                "tcgen05" => Family::Tcgen05,
                _ => return None,
            };
            let name = parts.iter().find_map(|part| part.strip_prefix("kind::"))?;
            let kind = Kind::ALL
                .into_iter()
                .find(|kind| kind.to_string() == name)?;
            let k = parts.iter().find_map(|part| depth_of_shape(part))?;
            let mut formats = parts.iter().filter(|part| is_narrow_format(part));
            let operand = kind.operand().to_string();
            let scale = kind.scale().to_string();
            let as_expected = k == kind.k()
                && parts.contains(&"f32")
                && formats.all(|&part| part == operand || part == scale)
                && parts.contains(&&*operand)
                && parts.contains(&&*scale);
            as_expected.then_some(Self { family, kind })
        };
        parse().ok_or_else(|| UnknownInstruction {
            text: text.to_owned(),
        })
    }
}

/// Whether a part of a PTX name is an operand or scale format of some block-scaled instruction.
fn is_narrow_format(part: &str) -> bool {
    ["e2m1", "e2m3", "e3m2", "e4m3", "e5m2", "ue8m0", "ue4m3"].contains(&part)
}

/// An instruction that the table lacks for an architecture.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{arch} has no block-scaled {instruction} instruction{}", offer(*arch, *instruction))]
pub struct NoSuchScaledInstruction {
    /// The architecture asked for.
    pub arch: Arch,
    /// The instruction it lacks.
    pub instruction: ScaledInstruction,
}

/// Where there is one of this kind.
fn offer(arch: Arch, instruction: ScaledInstruction) -> String {
    let kind = instruction.kind;
    if let Some(row) = TABLE.iter().find(|row| row.arch == arch) {
        return format!("; for {kind} use {} {kind}", row.family);
    }
    let elsewhere: Vec<String> = TABLE
        .iter()
        .filter(|row| row.kinds.contains(&kind))
        .map(|row| format!("{} ({})", row.arch, row.family))
        .collect();
    format!(": emulate {}", elsewhere.join(" or "))
}

/// The parameters of one block-scaled instruction on one architecture.
///
/// Fields are private because the vector form is made for the parameters of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ScaledRule {
    pub(super) kind: Kind,
    pub(super) fraction_bits: i32,
    pub(super) exponent_floor: i32,
}

impl ScaledRule {
    /// What is multiplied.
    #[must_use]
    pub const fn kind(&self) -> Kind {
        self.kind
    }

    /// F: fraction bits kept below `2^e_max`.
    #[must_use]
    pub const fn fraction_bits(&self) -> i32 {
        self.fraction_bits
    }

    /// e0: the least `e_max`.
    #[must_use]
    pub const fn exponent_floor(&self) -> i32 {
        self.exponent_floor
    }
}

impl Arch {
    /// The parameters by which this architecture executes a block-scaled instruction.
    ///
    /// # Errors
    /// The architecture lacks the instruction.
    pub fn scaled_rule(
        self,
        instruction: ScaledInstruction,
    ) -> Result<ScaledRule, NoSuchScaledInstruction> {
        let ScaledInstruction { family, kind } = instruction;
        TABLE
            .iter()
            .filter(|row| row.arch == self && row.family == family)
            .find(|row| row.kinds.contains(&kind))
            .map(|row| ScaledRule {
                kind,
                fraction_bits: row.fraction_bits,
                exponent_floor: row.exponent_floor,
            })
            .ok_or(NoSuchScaledInstruction {
                arch: self,
                instruction,
            })
    }

    /// Every block-scaled instruction in the table for this architecture.
    pub fn scaled_instructions(self) -> impl Iterator<Item = ScaledInstruction> {
        TABLE
            .iter()
            .filter(move |row| row.arch == self)
            .flat_map(|row| {
                row.kinds.iter().map(|&kind| ScaledInstruction {
                    family: row.family,
                    kind,
                })
            })
    }
}

/// Kinds of one architecture that share their parameters.
struct Row {
    arch: Arch,
    family: Family,
    kinds: &'static [Kind],
    fraction_bits: i32,
    exponent_floor: i32,
}

const FP8: &[Kind] = &[Kind::Mxf8f6f4];
const FP4: &[Kind] = &[Kind::Mxf4, Kind::Mxf4nvf4];

const TABLE: &[Row] = &[
    row(Arch::Sm100, Family::Tcgen05, FP8, 25, -133),
    row(Arch::Sm100, Family::Tcgen05, FP4, 35, -139),
    row(Arch::Sm120, Family::MmaSync, FP8, 25, -133),
    row(Arch::Sm120, Family::MmaSync, FP4, 35, -139),
];

// The sums of the vector form hold no more fraction bits: `fp8` counts in i32, `fp4` in f64.
const _: () = {
    let mut i = 0;
    while i < TABLE.len() {
        let mut kind = 0;
        while kind < TABLE[i].kinds.len() {
            let most = match TABLE[i].kinds[kind] {
                Kind::Mxf8f6f4 => 25,
                Kind::Mxf4 | Kind::Mxf4nvf4 => 39,
            };
            assert!(TABLE[i].fraction_bits <= most);
            kind += 1;
        }
        i += 1;
    }
};

const fn row(
    arch: Arch,
    family: Family,
    kinds: &'static [Kind],
    fraction_bits: i32,
    exponent_floor: i32,
) -> Row {
    Row {
        arch,
        family,
        kinds,
        fraction_bits,
        exponent_floor,
    }
}
