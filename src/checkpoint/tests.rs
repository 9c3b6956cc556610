//! The synthetic checkpoints against their published statistics.

use ndarray::Array2;
use rayon::prelude::*;

use super::*;
use crate::activations::{Activations, Inputs};

fn all_sites(checkpoint: &Checkpoint) -> Vec<HcWeights> {
    let sites: Vec<(u32, Site)> = checkpoint
        .layers()
        .iter()
        .flat_map(|&layer| Site::ALL.map(|site| (layer, site)))
        .collect();
    sites
        .into_par_iter()
        .map(|(layer, site)| checkpoint.hc(layer, site, NonFinite::Refuse).unwrap())
        .collect()
}

fn rms(values: impl IntoIterator<Item = f32>) -> f64 {
    let (count, sum) = values.into_iter().fold((0_u32, 0.0), |(count, sum), v| {
        (count + 1, sum + f64::from(v) * f64::from(v))
    });
    (sum / f64::from(count)).sqrt()
}

#[test]
fn models_have_the_published_dimensions() {
    for (name, family, hidden, layers, norm_eps, topk) in [
        ("flash", Family::Flash, 4096, 43, 1e-6, Some(512)),
        ("pro", Family::Pro, 7168, 61, 1e-6, Some(1024)),
        ("v4.1", Family::V41Flash, 5120, 40, 1e-20, Some(512)),
        ("tiny", Family::Other, 256, 4, 1e-6, Some(16)),
    ] {
        let checkpoint = Checkpoint::open(&format!("synthetic:{name}")).unwrap();
        let model = checkpoint.model();
        assert_eq!(
            (model.family, model.hidden, model.hc),
            (family, hidden, 4),
            "{name}"
        );
        assert_eq!(checkpoint.layers().len(), layers, "{name}");
        assert_eq!((model.layers, model.sinkhorn_iters), (layers, 20), "{name}");
        assert_eq!((model.hc_eps, model.norm_eps), (1e-6, norm_eps), "{name}");
        assert_eq!(model.index_topk, topk, "{name}");
        assert_eq!(checkpoint.kind(), WeightKind::Synthetic, "{name}");
        assert!(model.notes.is_empty(), "{name}: {:?}", model.notes);
    }
}

#[test]
fn functions_have_the_published_rms_and_largest_magnitude() {
    for name in ["flash", "tiny"] {
        let checkpoint = Checkpoint::open(&format!("synthetic:{name}")).unwrap();
        let tolerance = if name == "tiny" { 0.10 } else { 0.015 };
        let start = std::time::Instant::now();
        let sites = all_sites(&checkpoint);
        println!("{name}: {} sites in {:?}", sites.len(), start.elapsed());
        for weights in sites {
            let largest = weights.function.iter().fold(0.0_f32, |m, v| m.max(v.abs()));
            assert!((0.6..=1.0).contains(&largest), "{name}: {largest}");
            let rms = rms(weights.function.iter().copied());
            assert!((rms / 0.039 - 1.0).abs() < tolerance, "{name}: {rms}");
            assert_eq!(weights.dtype, StoredType::F32);
        }
    }
}

/// The official normalisation, written out for one token in f64 with the standard library.
fn sinkhorn(logits: &[f64]) -> Vec<f64> {
    const EPS: f64 = 1e-6;
    let mut c = Array2::from_shape_vec((4, 4), logits.to_vec()).unwrap();
    for mut row in c.rows_mut() {
        let largest = row.fold(f64::NEG_INFINITY, |m, &v| m.max(v));
        row.mapv_inplace(|v| (v - largest).exp());
        let sum = row.sum();
        row.mapv_inplace(|v| v / sum + EPS);
    }
    for iteration in 0..20 {
        if iteration > 0 {
            for mut row in c.rows_mut() {
                let sum = row.sum();
                row.mapv_inplace(|v| v / (sum + EPS));
            }
        }
        for mut column in c.columns_mut() {
            let sum = column.sum();
            column.mapv_inplace(|v| v / (sum + EPS));
        }
    }
    c.rows().into_iter().map(|row| row.sum()).collect()
}

#[test]
fn combs_are_near_permutations() {
    for (name, layers) in [
        ("flash", 0..3),
        ("pro", 0..2),
        ("v4.1", 0..2),
        ("tiny", 0..4),
    ] {
        let checkpoint = Checkpoint::open(&format!("synthetic:{name}")).unwrap();
        let model = checkpoint.model();
        let inputs = Activations::open(&Inputs::Normal, 0, model).unwrap();
        let (mut logits, mut rows, mut pre) = (Vec::new(), Vec::new(), Vec::new());
        for layer in layers {
            for site in Site::ALL {
                let weights = checkpoint.hc(layer, site, NonFinite::Refuse).unwrap();
                let x = inputs.tokens(layer, site, 0..64).unwrap().unwrap();
                let mixes = x.mapv(f64::from).dot(&weights.function.mapv(f64::from).t());
                for (x, mixes) in x.rows().into_iter().zip(mixes.rows()) {
                    let r = 1.0 / rms(x.iter().copied());
                    let logit = |i: usize| {
                        mixes[i] * r * f64::from(weights.scale[(i / 4).min(2)])
                            + f64::from(weights.base[i])
                    };
                    let comb: Vec<f64> = (8..24).map(logit).collect();
                    rows.extend(sinkhorn(&comb));
                    logits.extend(comb);
                    pre.extend((0..4).map(logit));
                }
            }
        }
        let std = (logits.iter().map(|l| l * l).sum::<f64>() / logits.len() as f64).sqrt();
        let bulk = rows
            .iter()
            .filter(|sum| (0.93..=1.07).contains(*sum))
            .count() as f64;
        let share = bulk / rows.len() as f64;
        let pre_rms = (pre.iter().map(|l| l * l).sum::<f64>() / pre.len() as f64).sqrt();
        println!(
            "{name}: comb logit std {std:.2}, rows within {share:.3}, pre logit rms {pre_rms:.2}"
        );
        assert!(
            (3.5..=4.5).contains(&std),
            "{name}: comb logits of std {std}"
        );
        assert!(share > 0.9, "{name}: {share} of the rows");
    }
}
