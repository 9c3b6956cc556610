//! The two places of a layer where streams are mixed, and the two kinds of checkpoints.

use std::{fmt, str::FromStr};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Where in a layer the hyper-connection sits.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum Site {
    /// Around attention.
    Attn,
    /// Around the feed-forward part.
    Ffn,
}

impl Site {
    /// Both, in the order a layer runs them.
    pub const ALL: [Self; 2] = [Self::Attn, Self::Ffn];

    /// The site of a layer, as `L17.ffn`.
    #[must_use]
    pub fn of(self, layer: u32) -> String {
        format!("L{layer}.{self}")
    }
}

impl fmt::Display for Site {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Attn => "attn",
            Self::Ffn => "ffn",
        })
    }
}

impl FromStr for Site {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::ALL
            .into_iter()
            .find(|site| site.to_string() == text)
            .ok_or_else(|| format!("site '{text}' is not one of attn, ffn"))
    }
}

/// Whether weights were trained or made up.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum SourceKind {
    /// Read from files that do not say that they are synthetic.
    Real,
    /// Made by this tool, be it in memory or on disk.
    Synthetic,
}

impl fmt::Display for SourceKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Real => "real",
            Self::Synthetic => "synthetic",
        })
    }
}

/// What to do about NaN and infinities in weights.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NonFinite {
    /// An error that names the tensor.
    Refuse,
    /// Take them as they are.
    Allow,
}
