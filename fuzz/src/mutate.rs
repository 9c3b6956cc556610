//! Changes that leave JSON and TOML what they are.
//!
//! libFuzzer changes bytes, and what it gets that way is refused in the first line of a parser nearly always. Half of the
//! time these change the document as a tree instead: a value for another, a field away, an element twice.

use libfuzzer_sys::fuzzer_mutate;
use serde_json::{Map, Number, Value, json};

/// The most changes at once.
const MOST_CHANGES: u64 = 3;

/// Changes JSON in the first `size` of the bytes; returns its new size, at most `largest`.
pub fn json(data: &mut [u8], size: usize, largest: usize, seed: u32) -> usize {
    changed(data, size, largest, seed, |text, dice| {
        let mut document: Value = serde_json::from_slice(text).ok()?;
        dice.change(&mut document);
        serde_json::to_vec(&document).ok()
    })
}

/// As [`json`], of TOML.
pub fn toml(data: &mut [u8], size: usize, largest: usize, seed: u32) -> usize {
    changed(data, size, largest, seed, |text, dice| {
        let table: toml::Table = toml::from_str(str::from_utf8(text).ok()?).ok()?;
        let mut document = serde_json::to_value(table).ok()?;
        dice.change(&mut document);
        Some(toml::to_string(&document).ok()?.into_bytes())
    })
}

fn changed(
    data: &mut [u8],
    size: usize,
    largest: usize,
    seed: u32,
    change: impl Fn(&[u8], &mut Dice) -> Option<Vec<u8>>,
) -> usize {
    let mut dice = Dice(u64::from(seed) + 1);
    let whole = match dice.below(2) {
        0 => None,
        _ => change(&data[..size], &mut dice),
    };
    match whole.filter(|whole| whole.len() <= largest && whole.as_slice() != &data[..size]) {
        Some(whole) => {
            data[..whole.len()].copy_from_slice(&whole);
            whole.len()
        }
        None => fuzzer_mutate(data, size, largest),
    }
}

/// SplitMix64, so that a seed gives the same change again.
struct Dice(u64);

impl Dice {
    fn below(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (bits ^ (bits >> 31)) % sides
    }

    fn index(&mut self, length: usize) -> usize {
        self.below(length as u64) as usize
    }

    fn change(&mut self, document: &mut Value) {
        for _ in 0..=self.below(MOST_CHANGES) {
            let nodes = count(document);
            let other = node(document, self.index(nodes)).clone();
            let chosen = self.index(nodes);
            self.change_one(node(document, chosen), other);
        }
    }

    /// Changes one value; `other` is one of the same document.
    fn change_one(&mut self, value: &mut Value, other: Value) {
        match (self.below(4), &mut *value) {
            (0, _) => *value = other,
            (1, _) => *value = self.odd(),
            (_, Value::Number(number)) => *value = self.near(number),
            (_, Value::String(text)) => self.change_text(text),
            (_, Value::Array(list)) => self.change_list(list, other),
            (_, Value::Object(fields)) => self.change_fields(fields, other),
            (_, Value::Bool(truth)) => *truth = !*truth,
            (_, Value::Null) => *value = self.odd(),
        }
    }

    /// A value that something may have forgotten.
    fn odd(&mut self) -> Value {
        let values = [
            Value::Null,
            json!(true),
            json!(0),
            json!(-1),
            json!(1_u64 << 32),
            json!(1_u64 << 53),
            json!(u64::MAX),
            json!(i64::MIN),
            json!(-0.0),
            json!(0.1),
            json!(5e-324),
            json!(1e-310),
            json!(1e308),
            json!("NaN"),
            json!("Infinity"),
            json!("-Infinity"),
            json!(""),
            json!("*"),
            json!("../a"),
            json!("a\nb\u{1b}[31m\u{202e}"),
            json!("é漢😀"),
            json!("x".repeat(300)),
            json!([]),
            json!({}),
        ];
        values[self.index(values.len())].clone()
    }

    fn near(&mut self, number: &Number) -> Value {
        let value = number.as_f64().unwrap_or(1.0);
        match (self.below(5), number.as_u64()) {
            (0, Some(count)) => json!(count.wrapping_add(1)),
            (1, Some(count)) => json!(count.saturating_sub(1)),
            (2, Some(count)) => json!(count.saturating_mul(2)),
            (0, None) => json!(f64::from_bits(value.to_bits() ^ 1)),
            (1, None) => json!(value * 1e-30),
            (2, None) => json!(value * 1e30),
            (3, _) => json!(-value),
            _ => json!(value + 1.0),
        }
    }

    fn change_text(&mut self, text: &mut String) {
        let characters: Vec<char> = text.chars().collect();
        let place = self.index(characters.len() + 1);
        let (front, back) = characters.split_at(place);
        let odd = [
            "*", "?", "\"", "'", "\\", "\n", "\0", "/", "=", ",", "<", "0", "é", " ",
        ];
        let between = match self.below(3) {
            0 => "",
            _ => odd[self.index(odd.len())],
        };
        let skipped = self.index(2).min(back.len());
        *text = front.iter().collect();
        text.push_str(between);
        text.extend(&back[skipped..]);
    }

    fn change_list(&mut self, list: &mut Vec<Value>, other: Value) {
        if list.is_empty() || self.below(5) == 0 {
            return list.push(other);
        }
        let (first, second) = (self.index(list.len()), self.index(list.len()));
        match self.below(3) {
            0 => drop(list.remove(first)),
            1 => list.swap(first, second),
            _ => list.insert(second, list[first].clone()),
        }
    }

    fn change_fields(&mut self, fields: &mut Map<String, Value>, other: Value) {
        let keys: Vec<String> = fields.keys().cloned().collect();
        if keys.is_empty() {
            let key = other.as_str().unwrap_or("a").to_owned();
            fields.insert(key, other);
            return;
        }
        let (first, second) = (&keys[self.index(keys.len())], &keys[self.index(keys.len())]);
        match self.below(5) {
            0 => drop(fields.remove(first)),
            1 => {
                let mut key = first.clone();
                self.change_text(&mut key);
                fields.insert(key, fields[first].clone());
            }
            2 => drop(fields.insert(first.clone(), other)),
            3 => drop(fields.insert(first.clone(), fields[second].clone())),
            _ => {
                let value = fields.remove(first).unwrap_or_default();
                let mut key = first.clone();
                self.change_text(&mut key);
                fields.insert(key, value);
            }
        }
    }
}

/// How many values there are in it, itself included.
fn count(value: &Value) -> usize {
    1 + match value {
        Value::Array(list) => list.iter().map(count).sum(),
        Value::Object(fields) => fields.values().map(count).sum(),
        _ => 0,
    }
}

/// One of them.
fn node(value: &mut Value, mut index: usize) -> &mut Value {
    if index == 0 {
        return value;
    }
    index -= 1;
    let below: Vec<&mut Value> = match value {
        Value::Array(list) => list.iter_mut().collect(),
        Value::Object(fields) => fields.values_mut().collect(),
        _ => Vec::new(),
    };
    for child in below {
        let size = count(child);
        if index < size {
            return node(child, index);
        }
        index -= size;
    }
    unreachable!("the index is below the count")
}
