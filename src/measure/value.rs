//! A measured number that survives JSON.
//!
//! JSON has no NaN and no infinities, and `serde_json` writes them as `null`, which reads back as
//! "absent": a measure that failed would look like one that does not apply. [`Value`] writes them
//! as the strings `"NaN"`, `"Infinity"` and `"-Infinity"` and reads those back.

use std::{borrow::Cow, fmt};

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// A measured number; not-a-number and the infinities are legal outcomes of a measurement.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
pub struct Value(pub f64);

impl From<f64> for Value {
    fn from(number: f64) -> Self {
        Self(number)
    }
}

impl From<Value> for f64 {
    fn from(value: Value) -> Self {
        value.0
    }
}

/// The JSON spelling of a number that JSON cannot hold, or `None` for a finite one.
fn non_finite_name(number: f64) -> Option<&'static str> {
    if number.is_nan() {
        Some("NaN")
    } else if number == f64::INFINITY {
        Some("Infinity")
    } else if number == f64::NEG_INFINITY {
        Some("-Infinity")
    } else {
        None
    }
}

impl Serialize for Value {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match non_finite_name(self.0) {
            Some(name) => serializer.serialize_str(name),
            None => serializer.serialize_f64(self.0),
        }
    }
}

struct ValueVisitor;

impl de::Visitor<'_> for ValueVisitor {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a number, \"NaN\", \"Infinity\" or \"-Infinity\"")
    }

    fn visit_f64<E: de::Error>(self, number: f64) -> Result<Value, E> {
        Ok(Value(number))
    }

    // Integers come from JSON written by other programs; those of a measure are far below 2^53.
    fn visit_u64<E: de::Error>(self, number: u64) -> Result<Value, E> {
        Ok(Value(number as f64))
    }

    fn visit_i64<E: de::Error>(self, number: i64) -> Result<Value, E> {
        Ok(Value(number as f64))
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Value, E> {
        match text {
            "NaN" => Ok(Value(f64::NAN)),
            "Infinity" => Ok(Value(f64::INFINITY)),
            "-Infinity" => Ok(Value(f64::NEG_INFINITY)),
            _ => Err(E::invalid_value(de::Unexpected::Str(text), &self)),
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
            "description": "A measured number; non-finite ones are strings.",
            "anyOf": [
                { "type": "number" },
                { "type": "string", "enum": ["NaN", "Infinity", "-Infinity"] }
            ]
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn round_trip(number: f64) -> f64 {
        let json = serde_json::to_string(&Value(number)).expect("a value serialises");
        serde_json::from_str::<Value>(&json)
            .expect("its own JSON reads back")
            .0
    }

    // Known fault J2: [1, inf, -inf, nan] written as [1,null,null,null].
    #[test]
    fn j2_non_finite_numbers_are_strings() {
        let values = [1.0, f64::INFINITY, f64::NEG_INFINITY, f64::NAN].map(Value);
        assert_eq!(
            serde_json::to_string(&values).expect("values serialise"),
            r#"[1.0,"Infinity","-Infinity","NaN"]"#
        );
        assert!(round_trip(f64::NAN).is_nan());
        assert_eq!(round_trip(f64::NEG_INFINITY), f64::NEG_INFINITY);
    }

    #[test]
    fn integers_read_and_other_strings_do_not() {
        assert_eq!(serde_json::from_str::<Value>("-3").expect("reads").0, -3.0);
        for hostile in [r#""nan""#, r#""inf""#, "null", "[]", r#""""#, "true"] {
            assert!(serde_json::from_str::<Value>(hostile).is_err(), "{hostile}");
        }
    }

    #[test]
    fn schema_names_the_three_strings() {
        let schema = schemars::schema_for!(Value).to_value().to_string();
        for name in ["number", "NaN", "Infinity", "-Infinity"] {
            assert!(schema.contains(name), "{name} is missing from {schema}");
        }
    }

    proptest! {
        #[test]
        fn every_finite_number_round_trips_bit_for_bit(bits: u64) {
            let number = f64::from_bits(bits);
            prop_assume!(number.is_finite());
            prop_assert_eq!(round_trip(number).to_bits(), bits);
        }
    }
}
