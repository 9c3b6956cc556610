//! One entry of a safetensors header: read without trust, then checked in itself.

use serde::{
    Deserialize,
    de::{
        DeserializeSeed, Deserializer, Error as _, IgnoredAny, IntoDeserializer, MapAccess,
        SeqAccess, Visitor, value::StrDeserializer,
    },
};

use super::error::quoted;

/// More dimensions, or letters of a dtype, than any tensor has.
const MOST_DIMENSIONS: usize = 64;
const LONGEST_DTYPE: usize = 64;

/// Where one tensor lies and how it is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The dtype as the header spells it; it may be one the tool does not decode.
    pub dtype: String,
    /// Its dimensions.
    pub shape: Vec<usize>,
    /// First byte, relative to the end of the header.
    pub begin: u64,
    /// One past the last byte, relative to the end of the header.
    pub end: u64,
}

/// Implements the visits of everything but an object as `$value`.
macro_rules! otherwise {
    ($value:expr) => {
        fn visit_bool<E>(self, _: bool) -> Result<Self::Value, E> {
            Ok($value)
        }

        fn visit_i64<E>(self, _: i64) -> Result<Self::Value, E> {
            Ok($value)
        }

        fn visit_u64<E>(self, _: u64) -> Result<Self::Value, E> {
            Ok($value)
        }

        fn visit_f64<E>(self, _: f64) -> Result<Self::Value, E> {
            Ok($value)
        }

        fn visit_str<E>(self, _: &str) -> Result<Self::Value, E> {
            Ok($value)
        }

        fn visit_unit<E>(self) -> Result<Self::Value, E> {
            Ok($value)
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> Result<Self::Value, A::Error> {
            while access.next_element::<IgnoredAny>()?.is_some() {}
            Ok($value)
        }
    };
}

pub(super) use otherwise;

/// A tensor's entry; `None` if it is none.
pub(super) struct Value;

/// An entry as written.
#[derive(Debug)]
pub(super) struct RawEntry {
    dtype: String,
    shape: Vec<u64>,
    data_offsets: [u64; 2],
}

impl<'de> DeserializeSeed<'de> for Value {
    type Value = Option<RawEntry>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Value {
    type Value = Option<RawEntry>;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a dtype, a shape and two data_offsets")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Self::Value, A::Error> {
        let (mut dtype, mut shape, mut offsets) = (None, None, None);
        let mut twice = false;
        while let Some(field) = access.next_key::<Field>()? {
            match field {
                Field::Dtype => {
                    twice |= dtype.replace(access.next_value::<ShortText>()?.0).is_some();
                }
                Field::Shape => {
                    twice |= shape
                        .replace(access.next_value::<Dimensions>()?.0)
                        .is_some();
                }
                Field::DataOffsets => {
                    twice |= offsets
                        .replace(access.next_value::<Dimensions>()?.0)
                        .is_some();
                }
                Field::Other => drop(access.next_value::<IgnoredAny>()?),
            }
        }
        Ok(match (dtype, shape, offsets.as_deref()) {
            (Some(dtype), Some(shape), Some(&[begin, end])) if !twice => Some(RawEntry {
                dtype,
                shape,
                data_offsets: [begin, end],
            }),
            _ => None,
        })
    }

    otherwise!(None);
}

#[derive(Deserialize)]
#[serde(field_identifier, rename_all = "snake_case")]
enum Field {
    Dtype,
    Shape,
    DataOffsets,
    #[serde(other)]
    Other,
}

/// A text of at most [`LONGEST_DTYPE`] bytes.
struct ShortText(String);

impl<'de> Deserialize<'de> for ShortText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Short;

        impl Visitor<'_> for Short {
            type Value = ShortText;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                write!(f, "a text of at most {LONGEST_DTYPE} bytes")
            }

            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<ShortText, E> {
                match text.len() {
                    0..=LONGEST_DTYPE => Ok(ShortText(text.to_owned())),
                    length => Err(E::invalid_length(length, &self)),
                }
            }
        }

        deserializer.deserialize_str(Short)
    }
}

/// At most [`MOST_DIMENSIONS`] whole numbers.
struct Dimensions(Vec<u64>);

impl<'de> Deserialize<'de> for Dimensions {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Few;

        impl<'de> Visitor<'de> for Few {
            type Value = Dimensions;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                write!(f, "at most {MOST_DIMENSIONS} whole numbers")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> Result<Dimensions, A::Error> {
                let mut shape = Vec::new();
                while let Some(dimension) = access.next_element()? {
                    if shape.len() == MOST_DIMENSIONS {
                        return Err(A::Error::invalid_length(MOST_DIMENSIONS + 1, &self));
                    }
                    shape.push(dimension);
                }
                Ok(Dimensions(shape))
            }
        }

        deserializer.deserialize_seq(Few)
    }
}

impl RawEntry {
    /// Checks it in itself: dimensions, dtype and byte span must agree.
    pub(super) fn check(self, name: &str) -> Result<Entry, String> {
        let [begin, end] = self.data_offsets;
        if begin > end {
            return Err(format!(
                "{} begins at byte {begin} and ends before it, at {end}",
                quoted(name)
            ));
        }
        let overflow = || {
            format!(
                "the size of {} with shape {:?} overflows",
                quoted(name),
                self.shape
            )
        };
        let elements = self
            .shape
            .iter()
            .try_fold(1_u64, |product, &dim| product.checked_mul(dim))
            .ok_or_else(overflow)?;
        let shape: Vec<usize> = self
            .shape
            .iter()
            .map(|&dim| usize::try_from(dim))
            .collect::<Result<_, _>>()
            .map_err(|_| overflow())?;
        if let Some(bits) = bits_per_element(&self.dtype) {
            let bytes = elements.checked_mul(bits).ok_or_else(overflow)?.div_ceil(8);
            // Writers disagree on whether the shape of a packed type counts elements or bytes.
            let packed_bytes = (bits < 8).then_some(elements);
            let span = end - begin;
            if span != bytes && Some(span) != packed_bytes {
                return Err(format!(
                    "{} of dtype {} and shape {:?} needs {bytes} bytes, but its data_offsets span \
                 {span}",
                    quoted(name),
                    self.dtype,
                    self.shape
                ));
            }
        }
        Ok(Entry {
            dtype: self.dtype,
            shape,
            begin,
            end,
        })
    }
}

/// The size of a dtype that the safetensors crate knows; of others there is nothing to check.
fn bits_per_element(dtype: &str) -> Option<u64> {
    let text: StrDeserializer<'_, serde::de::value::Error> = dtype.into_deserializer();
    let known = safetensors::Dtype::deserialize(text).ok()?;
    Some(known.bitsize() as u64)
}
