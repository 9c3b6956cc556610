//! By what angles the indexer's queries and keys turn with their positions, and where a configuration says so.
//!
//! | of | official key | transformers' |
//! |---|---|---|
//! | dims | `qk_rope_head_dim` | the same |
//! | theta | `compress_rope_theta` | `rope_parameters.compress.rope_theta` |
//! | YaRN | `rope_scaling` | `rope_parameters.compress` |
//!
//! Without YaRN, which is what an absent or null entry and the type `default` say, pair j turns by theta^(−2j/dims)
//! per position. YaRN divides that by `factor` where a pair turns fewer than `beta_slow` times within
//! `original_max_position_embeddings` positions, not at all where it turns more than `beta_fast` times, and in part
//! between; amplitudes stay 1.

use std::fmt;

use serde_json::Value;

use super::{CheckpointError, config::Reader, error::quoted};

/// The rotary embedding of compressed keys and the queries that meet them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rope {
    /// How many dimensions turn: the last of a head, in pairs of neighbours.
    pub dims: usize,
    /// The base of the frequencies.
    pub theta: f64,
    /// How the frequencies are stretched, if they are.
    pub yarn: Option<Yarn>,
}

/// Frequencies stretched by parts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Yarn {
    /// By how much slow pairs are slowed further.
    pub factor: f64,
    /// Positions of the training before.
    pub original_positions: usize,
    /// Turns within them from which a pair keeps its frequency.
    pub beta_fast: f64,
    /// Turns within them up to which a pair gets the whole factor.
    pub beta_slow: f64,
}

/// In words.
impl fmt::Display for Rope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} dimensions, theta {}, ", self.dims, self.theta)?;
        match self.yarn {
            None => f.write_str("no YaRN"),
            Some(yarn) => write!(
                f,
                "YaRN of factor {} over {} positions, beta {} and {}",
                yarn.factor, yarn.original_positions, yarn.beta_fast, yarn.beta_slow
            ),
        }
    }
}

impl Yarn {
    /// That of V4-Flash and V4-Pro.
    pub(super) const PUBLISHED: Self = Self {
        factor: 16.0,
        original_positions: 65_536,
        beta_fast: 32.0,
        beta_slow: 1.0,
    };
}

/// What a configuration says of it. Without a `yarn` there is none; the others have usual values.
#[derive(Clone, Copy, Debug)]
pub struct RopeConfig {
    /// As [`Rope::dims`].
    pub dims: Option<usize>,
    /// As [`Rope::theta`].
    pub theta: Option<f64>,
    /// As [`Rope::yarn`].
    pub yarn: Option<Yarn>,
}

/// An object of the configuration, and its path in it for messages.
struct Block<'a> {
    key: &'static str,
    value: &'a Value,
}

impl Block<'_> {
    fn get(&self, key: &str) -> Option<&Value> {
        self.value.get(key).filter(|value| !value.is_null())
    }

    fn path(&self, key: &str) -> String {
        format!("{}.{key}", self.key)
    }
}

impl Reader<'_> {
    pub(super) fn rope(&self) -> Result<RopeConfig, CheckpointError> {
        const PARAMETERS: &str = "rope_parameters";
        const COMPRESS: &str = "rope_parameters.compress";
        const SCALING: &str = "rope_scaling";
        let parameters = self.get(PARAMETERS);
        let compress = parameters
            .and_then(|parameters| parameters.get("compress"))
            .filter(|value| !value.is_null())
            .map(|value| Block {
                key: COMPRESS,
                value,
            });
        let theta = self.rope_theta(compress.as_ref())?;
        // One set for all layers has the main attention's theta.
        let common = parameters
            .filter(|value| value.get("rope_type").is_some())
            .map(|value| Block {
                key: PARAMETERS,
                value,
            });
        let scaling = self.get(SCALING).map(|value| Block {
            key: SCALING,
            value,
        });
        let block = compress.or(common).or(scaling);
        Ok(RopeConfig {
            dims: self.rope_dims()?,
            theta,
            yarn: block.map_or(Ok(None), |block| self.yarn(&block))?,
        })
    }

    fn rope_dims(&self) -> Result<Option<usize>, CheckpointError> {
        const KEY: &str = "qk_rope_head_dim";
        const LARGEST: u64 = 1 << 20;
        let Some(value) = self.get(KEY) else {
            return Ok(None);
        };
        match value.as_u64() {
            Some(dims) if (2..=LARGEST).contains(&dims) && dims % 2 == 0 => Ok(Some(dims as usize)),
            _ => Err(self.wrong(KEY, value, &format!("an even integer from 2 to {LARGEST}"))),
        }
    }

    /// Both spellings must agree where both are there.
    fn rope_theta(&self, compress: Option<&Block<'_>>) -> Result<Option<f64>, CheckpointError> {
        const KEY: &str = "compress_rope_theta";
        const NESTED: &str = "rope_theta";
        let theta = |key: &str, value| self.number(key, value, (1.0, 1e15));
        let official = self.get(KEY).map(|value| theta(KEY, value)).transpose()?;
        let Some((block, value)) = compress.and_then(|block| Some((block, block.get(NESTED)?)))
        else {
            return Ok(official);
        };
        let nested = theta(&block.path(NESTED), value)?;
        match official {
            Some(official) if official != nested => Err(self.wrong(
                &block.path(NESTED),
                value,
                &format!("{official}, which {KEY} says"),
            )),
            _ => Ok(Some(nested)),
        }
    }

    fn yarn(&self, block: &Block<'_>) -> Result<Option<Yarn>, CheckpointError> {
        // What is nearly 0 makes angles infinite, and their differences NaN.
        const RANGE: (f64, f64) = (1e-6, 1e6);
        if !block.value.is_object() {
            return Err(self.wrong(block.key, block.value, "an object or null"));
        }
        let (key, kind) = ["rope_type", "type"]
            .into_iter()
            .find_map(|key| Some((key, block.get(key)?)))
            .unzip();
        match kind.map(|kind| (kind, kind.as_str())) {
            None if block.get("factor").is_none() => return Ok(None),
            None => return Err(self.lacks(block, "type", "default or yarn")),
            Some((_, Some("default"))) => return Ok(None),
            Some((_, Some("yarn"))) => {}
            Some((kind, _)) => {
                let path = block.path(key.unwrap_or_default());
                let covered = "default or yarn, for the indexer of no other is known";
                return Err(self.wrong(&path, kind, covered));
            }
        }
        self.unit_amplitude(block)?;
        let number = |key: &str, range, otherwise: Option<f64>| match (block.get(key), otherwise) {
            (Some(value), _) => self.number(&block.path(key), value, range),
            (None, Some(usual)) => Ok(usual),
            (None, None) => Err(self.lacks(block, key, "a number, as type yarn needs it")),
        };
        let published = Yarn::PUBLISHED;
        let yarn = Yarn {
            factor: number("factor", RANGE, None)?,
            original_positions: self.original_positions(block)?,
            beta_fast: number("beta_fast", RANGE, Some(published.beta_fast))?,
            beta_slow: number("beta_slow", RANGE, Some(published.beta_slow))?,
        };
        if yarn.beta_fast <= yarn.beta_slow {
            let fast = Value::from(yarn.beta_fast);
            let expected = format!("more than beta_slow, which is {}", yarn.beta_slow);
            return Err(self.wrong(&block.path("beta_fast"), &fast, &expected));
        }
        Ok(Some(yarn))
    }

    fn original_positions(&self, block: &Block<'_>) -> Result<usize, CheckpointError> {
        const KEY: &str = "original_max_position_embeddings";
        const LARGEST: u64 = 1 << 40;
        let expected = format!("an integer from 1 to {LARGEST}");
        let Some(value) = block.get(KEY) else {
            return Err(self.lacks(block, KEY, &expected));
        };
        match value.as_u64() {
            Some(positions) if (1..=LARGEST).contains(&positions) => Ok(positions as usize),
            _ => Err(self.wrong(&block.path(KEY), value, &expected)),
        }
    }

    /// The published code leaves amplitudes alone; a configuration that changes them is another model's.
    fn unit_amplitude(&self, block: &Block<'_>) -> Result<(), CheckpointError> {
        const KEY: &str = "attention_factor";
        match block.get(KEY) {
            Some(value) if value.as_f64() != Some(1.0) => {
                Err(self.wrong(&block.path(KEY), value, "1, an amplitude left as it is"))
            }
            _ => Ok(()),
        }
    }

    /// A number above the first and up to the second.
    fn number(
        &self,
        key: &str,
        value: &Value,
        (above, largest): (f64, f64),
    ) -> Result<f64, CheckpointError> {
        match value.as_f64() {
            Some(number) if number > above && number <= largest => Ok(number),
            _ => {
                let expected = format!("a number above {above}, up to {largest:e}");
                Err(self.wrong(key, value, &expected))
            }
        }
    }

    fn lacks(&self, block: &Block<'_>, key: &str, expected: &str) -> CheckpointError {
        let found = format!("{} has no {}, expected {expected}", block.key, quoted(key));
        self.broken(found)
    }
}
