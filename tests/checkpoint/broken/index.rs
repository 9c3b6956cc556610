//! Indexes, and shards that are not what they say.

use std::{fs, os::unix::fs::symlink};

use serde_json::{Value, json};
use ulpdrift::checkpoint::{SyntheticModel, write_synthetic};

use super::{Case, check, good, refused};
use crate::support::Directory;

const INDEX: &str = "ck/model.safetensors.index.json";
const FIRST: &str = "ck/model-00001-of-00003.safetensors";
const SECOND: &str = "ck/model-00002-of-00003.safetensors";

/// A checkpoint of two layers and three shards.
fn whole(directory: &Directory) -> String {
    write_synthetic(&directory.path("ck"), SyntheticModel::Tiny, &[0, 1], 0).unwrap();
    "ck".to_owned()
}

/// The same after a change.
fn changed(change: impl Fn(&Directory)) -> impl Fn(&Directory) -> String {
    move |directory| {
        let spec = whole(directory);
        change(directory);
        spec
    }
}

/// The same with this for an index.
fn index(content: impl AsRef<[u8]> + 'static) -> impl Fn(&Directory) -> String {
    changed(move |directory| drop(directory.write(INDEX, content.as_ref())))
}

/// The same with its index edited.
fn edited(edit: impl Fn(&mut Value)) -> impl Fn(&Directory) -> String {
    changed(move |directory| directory.edit_json(INDEX, |index| edit(index)))
}

/// An index that puts a tensor of no interest into `file`.
fn elsewhere(name: &'static str, file: &'static str) -> Case {
    let phrases = ["it puts 'x' into", "not a plain file name", "do not trust"];
    refused(
        name,
        &phrases,
        edited(move |index| index["weight_map"]["x"] = json!(file)),
    )
}

#[test]
fn what_an_index_says() {
    let first = "{\"weight_map\": {\"layers.0.hc_attn_fn\": ";
    check(
        vec![
            refused("an empty index", &["the index", "EOF"], index("")),
            refused(
                "an index that is a list",
                &["expected an object with a weight_map"],
                index("[]"),
            ),
            refused(
                "an index that is a text",
                &["expected an object with a weight_map"],
                index("\"weight_map\""),
            ),
            refused(
                "an index without a map",
                &["weight_map, which it has not"],
                index("{\"metadata\": {}}"),
            ),
            refused(
                "a map of nothing",
                &["its weight_map is empty"],
                index("{\"weight_map\": {}}"),
            ),
            refused(
                "a map that is null",
                &["invalid type: null"],
                index("{\"weight_map\": null}"),
            ),
            refused(
                "a map that is a list",
                &["invalid type: sequence"],
                index("{\"weight_map\": []}"),
            ),
            refused(
                "two maps",
                &["it has weight_map twice"],
                index("{\"weight_map\": {}, \"weight_map\": {}}"),
            ),
            refused(
                "a shard that is a number",
                &["the entry 'layers.0.hc_attn_fn'", "invalid type"],
                index(format!("{first}3}}}}")),
            ),
            refused(
                "a shard that is null",
                &["the entry 'layers.0.hc_attn_fn'", "invalid type"],
                index(format!("{first}null}}}}")),
            ),
            refused(
                "a shard of control characters",
                &["'\\u{1b}[2J'"],
                index(format!("{first}\"\\u001b[2J\"}}}}")),
            ),
            refused("an index cut short", &["EOF"], index(format!("{first}\"a"))),
            refused(
                "an index with more behind it",
                &["trailing characters"],
                index("{\"weight_map\": {\"a\": \"b\"}} {}"),
            ),
            refused(
                "an index behind a byte order mark",
                &["the index", "line 1 column 1"],
                index("\u{feff}{\"weight_map\": {\"a\": \"b\"}}"),
            ),
            refused(
                "an index that is a Git-LFS pointer",
                &["git lfs pull"],
                index("version https://git-lfs.github.com/spec/v1\n"),
            ),
            refused(
                "an index that is a page",
                &["HTML"],
                index("<html>404</html>"),
            ),
            refused(
                "an index that is a directory",
                &["index.json", "is a directory"],
                changed(|directory| {
                    fs::remove_file(directory.path(INDEX)).unwrap();
                    fs::create_dir(directory.path(INDEX)).unwrap();
                }),
            ),
            refused(
                "an index that is a dangling link",
                &["symbolic link to 'gone'"],
                changed(|directory| {
                    fs::remove_file(directory.path(INDEX)).unwrap();
                    symlink("gone", directory.path(INDEX)).unwrap();
                }),
            ),
            refused(
                "a tensor twice in an index",
                &["'layers.0.hc_attn_scale' is named twice"],
                changed(|directory| {
                    let text = fs::read_to_string(directory.path(INDEX)).unwrap();
                    directory.write(
                        INDEX,
                        text.replace("layers.0.hc_ffn_scale", "layers.0.hc_attn_scale"),
                    );
                }),
            ),
            elsewhere("a shard above", "../x.safetensors"),
            elsewhere("a shard at the root", "/etc/passwd"),
            elsewhere("a shard below", "a/b.safetensors"),
            elsewhere("a shard behind a backslash", "..\\x.safetensors"),
            elsewhere("a shard on a drive", "C:x.safetensors"),
            elsewhere("a shard with NUL", "x\0.safetensors"),
            elsewhere("the directory itself", "."),
            elsewhere("the directory above", ".."),
            elsewhere("a shard without a name", ""),
            good(
                "an index without metadata",
                edited(|index| drop(index.as_object_mut().unwrap().remove("metadata"))),
            ),
            good(
                "metadata of an index a hundred thousand lists deep",
                changed(|directory| {
                    let text = fs::read_to_string(directory.path(INDEX)).unwrap();
                    let deep = "[".repeat(100_000) + &"]".repeat(100_000);
                    directory.write(
                        INDEX,
                        text.replacen('{', &format!("{{\"deep\": {deep},"), 1),
                    );
                }),
            ),
        ],
        30,
    );
}

#[test]
fn shards_behind_an_index() {
    check(
        vec![
            good("a whole checkpoint", whole),
            good("the index itself named", |directory| {
                whole(directory);
                INDEX.to_owned()
            }),
            refused(
                "a shard that is absent",
                &[
                    "'model-00002-of-00003.safetensors'",
                    "1 of 3 shards",
                    "finish the download",
                ],
                changed(|directory| {
                    fs::remove_file(directory.path(SECOND)).unwrap();
                }),
            )
            .but_shown(),
            refused(
                "a shard of which half is there",
                &["model-00002", "truncated"],
                changed(|directory| {
                    let bytes = fs::read(directory.path(SECOND)).unwrap();
                    directory.write(SECOND, &bytes[..bytes.len() / 2]);
                }),
            )
            .but_shown(),
            refused(
                "a shard that lacks its last byte",
                &["model-00002", "truncated"],
                changed(|directory| {
                    let bytes = fs::read(directory.path(SECOND)).unwrap();
                    directory.write(SECOND, &bytes[..bytes.len() - 1]);
                }),
            )
            .but_shown(),
            refused(
                "a shard that is empty",
                &["model-00002", "it is empty"],
                changed(|directory| drop(directory.write(SECOND, ""))),
            )
            .but_shown(),
            refused(
                "a shard that is a dangling link",
                &["symbolic link to '../blobs/x'"],
                changed(|directory| {
                    fs::remove_file(directory.path(SECOND)).unwrap();
                    symlink("../blobs/x", directory.path(SECOND)).unwrap();
                }),
            )
            .but_shown(),
            refused(
                "a shard that links to itself",
                &["model-00002", "symbolic links"],
                changed(|directory| {
                    fs::remove_file(directory.path(SECOND)).unwrap();
                    symlink("model-00002-of-00003.safetensors", directory.path(SECOND)).unwrap();
                }),
            )
            .but_shown(),
            refused(
                "a shard that is a directory",
                &["model-00002", "is a directory"],
                changed(|directory| {
                    fs::remove_file(directory.path(SECOND)).unwrap();
                    fs::create_dir(directory.path(SECOND)).unwrap();
                }),
            )
            .but_shown(),
            refused(
                "the index for a shard",
                &["model.safetensors.index.json'", "not a safetensors file"],
                edited(|index| {
                    index["weight_map"]["layers.0.hc_attn_fn"] =
                        json!("model.safetensors.index.json");
                }),
            )
            .but_shown(),
            refused(
                "shards that are exchanged",
                &["puts 'layers.", "does not hold it", "different versions"],
                changed(|directory| {
                    let first = fs::read(directory.path(FIRST)).unwrap();
                    let second = fs::read(directory.path(SECOND)).unwrap();
                    directory.write(FIRST, second);
                    directory.write(SECOND, first);
                }),
            ),
            refused(
                "a tensor that the shard has not",
                &["puts 'layers.1.hc_attn_fn' into", "does not hold it"],
                edited(|index| {
                    index["weight_map"]["layers.1.hc_attn_fn"] =
                        json!("model-00001-of-00003.safetensors");
                }),
            )
            .but_shown(),
            refused(
                "a tensor that the index has not",
                &["lacks layers.1.hc_ffn_base", "layer 1"],
                edited(|index| {
                    drop(
                        index["weight_map"]
                            .as_object_mut()
                            .unwrap()
                            .remove("layers.1.hc_ffn_base"),
                    );
                }),
            )
            .but_shown(),
            good(
                "an absent shard of other tensors",
                edited(|index| {
                    index["weight_map"]["mtp.fc.weight"] =
                        json!("model-00009-of-00009.safetensors");
                }),
            ),
            good(
                "an absent shard of an MTP layer",
                edited(|index| {
                    index["weight_map"]["mtp.0.hc_attn_fn"] =
                        json!("model-00009-of-00009.safetensors");
                }),
            )
            .noting("there is no such file"),
            good(
                "a norm that its shard has not",
                edited(|index| {
                    index["weight_map"]["layers.1.attn_norm.weight"] =
                        json!("model-00001-of-00003.safetensors");
                }),
            )
            .noting("does not hold it"),
        ],
        16,
    );
}
