//! Every known bug of the indexer on its trigger input, over seeds, inputs and numbers of keys: how it is judged and what
//! the diagnosis says; and whether any recipe of the catalogue is suspected on the same inputs. Exit code 1 if a bug is not
//! structural or broken, if fewer than 11 of the 13 are named, if one that has no hypothesis is named, or if a recipe is
//! suspected.
//!
//! usage: detection_table [SEEDS [CONTEXT]], by default 5 and 16384

use std::process::ExitCode;

use anyhow::{Context, Result};
use ulpdrift::{
    activations::{Activations, Inputs},
    backend::emulate::Emulate,
    checkpoint::{Checkpoint, NonFinite, SyntheticModel},
    recipe::{catalogue as mixing, indexer::catalogue},
    report::Class,
    suite::{
        Plan,
        indexer::{
            self, IndexPlan,
            fault::{IndexFault, claimed},
        },
        ledger::whole,
        tensors::NoDump,
    },
    tensor_core::Arch,
    verdict::{VerdictLimits, judge, judge_bugs},
};
use ulpdrift_reference::simd::Level;

/// The first layer of V4-Flash that has an indexer.
const LAYER: u32 = 2;
/// Of 13 bugs so many have to be named.
const NAMED: usize = 11;

/// One table: an input, a seed and a number of keys.
struct Case {
    inputs: Inputs,
    seed: u64,
    k: usize,
    context: usize,
}

fn main() -> Result<ExitCode> {
    let mut arguments = std::env::args().skip(1);
    let mut number = |default: usize| {
        let argument = arguments.next();
        argument.map_or(Ok(default), |text| {
            text.parse()
                .context("usage: detection_table [SEEDS [CONTEXT]]")
        })
    };
    let (seeds, context) = (number(5)?, number(16_384)?);
    let checkpoint = Checkpoint::synthetic(SyntheticModel::Flash, 0)?;
    let mut failures = Vec::new();
    for inputs in [Inputs::Normal, Inputs::Correlated] {
        for seed in 0..seeds as u64 {
            for k in [512, 1024] {
                let case = Case {
                    inputs: inputs.clone(),
                    seed,
                    k,
                    context,
                };
                failures.extend(case.run(&checkpoint)?);
            }
        }
    }
    for failure in &failures {
        println!("FAILED {failure}");
    }
    println!("{} failures", failures.len());
    Ok(ExitCode::from(u8::from(!failures.is_empty())))
}

impl Case {
    /// Prints the table; what fails comes back.
    fn run(&self, checkpoint: &Checkpoint) -> Result<Vec<String>> {
        let Self {
            inputs,
            seed,
            k,
            context,
        } = self;
        let activations = Activations::open(inputs, *seed, checkpoint.model())?;
        let level = Level::detect();
        let plan = Plan {
            checkpoint,
            backend: &Emulate::new(Arch::Sm120, level),
            recipes: &[],
            faults: &[],
            products: &[],
            time: false,
            repeat: 1,
            against: &mixing::fp32(),
            layers: &[LAYER],
            sites: &[],
            inputs,
            activations: &activations,
            tokens: None,
            seed: *seed,
            sms: 188,
            nonfinite: NonFinite::Refuse,
            level,
        };
        let own = IndexPlan {
            charged: claimed(),
            recipes: catalogue::defaults(),
            against: catalogue::fp32(),
            faults: IndexFault::ALL.to_vec(),
            layers: vec![LAYER],
            contexts: vec![*context],
            queries: 4,
            top_k: vec![*k],
            model_k: *k,
        };
        let mut outcome = whole(|ledger| indexer::run(&plan, &own, &mut NoDump, ledger))?;
        let limits = VerdictLimits::default();
        let (records, yardstick) = (&outcome.records, &outcome.yardstick);
        judge_bugs(&mut outcome.diagnoses, records, yardstick, &limits);
        let place = format!("{inputs}, seed {seed}, k {k}");
        println!("{place}");
        let mut failures = Vec::new();
        let mut named = 0;
        for bug in IndexFault::ALL {
            let is_own =
                |found: &&ulpdrift::report::Diagnosis| found.fault.as_deref() == Some(bug.name());
            let Some(found) = outcome.diagnoses.iter().find(is_own) else {
                failures.push(format!("{place}: {} was not run", bug.name()));
                continue;
            };
            let word = found.verdict.map_or("-", Class::word);
            let drawn = found.drawn.as_deref().unwrap_or_default();
            println!(
                "  {:<22} {drawn:<22} {word:<10} {}",
                bug.name(),
                found.sentence
            );
            if !matches!(found.verdict, Some(Class::Structural | Class::Broken)) {
                failures.push(format!("{place}: {} is {word}", bug.name()));
            }
            match bug.is_diagnosed() {
                true => named += usize::from(found.is_named == Some(true)),
                false if found.cause.is_some() => {
                    failures.push(format!("{place}: {} is explained", bug.name()));
                }
                false => {}
            }
        }
        let diagnosed = IndexFault::ALL.into_iter().filter(|bug| bug.is_diagnosed());
        println!("  {named} of {} named", diagnosed.count());
        if named < NAMED {
            failures.push(format!("{place}: {named} bugs named"));
        }
        let verdicts = judge(records, &[], yardstick, &limits);
        let bad = |class| matches!(class, Class::Structural | Class::Broken);
        for verdict in verdicts.iter().filter(|one| bad(one.verdict)) {
            failures.push(format!("{place}: {}", verdict.sentence));
        }
        println!("  {} recipes of the catalogue judged\n", verdicts.len());
        Ok(failures)
    }
}
