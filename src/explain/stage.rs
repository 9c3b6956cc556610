//! What suites, stages and sources are, for somebody who has read nothing else.

use crate::report::Key;

/// What a suite's rows are about.
pub fn suite(key: &Key) -> String {
    let known = match key.suite.as_str() {
        "mix" => {
            "the hyper-connection mixing kernel by itself, at one of a layer's two sites, against fp64"
        }
        "recombine" => {
            "what follows the sublayer (hc_post) by itself, with the gates that fp32 mixing makes, against fp64"
        }
        "chain" => "all layers one after the other, against the same chain in fp64",
        "budget" => "the error taken apart: every source of rounding by itself",
        "gains" => "what the end of the model makes of an error that enters at one place",
        "indexer" => "from the hidden states to the keys that sparse attention reads, against fp64",
        "needle" => "whether a key that was planted just above the cut is still selected",
        "sweep" => "the same rows in other batches or on cards with other numbers of SMs",
        "splits" => "the same rows with the sum over K cut into other numbers of ranges",
        other => {
            return format!("Suite {other}, which this version of ulpdrift knows nothing about.");
        }
    };
    format!("Suite {}: {known}.", key.suite)
}

/// What the values of a stage are.
pub fn stage(key: &Key) -> String {
    let Some(stage) = key.stage.as_deref() else {
        return String::new();
    };
    let known = match stage {
        "dot" => {
            "the projection of the streams on hc_fn as the kernel stores it, before the RMS factor"
        }
        "mixes" => {
            "the projection times the RMS factor: what the gates and the stream-to-stream matrix are made of"
        }
        "pre" => "the gates that collapse the streams into the layer's input",
        "post" => "the gates that spread the sublayer's output over the streams",
        "comb" => "the matrix by which the streams are mixed with each other, after Sinkhorn",
        "y" => "the layer's input before it is rounded to bf16",
        "y_bf16" => "the layer's input as the layer gets it, rounded to bf16",
        "streams" if key.suite == "recombine" => "the new streams before they are stored",
        "streams" => "the residual streams that are left behind the site",
        "streams_bf16" => "the new streams as stored, in bf16",
        "head" => "what the model's head makes of the last streams",
        "q" => "the indexer's queries as they multiply",
        "k" => "the indexer's keys as they multiply",
        "logits" => "the score of every key in sight of a query",
        "top_k" => "the keys with the highest scores, which attention reads",
        "kept_at" => "how many of the true keys are among a larger selection",
        other => {
            return format!("Stage {other}, which this version of ulpdrift knows nothing about.");
        }
    };
    format!("Stage {stage}: {known}.")
}

/// What a source of a budget is.
pub fn source(name: &str) -> Option<&'static str> {
    Some(match name {
        "weight" => "rounding hc_fn",
        "x" => "rounding x",
        "operands" => "what the two roundings are off by together beyond their sum",
        "unit" => "the multiply unit's own sums",
        "split-sums" => "adding the ranges' partial sums, and their storage",
        "output" => "storing the projection's output",
        "epilogue" => "the RMS factor and the gates in fp32",
        "sinkhorn" => "Sinkhorn in fp32",
        "collapse" => "the sum over the streams in fp32",
        "layer-io" => {
            "rounding the layer's input, and in a chain what the sublayer gets and returns"
        }
        "recombine" => "hc_post in fp32",
        "residual" => "storing the streams",
        _ => return None,
    })
}
