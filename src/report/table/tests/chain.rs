//! A chain as blocks over depth.

use super::*;

/// The rows of a chain behind each layer, of `layers` layers.
fn walk(variant: &str, layers: u32, rel_l2: impl Fn(u32) -> f64) -> Vec<Record> {
    let row = |layer| {
        let mut row = fixtures::record(variant, layer, "ffn", "streams", rel_l2(layer + 1));
        row.key.suite = "chain".to_owned();
        row.key.residual = Some("bf16".to_owned());
        row
    };
    (0..layers).map(row).collect()
}

/// The last table's lines of a variant.
fn lines<'a>(text: &'a str, variant: &str) -> Vec<&'a str> {
    let start = format!("{variant} ");
    text.lines()
        .filter(|line| line.starts_with(&start) && !line.contains(" is "))
        .collect()
}

#[test]
fn a_chain_has_a_block_per_layer_on_a_stated_scale() {
    let grows = |depth: u32| 1e-3 * f64::from(depth);
    let records = [walk("fp32", 8, grows), walk("tf32", 8, |_| 1e-3)].concat();
    let text = render(&fixtures::report(records), Layout::default());
    assert!(
        text.contains("By layer, log scale ▁ 1.0e-3 to █ 8.0e-3; a block is a layer\n"),
        "{text}"
    );
    assert!(
        text.contains("fp32 1: 1.0e-3 ▁▃▅▆▆▇██ 8: 8.0e-3\n"),
        "{text}"
    );
    assert!(
        text.contains("tf32 1: 1.0e-3 ▁▁▁▁▁▁▁▁ 8: 1.0e-3\n"),
        "{text}"
    );
}

#[test]
fn blocks_are_fewer_where_there_is_no_room_and_keep_the_largest() {
    let spike = |depth: u32| if depth == 100 { 1e-1 } else { 1e-3 };
    let report = fixtures::report(walk("tf32", 122, spike));
    let narrow = render(&report, Layout::default());
    assert!(widest(&narrow) <= 80, "{narrow}");
    assert!(
        narrow.contains("a block is the largest of 3 layers"),
        "{narrow}"
    );
    assert_eq!(
        narrow.matches('█').count(),
        2,
        "the scale's and the spike's: {narrow}"
    );
    let wide = Layout {
        width: 160,
        ..Layout::default()
    };
    let wide = render(&report, wide);
    assert!(wide.contains("a block is a layer"), "{wide}");
}

#[test]
fn what_somebody_wrote_into_a_chain_drives_no_terminal_and_fills_no_memory() {
    let mut records = walk("fp32", 4, |_| 1e-3);
    records[3].key.depth = Some(u32::MAX);
    records[0].key.residual = Some("b\u{1b}[2J\u{202e}".to_owned());
    let text = render(&fixtures::report(records), Layout::default());
    assert!(text.contains(r"residual b\u{1b}[2J\u{202e}, "), "{text}");
    assert!(text.contains("4294967295"), "{text}");
}

#[test]
fn a_chain_that_ends_is_a_cross() {
    let mut records = walk("fp32", 4, |_| 1e-3);
    records.extend(walk("bf16", 2, |_| 1e-3));
    records.extend(walk(
        "tf32",
        4,
        |depth| if depth == 3 { f64::NAN } else { 2e-3 },
    ));
    let mut report = fixtures::report(records);
    report.non_finite = vec![crate::report::NonFinite {
        variant: "bf16".to_owned(),
        place: "L2.attn".to_owned(),
        depth: 2,
        stage: "streams".to_owned(),
        token: 0,
        value: Value(f64::INFINITY),
        came_with: Value(1.0),
        largest: Value(1.0),
    }];
    let text = render(&report, Layout::default());
    assert_eq!(
        lines(&text, "bf16")[1],
        "bf16 1: 1.0e-3 ▁▁×  3: ×",
        "{text}"
    );
    assert_eq!(
        lines(&text, "tf32")[1],
        "tf32 1: 2.0e-3 ██×█ 4: 2.0e-3",
        "{text}"
    );
}

#[test]
fn a_wider_window_has_more_columns() {
    let mut records = fixtures::mix_report().records.to_vec();
    records.extend(walk("tf32", 43, |depth| 1e-3 * f64::from(depth)));
    let report = judged(records);
    let columns = |width| {
        let layout = Layout {
            width,
            ..Layout::default()
        };
        let text = render(&report, layout);
        assert!(widest(&text) <= width, "{width}: {text}");
        let headers = text.lines().filter(|line| line.starts_with("variant "));
        headers
            .map(|line| line.split_whitespace().count())
            .collect::<Vec<_>>()
    };
    let (narrow, wide, widest) = (columns(80), columns(120), columns(160));
    assert_eq!(narrow, [10, 8]);
    assert!(
        wide.iter().zip(&narrow).all(|(wide, narrow)| wide > narrow),
        "{wide:?}"
    );
    assert!(widest[1] > wide[1], "{widest:?} {wide:?}");
}
