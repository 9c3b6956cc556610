//! What vector files of all instructions have in common: categories, accumulators, results.

use safetensors::Dtype;

use super::{
    Category, Form, Mismatch, VectorError,
    file::{File, Words},
};

/// M, N and K of a tile.
#[derive(Clone, Copy, Debug)]
pub(super) struct TileShape {
    pub(super) rows: usize,
    pub(super) cols: usize,
    pub(super) k: usize,
}

/// The tiles of a file but for their operands.
#[derive(Clone, Debug)]
pub(super) struct Tiles {
    pub(super) shape: TileShape,
    categories: Vec<String>,
    category: Vec<u8>,
    c: Vec<u32>,
    d: Vec<u32>,
}

impl Tiles {
    /// Reads them beside the operands `a` and `b` of an instruction of depth `k`, whose shapes are
    /// checked here.
    pub(super) fn read(
        file: &File<'_>,
        a: &Words,
        b: &Words,
        k: usize,
    ) -> Result<Self, VectorError> {
        let categories = file.categories()?;
        let category = file.words("category", Dtype::U8)?;
        let tiles = category.shape.first().copied().unwrap_or(0);
        let c = file.words("c", Dtype::U32)?;
        let d = file.words("d", Dtype::U32)?;
        let (&[.., rows, _], &[.., cols]) = (&a.shape[..], &b.shape[..]) else {
            return Err(a.wrong_shape("[tiles, m, k]".to_owned()));
        };
        category.expect_shape(&[tiles])?;
        a.expect_shape(&[tiles, rows, k])?;
        b.expect_shape(&[tiles, k, cols])?;
        c.expect_shape(&[tiles, rows, cols])?;
        d.expect_shape(&[tiles, rows, cols])?;
        if d.words.is_empty() {
            return Err(VectorError::Empty);
        }
        let category: Vec<u8> = category.words.iter().map(|&index| index as u8).collect();
        if let Some(tile) = category
            .iter()
            .position(|&c| usize::from(c) >= categories.len())
        {
            let (found, known) = (category[tile], categories.len());
            return Err(VectorError::UnknownCategory { tile, found, known });
        }
        Ok(Self {
            shape: TileShape { rows, cols, k },
            categories,
            category,
            c: c.words,
            d: d.words,
        })
    }

    /// How many there are.
    pub(super) fn count(&self) -> usize {
        self.category.len()
    }

    /// Checks M and N, which only a unit that is really there fixes.
    pub(super) fn expect_size(&self, rows: usize, cols: usize) -> Result<(), VectorError> {
        if (self.shape.rows, self.shape.cols) == (rows, cols) {
            return Ok(());
        }
        Err(VectorError::WrongShape {
            tensor: "d",
            found: vec![self.count(), self.shape.rows, self.shape.cols],
            expected: format!("[tiles, {rows}, {cols}], the instruction's own"),
        })
    }

    /// All accumulators before the instruction, tile by tile.
    pub(super) fn all_c(&self) -> &[u32] {
        &self.c
    }

    /// The accumulators of a tile before the instruction.
    pub(super) fn c(&self, tile: usize) -> &[u32] {
        let outputs = self.shape.rows * self.shape.cols;
        &self.c[tile * outputs..][..outputs]
    }

    /// Compares the recorded results with what `compute` makes of a tile, in one or more forms.
    pub(super) fn compare(
        &self,
        compute: impl Fn(usize) -> Vec<(Form, Vec<u32>)>,
    ) -> Vec<Category> {
        let mut outcome: Vec<Category> = self.categories.iter().map(Category::named).collect();
        for (tile, &category) in self.category.iter().enumerate() {
            let computed = compute(tile);
            let outputs = self.shape.rows * self.shape.cols;
            let want = &self.d[tile * outputs..][..outputs];
            for (index, &want) in want.iter().enumerate() {
                let (row, col) = (index / self.shape.cols, index % self.shape.cols);
                let wrong = computed.iter().find(|(_, got)| got[index] != want);
                let mismatch = wrong.map(|&(form, ref got)| Mismatch {
                    tile,
                    row,
                    col,
                    form,
                    got: got[index],
                    want,
                });
                outcome[usize::from(category)].count(mismatch);
            }
        }
        outcome.retain(|category| category.outputs > 0);
        outcome
    }
}
