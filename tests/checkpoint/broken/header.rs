//! Headers of one file: lengths, JSON, names, offsets.

use serde_json::{Value, json};

use super::{check, good, refused};
use crate::support::{Directory, Raw};

const FILE: &str = "a.safetensors";

fn layer() -> Raw {
    Raw::default().layer("layers.0.")
}

/// A file of these bytes.
fn bytes(content: impl AsRef<[u8]> + 'static) -> impl Fn(&Directory) -> String {
    move |directory| {
        directory.write(FILE, content.as_ref());
        FILE.to_owned()
    }
}

/// A file whose header is edited.
fn header(edit: impl Fn(String) -> String) -> impl Fn(&Directory) -> String {
    let raw = layer();
    bytes(raw.bytes_with_header(&edit(raw.header_text())))
}

/// A file with this entry beside the others.
fn entry(name: &'static str, value: Value) -> impl Fn(&Directory) -> String {
    bytes(layer().entry(name, value).bytes())
}

/// A file with this text as the value of an entry beside the others.
fn literal(value: &str) -> impl Fn(&Directory) -> String + use<> {
    let value = value.to_owned();
    header(move |text| text.replacen('{', &format!("{{\"extra\":{value},"), 1))
}

/// A file that begins with this header length and is otherwise whole.
fn length(length: u64) -> impl Fn(&Directory) -> String {
    let mut content = layer().bytes();
    content[..8].copy_from_slice(&length.to_le_bytes());
    bytes(content)
}

fn nested(depth: usize) -> String {
    "[".repeat(depth) + &"]".repeat(depth)
}

#[test]
fn lengths_and_text() {
    let not_json = |text: &'static str| bytes(layer().bytes_with_header(text));
    check(
        vec![
            refused("an empty file", &[FILE, "it is empty"], bytes("")),
            refused(
                "seven bytes",
                &["7 bytes, fewer than the 8"],
                bytes("1234567"),
            ),
            refused("a header of no bytes", &["would have 0 bytes"], length(0)),
            refused("a header of one byte", &["would have 1 bytes"], length(1)),
            refused(
                "a header above the cap",
                &["100000001 bytes, above the format's limit"],
                length(100_000_001),
            ),
            refused(
                "a header of 2^64-1 bytes",
                &["above the format's limit"],
                length(u64::MAX),
            ),
            refused(
                "a header longer than the file",
                &["truncated", "its header alone ends at byte"],
                length(99_000_000),
            ),
            refused("a header cut short", &["is broken", "EOF"], length(300)),
            refused(
                "a list for a header",
                &["does not begin with '{'"],
                not_json("[1, 2, 3]"),
            ),
            refused(
                "a byte order mark",
                &["does not begin with '{'"],
                not_json("\u{feff}{}"),
            ),
            refused(
                "no JSON",
                &["is broken", "line 1 column 2"],
                not_json("{layers.0}"),
            ),
            refused(
                "text after the header",
                &["is broken", "trailing characters"],
                header(|text| text + " x"),
            ),
            refused(
                "NUL after the header",
                &["is broken", "trailing characters"],
                header(|text| text + "\0\0"),
            ),
            good("blanks after the header", header(|text| text + "      \n")),
            good(
                "blanks in the header",
                header(|text| text.replace(',', " ,\t\r\n ")),
            ),
            refused("an empty header", &["among its 0 tensors"], not_json("{}")),
            refused(
                "metadata alone",
                &["among its 0 tensors"],
                not_json("{\"__metadata__\":{}}"),
            ),
            refused(
                "a name that is no text",
                &["is broken"],
                header(|text| text.replacen('{', "{7:0,", 1)),
            ),
            refused(
                "half a surrogate in a name",
                &["is broken", "hex escape"],
                header(|text| text.replacen('{', "{\"\\ud800\":0,", 1)),
            ),
            refused(
                "bytes that are no UTF-8",
                &["is broken", "unicode"],
                bytes({
                    let raw = layer();
                    let mut content = raw.bytes();
                    let place = content.windows(4).position(|word| word == b"base").unwrap();
                    content[place] = 0xff;
                    content
                }),
            ),
        ],
        20,
    );
}

#[test]
fn names() {
    let tensor = json!({"dtype": "U8", "shape": [0], "data_offsets": [0, 0]}).to_string();
    let twice = |again: &'static str| {
        let tensor = tensor.clone();
        header(move |text| {
            text.replacen('{', &format!("{{\"x\":{tensor},\"{again}\":{tensor},"), 1)
        })
    };
    let long = format!("{{\"{}\":{tensor},", "n".repeat(5000));
    check(
        vec![
            refused("a name twice", &["'x' is named twice"], twice("x")),
            refused(
                "a name twice, once in escapes",
                &["'x' is named twice"],
                twice("\\u0078"),
            ),
            refused(
                "one of ours twice",
                &["'layers.0.hc_attn_scale' is named twice"],
                header(|text| text.replace("layers.0.hc_ffn_scale", "layers.0.hc_attn_scale")),
            ),
            refused(
                "metadata twice",
                &["'__metadata__' is named twice"],
                header(|text| text.replacen('{', "{\"__metadata__\":{},\"__metadata__\":{},", 1)),
            ),
            refused(
                "one tensor in two spellings",
                &[
                    "'layers.0.hc_attn_scale'",
                    "'model.layers.0.attn_hc.scale'",
                    "remove one",
                ],
                bytes(
                    layer()
                        .f32("model.layers.0.attn_hc.scale", &[3], &[0.0; 3])
                        .bytes(),
                ),
            ),
            refused(
                "a name of 5000 bytes",
                &["a name of 5000 bytes, more than 4096"],
                header(move |text| text.replacen('{', &long, 1)),
            ),
            good(
                "an empty name",
                entry(
                    "",
                    json!({"dtype": "U8", "shape": [0], "data_offsets": [0, 0]}),
                ),
            ),
            good(
                "a name of control characters",
                entry(
                    "\u{1b}[2J\n",
                    json!({"dtype": "U8", "shape": [0], "data_offsets": [0, 0]}),
                ),
            ),
            refused(
                "control characters in what is wrong",
                &["\\u{1b}[2J\\n"],
                entry("\u{1b}[2J\n", json!(7)),
            ),
        ],
        9,
    );
}

#[test]
fn offsets_and_shapes() {
    let tensor = |dtype: &str, shape: Value, offsets: Value| {
        entry(
            "extra",
            json!({"dtype": dtype, "shape": shape, "data_offsets": offsets}),
        )
    };
    let text = |shape: &str, offsets: &str| {
        literal(&format!(
            "{{\"dtype\":\"U8\",\"shape\":{shape},\"data_offsets\":{offsets}}}"
        ))
    };
    let whole = layer().bytes().len() as u64;
    let not_an_entry: &[&str] = &["the entry 'extra' is not a dtype, a shape and two data_offsets"];
    let mut cases = vec![
        refused(
            "offsets reversed",
            &["'extra' begins at byte 8 and ends before it, at 4"],
            tensor("F32", json!([1]), json!([8, 4])),
        ),
        refused(
            "offsets beyond the file",
            &["truncated", "'extra' ends at data byte"],
            tensor("U8", json!([1]), json!([whole, whole + 1])),
        ),
        refused(
            "nothing at the end of all numbers",
            &["truncated", "18446744073709551615"],
            tensor("U8", json!([0]), json!([u64::MAX, u64::MAX])),
        ),
        refused(
            "overlapping offsets",
            &["'extra'", "overlap"],
            tensor("F32", json!([2]), json!([0, 8])),
        ),
        refused(
            "bytes of two tensors",
            &["overlap"],
            tensor("F32", json!([24]), json!([0, 96])),
        ),
        refused(
            "fewer bytes than the shape",
            &["'extra'", "needs 64 bytes", "span 60"],
            tensor("F32", json!([4, 4]), json!([0, 60])),
        ),
        refused(
            "more bytes than the shape",
            &["'extra'", "needs 4 bytes", "span 8"],
            tensor("F32", json!([1]), json!([0, 8])),
        ),
        refused(
            "a shape that overflows",
            &["the size of 'extra'", "overflows"],
            tensor("F32", json!([1_u64 << 40, 1_u64 << 40]), json!([0, 4])),
        ),
        refused(
            "a shape whose bytes overflow",
            &["the size of 'extra'", "overflows"],
            tensor("F32", json!([u64::MAX]), json!([0, 4])),
        ),
        good(
            "no bytes of a tensor",
            tensor("F32", json!([0, 7]), json!([0, 0])),
        ),
        good(
            "a scalar",
            bytes(
                Raw::default()
                    .tensor("s", "F32", &[], &[0; 4])
                    .layer("layers.0.")
                    .bytes(),
            ),
        ),
        good(
            "unaligned data",
            bytes(
                Raw::default()
                    .tensor("s", "U8", &[3], &[0; 3])
                    .layer("layers.0.")
                    .bytes(),
            ),
        ),
        good(
            "a hole",
            bytes(
                layer()
                    .f32("layers.0.hc_attn_scale", &[3], &[1.0; 3])
                    .bytes(),
            ),
        ),
        good(
            "bytes after the last tensor",
            bytes([layer().bytes(), vec![7; 99]].concat()),
        ),
        good(
            "a field of its own",
            entry(
                "extra",
                json!({"dtype": "U8", "shape": [0], "data_offsets": [0, 0], "crc": [[1]]}),
            ),
        ),
    ];
    for (name, make) in [
        ("negative offsets", text("[0]", "[-1,0]")),
        ("fractional offsets", text("[0]", "[0.5,0.5]")),
        ("offsets with a point", text("[0]", "[0.0,0.0]")),
        ("offsets with an exponent", text("[0]", "[0e0,0e0]")),
        (
            "offsets of thirty digits",
            text("[0]", "[0,100000000000000000000000000000]"),
        ),
        ("offsets as texts", text("[0]", "[\"0\",\"0\"]")),
        ("offsets of nothing", text("[0]", "null")),
        ("one offset", text("[0]", "[0]")),
        ("three offsets", text("[0]", "[0,0,0]")),
        ("a negative shape", text("[-1]", "[0,0]")),
        ("a fractional shape", text("[1.5]", "[0,0]")),
        (
            "a shape of thirty digits",
            text("[100000000000000000000000000000]", "[0,0]"),
        ),
        ("a shape that is a number", text("7", "[0,0]")),
        (
            "a shape of 65 dimensions",
            text(&format!("[{}0]", "1,".repeat(64)), "[0,0]"),
        ),
        (
            "a shape a thousand lists deep",
            text(&nested(1000), "[0,0]"),
        ),
        (
            "no shape",
            literal("{\"dtype\":\"U8\",\"data_offsets\":[0,0]}"),
        ),
        (
            "a shape twice",
            literal("{\"dtype\":\"U8\",\"shape\":[0],\"shape\":[0],\"data_offsets\":[0,0]}"),
        ),
        (
            "no dtype",
            literal("{\"shape\":[0],\"data_offsets\":[0,0]}"),
        ),
        (
            "a dtype that is a number",
            literal("{\"dtype\":8,\"shape\":[0],\"data_offsets\":[0,0]}"),
        ),
        (
            "a dtype of 65 letters",
            literal(&format!(
                "{{\"dtype\":\"{}\",\"shape\":[0],\"data_offsets\":[0,0]}}",
                "F".repeat(65)
            )),
        ),
        ("an entry that is a number", literal("7")),
        ("an entry that is a text", literal("\"F32\"")),
        ("an entry that is nothing", literal("null")),
        ("an entry that is a list", literal("[\"F32\",[0],[0,0]]")),
        ("an entry that is empty", literal("{}")),
    ] {
        cases.push(refused(name, not_an_entry, make));
    }
    check(cases, 40);
}

#[test]
fn metadata() {
    let with = |value: Value| entry("__metadata__", value);
    let text = |value: String| {
        header(move |text| text.replacen('{', &format!("{{\"__metadata__\":{value},"), 1))
    };
    check(
        vec![
            good("metadata of nothing", with(json!({}))),
            good("metadata null", with(Value::Null)),
            good(
                "metadata of numbers and lists",
                with(json!({"format": 7, "x": [1, {"y": null}]})),
            ),
            good("metadata that are a text", with(json!("pt"))),
            good("metadata that are a number", with(json!(-1.5))),
            good("metadata that are true", with(json!(true))),
            good("metadata that are a list", with(json!([1, [2]]))),
            good(
                "metadata like a tensor",
                with(json!({"dtype": "F32", "shape": [1], "data_offsets": [0, 4]})),
            ),
            good(
                "metadata a hundred thousand lists deep",
                text(format!("{{\"deep\":{}}}", nested(100_000))),
            ),
            good(
                "metadata that name a key twice",
                text("{\"a\":1,\"a\":2}".to_owned()),
            ),
        ],
        10,
    );
}

/// The format's largest header, nearly all of it blanks.
#[test]
fn a_header_at_the_cap() {
    let at_the_cap = header(|text| {
        let blanks = 100_000_000 - text.len();
        text + &" ".repeat(blanks)
    });
    check(vec![good("a header at the cap", at_the_cap)], 1);
}
