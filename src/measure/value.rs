//! A measured number that survives JSON.
//!
//! JSON has no NaN and no infinity, and a writer that turns them into `null` makes a failed kernel
//! look like a missing row. They are the strings `"NaN"`, `"Infinity"` and `"-Infinity"` here, in
//! both directions.

use std::{borrow::Cow, fmt};

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{
    Deserialize, Deserializer, Serialize, Serializer,
    de::{self, Visitor},
};

/// A measured number; NaN and the infinities are values like any other.
#[derive(Clone, Copy, Debug, Default, PartialEq, PartialOrd)]
pub struct Value(pub f64);

impl From<f64> for Value {
    fn from(value: f64) -> Self {
        Self(value)
    }
}

impl Serialize for Value {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if self.0.is_nan() {
            serializer.serialize_str("NaN")
        } else if self.0 == f64::INFINITY {
            serializer.serialize_str("Infinity")
        } else if self.0 == f64::NEG_INFINITY {
            serializer.serialize_str("-Infinity")
        } else {
            serializer.serialize_f64(self.0)
        }
    }
}

struct ValueVisitor;

impl Visitor<'_> for ValueVisitor {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a number, \"NaN\", \"Infinity\" or \"-Infinity\"")
    }

    fn visit_f64<E: de::Error>(self, value: f64) -> Result<Value, E> {
        Ok(Value(value))
    }

    fn visit_i64<E: de::Error>(self, value: i64) -> Result<Value, E> {
        Ok(Value(value as f64))
    }

    fn visit_u64<E: de::Error>(self, value: u64) -> Result<Value, E> {
        Ok(Value(value as f64))
    }

    fn visit_str<E: de::Error>(self, value: &str) -> Result<Value, E> {
        match value {
            "NaN" => Ok(Value(f64::NAN)),
            "Infinity" => Ok(Value(f64::INFINITY)),
            "-Infinity" => Ok(Value(f64::NEG_INFINITY)),
            other => Err(E::invalid_value(de::Unexpected::Str(other), &self)),
        }
    }
}

impl<'de> Deserialize<'de> for Value {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ValueVisitor)
    }
}

impl JsonSchema for Value {
    fn schema_name() -> Cow<'static, str> {
        "Value".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "A measured number; NaN and the infinities are strings, because JSON has no number for them.",
            "anyOf": [
                { "type": "number" },
                { "enum": ["NaN", "Infinity", "-Infinity"] }
            ]
        })
    }
}
