//! Which matrix unit computes by which parameters: the specification as a table.
//!
//! A unit fuses `L` products and the accumulator C into one block: every term is cut to `F` fraction
//! bits below `2^e_max`, `e_max` being the largest exponent in the block but at least `e0`; the cut terms
//! are added exactly and the sum is cut to the output format. An instruction of depth k > L runs its
//! blocks in ascending k and hands each block's result on as C.
//!
//! Source: measured on an H200 for `sm_90` (`mma.sync`, `wgmma`); published models and recordings for
//! the rest. Block-scaled instructions have a table of their own: [`block_scaled::rule`](super::block_scaled::rule).

use std::{fmt, str::FromStr};

use super::Operand;

/// A GPU architecture.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Arch {
    /// A100.
    Sm80,
    /// RTX 30, A2, A10, A40.
    Sm86,
    /// RTX 40, L4, L40S.
    Sm89,
    /// H100, H200.
    Sm90,
    /// B100, B200.
    Sm100,
    /// RTX 50, RTX PRO 6000 Blackwell.
    Sm120,
}

impl Arch {
    /// All architectures, oldest first.
    pub const ALL: [Self; 6] = [
        Self::Sm80,
        Self::Sm86,
        Self::Sm89,
        Self::Sm90,
        Self::Sm100,
        Self::Sm120,
    ];

    /// The parameters by which this architecture executes `instruction`.
    ///
    /// # Errors
    /// The architecture lacks the instruction, or nobody has measured it there.
    pub fn rule(self, instruction: Instruction) -> Result<Rule, NoSuchInstruction> {
        TABLE
            .iter()
            .filter(|row| row.archs.contains(&self) && row.family == instruction.family)
            .filter(|row| row.operands.contains(&instruction.operand))
            .find_map(|row| row.rule(instruction))
            .ok_or(NoSuchInstruction {
                arch: self,
                instruction,
            })
    }

    /// Every instruction in the table for this architecture.
    pub fn instructions(self) -> impl Iterator<Item = Instruction> {
        TABLE
            .iter()
            .filter(move |row| row.archs.contains(&self))
            .flat_map(|row| {
                row.operands.iter().flat_map(move |&operand| {
                    row.depths.iter().map(move |depth| Instruction {
                        family: row.family,
                        operand,
                        k: depth.k,
                    })
                })
            })
    }
}

impl fmt::Display for Arch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Sm80 => "sm_80",
            Self::Sm86 => "sm_86",
            Self::Sm89 => "sm_89",
            Self::Sm90 => "sm_90",
            Self::Sm100 => "sm_100",
            Self::Sm120 => "sm_120",
        })
    }
}

impl FromStr for Arch {
    type Err = UnknownArch;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::ALL
            .into_iter()
            .find(|arch| arch.to_string() == text)
            .ok_or_else(|| UnknownArch {
                text: text.to_owned(),
            })
    }
}

/// A text that names no architecture of the table.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("architecture '{text}' is not one of sm_80, sm_86, sm_89, sm_90, sm_100, sm_120")]
pub struct UnknownArch {
    text: String,
}

/// Which of NVIDIA's matrix instructions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Family {
    /// `mma.sync`: one warp, operands in registers.
    MmaSync,
    /// `wgmma.mma_async`: four warps, `sm_90`.
    Wgmma,
    /// `tcgen05.mma`: accumulator in tensor memory, `sm_100`.
    Tcgen05,
}

impl fmt::Display for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::MmaSync => "mma.sync",
            Self::Wgmma => "wgmma",
            Self::Tcgen05 => "tcgen05",
        })
    }
}

/// A matrix instruction with an fp32 accumulator, as far as its bits depend on it: the sizes of M
/// and N do not matter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Instruction {
    /// The instruction's family.
    pub family: Family,
    /// The format of both operands.
    pub operand: Operand,
    /// Products per output and instruction.
    pub k: usize,
}

impl fmt::Display for Instruction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} k{}", self.family, self.operand, self.k)
    }
}

impl FromStr for Instruction {
    type Err = UnknownInstruction;

    /// Reads a PTX name: `mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32`.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let parse = || {
            let mut parts = text.split('.');
            let family = match parts.next()? {
                "mma" => Family::MmaSync,
                "wgmma" => Family::Wgmma,
                "tcgen05" => Family::Tcgen05,
                _ => return None,
            };
            let parts: Vec<&str> = parts.collect();
            let k = parts.iter().find_map(|part| depth_of_shape(part))?;
            let mut operands = parts.iter().filter_map(|part| part.parse::<Operand>().ok());
            let operand = operands.next()?;
            let same = operands.all(|other| other == operand);
            (same && parts.contains(&"f32")).then_some(Self { family, operand, k })
        };
        parse().ok_or_else(|| UnknownInstruction {
            text: text.to_owned(),
        })
    }
}

/// The k of a shape such as `m16n8k16`.
pub(super) fn depth_of_shape(part: &str) -> Option<usize> {
    let (m, rest) = part.strip_prefix('m')?.split_once('n')?;
    let (n, k) = rest.split_once('k')?;
    let _: (usize, usize) = (m.parse().ok()?, n.parse().ok()?);
    k.parse().ok()
}

/// A text that names no instruction with an fp32 accumulator and one operand format.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "'{text}' is not a known matrix instruction: expected a PTX name such as mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32, with an f32 accumulator and bf16, f16, tf32 or e4m3 operands, or a block-scaled one of kind::mxf8f6f4 (e4m3), kind::mxf4 or kind::mxf4nvf4 (e2m1)"
)]
pub struct UnknownInstruction {
    pub(super) text: String,
}

/// An instruction that the table lacks for an architecture.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{arch} has no {instruction} instruction whose arithmetic is known{}", offer(*arch, *instruction))]
pub struct NoSuchInstruction {
    /// The architecture asked for.
    pub arch: Arch,
    /// The instruction it lacks.
    pub instruction: Instruction,
}

/// What the architecture has instead for these operands.
fn offer(arch: Arch, instruction: Instruction) -> String {
    let same_operand: Vec<String> = arch
        .instructions()
        .filter(|other| other.operand == instruction.operand)
        .map(|other| other.to_string())
        .collect();
    if same_operand.is_empty() {
        format!("; it multiplies no {} operands", instruction.operand)
    } else {
        format!(
            "; for {} operands use {}",
            instruction.operand,
            same_operand.join(" or ")
        )
    }
}

/// The format a block's sum is cut to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Output {
    /// IEEE binary32.
    F32,
    /// 8 exponent bits and 13 fraction bits: an `f32` whose low ten bits are zero.
    E8M13,
}

impl Output {
    /// Fraction bits of the result.
    #[must_use]
    pub const fn fraction_bits(self) -> i32 {
        match self {
            Self::F32 => 23,
            Self::E8M13 => 13,
        }
    }
}

/// How the instruction reaches the unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Lowering {
    /// The unit executes it.
    Native,
    /// The assembler replaces an fp8 instruction of depth 32 by two f16 blocks of 16, chained from
    /// zero, and an fp32 addition of C. The first block takes the k with k mod 4 in {0, 1}.
    F16Pair,
}

/// The parameters of one instruction on one architecture.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Rule {
    /// The format of both operands.
    pub operand: Operand,
    /// L: products fused per block.
    pub block_len: usize,
    /// F: fraction bits kept below `2^e_max`.
    pub fraction_bits: i32,
    /// e0: the least `e_max`.
    pub exponent_floor: i32,
    /// What the block's sum is cut to.
    pub output: Output,
    /// How the instruction reaches the unit.
    pub lowering: Lowering,
}

impl Rule {
    /// The format in which a block decodes its operands.
    #[must_use]
    pub const fn block_operand(&self) -> Operand {
        match self.lowering {
            Lowering::Native => self.operand,
            Lowering::F16Pair => Operand::F16,
        }
    }

    /// Products after which an accumulator is an `f32` again: what a chain advances by.
    #[must_use]
    pub const fn step(&self) -> usize {
        match self.lowering {
            Lowering::Native => self.block_len,
            Lowering::F16Pair => 2 * self.block_len,
        }
    }
}

/// An instruction depth and the block length it is executed with.
struct Depth {
    k: usize,
    block_len: usize,
}

/// Rows of the specification that share everything but the depth.
struct Row {
    archs: &'static [Arch],
    family: Family,
    operands: &'static [Operand],
    depths: &'static [Depth],
    fraction_bits: i32,
    exponent_floor: i32,
    output: Output,
    lowering: Lowering,
}

impl Row {
    fn rule(&self, instruction: Instruction) -> Option<Rule> {
        let depth = self.depths.iter().find(|depth| depth.k == instruction.k)?;
        Some(Rule {
            operand: instruction.operand,
            block_len: depth.block_len,
            fraction_bits: self.fraction_bits,
            exponent_floor: self.exponent_floor,
            output: self.output,
            lowering: self.lowering,
        })
    }
}

const fn depth(k: usize, block_len: usize) -> Depth {
    Depth { k, block_len }
}

use self::{Family::*, Lowering::*};

const AMPERE: &[Arch] = &[Arch::Sm80, Arch::Sm86, Arch::Sm89];
const HOPPER_ON: &[Arch] = &[Arch::Sm90, Arch::Sm100, Arch::Sm120];
const HALF: &[Operand] = &[Operand::Bf16, Operand::F16];
const TF32: &[Operand] = &[Operand::Tf32];
const E4M3: &[Operand] = &[Operand::E4m3];

#[rustfmt::skip]
static TABLE: &[Row] = &[
    // Ampere and Ada: half the block length, one alignment bit fewer.
    row(AMPERE, MmaSync, TF32, &[depth(8, 4), depth(4, 4)], 24, -132, Output::F32, Native),
    row(AMPERE, MmaSync, HALF, &[depth(16, 8), depth(8, 8)], 24, -132, Output::F32, Native),
    row(&[Arch::Sm89], MmaSync, E4M3, &[depth(32, 16), depth(16, 16)], 13, -132, Output::E8M13, Native),
    // Hopper and Blackwell agree in everything but fp8.
    row(HOPPER_ON, MmaSync, TF32, &[depth(8, 8), depth(4, 4)], 25, -133, Output::F32, Native),
    row(HOPPER_ON, MmaSync, HALF, &[depth(16, 16), depth(8, 8)], 25, -133, Output::F32, Native),
    row(&[Arch::Sm90], Wgmma, TF32, &[depth(8, 8)], 25, -133, Output::F32, Native),
    row(&[Arch::Sm90], Wgmma, HALF, &[depth(16, 16)], 25, -133, Output::F32, Native),
    row(&[Arch::Sm90], Wgmma, E4M3, &[depth(32, 32)], 13, -133, Output::E8M13, Native),
    row(&[Arch::Sm100], Tcgen05, TF32, &[depth(8, 8)], 25, -133, Output::F32, Native),
    row(&[Arch::Sm100], Tcgen05, HALF, &[depth(16, 16)], 25, -133, Output::F32, Native),
    row(&[Arch::Sm100], Tcgen05, E4M3, &[depth(32, 32)], 25, -133, Output::F32, Native),
    row(&[Arch::Sm120], MmaSync, E4M3, &[depth(32, 32), depth(16, 16)], 25, -133, Output::F32, Native),
    // No fp8 unit behind mma.sync there: the assembler's replacement (checked for CUDA 12.9 and 13.0).
    row(&[Arch::Sm90, Arch::Sm100], MmaSync, E4M3, &[depth(32, 16)], 25, -133, Output::F32, F16Pair),
];

#[expect(
    clippy::too_many_arguments,
    reason = "a row of the table, in the order of its columns"
)]
const fn row(
    archs: &'static [Arch],
    family: Family,
    operands: &'static [Operand],
    depths: &'static [Depth],
    fraction_bits: i32,
    exponent_floor: i32,
    output: Output,
    lowering: Lowering,
) -> Row {
    Row {
        archs,
        family,
        operands,
        depths,
        fraction_bits,
        exponent_floor,
        output,
        lowering,
    }
}
