//! Tensors that are well stored and cannot be what their names say.

use super::{Case, check, good, refused};
use crate::support::{Directory, Raw, ramp};

const FILE: &str = "a.safetensors";

fn file(raw: Raw) -> impl Fn(&Directory) -> String {
    move |directory| {
        directory.write(FILE, raw.bytes());
        FILE.to_owned()
    }
}

fn layer() -> Raw {
    Raw::default().layer("layers.0.")
}

/// A layer of which one tensor is of another type or shape.
fn with(
    name: &str,
    dtype: &str,
    shape: &[u64],
    bytes: usize,
) -> impl Fn(&Directory) -> String + use<> {
    file(layer().tensor(name, dtype, shape, &vec![0; bytes]))
}

/// A layer in which one value is another.
fn poked(value: f32) -> impl Fn(&Directory) -> String {
    let mut values = ramp(24 * 32);
    values[40] = value;
    file(layer().f32("layers.0.hc_attn_fn", &[24, 32], &values))
}

#[test]
fn hyper_connections() {
    const FN: &str = "layers.0.hc_attn_fn";
    const BASE: &str = "layers.0.hc_attn_base";
    let typed = |name, dtype: &str, bytes| -> Case {
        let phrases = [BASE, dtype, "expected F32, BF16 or F16"];
        refused(name, &phrases, with(BASE, dtype, &[24], bytes)).but_shown()
    };
    check(
        vec![
            refused(
                "23 rows",
                &["[23, 32]", "expected [24, 4·hidden]"],
                with(FN, "F32", &[23, 32], 23 * 32 * 4),
            ),
            refused(
                "columns of no four streams",
                &["[24, 30]", "four streams"],
                with(FN, "F32", &[24, 30], 24 * 30 * 4),
            ),
            refused(
                "no columns",
                &["[24, 0]", "four streams"],
                with(FN, "F32", &[24, 0], 0),
            ),
            refused(
                "a function that is a row",
                &["[24]", "[24, 4·hidden]"],
                with(FN, "F32", &[24], 96),
            ),
            refused(
                "two sites of different widths",
                &["[24, 64]", "expected [24, 32]"],
                with("layers.0.hc_ffn_fn", "F32", &[24, 64], 24 * 64 * 4),
            )
            .but_shown(),
            refused(
                "a base of 16",
                &["[16]", "expected [24]"],
                with(BASE, "F32", &[16], 64),
            )
            .but_shown(),
            refused(
                "one scale",
                &["[1]", "expected [3]"],
                with("layers.0.hc_attn_scale", "F32", &[1], 4),
            )
            .but_shown(),
            refused(
                "a scale that is a scalar",
                &["[]", "expected [3]"],
                with("layers.0.hc_attn_scale", "F32", &[], 4),
            )
            .but_shown(),
            typed("whole numbers for weights", "I32", 96),
            typed("doubles for weights", "F64", 192),
            typed("FP8 for weights", "F8_E4M3", 24),
            typed("FP6 for weights", "F6_E2M3", 18),
            typed("a type of another case", "f32", 96),
            typed("a type without letters", "", 96),
            typed("a type of the future", "F9_NEW", 27),
            good(
                "types of the future elsewhere",
                file(
                    Raw::default()
                        .tensor("x", "F9_NEW", &[4], &[0; 5])
                        .tensor("y", "F6_E2M3", &[4], &[0; 3])
                        .tensor("z", "F4", &[2, 8], &[0; 8])
                        .layer("layers.0."),
                ),
            ),
            refused(
                "NaN",
                &[
                    "1 non-finite values of 768",
                    "index 40",
                    "--allow-nonfinite",
                ],
                poked(f32::NAN),
            )
            .but_shown(),
            refused(
                "an infinity",
                &["1 non-finite values of 768", "--allow-nonfinite"],
                poked(f32::NEG_INFINITY),
            )
            .but_shown(),
            refused(
                "half a layer",
                &["lacks layers.1.hc_attn_base", "layer 1"],
                file(layer().f32("layers.1.hc_attn_fn", &[24, 32], &ramp(768))),
            )
            .but_shown(),
            good("a gap between layers", file(layer().layer("layers.2.")))
                .noting("of the model's 3 layers these are not here: 1"),
            refused(
                "another model",
                &[
                    "no hyper-connection tensors",
                    "1 tensors",
                    "DeepSeek-V4-style",
                ],
                file(Raw::default().f32("model.layers.0.mlp.up_proj.weight", &[2, 2], &ramp(4))),
            ),
            refused(
                "MTP layers alone",
                &["no hyper-connection tensors"],
                file(Raw::default().layer("mtp.0.")),
            ),
            good(
                "MTP layers beside the others",
                file(layer().layer("mtp.0.").layer("model.mtp.1.")),
            ),
            good(
                "an MTP layer of broken shapes",
                file(layer().f32("mtp.0.hc_attn_fn", &[7], &ramp(7))),
            ),
            good(
                "a layer numbered beyond any model",
                file(layer().layer("layers.70000.")),
            ),
            good(
                "a layer with a leading zero",
                file(layer().layer("layers.01.")),
            ),
        ],
        26,
    );
}
