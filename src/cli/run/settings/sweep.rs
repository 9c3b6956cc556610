//! `--sweep` and `--sms`: the axes of a sweep.

use std::collections::BTreeSet;

use anyhow::{Context, bail, ensure};

use crate::{cli::run::args::RunArgs, suite::sweep::Axes};

/// The most tokens a sweep may have: far beyond any prefill chunk, and safe for every index.
const MAX_SWEEP_TOKENS: usize = 1 << 20;

/// The SM counts are positive, and each is named once.
pub fn check_sms(args: &RunArgs) -> anyhow::Result<()> {
    ensure!(
        args.sms.iter().all(|&sms| sms > 0),
        "--sms: 0 found, a device has at least 1; give its number of streaming multiprocessors"
    );
    ensure!(
        args.sms.iter().collect::<BTreeSet<_>>().len() == args.sms.len(),
        "--sms: a value stands twice; name each once"
    );
    Ok(())
}

/// The sweep asked for, if one is; `batch` is the number of tokens where it is splits that are swept.
pub fn sweep(args: &RunArgs, batch: usize) -> anyhow::Result<Option<Axes>> {
    let sweep = args
        .sweep
        .as_deref()
        .map(|text| axes(text, &args.sms, batch))
        .transpose()?;
    let sweeps_tokens = sweep.as_ref().is_some_and(|axes| axes.splits.is_empty());
    ensure!(
        args.sms.len() == 1 || sweeps_tokens,
        "--sms: {} values found; several need --sweep tokens=…, otherwise give one",
        args.sms.len()
    );
    Ok(sweep)
}

fn axes(text: &str, sms: &[usize], tokens: usize) -> anyhow::Result<Axes> {
    let expected = "expected tokens=1,64,512 or splits=1,64";
    let (axis, list) = text
        .split_once('=')
        .with_context(|| format!("--sweep '{text}': {expected}"))?;
    let values = list
        .split(',')
        .map(|value| {
            value
                .trim()
                .parse::<usize>()
                .ok()
                .filter(|value| *value > 0)
        })
        .collect::<Option<Vec<_>>>()
        .with_context(|| format!("--sweep '{text}': not all positive whole numbers; {expected}"))?;
    let distinct: BTreeSet<_> = values.iter().collect();
    ensure!(
        distinct.len() == values.len(),
        "--sweep '{text}': a value stands twice; name each once"
    );
    ensure!(
        values.iter().all(|&value| value <= MAX_SWEEP_TOKENS),
        "--sweep '{text}': above {MAX_SWEEP_TOKENS}"
    );
    match axis {
        "tokens" => Ok(Axes {
            tokens: values,
            sms: sms.to_vec(),
            splits: Vec::new(),
        }),
        "splits" => Ok(Axes {
            tokens: vec![tokens],
            sms: sms.to_vec(),
            splits: values,
        }),
        _ => bail!("--sweep '{text}': unknown axis '{axis}'; {expected}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sweeps_name_one_axis() {
        let sweep = axes("tokens=1,64", &[132, 188], 64).expect("tokens");
        assert_eq!(
            sweep,
            Axes {
                tokens: vec![1, 64],
                sms: vec![132, 188],
                splits: vec![]
            }
        );
        let sweep = axes("splits=1,64", &[188], 13).expect("splits");
        assert_eq!(
            sweep,
            Axes {
                tokens: vec![13],
                sms: vec![188],
                splits: vec![1, 64]
            }
        );
        for bad in [
            "tokens",
            "tokens=",
            "tokens=0",
            "tokens=1,1",
            "k=1",
            "tokens=-1",
            "tokens=1e3",
        ] {
            assert!(axes(bad, &[188], 64).is_err(), "{bad}");
        }
    }
}
