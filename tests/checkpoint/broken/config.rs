//! Configurations, and what they say against the tensors.

use std::{fs, os::unix::fs::symlink};

use serde_json::{Value, json};
use ulpdrift::checkpoint::{SyntheticModel, write_synthetic};

use super::{Case, check, good, refused};
use crate::support::Directory;

const CONFIG: &str = "ck/config.json";

fn changed(change: impl Fn(&Directory)) -> impl Fn(&Directory) -> String {
    move |directory| {
        write_synthetic(&directory.path("ck"), SyntheticModel::Tiny, &[0, 3], 0).unwrap();
        change(directory);
        "ck".to_owned()
    }
}

fn text(content: impl AsRef<[u8]> + 'static) -> impl Fn(&Directory) -> String {
    changed(move |directory| drop(directory.write(CONFIG, content.as_ref())))
}

fn with(key: &'static str, value: Value) -> impl Fn(&Directory) -> String {
    changed(move |directory| directory.edit_json(CONFIG, |config| config[key] = value.clone()))
}

#[test]
fn what_a_configuration_says() {
    let wrong = |name, key: &'static str, value: Value, phrases: &[&str]| -> Case {
        refused(name, phrases, with(key, value))
    };
    check(
        vec![
            refused("an empty configuration", &["config.json", "EOF"], text("")),
            refused(
                "a configuration that is a list",
                &["config.json", "not a JSON object"],
                text("[]"),
            ),
            refused(
                "a configuration behind a byte order mark",
                &["config.json", "line 1 column 1"],
                text("\u{feff}{}"),
            ),
            refused(
                "a configuration that is a Git-LFS pointer",
                &["git lfs pull"],
                text("version https://git-lfs.github.com/spec/v1\n"),
            ),
            refused(
                "a configuration a thousand lists deep",
                &["config.json", "recursion limit"],
                text(format!(
                    "{{\"a\":{}{}}}",
                    "[".repeat(1000),
                    "]".repeat(1000)
                )),
            ),
            refused(
                "a configuration of three megabytes",
                &["config.json", "bytes, more than"],
                text(format!("{{{}}}", " ".repeat(3_000_000))),
            ),
            refused(
                "a configuration that is a dangling link",
                &["config.json", "symbolic link to 'gone'"],
                changed(|directory| {
                    fs::remove_file(directory.path(CONFIG)).unwrap();
                    symlink("gone", directory.path(CONFIG)).unwrap();
                }),
            ),
            good(
                "no configuration",
                changed(|directory| fs::remove_file(directory.path(CONFIG)).unwrap()),
            )
            .noting("no config.json: hc_eps 1e-6 assumed"),
            good("a configuration of nothing", text("{}")).noting("config.json does not say"),
            good("a configuration of nulls", with("hc_eps", Value::Null))
                .noting("hc_eps 1e-6 assumed"),
            good(
                "a nested configuration that is a number",
                with("text_config", json!(7)),
            ),
            good("another model's type", with("model_type", json!("llama"))),
            wrong(
                "another hidden size",
                "hidden_size",
                json!(4096),
                &["hidden_size = 4096", "[24, 1024]"],
            ),
            wrong(
                "another number of streams",
                "hc_mult",
                json!(2),
                &["hc_mult = 2", "[24, 1024]"],
            ),
            wrong(
                "fewer layers",
                "num_hidden_layers",
                json!(3),
                &["num_hidden_layers = 3", "is of layer 3"],
            ),
            wrong(
                "no layers",
                "num_hidden_layers",
                json!(0),
                &["num_hidden_layers is '0'", "an integer from 1 to"],
            ),
            wrong(
                "layers below zero",
                "num_hidden_layers",
                json!(-1),
                &["num_hidden_layers is '-1'"],
            ),
            wrong(
                "half a layer",
                "num_hidden_layers",
                json!(3.5),
                &["num_hidden_layers is '3.5'"],
            ),
            wrong(
                "as many layers as there are numbers",
                "num_hidden_layers",
                json!(u64::MAX),
                &["num_hidden_layers is '18446744073709551615'"],
            ),
            wrong(
                "an epsilon that is a text",
                "hc_eps",
                json!("1e-6"),
                &["hc_eps", "a number from 0 to 1"],
            ),
            wrong(
                "an epsilon below zero",
                "hc_eps",
                json!(-1e-6),
                &["hc_eps", "a number from 0 to 1"],
            ),
            wrong(
                "no iterations",
                "hc_sinkhorn_iters",
                json!(0),
                &["hc_sinkhorn_iters is '0'", "from 1 to 1000"],
            ),
            wrong(
                "a billion iterations",
                "hc_sinkhorn_iters",
                json!(1_000_000_000),
                &["hc_sinkhorn_iters is", "from 1 to 1000"],
            ),
            wrong(
                "blocks of no weights",
                "quantization_config",
                json!({"weight_block_size": [0, 128]}),
                &["weight_block_size", "two integers from 1"],
            ),
            wrong(
                "blocks of three sides",
                "quantization_config",
                json!({"weight_block_size": [1, 2, 3]}),
                &["weight_block_size", "two integers"],
            ),
            wrong(
                "MTP layers below zero",
                "num_nextn_predict_layers",
                json!(-1),
                &["num_nextn_predict_layers", "an integer from 0"],
            ),
        ],
        26,
    );
}
