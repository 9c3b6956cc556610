//! What a journal gives back, and what it refuses.

use std::{
    fs,
    path::{Path, PathBuf},
};

use super::{finished, head};
use crate::{
    job::journal::{self, Dumped, Journal, Whose},
    report::part::{Finished, Head, Share},
};

fn whose(head: &Head) -> Whose {
    Whose {
        share: Share::WHOLE,
        dump: None,
        head: head.clone(),
    }
}

fn open(dir: &Path, head: &Head, resume: bool) -> Result<(Journal, Vec<Finished>), String> {
    let opened = Journal::open(dir, &whose(head), resume);
    let opened = opened.map_err(|error| error.to_string())?;
    assert!(opened.finished.is_empty() || opened.is_resumed);
    Ok((opened.journal, opened.finished))
}

/// A journal of two cases, and where it is.
fn two(dir: &Path) -> PathBuf {
    let (mut journal, before) = open(dir, &head(), false).unwrap();
    assert!(before.is_empty());
    assert_eq!(journal.kept(), None);
    journal.add(&finished("L0.attn"), &Dumped::new()).unwrap();
    journal.add(&finished("L0.ffn"), &Dumped::new()).unwrap();
    journal.kept().unwrap().to_owned()
}

#[test]
fn a_journal_gives_back_what_it_was_given() {
    let dir = tempfile::tempdir().unwrap();
    let path = two(dir.path());
    let (mut journal, before) = open(dir.path(), &head(), true).unwrap();
    assert_eq!(before, [finished("L0.attn"), finished("L0.ffn")]);
    journal.add(&finished("L1.attn"), &Dumped::new()).unwrap();
    drop(journal);
    let (journal, before) = open(dir.path(), &head(), true).unwrap();
    assert_eq!(before.len(), 3);
    journal.remove();
    assert!(!path.exists());
}

/// Cut short anywhere, as a kill or a full disk does it.
#[test]
fn a_line_cut_short_counts_for_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let path = two(dir.path());
    let whole = fs::read(&path).unwrap();
    let ends: Vec<usize> = (1..=whole.len())
        .filter(|&end| whole[end - 1] == b'\n')
        .collect();
    let [first, second, third] = ends[..] else {
        panic!("{ends:?}");
    };
    let cuts = [
        0,
        1,
        11,
        12,
        first - 1,
        first,
        first + 1,
        second - 1,
        second,
        third - 1,
        third,
    ];
    for cut in cuts {
        fs::write(&path, &whole[..cut]).unwrap();
        let (mut journal, before) = open(dir.path(), &head(), true).unwrap();
        let expected = usize::from(cut >= second) + usize::from(cut >= third);
        assert_eq!(before.len(), expected, "cut at {cut}");
        journal.add(&finished("L1.ffn"), &Dumped::new()).unwrap();
        drop(journal);
        let (_, again) = open(dir.path(), &head(), true).unwrap();
        assert_eq!(again.len(), expected + 1, "cut at {cut}");
    }
}

#[test]
fn nothing_finished_is_lost_by_beginning_anew() {
    let dir = tempfile::tempdir().unwrap();
    let path = two(dir.path());
    let before = fs::read(&path).unwrap();
    let said = open(dir.path(), &head(), false).unwrap_err();
    assert!(
        said.contains("has 2 finished cases") && said.contains("--resume"),
        "{said}"
    );
    let mut other = head();
    other.flags.insert("--tokens".to_owned(), "9".to_owned());
    let said = open(dir.path(), &other, true).unwrap_err();
    assert!(
        said.contains("--tokens is '9' here and not given there"),
        "{said}"
    );
    let mut other = whose(&head());
    other.share = Share { number: 1, of: 2 };
    let said = Journal::open(dir.path(), &other, true)
        .unwrap_err()
        .to_string();
    assert!(
        said.contains("it is part 1 of 1, and this is part 1 of 2"),
        "{said}"
    );
    let mut other = whose(&head());
    other.dump = Some("tensors".to_owned());
    let said = Journal::open(dir.path(), &other, true)
        .unwrap_err()
        .to_string();
    assert!(
        said.contains("--dump is 'tensors' here and not given there"),
        "{said}"
    );
    assert_eq!(fs::read(&path).unwrap(), before);
}

#[test]
fn a_journal_is_written_by_one() {
    let dir = tempfile::tempdir().unwrap();
    let (first, _) = open(dir.path(), &head(), false).unwrap();
    let said = open(dir.path(), &head(), true).unwrap_err();
    assert!(said.contains("another run"), "{said}");
    drop(first);
    // It had nothing to keep.
    assert!(!dir.path().join(journal::NAME).exists());
    open(dir.path(), &head(), true).unwrap();
}

#[test]
fn something_else_of_that_name_is_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join(journal::NAME);
    two(dir.path());
    let good = fs::read_to_string(&path).unwrap();
    let (first, rest) = good.split_once('\n').unwrap();
    for (text, said) in [
        ("Dear diary".to_owned(), "its first line is not one"),
        ("Dear diary\n".to_owned(), "its first line"),
        (
            good.replacen("\"journal\":2", "\"journal\":3", 1),
            "checksum",
        ),
        (good.replacen("1e-7", "1e-8", 1), "line 2"),
        (format!("{first}\n{{}}\n{rest}"), "line 2"),
        (format!("{first}\n\u{0}\n{rest}"), "line 2"),
    ] {
        fs::write(&path, &text).unwrap();
        let error = open(dir.path(), &head(), true).unwrap_err();
        assert!(
            error.contains(said) && error.contains("move it away"),
            "{error}"
        );
        assert!(!error.chars().any(char::is_control), "{error}");
        assert_eq!(fs::read_to_string(&path).unwrap(), text);
    }
}

#[test]
fn a_case_that_stands_there_twice_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    two(dir.path());
    let (mut journal, _) = open(dir.path(), &head(), true).unwrap();
    journal.add(&finished("L0.ffn"), &Dumped::new()).unwrap();
    drop(journal);
    let said = open(dir.path(), &head(), true).unwrap_err();
    assert!(
        said.contains("mix L0.ffn") && said.contains("twice"),
        "{said}"
    );
}

/// Each line is right by itself.
#[test]
fn lines_of_another_run_are_no_finished_cases() {
    let dir = tempfile::tempdir().unwrap();
    let path = two(dir.path());
    let own = fs::read_to_string(&path).unwrap();
    fs::remove_file(&path).unwrap();
    let mut other = head();
    other.run.seed = 7;
    let (mut journal, _) = open(dir.path(), &other, false).unwrap();
    journal.add(&finished("L0.attn"), &Dumped::new()).unwrap();
    drop(journal);
    let others = fs::read_to_string(&path).unwrap();
    let line = |text: &str, number: usize| format!("{}\n", text.lines().nth(number).unwrap());
    for spliced in [
        line(&own, 0) + &line(&others, 1),
        line(&own, 0) + &line(&own, 2),
        line(&own, 0) + &line(&own, 1) + &line(&own, 1),
    ] {
        fs::write(&path, spliced).unwrap();
        let said = open(dir.path(), &head(), true).unwrap_err();
        assert!(said.contains("checksum"), "{said}");
    }
    let mut part = whose(&head());
    part.share = Share { number: 2, of: 2 };
    fs::remove_file(&path).unwrap();
    let mut journal = Journal::open(dir.path(), &part, false).unwrap().journal;
    journal.add(&finished("L0.attn"), &Dumped::new()).unwrap();
    drop(journal);
    let said = Journal::open(dir.path(), &part, true)
        .unwrap_err()
        .to_string();
    assert!(said.contains("no case of this one"), "{said}");
}

/// A run that was killed before anything was finished has begun all the same: the tensors it has written are its own.
#[test]
fn a_run_that_has_finished_nothing_is_still_that_run() {
    let dir = tempfile::tempdir().unwrap();
    let path = two(dir.path());
    let text = fs::read_to_string(&path).unwrap();
    let (first, _) = text.split_once('\n').unwrap();
    let mut other = head();
    other.run.seed = 7;
    for (head, is_resumed) in [(head(), true), (other, false)] {
        fs::write(&path, format!("{first}\n")).unwrap();
        let opened = Journal::open(dir.path(), &whose(&head), true).unwrap();
        assert_eq!(opened.is_resumed, is_resumed);
        assert!(opened.finished.is_empty());
    }
}
