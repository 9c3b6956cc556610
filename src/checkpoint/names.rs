//! Which stored tensor is which, under three spellings.
//!
//! The canonical name is the official one: `layers.3.hc_attn_fn`. It may stand behind `model.`
//! (what transformers 5.17 writes), or be spelled with transformers' module names
//! (`model.layers.3.attn_hc.fn`, `…self_attn.compressor.indexer.q_b_proj.weight`). Layers that predict further tokens
//! (MTP) are a stack of their own (`mtp.0.hc_attn_fn`), which is listed and never measured. All other tensors are none of
//! ours: they have no canonical name here.

use super::Site;

/// What a tensor belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Group {
    /// The hyper-connection weights of a site.
    Hc,
    /// The hyper-connection head at the end of the model.
    Head,
    /// An RMS norm's weight.
    Norm,
    /// The sparse-attention indexer, and the query projection that feeds it.
    Indexer,
    /// The token embedding.
    Embedding,
    /// The expert of a layer that every token goes through.
    SharedExpert,
    /// What only an MTP layer has: the norms of the two things that it joins.
    Mtp,
}

/// Which layers a tensor belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Stack {
    /// Those that every token goes through, and the whole model.
    Main,
    /// Those that predict further tokens.
    Mtp,
}

impl Group {
    /// The group of a tensor, by any of its names; `None` if it is of no interest.
    #[must_use]
    pub fn of(name: &str) -> Option<Self> {
        canonical(name).map(|canonical| canonical.group)
    }

    /// Whether a run that names no suite reads it.
    #[must_use]
    pub fn is_usual(self) -> bool {
        match self {
            Self::Hc | Self::Head | Self::Norm | Self::Indexer => true,
            Self::Embedding | Self::SharedExpert | Self::Mtp => false,
        }
    }
}

/// A tensor of interest under its official name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Canonical {
    /// Whose it is, by its name; some writers number MTP layers on behind the main stack's.
    pub(super) stack: Stack,
    /// The layer; `None` for tensors of the whole model.
    pub(super) layer: Option<u32>,
    /// What it belongs to.
    pub(super) group: Group,
    /// The official name.
    pub(super) name: String,
}

/// The parts of a site's hyper-connection weights.
pub(super) const HC_PARTS: [&str; 3] = ["fn", "base", "scale"];

/// The official name of one part of a site's hyper-connection weights.
pub(super) fn hc_name(layer: u32, site: Site, part: &str) -> String {
    format!("layers.{layer}.hc_{site}_{part}")
}

/// The official name of one part of the head's weights.
pub(super) fn head_name(part: &str) -> String {
    format!("hc_head_{part}")
}

/// The official name of a norm's weight: that of a site, or the final one.
pub(super) fn norm_name(place: Option<(u32, Site)>) -> String {
    match place {
        Some((layer, site)) => format!("layers.{layer}.{site}_norm.weight"),
        None => "norm.weight".to_owned(),
    }
}

/// The matrices of a shared expert: gate, down and up.
pub(super) const EXPERT_PARTS: [&str; 3] = ["w1", "w2", "w3"];

/// The official name of one matrix of a layer's shared expert, less the `.weight`, or `.scale` of its block scales.
pub(super) fn expert_name(layer: u32, part: &str) -> String {
    format!("layers.{layer}.ffn.shared_experts.{part}")
}

/// The parts of an indexer, and of the query projection that feeds it, without their block scales.
pub(super) const INDEXER_PARTS: [&str; 8] = [
    "wq_a.weight",
    "q_norm.weight",
    "indexer.wq_b.weight",
    "indexer.weights_proj.weight",
    "indexer.compressor.wkv.weight",
    "indexer.compressor.wgate.weight",
    "indexer.compressor.ape",
    "indexer.compressor.norm.weight",
];

/// The official name of one of them.
pub(super) fn indexer_name(layer: u32, part: &str) -> String {
    format!("layers.{layer}.attn.{part}")
}

/// The official name of the token embedding.
pub(super) const EMBEDDING: &str = "embed.weight";

/// Behind the embedding's name, where only some of its rows are there: these, the tokens they are of, and how many
/// tokens the whole has.
const ROW_SUFFIXES: [&str; 3] = [ROWS_SUFFIX, IDS_SUFFIX, TOKENS_SUFFIX];
pub(crate) const ROWS_SUFFIX: &str = ".rows";
pub(crate) const IDS_SUFFIX: &str = ".row_ids";
pub(crate) const TOKENS_SUFFIX: &str = ".tokens";

/// Whether a stored name is of a layer that predicts further tokens, and of no other.
pub(crate) fn is_mtp(stored: &str) -> bool {
    canonical(stored).is_some_and(|canonical| canonical.stack == Stack::Mtp)
}

/// Whether a stored name is that of the token embedding.
pub(crate) fn is_embedding(stored: &str) -> bool {
    canonical(stored).is_some_and(|canonical| canonical.name == EMBEDDING)
}

/// Recognises a stored name.
pub(super) fn canonical(stored: &str) -> Option<Canonical> {
    let name = ["model.language_model.", "model."]
        .into_iter()
        .find_map(|prefix| stored.strip_prefix(prefix))
        .unwrap_or(stored);
    if let Some(rest) = name.strip_prefix("layers.") {
        let (layer, part) = layer_and_part(rest)?;
        let group = layer_group(&part)?;
        return Some(Canonical {
            stack: Stack::Main,
            layer: Some(layer),
            group,
            name: format!("layers.{layer}.{part}"),
        });
    }
    if let Some(rest) = name.strip_prefix("mtp.") {
        let (layer, part) = layer_and_part(rest)?;
        let group = mtp_group(&part)?;
        return Some(Canonical {
            stack: Stack::Mtp,
            layer: Some(layer),
            group,
            name: format!("mtp.{layer}.{part}"),
        });
    }
    if let Some(suffix) = ROW_SUFFIXES
        .into_iter()
        .find(|suffix| name.ends_with(suffix))
    {
        let whole = name.strip_suffix(suffix).is_some_and(is_embedding);
        return whole.then(|| Canonical {
            stack: Stack::Main,
            layer: None,
            group: Group::Embedding,
            name: format!("{EMBEDDING}{suffix}"),
        });
    }
    let (group, name) = match name {
        "hc_head_fn" | "hc_head.hc_fn" => (Group::Head, "hc_head_fn"),
        "hc_head_base" | "hc_head.hc_base" => (Group::Head, "hc_head_base"),
        "hc_head_scale" | "hc_head.hc_scale" => (Group::Head, "hc_head_scale"),
        "norm.weight" => (Group::Norm, "norm.weight"),
        EMBEDDING | "embed_tokens.weight" => (Group::Embedding, EMBEDDING),
        _ => return None,
    };
    Some(Canonical {
        stack: Stack::Main,
        layer: None,
        group,
        name: name.to_owned(),
    })
}

/// The number and the official part name in what follows `layers.` or `mtp.`.
fn layer_and_part(rest: &str) -> Option<(u32, String)> {
    let (index, part) = rest.split_once('.')?;
    Some((parse_layer(index)?, official_part(part)))
}

/// No model has as many layers: a name with a higher number is none of ours, and a number that
/// stands for billions of layers costs nothing.
pub(super) const MOST_LAYERS: u32 = 1 << 16;

/// A layer number as writers spell it: decimal, without sign or leading zeros.
fn parse_layer(text: &str) -> Option<u32> {
    let layer: u32 = text.parse().ok().filter(|layer| *layer < MOST_LAYERS)?;
    (layer.to_string() == text).then_some(layer)
}

/// The official spelling of what follows `layers.N.`.
fn official_part(part: &str) -> String {
    /// Prefixes by which transformers and older converters differ, in the order they apply.
    const PREFIXES: [(&str, &str); 19] = [
        ("self_attn.", "attn."),
        ("attn_hc.", "hc_attn_"),
        ("ffn_hc.", "hc_ffn_"),
        ("input_layernorm.", "attn_norm."),
        ("post_attention_layernorm.", "ffn_norm."),
        ("attn.q_a_proj.", "attn.wq_a."),
        ("attn.q_a_norm.", "attn.q_norm."),
        ("attn.q_a_layernorm.", "attn.q_norm."),
        ("attn.compressor.indexer.", "attn.indexer."),
        ("attn.indexer.q_b_proj.", "attn.indexer.wq_b."),
        ("attn.indexer.kv_proj.", "attn.indexer.compressor.wkv."),
        ("attn.indexer.gate_proj.", "attn.indexer.compressor.wgate."),
        ("attn.indexer.kv_norm.", "attn.indexer.compressor.norm."),
        ("attn.indexer.position_bias", "attn.indexer.compressor.ape"),
        ("attn.indexer.ape", "attn.indexer.compressor.ape"),
        ("mlp.", "ffn."),
        ("ffn.shared_experts.gate_proj.", "ffn.shared_experts.w1."),
        ("ffn.shared_experts.down_proj.", "ffn.shared_experts.w2."),
        ("ffn.shared_experts.up_proj.", "ffn.shared_experts.w3."),
    ];
    let mut official = part.to_owned();
    for (theirs, ours) in PREFIXES {
        if let Some(rest) = official.strip_prefix(theirs) {
            official = format!("{ours}{rest}");
        }
    }
    match official.strip_suffix(".weight_scale_inv") {
        Some(stem) => format!("{stem}.scale"),
        None => official,
    }
}

/// The group of an official part name, `None` if it is none of ours.
fn layer_group(part: &str) -> Option<Group> {
    let is_hc = ["hc_attn_", "hc_ffn_"]
        .into_iter()
        .find_map(|prefix| part.strip_prefix(prefix))
        .is_some_and(|suffix| HC_PARTS.contains(&suffix));
    match part {
        _ if is_hc => Some(Group::Hc),
        "attn_norm.weight" | "ffn_norm.weight" => Some(Group::Norm),
        "attn.wq_a.weight" | "attn.wq_a.scale" | "attn.q_norm.weight" => Some(Group::Indexer),
        _ if part.starts_with("attn.indexer.") => Some(Group::Indexer),
        _ if is_like_query(part) => Some(Group::Indexer),
        _ if is_expert(part) => Some(Group::SharedExpert),
        _ if MTP_NORMS.contains(&part) => Some(Group::Mtp),
        _ => None,
    }
}

/// What every MTP layer has, and no other: the norms of the embedding and of the streams that it joins.
const MTP_NORMS: [&str; 2] = ["enorm.weight", "hnorm.weight"];

/// The group of an MTP layer's official part name. It has a head of its own, and no indexer.
fn mtp_group(part: &str) -> Option<Group> {
    let head = part.strip_prefix("hc_head_");
    match layer_group(part) {
        None if head.is_some_and(|part| HC_PARTS.contains(&part)) => Some(Group::Head),
        None if part == "norm.weight" => Some(Group::Norm),
        Some(group @ (Group::Hc | Group::Norm | Group::Mtp)) => Some(group),
        _ => None,
    }
}

/// Whether this looks like the query projection that feeds the indexer, packed or fused with another: not what can be
/// read, but what has to be named where that is missing.
fn is_like_query(part: &str) -> bool {
    const LIKE: [&str; 4] = ["wq_a", "wqa", "q_a_proj", "qkv_a"];
    let module = part
        .strip_prefix("attn.")
        .and_then(|rest| rest.split('.').next());
    module.is_some_and(|module| LIKE.iter().any(|like| module.contains(like)))
}

/// Whether this is a matrix of the shared expert, or the scales of one.
fn is_expert(part: &str) -> bool {
    let matrix = part
        .strip_prefix("ffn.shared_experts.")
        .and_then(|rest| rest.split_once('.'));
    matrix.is_some_and(|(part, tensor)| {
        EXPERT_PARTS.contains(&part) && matches!(tensor, "weight" | "scale")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn official(stored: &str) -> Option<String> {
        canonical(stored).map(|canonical| canonical.name)
    }

    #[test]
    fn three_spellings_of_one_name() {
        for (stored, name) in [
            ("layers.3.hc_attn_fn", "layers.3.hc_attn_fn"),
            ("model.layers.3.hc_attn_fn", "layers.3.hc_attn_fn"),
            ("model.layers.3.attn_hc.fn", "layers.3.hc_attn_fn"),
            (
                "model.language_model.layers.3.hc_ffn_scale",
                "layers.3.hc_ffn_scale",
            ),
            ("model.layers.42.ffn_hc.base", "layers.42.hc_ffn_base"),
            ("hc_head_fn", "hc_head_fn"),
            ("model.hc_head.hc_scale", "hc_head_scale"),
            ("model.norm.weight", "norm.weight"),
            ("embed.weight", "embed.weight"),
            ("model.embed_tokens.weight", "embed.weight"),
            ("model.embed_tokens.weight.row_ids", "embed.weight.row_ids"),
            ("model.language_model.embed_tokens.weight", "embed.weight"),
            (
                "model.layers.0.input_layernorm.weight",
                "layers.0.attn_norm.weight",
            ),
            (
                "model.layers.0.post_attention_layernorm.weight",
                "layers.0.ffn_norm.weight",
            ),
            (
                "model.layers.2.self_attn.q_a_proj.weight",
                "layers.2.attn.wq_a.weight",
            ),
            (
                "model.layers.2.self_attn.q_a_proj.weight_scale_inv",
                "layers.2.attn.wq_a.scale",
            ),
            (
                "model.layers.2.self_attn.q_a_norm.weight",
                "layers.2.attn.q_norm.weight",
            ),
            (
                "model.layers.2.self_attn.compressor.indexer.q_b_proj.weight",
                "layers.2.attn.indexer.wq_b.weight",
            ),
            (
                "model.layers.2.self_attn.compressor.indexer.position_bias",
                "layers.2.attn.indexer.compressor.ape",
            ),
            (
                "model.layers.2.self_attn.compressor.indexer.kv_norm.weight",
                "layers.2.attn.indexer.compressor.norm.weight",
            ),
            (
                "model.layers.2.self_attn.compressor.indexer.gate_proj.weight",
                "layers.2.attn.indexer.compressor.wgate.weight",
            ),
            (
                "model.layers.2.self_attn.compressor.indexer.weights_proj.weight",
                "layers.2.attn.indexer.weights_proj.weight",
            ),
            (
                "layers.7.ffn.shared_experts.w1.weight",
                "layers.7.ffn.shared_experts.w1.weight",
            ),
            (
                "model.layers.7.ffn.shared_experts.w2.scale",
                "layers.7.ffn.shared_experts.w2.scale",
            ),
            (
                "model.layers.7.mlp.shared_experts.gate_proj.weight",
                "layers.7.ffn.shared_experts.w1.weight",
            ),
            (
                "model.layers.7.mlp.shared_experts.down_proj.weight_scale_inv",
                "layers.7.ffn.shared_experts.w2.scale",
            ),
            (
                "model.language_model.layers.7.mlp.shared_experts.up_proj.weight",
                "layers.7.ffn.shared_experts.w3.weight",
            ),
        ] {
            assert_eq!(official(stored).as_deref(), Some(name), "{stored}");
        }
    }

    #[test]
    fn layers_that_predict_are_another_stack() {
        for (stored, name) in [
            ("mtp.0.hc_attn_fn", "mtp.0.hc_attn_fn"),
            ("model.mtp.2.ffn_hc.base", "mtp.2.hc_ffn_base"),
            ("mtp.0.hc_head_scale", "mtp.0.hc_head_scale"),
            ("mtp.0.norm.weight", "mtp.0.norm.weight"),
            ("mtp.1.enorm.weight", "mtp.1.enorm.weight"),
        ] {
            let found = canonical(stored).unwrap();
            assert_eq!((found.stack, found.name.as_str()), (Stack::Mtp, name));
        }
        let marker = canonical("model.layers.61.hnorm.weight").unwrap();
        assert_eq!((marker.stack, marker.group), (Stack::Main, Group::Mtp));
    }

    #[test]
    fn what_is_not_ours() {
        for stored in [
            "mtp.0.attn.wq_a.weight",
            "mtp.0.e_proj.weight",
            "mtp.hc_attn_fn",
            "layers.0.hc_head_fn",
            "layers.03.hc_attn_fn",
            "layers.+3.hc_attn_fn",
            "layers.99999999999.hc_attn_fn",
            "layers.x.hc_attn_fn",
            "layers.3.hc_attn_fn.weight",
            "layers.3.attn.compressor.ape",
            "layers.3.ffn.experts.0.w1.weight",
            "layers.3.mlp.gate.weight",
            "layers.3.ffn.shared_experts.w4.weight",
            "layers.3.ffn.shared_experts.w1.bias",
            "layers.3.ffn.shared_experts.w1",
            "blk.3.hc_attn_fn.weight",
            "mtp.0.embed.weight",
            "mtp.0.embed.weight.rows",
            "norm.weight.rows",
            "embed.weight.rows.rows",
            "head.weight",
            "",
        ] {
            assert_eq!(official(stored), None, "{stored}");
        }
    }
}
