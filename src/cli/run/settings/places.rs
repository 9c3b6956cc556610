//! The layers and sites of `--layers` and `--sites`.

use std::collections::BTreeSet;

use anyhow::{Context, bail};

use crate::{
    activations::{Activations, Inputs},
    checkpoint::{self, Checkpoint, Site},
    cli::run::args::RunArgs,
    suite::DEFAULT_TOKENS,
};

/// The layers and sites asked for.
pub struct Places {
    /// Ascending.
    pub layers: Vec<u32>,
    /// attn first.
    pub sites: Vec<Site>,
}

impl Places {
    /// A sweep that names none looks at the first layer's attn site.
    pub fn new(args: &RunArgs, checkpoint: &Checkpoint) -> anyhow::Result<Self> {
        let sites: BTreeSet<Site> = args
            .sites
            .iter()
            .map(|site| site.parse().map_err(anyhow::Error::msg))
            .collect::<Result<_, _>>()
            .context("--sites")?;
        let asked = args.layers.as_deref().unwrap_or("all");
        let layers = layers(asked, checkpoint.layers())?;
        if args.sweep.is_some() && asked == "all" {
            return Ok(Self {
                layers: layers.first().copied().into_iter().collect(),
                sites: match sites.len() {
                    1 => sites.into_iter().collect(),
                    _ => vec![Site::Attn],
                },
            });
        }
        Ok(Self {
            layers,
            sites: sites.into_iter().collect(),
        })
    }

    fn iter(&self) -> impl Iterator<Item = (u32, Site)> {
        let sites = |&layer: &u32| self.sites.iter().map(move |&site| (layer, site));
        self.layers.iter().flat_map(sites)
    }

    /// The batch where none is named: what a file has of every site, else the default.
    pub fn batch(&self, inputs: &Inputs, activations: &Activations) -> usize {
        let recorded = match inputs {
            Inputs::File(_) => self
                .iter()
                .filter_map(|(layer, site)| activations.available(layer, site))
                .min(),
            _ => None,
        };
        recorded.unwrap_or(DEFAULT_TOKENS)
    }

    /// Reads the last token of every site: that one has too few is found out before an hour of
    /// measuring the others, not after.
    pub fn check_tokens(
        &self,
        activations: &Activations,
        asked: Option<usize>,
    ) -> anyhow::Result<()> {
        let Some(tokens) = asked else {
            return Ok(());
        };
        for (layer, site) in self.iter() {
            activations.tokens(layer, site, tokens - 1..tokens)?;
        }
        Ok(())
    }
}

/// Parses `all`, `7`, `0-42` and comma lists of them, against the layers that are there.
fn layers(text: &str, present: &[u32]) -> anyhow::Result<Vec<u32>> {
    if text == "all" {
        return Ok(present.to_vec());
    }
    let mut chosen = BTreeSet::new();
    for part in text.split(',') {
        let number = |digits: &str| digits.trim().parse::<u32>().ok();
        let range = match part.split_once('-') {
            Some((first, last)) => number(first).zip(number(last)),
            None => number(part).map(|layer| (layer, layer)),
        };
        let (first, last) = range
            .filter(|(first, last)| first <= last)
            .with_context(|| {
                format!(
                    "--layers '{part}': expected all, a number or an ascending range such as 0-3"
                )
            })?;
        let missing = (first..=last).find(|layer| !present.contains(layer));
        if let Some(missing) = missing {
            bail!(
                "--layers {part}: layer {missing} is not there; the checkpoint holds {}; choose among these",
                ranges(present)
            );
        }
        chosen.extend(first..=last);
    }
    Ok(chosen.into_iter().collect())
}

/// `layers 0-42`, or `layers 0-3, 5` where there are gaps.
pub fn ranges(layers: &[u32]) -> String {
    format!("layers {}", checkpoint::ranges(layers))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layer_lists_and_ranges_are_understood() {
        let present: Vec<u32> = (0..43).collect();
        assert_eq!(layers("all", &present).expect("all"), present);
        assert_eq!(layers("7,0-2,1", &present).expect("list"), [0, 1, 2, 7]);
        for bad in [
            "99",
            "3-1",
            "",
            "a",
            "0-99",
            "-1",
            "4294967296",
            "0-4000000000",
        ] {
            let error = layers(bad, &present).expect_err(bad).to_string();
            assert!(error.starts_with("--layers"), "{error}");
        }
        assert_eq!(ranges(&[0, 1, 2, 5]), "layers 0-2, 5");
    }
}
