//! A run on a device made of the emulator, from flags to report.

use std::sync::mpsc;

use clap::Parser;

use super::*;
use crate::{
    backend::{MixInputs, emulate::Emulate, hardware::tests::Pretend},
    measure::value::Value,
    recipe::MixRecipe,
    report::{Report, Skipped, json, table},
    verdict::VerdictLimits,
};

#[derive(Parser)]
struct Line {
    #[command(flatten)]
    run: RunArgs,
}

fn report_of(flags: &str, device: &Pretend) -> anyhow::Result<Report> {
    let line = format!("run synthetic:tiny --layers 0 --sites attn --quiet {flags}");
    let args = Line::try_parse_from(line.split(' '))?.run;
    let settings = Settings::new(&args)?;
    let (products, lacking) = settings.products.on(device)?;
    let plan = plan(&args, &settings, device, &products);
    report_on(&args, &settings, &plan, lacking)
}

fn report_on(
    args: &RunArgs,
    settings: &Settings,
    plan: &Plan<'_>,
    lacking: Vec<Skipped>,
) -> anyhow::Result<Report> {
    let head = head::head(args, settings, plan, lacking)?;
    let mut desk = Desk::open(args, settings, head, plan.backend, mpsc::channel().1)?;
    let mut outputs = Outputs::prepare(wanted(args))?;
    cases::run(args, settings, plan, outputs.sink(), &mut desk)?;
    desk.report(&VerdictLimits::default())
}

#[test]
fn a_report_from_a_device_says_what_ran_and_how() {
    let report = report_of(
        "--tokens 3 --time --variants fp32,cublas-*",
        &Pretend::new(),
    )
    .unwrap();
    let backend = &report.run.backend;
    assert_eq!(backend.library.as_deref(), Some("cuBLAS 13.1.0"));
    assert_eq!(
        backend.probed["cublas-tf32"],
        "rounds its fp32 operands to TF32, nearest, ties to even"
    );
    assert_eq!(backend.options, ["--fmad=false"]);
    assert_eq!(report.compiled["rms.cu"].len(), 2);
    let timing = report.timing.as_ref().unwrap();
    assert_eq!(timing.copy_gb_per_s, Value(4000.0));
    assert_eq!(timing.inputs_of, ["L0.attn"]);
    assert_eq!(report.run.repeat_flags, ["--time"]);
    assert_eq!(
        report.recipes["cublas-tf32"]["compute-type"],
        "CUBLAS_COMPUTE_32F_FAST_TF32"
    );
    assert_eq!(report.verdicts.len(), 4);
    assert!(is_good(&report, &VerdictLimits::default()));

    let mut bytes = Vec::new();
    json::write(&report, &mut bytes).unwrap();
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), &bytes).unwrap();
    let mut back = json::read(file.path()).unwrap();
    back.host.clone_from(&report.host);
    assert_eq!(back, report);
    let lines = String::from_utf8(bytes).unwrap();
    let line = r#"    "rms.cu": ["-DA=1 -DB=2", "-DA=2 -DB=2"]"#;
    assert!(lines.lines().any(|found| found == line), "{lines}");
    let text = table::render(&report, table::Layout::default());
    assert!(text.contains("GB/s verdict"), "{text}");
    assert!(text.contains("ties to even (probed)"), "{text}");
}

#[test]
fn without_times_no_row_has_one() {
    let report = report_of("--variants fp32", &Pretend::new()).unwrap();
    assert_eq!((report.timing, report.run.backend.library), (None, None));
    for record in report.records.iter() {
        assert_eq!(record.measures.time_us, None);
    }
}

#[test]
fn a_device_without_the_library_runs_what_it_can() {
    let mut device = Pretend::new();
    device.has_library = false;
    let report = report_of("--variants *32", &device).unwrap();
    let variants: Vec<&str> = crate::report::summary::variants(&report.records);
    assert_eq!(variants, ["fp32", "tf32"]);
    let [skipped] = report.skipped.as_slice() else {
        panic!("{:?}", report.skipped);
    };
    assert_eq!(skipped.what, "cublas-tf32");
    assert!(skipped.why.contains("the loader finds none"), "{skipped:?}");
    let error = report_of("--variants fp32,cublas-tf32", &device).unwrap_err();
    assert!(error.to_string().contains("need cuBLAS"), "{error:#}");
    assert_eq!(crate::cli::exit_code(&error), crate::cli::exit::NO_DEVICE);
}

/// A kernel of a user's that leaves zeros, or what is no number: a sweep has no verdict to say so.
#[test]
fn a_sweep_of_what_nobody_can_use_is_not_good() {
    let limits = VerdictLimits::default();
    for (filling, good) in [(None, true), (Some(0.0), false), (Some(f32::NAN), false)] {
        let kernels = move |emulate: &Emulate, recipe: &MixRecipe, inputs: &MixInputs<'_>| {
            let mut mix = emulate.mix(recipe, inputs)?;
            if let Some(filling) = filling {
                mix.mixes.fill(filling);
            }
            Ok(mix)
        };
        let device = Pretend::with_kernels(Box::new(kernels));
        let report = report_of("--sweep tokens=1,3 --variants tf32", &device).unwrap();
        assert!(!report.records.is_empty());
        assert_eq!(is_good(&report, &limits), good, "{filling:?}");
    }
}

/// A kernel whose sums come out otherwise every time, as with atomics.
#[test]
fn repeats_of_a_device_are_compared_with_the_first() {
    use std::sync::atomic::{AtomicU32, Ordering};
    let calls = std::sync::Arc::new(AtomicU32::new(0));
    let kernels = move |emulate: &Emulate, recipe: &MixRecipe, inputs: &MixInputs<'_>| {
        let mut mix = emulate.mix(recipe, inputs)?;
        if recipe.name == "tf32" {
            let call = calls.fetch_add(1, Ordering::Relaxed);
            mix.mixes[[0, 0]] *= 1.0 + call as f32 * 1e-3;
        }
        Ok(mix)
    };
    let device = Pretend::with_kernels(Box::new(kernels));
    let flags = "--suite mix --tokens 3 --repeat 3 --time --variants fp32,tf32";
    let report = report_of(flags, &device).unwrap();
    assert_eq!(report.run.repeat_flags, ["--time", "--repeat", "3"]);
    for record in report.records.iter() {
        let is_changed = record.key.variant == "tf32" && record.key.stage.as_deref() != Some("dot");
        let (changed, spread) = (
            record.measures.repeat_changed.unwrap(),
            record.measures.rel_l2_spread.unwrap().0,
        );
        if !is_changed {
            assert_eq!((changed, spread), (0, 0.0), "{}", record.key);
        } else if record.key.stage.as_deref() == Some("mixes") {
            assert_eq!(changed, 1, "{}", record.key);
            assert!(spread > 0.0, "{}", record.key);
        }
        let has_time = record.key.stage.as_deref() == Some("dot");
        assert_eq!(record.measures.time_us_spread.is_some(), has_time);
    }
    let once = report_of("--suite mix --tokens 3 --variants fp32", &device).unwrap();
    assert!(
        once.records
            .iter()
            .all(|row| row.measures.repeat_changed.is_none())
    );
}

/// The emulator has the same bits every time, in every suite that can run again.
#[test]
fn repeats_of_the_emulator_change_nothing() {
    let line = "run synthetic:tiny --quiet --suite mix,recombine,chain,indexer --layers 0-2 --tokens 3 --context 512 \
                --repeat 2 --variants fp32,tf32,transformers";
    let args = Line::try_parse_from(line.split_whitespace()).unwrap().run;
    let settings = Settings::new(&args).unwrap();
    let emulate = Emulate::new(crate::tensor_core::Arch::Sm120, settings.level);
    let plan = plan(&args, &settings, &emulate, &[]);
    let report = report_on(&args, &settings, &plan, Vec::new()).unwrap();
    for suite in ["mix", "recombine", "chain", "indexer"] {
        let rows = report.records.iter().filter(|row| row.key.suite == suite);
        let counts: Vec<u64> = rows.filter_map(|row| row.measures.repeat_changed).collect();
        assert!(!counts.is_empty(), "{suite}");
        assert!(
            counts.iter().all(|count| *count == 0),
            "{suite}: {counts:?}"
        );
    }
    let spreads = report
        .records
        .iter()
        .filter_map(|row| row.measures.rel_l2_spread);
    assert!(spreads.map(|spread| spread.0).all(|spread| spread == 0.0));
}
