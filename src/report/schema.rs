//! The JSON Schema of a report, published as `reports/report.schema.json`.
//!
//! It is generated from the types, so it cannot drift from them; a test compares the published file
//! with what the types say. After a change of layout, raise [`SCHEMA_VERSION`](super::SCHEMA_VERSION)
//! and rewrite the file with `UPDATE_SCHEMA=1 cargo test --lib report::schema`.

use schemars::schema_for;

use super::Report;

/// The schema as it is published, with a final newline.
#[must_use]
pub fn text() -> String {
    format!("{:#}\n", schema_for!(Report).to_value())
}

#[cfg(test)]
mod tests {
    use std::{fs, path::Path};

    #[test]
    fn the_published_schema_is_that_of_the_types() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("reports/report.schema.json");
        let generated = super::text();
        if std::env::var_os("UPDATE_SCHEMA").is_some() {
            fs::write(&path, &generated).unwrap();
        }
        let published = fs::read_to_string(&path).unwrap_or_default();
        assert!(
            published == generated,
            "{} differs from the types; rewrite it with UPDATE_SCHEMA=1 cargo test --lib report::schema",
            path.display()
        );
    }

    #[test]
    fn records_allow_their_columns_and_nothing_else() {
        let schema: serde_json::Value = serde_json::from_str(&super::text()).unwrap();
        let record = &schema["$defs"]["Record"];
        let properties = record["properties"].as_object().unwrap();
        let columns = super::super::Key::NAMES
            .iter()
            .chain(super::super::Measures::NAMES);
        assert_eq!(properties.len(), columns.clone().count());
        for name in columns {
            assert!(properties.contains_key(*name), "{name}");
        }
        let closed =
            record["additionalProperties"] == false || record["unevaluatedProperties"] == false;
        assert!(closed, "{record}");
    }
}
