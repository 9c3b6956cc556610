//! One row of a report: a key that says which experiment it is, and what was measured.

use std::{borrow::Cow, collections::HashSet, fmt, ops::Deref};

use schemars::JsonSchema;
use serde::{
    Deserialize, Deserializer, Serialize,
    de::{self, MapAccess, Visitor},
};
use thiserror::Error;

use super::{field::KeyField, measures::Measures};

macro_rules! key {
    ($($(#[$meta:meta])* $name:ident: $kind:ty,)*) => {
        /// What identifies a record. No two records of a report have the same key; gate and
        /// baseline match on it. The list is the only place to add a field.
        #[derive(
            Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize,
            JsonSchema,
        )]
        #[serde(deny_unknown_fields)]
        pub struct Key {
            $(
                $(#[$meta])*
                #[serde(skip_serializing_if = "KeyField::is_absent")]
                pub $name: $kind,
            )*
        }

        impl Key {
            /// The names in column order.
            pub const NAMES: &'static [&'static str] = &[$(stringify!($name)),*];

            /// A field as text; `None` where it is absent or no such field exists.
            #[must_use]
            pub fn get(&self, name: &str) -> Option<Cow<'_, str>> {
                match name {
                    $(stringify!($name) => KeyField::text(&self.$name),)*
                    _ => None,
                }
            }

            /// The key without some fields: what is left tells which rows are alike but for these.
            #[must_use]
            pub fn without(&self, fields: &[&str]) -> Self {
                Self {
                    $($name: match fields.contains(&stringify!($name)) {
                        true => Default::default(),
                        false => self.$name.clone(),
                    },)*
                }
            }
        }
    };
}

key! {
    /// The experiment: `mix`, `sweep`, …
    suite: String,
    /// Layer of the model.
    layer: Option<u32>,
    /// `attn` or `ffn`.
    site: Option<String>,
    /// Layers completed: an attn row of layer l has depth l, an ffn row l + 1.
    depth: Option<u32>,
    /// Where in the operation the values were compared: `dot`, `mixes`, `pre`, …
    stage: Option<String>,
    /// Name of the recipe.
    variant: String,
    /// The known bug that was built into the candidate.
    fault: Option<String>,
    /// Where the inputs came from: `normal`, `outlier`, `file:…`, …
    inputs: String,
    /// `all`, or the kind of token the row is restricted to.
    token_class: String,
    /// Tokens in the batch.
    tokens: u64,
    /// Tokens of context that the queries look back on.
    context: Option<u64>,
    /// Which queries: `end`, `spread`, …
    query_set: Option<String>,
    /// Keys that a query selects.
    k: Option<u32>,
    /// Keys that the candidate selects where `kept_at` looks for the reference's k.
    k_at: Option<u32>,
    /// K splits that the recipe's rule gave.
    splits: Option<u32>,
    /// SM count that the split rule was told.
    sms: Option<u32>,
    /// Seed of the random streams.
    seed: u64,
    /// The source of error that a budget's row is of.
    source: Option<String>,
    /// The direction of a perturbation whose gain was measured.
    direction: Option<String>,
    /// Where a needle is planted, as a share of the context.
    needle_depth: Option<String>,
    /// How far a needle's score is above the cut.
    needle_margin: Option<String>,
    /// What the streams of a chain are stored in.
    residual: Option<String>,
    /// What a chain's layer inputs and outputs are rounded to.
    layer_io: Option<String>,
    /// What stands in for a chain's attention and experts.
    sublayer: Option<String>,
    /// Where a chain runs the variant's recipe.
    sites_on: Option<String>,
    /// The backend that really ran: `emulate` or `cuda`.
    backend: String,
    /// The architecture that ran or was emulated.
    arch: String,
}

impl Key {
    /// Where the row is: `L17.ffn`, `L17`, or nothing for a row of the whole model.
    #[must_use]
    pub fn place(&self) -> String {
        match (self.layer, self.site.as_deref()) {
            (Some(layer), Some(site)) => format!("L{layer}.{site}"),
            (Some(layer), None) => format!("L{layer}"),
            (None, Some(site)) => site.to_owned(),
            (None, None) => String::new(),
        }
    }

    /// Whether it is of a pair of sources of error: how much the two say of each other, and no error of its own.
    #[must_use]
    pub fn is_pair(&self) -> bool {
        self.source
            .as_deref()
            .is_some_and(|source| source.contains('*'))
    }

    /// The row in words, without what all rows of a run share.
    #[must_use]
    pub fn words(&self) -> String {
        let named = |name: &str, field: Option<String>| {
            field.map_or_else(String::new, |field| format!("{name} {field}"))
        };
        let text = |field: &Option<String>| field.clone().unwrap_or_default();
        let parts = [
            self.suite.clone(),
            self.place(),
            text(&self.stage),
            self.variant.clone(),
            text(&self.fault),
            text(&self.source),
            text(&self.direction),
            named("context", self.context.map(|context| context.to_string())),
            text(&self.query_set),
            named("k", self.k.map(|k| k.to_string())),
            named("at", self.k_at.map(|at| at.to_string())),
            named("depth", self.needle_depth.clone()),
            named("margin", self.needle_margin.clone()),
            // The default goes without saying.
            named("seed", (self.seed != 0).then(|| self.seed.to_string())),
        ];
        let parts = parts.map(|part| super::printable(&part));
        let parts: Vec<String> = parts.into_iter().filter(|part| !part.is_empty()).collect();
        parts.join(" ")
    }
}

/// All present fields, `name=value`, in column order.
impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut gap = "";
        for name in Self::NAMES {
            if let Some(text) = self.get(name) {
                write!(f, "{gap}{name}={}", super::printable(&text))?;
                gap = " ";
            }
        }
        Ok(())
    }
}

/// One row.
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct Record {
    /// Which experiment this is.
    #[serde(flatten)]
    pub key: Key,
    /// What was measured.
    #[serde(flatten)]
    pub measures: Measures,
}

/// A flattened struct cannot refuse unknown fields by derive, so the row is split by name first.
impl<'de> Deserialize<'de> for Record {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let (key, measures) = deserializer
            .deserialize_map(RowVisitor)?
            .into_iter()
            .partition(|(name, _)| Key::NAMES.contains(&name.as_str()));
        let key = serde_json::from_value(serde_json::Value::Object(key));
        let measures = serde_json::from_value(serde_json::Value::Object(measures));
        Ok(Self {
            key: key.map_err(de::Error::custom)?,
            measures: measures.map_err(de::Error::custom)?,
        })
    }
}

/// Takes a row apart and refuses what would lose a failure: a field that stands twice, of which
/// only the last would count, and a null, which is what other writers make of NaN.
struct RowVisitor;

impl<'de> Visitor<'de> for RowVisitor {
    type Value = serde_json::Map<String, serde_json::Value>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a record, which is an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut row: A) -> Result<Self::Value, A::Error> {
        let mut fields = serde_json::Map::new();
        while let Some((name, value)) = row.next_entry::<String, serde_json::Value>()? {
            if value.is_null() {
                return Err(de::Error::custom(format!(
                    "{name} is null in a record; NaN is written \"NaN\", and what does not apply is left out"
                )));
            }
            if fields.contains_key(&name) {
                return Err(de::Error::custom(format!(
                    "{name} stands twice in a record"
                )));
            }
            fields.insert(name, value);
        }
        Ok(fields)
    }
}

/// Two records of one report have the same key, so neither could be told from the other.
#[derive(Debug, Error)]
#[error("two records have the key {key}; every record needs a key of its own")]
pub struct DuplicateKey {
    /// The key that occurs twice.
    pub key: Box<Key>,
}

/// The rows of a report, each with a key of its own.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct Records(#[serde(deserialize_with = "read_records")] Vec<Record>);

fn read_records<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Record>, D::Error> {
    let records = Records::new(Vec::deserialize(deserializer)?);
    records.map(|records| records.0).map_err(de::Error::custom)
}

impl Records {
    /// Takes rows in the order they are to be written.
    ///
    /// # Errors
    /// If two have the same key.
    pub fn new(records: Vec<Record>) -> Result<Self, DuplicateKey> {
        let mut seen = HashSet::with_capacity(records.len());
        for record in &records {
            if !seen.insert(&record.key) {
                return Err(DuplicateKey {
                    key: Box::new(record.key.clone()),
                });
            }
        }
        Ok(Self(records))
    }

    /// The rows.
    #[must_use]
    pub fn into_vec(self) -> Vec<Record> {
        self.0
    }
}

impl Deref for Records {
    type Target = [Record];

    fn deref(&self) -> &[Record] {
        &self.0
    }
}
