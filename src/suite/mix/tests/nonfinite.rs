//! NaN, infinities, overflow and underflow in weights and inputs: no panic, and no verdict that
//! looks like success.

use super::*;
use crate::recipe::NormPlacement;

/// One generated site of the tiny model, changed.
fn changed(change: impl Fn(&mut Case)) -> Found {
    let setup = Setup::tiny();
    let emulator = setup.emulator();
    let mut case = setup.with_plan(&emulator, |plan| {
        Case::load(plan, 1, Site::Attn, 0..13)
            .expect("loads")
            .expect("generated")
    });
    // Whatever is put in need not be a bf16 value.
    case.x_exact_in = Format::F32;
    change(&mut case);
    setup.run_case(&emulator, &case)
}

fn total(outcome: &Found, variant: &str, measure: &str) -> f64 {
    let rows = ["dot", "mixes"]
        .iter()
        .flat_map(|stage| at(&outcome.records, variant, stage));
    rows.map(|record| measure_of(record, measure)).sum()
}

#[test]
fn a_nan_weight_breaks_every_variant() {
    // The quiet NaN, the one GPUs return, and one whose payload lies below what TF32 reads.
    for bits in [0x7fc0_0000, 0x7fff_ffff, 0xffff_ffff, 0x7f80_0001] {
        let outcome = changed(|case| {
            Arc::make_mut(&mut case.weights).function[[2, 5]] = f32::from_bits(bits);
        });
        for recipe in builtin() {
            let name = &recipe.name;
            assert!(total(&outcome, name, "nan_ref") > 0.0, "{name} {bits:08x}");
            let (nan, inf) = (
                total(&outcome, name, "nan_got"),
                total(&outcome, name, "inf_got"),
            );
            assert!(nan + inf > 0.0, "{name} {bits:08x}");
            assert_eq!(
                verdict_of(&outcome, name),
                Class::Broken,
                "{name} {bits:08x}"
            );
            let rel_l2 = measure_of(at(&outcome.records, name, "mixes")[0], "rel_l2");
            assert!(!is_within(rel_l2, 1.0), "{name} {bits:08x}: {rel_l2}");
        }
    }
}

#[test]
fn an_infinite_or_nan_x_breaks_every_variant() {
    for value in [f32::INFINITY, f32::NEG_INFINITY, f32::NAN] {
        let outcome = changed(|case| case.x[[3, 100]] = value);
        for recipe in builtin() {
            let verdict = verdict_of(&outcome, &recipe.name);
            assert_eq!(verdict, Class::Broken, "{} {value}", recipe.name);
        }
    }
}

/// Σx² overflows fp32: the factor is 0, and so are the mixes, which fp64 has at their ordinary size.
#[test]
fn x_whose_square_overflows_is_never_noise() {
    let outcome = changed(|case| case.x.mapv_inplace(|value| value * 1e18));
    for recipe in builtin() {
        let name = &recipe.name;
        let verdict = verdict_of(&outcome, name);
        assert_eq!(verdict, Class::Broken, "{name}");
        // Half precision has infinities for such an x, in fp64 as on the unit.
        if recipe.projection.norm == NormPlacement::After && name != "f16-mma" {
            let ratio = measure_of(at(&outcome.records, name, "mixes")[0], "bound_ratio");
            assert!(!is_within(ratio, 1.0), "{name}: {ratio}");
        }
    }
}

/// x² underflows and ε is all that is left under the root: no variant minds but half precision,
/// which cannot hold such an x.
#[test]
fn x_whose_square_underflows_is_scaled_by_eps() {
    let outcome = changed(|case| case.x.mapv_inplace(|value| value * 1e-23));
    for recipe in builtin() {
        let name = &recipe.name;
        let mixes = at(&outcome.records, name, "mixes")[0];
        if name == "f16-mma" {
            assert_eq!(verdict_of(&outcome, name), Class::Broken);
            continue;
        }
        assert!(measure_of(mixes, "rel_l2") < 5e-3, "{name}");
        assert!(measure_of(mixes, "bound_ratio") <= 1.0, "{name}");
        assert_ne!(verdict_of(&outcome, name), Class::Broken, "{name}");
    }
}

/// FLT_MAX rounds to infinity in every narrower format but by truncation.
#[test]
fn flt_max_weights_overflow_where_their_format_does() {
    let outcome = changed(|case| {
        Arc::make_mut(&mut case.weights).function[[2, 5]] = f32::MAX;
        case.x.column_mut(5).fill(0.5);
    });
    for name in [
        "tf32",
        "tf32-rna",
        "bf16",
        "bf16-patch",
        "bf16-prenorm",
        "f16",
        "f16-mma",
        "tf32x2",
        "bf16x3",
    ] {
        let got = total(&outcome, name, "inf_got") + total(&outcome, name, "nan_got");
        assert!(got > 0.0, "{name}");
        assert!(total(&outcome, name, "class_mismatch") > 0.0, "{name}");
        assert_eq!(verdict_of(&outcome, name), Class::Broken, "{name}");
    }
    for name in ["fp32", "fp32-simt", "tf32-rz"] {
        assert_eq!(total(&outcome, name, "class_mismatch"), 0.0, "{name}");
        for stage in ["dot", "mixes"] {
            let ratio = measure_of(at(&outcome.records, name, stage)[0], "bound_ratio");
            assert!(ratio <= 1.0, "{name} {stage}: {ratio}");
        }
    }
}

#[test]
fn the_smallest_weights_and_constant_rows_are_ordinary() {
    let outcome = changed(|case| {
        Arc::make_mut(&mut case.weights)
            .function
            .row_mut(3)
            .fill(f32::from_bits(1));
        case.x.row_mut(0).fill(0.0);
        case.x.row_mut(1).fill(1.0);
        let d = case.x.ncols() / 4;
        for c in 0..d {
            case.x[[2, d + c]] = -case.x[[2, c]];
        }
    });
    for recipe in builtin() {
        for stage in ["dot", "mixes"] {
            let record = at(&outcome.records, &recipe.name, stage)[0];
            assert!(measure_of(record, "bound_ratio") <= 1.0, "{}", record.key);
            assert_eq!(measure_of(record, "class_mismatch"), 0.0, "{}", record.key);
        }
    }
}
