//! The lanes that the vectorised rule leaves to the scalar one: infinities, NaN, results or terms near
//! the ends of the `f32` range, and blocks that hold nothing at all.

use super::{
    Rule,
    lanes::{LANES, Reals},
    scalar,
};

/// The longest block of any unit.
pub(super) const MAX_BLOCK: usize = 32;

/// One block of sixteen tokens by one output.
pub(super) struct Block<'a> {
    /// Per k, the value of every token.
    pub(super) x: &'a [Reals],
    /// Per k, the weight.
    pub(super) w: &'a [f32],
    /// The accumulators before the block.
    pub(super) c: Reals,
}

impl Block<'_> {
    /// Recomputes the lanes whose bit is set in `lanes`, by the scalar rule.
    #[cold]
    #[inline(never)]
    pub(super) fn recompute(&self, rule: &Rule, lanes: u16, results: &mut Reals) {
        for lane in (0..LANES).filter(|lane| lanes >> lane & 1 == 1) {
            results.0[lane] = if self.is_settled(lane) {
                self.c.0[lane]
            } else if self.is_empty(lane) {
                0.0
            } else {
                self.scalar(rule, lane)
            };
        }
    }

    /// What has become NaN stays it, and an infinity that nothing of its kind meets: a chain that has overflowed is no
    /// reason to decode all that follows.
    fn is_settled(&self, lane: usize) -> bool {
        let c = self.c.0[lane];
        let mut pairs = self.x.iter().zip(self.w);
        c.to_bits() == scalar::NAN
            || c.is_infinite() && pairs.all(|(x, w)| x.0[lane].is_finite() && w.is_finite())
    }

    /// Nothing but zeros: frequent where tokens are zero, and not worth a decoding.
    fn is_empty(&self, lane: usize) -> bool {
        self.c.0[lane] == 0.0
            && self
                .x
                .iter()
                .zip(self.w)
                .all(|(x, w)| x.0[lane] == 0.0 && w.is_finite())
    }

    fn scalar(&self, rule: &Rule, lane: usize) -> f32 {
        let operand = rule.block_operand();
        let mut a = [0; MAX_BLOCK];
        let mut b = [0; MAX_BLOCK];
        let len = self.w.len();
        for (k, (x, w)) in self.x.iter().zip(self.w).enumerate() {
            a[k] = operand.to_code(x.0[lane]);
            b[k] = operand.to_code(*w);
        }
        f32::from_bits(scalar::block(
            rule,
            &a[..len],
            &b[..len],
            self.c.0[lane].to_bits(),
        ))
    }
}
