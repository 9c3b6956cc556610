use super::*;

/// A header of tensors of bytes, each with its first byte and the one behind its last.
fn header(tensors: &[(&str, u64, u64)]) -> SourceHeader {
    let entries = tensors.iter().map(|&(name, begin, end)| {
        let entry = Entry {
            dtype: "U8".to_owned(),
            shape: vec![(end - begin) as usize],
            begin,
            end,
        };
        (name.to_owned(), entry)
    });
    SourceHeader {
        data_start: 1000,
        entries: entries.collect(),
        metadata: BTreeMap::new(),
    }
}

fn plan(tensors: &[(&str, u64, u64)], names: &[&str]) -> Plan {
    let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
    Plan::new(&header(tensors), &names, &Selection::default()).expect("a plan")
}

#[test]
fn neighbours_are_asked_for_at_once() {
    let plan = plan(
        &[("b", 0, 10), ("a", 10, 30), ("c", 50_000, 50_004)],
        &["a", "b", "c"],
    );
    assert_eq!(plan.tensors, ["b", "a", "c"]);
    assert_eq!(plan.pieces(), [(1000, 1030), (51_000, 51_004)]);
    assert_eq!((plan.wanted(), plan.data()), (34, 34));
}

#[test]
fn little_between_them_comes_along() {
    let many = [
        ("a", 0, 1_000_000),
        ("b", 1_000_100, 2_000_000),
        ("c", 2_032_769, 3_000_000),
    ];
    let joined = plan(&many, &["a", "b", "c"]);
    assert_eq!(joined.pieces(), [(1000, 2_001_000), (2_033_769, 3_001_000)]);
    // The same gap beside less is too much.
    let little = plan(&[("a", 0, 1000), ("b", 1100, 2000)], &["a", "b"]);
    assert_eq!(little.pieces(), [(1000, 2000), (2100, 3000)]);
}

#[test]
fn what_comes_along_is_at_most_a_hundredth() {
    let names: Vec<String> = (0..100).map(|number| format!("{number:02}")).collect();
    let tensors: Vec<(&str, u64, u64)> = names
        .iter()
        .zip(0..)
        .map(|(name, number)| (name.as_str(), 12_000 * number, 12_000 * number + 10_000))
        .collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let plan = plan(&tensors, &names);
    let received: u64 = plan.pieces().iter().map(|(begin, end)| end - begin).sum();
    assert_eq!(received, 1_010_000);
}

#[test]
fn long_ranges_are_cut() {
    let plan = plan(&[("a", 0, 3 * PIECE + 1)], &["a"]);
    let pieces = plan.pieces();
    assert_eq!(pieces.len(), 4);
    assert!(pieces.windows(2).all(|pair| pair[0].1 == pair[1].0));
    assert!(pieces.iter().all(|(begin, end)| end - begin <= PIECE));
    assert_eq!((pieces[0].0, pieces[3].1), (1000, 1000 + 3 * PIECE + 1));
}

#[test]
fn every_byte_goes_where_it_belongs() {
    let tensors = [
        ("a", 0, 700),
        ("x", 700, 701),
        ("b", 701, 900),
        ("c", 40_000, 40_100),
        ("e", 40_100, 40_100),
    ];
    let plan = plan(&tensors, &["a", "b", "c", "e"]);
    let source: Vec<u8> = (0..50_000_u32).map(|byte| (byte % 251) as u8).collect();
    let mut small = plan.beginning.clone();
    small.resize(plan.length as usize, 0);
    for (begin, end) in plan.pieces() {
        let piece = &source[begin as usize..end as usize];
        let targets: Vec<(u64, u64)> = plan.targets(begin, end).collect();
        let parts: Vec<(u64, u64)> = plan
            .parts(begin, piece)
            .map(|(target, part)| (target, part.len() as u64))
            .collect();
        assert_eq!(targets, parts);
        for (target, part) in plan.parts(begin, piece) {
            small[target as usize..][..part.len()].copy_from_slice(part);
        }
    }
    let read = safetensors::SafeTensors::deserialize(&small).expect("a valid file");
    assert_eq!(read.len(), 4);
    for (name, begin, end) in tensors.iter().filter(|(name, ..)| *name != "x") {
        let expected = &source[1000 + *begin as usize..1000 + *end as usize];
        assert_eq!(
            read.tensor(name).expect("it is there").data(),
            expected,
            "{name}"
        );
    }
}

#[test]
fn rows_are_not_passed_off_as_the_whole() {
    let entry = Entry {
        dtype: "BF16".to_owned(),
        shape: vec![10, 3],
        begin: 0,
        end: 60,
    };
    let mut header = header(&[]);
    header.entries.insert("embed.weight".to_owned(), entry);
    let rows = |ids: &[u64]| {
        let selection = Selection {
            embed_rows: ids.to_vec(),
            ..Selection::default()
        };
        Plan::new(&header, &["embed.weight".to_owned()], &selection)
    };
    let plan = rows(&[2, 3, 9]).expect("a plan");
    assert_eq!(
        plan.tensors,
        [
            "embed.weight.row_ids",
            "embed.weight.tokens",
            "embed.weight.rows"
        ]
    );
    assert_eq!(plan.pieces(), [(1012, 1024), (1054, 1060)]);
    let mut small = plan.beginning.clone();
    small.resize(plan.length as usize, 7);
    let read = safetensors::SafeTensors::deserialize(&small).expect("a valid file");
    let ids = read.tensor("embed.weight.row_ids").expect("it is there");
    assert_eq!(ids.data(), [2_u64, 3, 9].map(u64::to_le_bytes).concat());
    let whole = read.tensor("embed.weight.tokens").expect("it is there");
    assert_eq!(whole.data(), 10_u64.to_le_bytes());
    assert_eq!(
        read.tensor("embed.weight.rows")
            .expect("it is there")
            .shape(),
        [3, 3]
    );
    assert_eq!(
        rows(&[10]).expect_err("no such row").found,
        "has 10 rows, and not row 10"
    );
}
