//! Whole files, and what is left where one cannot be written.

use std::process::Command;

use super::*;

fn names_in(folder: &Path) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

#[test]
fn a_file_replaces_the_old_one() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("r.csv");
    replace(&path, |w| w.write_all(b"old")).unwrap();
    replace(&path, |w| w.write_all(b"new")).unwrap();
    assert_eq!(fs::read(path).unwrap(), b"new");
    assert_eq!(names_in(dir.path()), ["r.csv"]);
}

#[test]
fn a_folder_made_for_nothing_goes_again() {
    let dir = tempfile::tempdir().unwrap();
    drop(OutputDir::prepare(&dir.path().join("a/b/c"), &["r.csv"]).unwrap());
    assert!(names_in(dir.path()).is_empty());
}

#[test]
fn what_a_killed_run_left_goes_and_what_another_run_writes_stays() {
    let dir = tempfile::tempdir().unwrap();
    let abandoned = dir.path().join(".ulpdrift-killed.tmp");
    let others = dir.path().join(".ulpdrift-notes.txt");
    let folder = dir.path().join(".ulpdrift-folder.tmp");
    fs::create_dir(folder).unwrap();
    fs::write(others, b"a user's").unwrap();
    for write in [
        |path: &Path| drop(OutputDir::prepare(path, &["r.csv"]).unwrap()),
        |path: &Path| write_whole(&path.join("r.csv"), |w| w.write_all(b"new")).unwrap(),
    ] {
        let held = temporary(dir.path()).unwrap();
        fs::write(&abandoned, b"half of it").unwrap();
        write(dir.path());
        assert!(!abandoned.exists());
        assert!(held.path().exists());
    }
    assert_eq!(
        names_in(dir.path()),
        [".ulpdrift-folder.tmp", ".ulpdrift-notes.txt", "r.csv"]
    );
}

#[test]
fn what_is_not_kept_goes_again_and_what_was_there_stays() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("old"), b"old").unwrap();
    for keep in [false, true] {
        let mut out = OutputDir::prepare(dir.path(), &[]).unwrap();
        let mut below = OutputDir::prepare(&dir.path().join("below"), &[]).unwrap();
        out.add("old", |w| w.write_all(b"old")).unwrap();
        out.add("other", |w| w.write_all(b"x")).unwrap();
        below.add("third", |w| w.write_all(b"x")).unwrap();
        if keep {
            out.keep();
            below.keep();
        }
        drop((out, below));
        let expected: &[&str] = match keep {
            false => &["old"],
            true => &["below", "old", "other"],
        };
        assert_eq!(names_in(dir.path()), expected);
    }
}

#[test]
fn what_is_there_has_to_be_the_same_where_nothing_is_replaced() {
    let dir = tempfile::tempdir().unwrap();
    // Longer than a buffer, and another one in the last byte.
    let mut long = vec![b'x'; 100_000];
    let mut out = OutputDir::prepare(dir.path(), &[]).unwrap();
    out.add("r", |w| w.write_all(&long)).unwrap();
    out.keep();
    out.add("r", |w| w.write_all(&long)).unwrap();
    for other in [&long[1..], b""] {
        let error = out.add("r", |w| w.write_all(other)).unwrap_err();
        assert!(matches!(error, WriteError::Different { .. }));
    }
    *long.last_mut().unwrap() = b'y';
    let error = out.add("r", |w| w.write_all(&long)).unwrap_err();
    let said = error.to_string();
    assert!(said.contains("/r is already there"), "{said}");
    // Nor is a name taken from what is no file, nor waited for what has no end.
    let fifo = dir.path().join("fifo");
    let made = Command::new("mkfifo").arg(&fifo).status().unwrap();
    assert!(made.success());
    fs::create_dir(dir.path().join("folder")).unwrap();
    for (link, to) in [("nowhere", "absent"), ("loop", "loop")] {
        std::os::unix::fs::symlink(to, dir.path().join(link)).unwrap();
    }
    for name in ["fifo", "folder", "nowhere", "loop"] {
        let error = out.add(name, |w| w.write_all(b"x")).unwrap_err();
        assert!(matches!(error, WriteError::Different { .. }), "{name}");
    }
    drop(out);
    assert_eq!(fs::read(dir.path().join("r")).unwrap(), [b'x'; 100_000]);
    assert_eq!(
        names_in(dir.path()),
        ["fifo", "folder", "loop", "nowhere", "r"]
    );
}

#[test]
fn a_failing_writer_leaves_the_old_file_and_no_other() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("r.csv");
    replace(&path, |w| w.write_all(b"old")).unwrap();
    let error = replace(&path, |w| {
        w.write_all(&[b'x'; 100_000])?;
        Err(io::Error::from_raw_os_error(28))
    })
    .unwrap_err()
    .to_string();
    assert!(
        error.contains("r.csv") && error.contains("No space left on device"),
        "{error}"
    );
    assert_eq!(names_in(dir.path()), ["r.csv"]);
    assert_eq!(fs::read(dir.path().join("r.csv")).unwrap(), b"old");
}

#[test]
fn what_cannot_be_a_folder_is_found_out_before_measuring() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("file"), b"").unwrap();
    for path in [
        dir.path().join("file"),
        dir.path().join("file/below"),
        PathBuf::from("/proc/no-such-folder"),
    ] {
        let error = OutputDir::prepare(&path, &["r.csv"])
            .unwrap_err()
            .to_string();
        assert!(error.contains(&path.display().to_string()), "{error}");
    }
    fs::create_dir(dir.path().join("r.csv")).unwrap();
    let error = OutputDir::prepare(dir.path(), &["r.csv"]).unwrap_err();
    assert!(matches!(error, WriteError::Occupied { .. }));
}

/// Runs in a child whose files may not grow beyond 4 KiB (see the next test).
#[test]
#[ignore = "started by a_disk_that_fills_up_leaves_nothing"]
fn child_writes_more_than_fits() {
    let Some(folder) = std::env::var_os("ULPDRIFT_TEST_SMALL_DISK") else {
        return;
    };
    let path = Path::new(&folder).join("report.json");
    let error = write_whole(&path, |w| w.write_all(&[b'x'; 1 << 20])).unwrap_err();
    let message = error.to_string();
    assert!(
        message.contains("report.json") && !message.contains('\n'),
        "{message}"
    );
}

#[test]
#[cfg(target_os = "linux")]
fn a_disk_that_fills_up_leaves_nothing() {
    let dir = tempfile::tempdir().unwrap();
    // With the signal ignored, the write fails as one on a full disk does: part of it is
    // written, the next call returns an error. The child's own output goes through a pipe: a log
    // file that this test's output is sent to would be under the limit as well.
    let child = Command::new("sh")
        .args(["-c", r#"trap '' XFSZ; ulimit -f 8; exec "$0" "$@""#])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", "--ignored", "-q"])
        .arg("files::write::tests::child_writes_more_than_fits")
        .env("ULPDRIFT_TEST_SMALL_DISK", dir.path())
        .output()
        .unwrap();
    assert!(child.status.success(), "{child:?}");
    assert!(
        names_in(dir.path()).is_empty(),
        "{:?}",
        names_in(dir.path())
    );
}

#[cfg(unix)]
#[test]
fn a_link_stays_one() {
    let dir = tempfile::tempdir().unwrap();
    let (file, link) = (dir.path().join("file"), dir.path().join("link"));
    fs::write(&file, "old").unwrap();
    std::os::unix::fs::symlink("file", &link).unwrap();
    write_whole(&link, |w| w.write_all(b"new")).unwrap();
    assert_eq!(fs::read(&file).unwrap(), b"new");
    assert!(link.is_symlink());
    fs::remove_file(&file).unwrap();
    assert!(write_whole(&link, |w| w.write_all(b"new")).is_err());
    assert_eq!(names_in(dir.path()), ["link"]);
}

#[cfg(unix)]
#[test]
fn a_pipe_is_written_into() {
    let dir = tempfile::tempdir().unwrap();
    let pipe = dir.path().join("pipe");
    assert!(
        Command::new("mkfifo")
            .arg(&pipe)
            .status()
            .unwrap()
            .success()
    );
    let reader = std::thread::spawn({
        let pipe = pipe.clone();
        move || fs::read(pipe).unwrap()
    });
    write_whole(&pipe, |w| w.write_all(b"new")).unwrap();
    assert_eq!(reader.join().unwrap(), b"new");
    assert!(!fs::metadata(&pipe).unwrap().is_file());
    write_whole(Path::new("/dev/null"), |w| w.write_all(b"new")).unwrap();
}
