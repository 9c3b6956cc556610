//! Operands of block-scaled instructions: as the unit is handed them, and as the vectorised rule
//! wants them.

use ndarray::ArrayView2;

use super::{
    Kind,
    fp4::{Fp4, PackedFp4},
    fp8::{Fp8, PackedFp8},
    vector::{Block, LANES},
};

/// Codes `[rows, K]` with a scale per row and [`Kind::scale_block`] of k: either operand of a GEMM.
#[derive(Clone, Debug)]
pub struct ScaledRows {
    kind: Kind,
    rows: usize,
    depth: usize,
    codes: Vec<u8>,
    scales: Vec<u8>,
}

impl ScaledRows {
    /// Takes up `codes`, shaped `[rows, K]`, one code per byte in the low bits, and `scales`, shaped
    /// `[rows, ⌈K / scale block⌉]`.
    ///
    /// # Panics
    /// The shapes contradict each other, or a byte is no code of the kind's operand format.
    #[must_use]
    #[expect(
        clippy::needless_pass_by_value,
        reason = "a view is passed by value, as ndarray does"
    )]
    pub fn new(kind: Kind, codes: ArrayView2<u8>, scales: ArrayView2<u8>) -> Self {
        let (rows, depth) = codes.dim();
        assert_eq!(
            scales.dim(),
            (rows, depth.div_ceil(kind.scale_block())),
            "scales are [rows, ⌈K / {}⌉] for codes of [{rows}, {depth}]",
            kind.scale_block()
        );
        assert!(
            codes.iter().all(|&code| kind.is_code(code)),
            "codes are not {} codes, one per byte",
            kind.operand()
        );
        Self {
            kind,
            rows,
            depth,
            codes: codes.iter().copied().collect(),
            scales: scales.iter().copied().collect(),
        }
    }

    /// What kind of instruction these are made for.
    #[must_use]
    pub const fn kind(&self) -> Kind {
        self.kind
    }

    /// Rows: outputs along this operand's side.
    #[must_use]
    pub const fn rows(&self) -> usize {
        self.rows
    }

    /// K: products per output.
    #[must_use]
    pub const fn depth(&self) -> usize {
        self.depth
    }

    /// The codes of a row, k ascending.
    #[must_use]
    pub fn codes(&self, row: usize) -> &[u8] {
        &self.codes[row * self.depth..][..self.depth]
    }

    /// The scales of a row, k ascending.
    #[must_use]
    pub fn scales(&self, row: usize) -> &[u8] {
        let per_row = self.depth.div_ceil(self.kind.scale_block());
        &self.scales[row * per_row..][..per_row]
    }
}

/// The right-hand operand of a GEMM, decoded and transposed once.
#[derive(Clone, Debug)]
pub struct PackedRows {
    kind: Kind,
    rows: usize,
    depth: usize,
    pub(super) blocks: PackedBlocks,
}

/// Blocks of [`LANES`] rows each, `[⌈rows / LANES⌉, blocks of k]`; missing rows are zero.
#[derive(Clone, Debug)]
pub(super) enum PackedBlocks {
    Fp4(Vec<PackedFp4>),
    Fp8(Vec<PackedFp8>),
}

impl PackedRows {
    /// Packs `rows` for the vectorised rule.
    #[must_use]
    pub fn new(rows: &ScaledRows) -> Self {
        Self {
            kind: rows.kind,
            rows: rows.rows,
            depth: rows.depth,
            blocks: match rows.kind {
                Kind::Mxf8f6f4 => PackedBlocks::Fp8(pack::<Fp8>(rows)),
                Kind::Mxf4 | Kind::Mxf4nvf4 => PackedBlocks::Fp4(pack::<Fp4>(rows)),
            },
        }
    }

    /// What kind of instruction these are made for.
    #[must_use]
    pub const fn kind(&self) -> Kind {
        self.kind
    }

    /// Rows: outputs along this operand's side.
    #[must_use]
    pub const fn rows(&self) -> usize {
        self.rows
    }

    /// K: products per output.
    #[must_use]
    pub const fn depth(&self) -> usize {
        self.depth
    }
}

/// The blocks of one row, k ascending.
pub(super) fn decode<B: Block>(rows: &ScaledRows, row: usize) -> impl Iterator<Item = B> {
    let kind = rows.kind;
    let scales = rows.scales(row).chunks(kind.k() / kind.scale_block());
    let codes = rows.codes(row).chunks(kind.k());
    codes
        .zip(scales)
        .map(move |(codes, scales)| B::decode(kind, codes, scales))
}

fn pack<B: Block>(rows: &ScaledRows) -> Vec<B::Packed> {
    let blocks = rows.depth.div_ceil(rows.kind.k());
    let mut packed = Vec::with_capacity(rows.rows.div_ceil(LANES) * blocks);
    for start in (0..rows.rows).step_by(LANES) {
        let lanes: Vec<Vec<B>> = (start..rows.rows.min(start + LANES))
            .map(|row| decode(rows, row).collect())
            .collect();
        packed.extend((0..blocks).map(|block| B::pack(lanes.iter().map(|lane| &lane[block]))));
    }
    packed
}
