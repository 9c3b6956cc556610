//! Which layers a checkpoint has, and what a layer must have.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    CheckpointError, Model, Site,
    family::{Evidence, Shaped},
    locate::{Found, Located, Strictness},
    names::{Group, HC_PARTS, hc_name},
    values,
};

impl Located {
    fn shaped(&self) -> Shaped<'_> {
        Shaped {
            name: &self.stored,
            shape: &self.shape,
        }
    }
}

/// Some writers number MTP layers on behind the main stack (`layers.61` of 61): they are none of it. They are known by
/// the configuration, or by the norms that only they have.
pub(super) fn set_mtp_aside(found: &mut Found) {
    let config = found.config.as_ref();
    let layers = config.and_then(|config| config.layers);
    let declared = config.map_or(0, |config| config.mtp_layers);
    let of_mtp = found.tensors.values().filter(|it| it.group == Group::Mtp);
    let marked: BTreeSet<u32> = of_mtp.filter_map(|located| located.layer).collect();
    let is_mtp = |located: &Located| {
        located.layer.is_some_and(|layer| match layers {
            None => marked.contains(&layer),
            Some(layers) => {
                let beyond = (layer as usize).checked_sub(layers);
                beyond.is_some_and(|beyond| beyond < declared || marked.contains(&layer))
            }
        })
    };
    let all = std::mem::take(&mut found.tensors).into_iter();
    let (aside, main): (BTreeMap<_, _>, _) = all.partition(|(_, located)| is_mtp(located));
    found.tensors = main;
    found.mtp.extend(aside);
}

/// The tensors that determine the model, if there is a hyper-connection at all.
pub(super) fn evidence(found: &Found) -> Option<Evidence<'_>> {
    let first = |suffix: &str| {
        found
            .tensors
            .iter()
            .find(|(name, located)| located.layer.is_some() && name.ends_with(suffix))
            .map(|(_, located)| located)
    };
    let function = first(".hc_attn_fn").or_else(|| first(".hc_ffn_fn"))?;
    let deepest = found
        .tensors
        .values()
        .filter(|located| located.group == Group::Hc)
        .max_by_key(|located| located.layer)?;
    Some(Evidence {
        function: function.shaped(),
        index_query: first(".indexer.wq_b.weight").map(Located::shaped),
        index_weights: first(".indexer.weights_proj.weight").map(Located::shaped),
        deepest: (deepest.layer?, &deepest.stored),
        has_head: found.tensors.contains_key("hc_head_fn"),
        has_shared_expert: first(".shared_experts.w1.weight").is_some(),
    })
}

/// The layers that have some hyper-connection.
fn with_hc(found: &Found) -> BTreeSet<u32> {
    let tensors = found.tensors.values();
    tensors
        .filter(|located| located.group == Group::Hc)
        .filter_map(|located| located.layer)
        .collect()
}

/// Checks every hyper-connection tensor's shape and type; returns the complete layers.
pub(super) fn complete(
    source: &str,
    model: &Model,
    found: &mut Found,
    strictness: Strictness,
) -> Result<Vec<u32>, CheckpointError> {
    let mut complete = Vec::new();
    for layer in with_hc(found) {
        let missing = missing_parts(found, layer);
        let checked = if missing.is_empty() {
            check_shapes(model, found, layer)
        } else {
            Err(CheckpointError::IncompleteLayer {
                layer,
                spec: source.to_owned(),
                missing: missing.join(", "),
            })
        };
        match checked {
            Ok(()) => complete.push(layer),
            Err(error) if strictness == Strictness::Strict => return Err(error),
            Err(error) => found.problems.push(error.to_string()),
        }
    }
    Ok(complete)
}

fn check_shapes(model: &Model, found: &Found, layer: u32) -> Result<(), CheckpointError> {
    for site in Site::ALL {
        for part in HC_PARTS {
            let Some(located) = found.tensors.get(&hc_name(layer, site, part)) else {
                continue;
            };
            let expected = match part {
                "fn" => vec![model.mixes(), model.width()],
                "base" => vec![model.mixes()],
                _ => vec![3],
            };
            values::check_shape(model, located, &expected)?;
            values::plain_float(located)?;
        }
    }
    Ok(())
}

/// The official names of the hyper-connection tensors that a layer lacks.
pub(super) fn missing_parts(found: &Found, layer: u32) -> Vec<String> {
    Site::ALL
        .into_iter()
        .flat_map(|site| HC_PARTS.map(|part| hc_name(layer, site, part)))
        .filter(|name| !found.tensors.contains_key(name))
        .collect()
}

/// A note if the model has layers of which this checkpoint has nothing.
pub(super) fn note_absent(model: &Model, found: &Found) -> Option<String> {
    let here = with_hc(found);
    let absent: Vec<u32> = (0..model.layers as u32)
        .filter(|layer| !here.contains(layer))
        .collect();
    (!absent.is_empty()).then(|| {
        format!(
            "of the model's {} layers these are not here: {}",
            model.layers,
            ranges(&absent)
        )
    })
}

/// Ascending layers as `0-3, 7`.
#[must_use]
pub fn ranges(layers: &[u32]) -> String {
    let mut text = String::new();
    let mut rest = layers;
    while let Some(&first) = rest.first() {
        let expected = u64::from(first)..;
        let length = rest
            .iter()
            .zip(expected)
            .take_while(|&(&l, e)| u64::from(l) == e)
            .count();
        if !text.is_empty() {
            text.push_str(", ");
        }
        text.push_str(&first.to_string());
        if length > 1 {
            text.push_str(&format!("-{}", rest[length - 1]));
        }
        rest = &rest[length..];
    }
    if text.is_empty() {
        "none".to_owned()
    } else {
        text
    }
}

/// The error of a checkpoint without hyper-connections, with the likeliest reason.
pub(super) fn nothing_to_measure(spec: String, found: &Found) -> CheckpointError {
    let model_type = found
        .config
        .as_ref()
        .and_then(|config| config.model_type.as_deref());
    let hint = match (found.problems.first(), model_type) {
        (Some(problem), _) => format!("the ones it should have cannot be read ({problem})"),
        (None, Some(model_type)) => {
            format!(
                "it is a model of type {model_type} without hyper-connections, or a part of one"
            )
        }
        (None, None) => "it is a model without hyper-connections, or a part of one".to_owned(),
    };
    CheckpointError::NoHyperConnections {
        spec,
        tensors: found.total,
        hint,
    }
}

#[cfg(test)]
mod tests {
    use super::ranges;

    #[test]
    fn ranges_are_short() {
        assert_eq!(ranges(&[]), "none");
        assert_eq!(ranges(&[4]), "4");
        assert_eq!(ranges(&[0, 1, 2, 5, 7, 8]), "0-2, 5, 7-8");
        assert_eq!(ranges(&[u32::MAX - 1, u32::MAX]), "4294967294-4294967295");
    }
}
