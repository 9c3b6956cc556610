use std::{
    collections::BTreeSet, convert::Infallible, os::unix::fs::PermissionsExt, process::Command,
    time::SystemTime,
};

use super::*;

const CODE: &[u8] = b"\x7fELF a kernel";

fn key(compiler: &str, options: &[&str], text: &str, headers: &[(&str, &str)]) -> Key {
    let options: Vec<String> = options.iter().map(|&option| option.to_owned()).collect();
    let source = Source {
        name: "rms.cu",
        text,
        headers,
    };
    Key::of(compiler, &options, &source)
}

fn some_key() -> Key {
    key("13.0", &["-DA=1"], "text", &[("common.cuh", "header")])
}

/// The code that a cache has, and whether it had to be compiled.
fn fetch(cache: &Cache, key: Key) -> (Vec<u8>, bool) {
    let mut compiled = false;
    let code = cache.code(key, || {
        compiled = true;
        Ok::<_, Infallible>(CODE.to_vec())
    });
    (code.unwrap(), compiled)
}

fn entry(folder: &Path) -> PathBuf {
    folder.join(some_key().file_name())
}

#[test]
fn what_was_compiled_once_is_not_compiled_again() {
    let dir = tempfile::tempdir().unwrap();
    let cache = Cache::at(dir.path().join("a/b"));
    assert_eq!(fetch(&cache, some_key()), (CODE.to_vec(), true));
    assert_eq!(fetch(&cache, some_key()), (CODE.to_vec(), false));
    let other = key("13.1", &["-DA=1"], "text", &[("common.cuh", "header")]);
    assert_eq!(fetch(&cache, other), (CODE.to_vec(), true));
    let bytes = 2 * (16 + 32 + CODE.len()) as u64;
    assert_eq!(cache.holdings(), Holdings { entries: 2, bytes });
}

/// Nothing that decides the code may be left out, and no two lists may read as one.
#[test]
fn everything_is_in_the_key() {
    let keys = [
        some_key(),
        key("13.5", &["-DA=1"], "text", &[("common.cuh", "header")]),
        key("13.0", &["-DA=2"], "text", &[("common.cuh", "header")]),
        key("13.0", &["-DA=1", ""], "text", &[("common.cuh", "header")]),
        key("13.0", &["-DA", "=1"], "text", &[("common.cuh", "header")]),
        key("13.0", &["-DA=1"], "texT", &[("common.cuh", "header")]),
        key("13.0", &["-DA=1"], "text", &[("common.cuh", "headeR")]),
        key("13.0", &["-DA=1"], "text", &[("matrix.cuh", "header")]),
        key("13.0", &["-DA=1"], "text", &[("common.cuhheader", "")]),
        key("13.0", &["-DA=1"], "text", &[]),
    ];
    for (index, one) in keys.iter().enumerate() {
        for (other_index, other) in keys.iter().enumerate() {
            assert_eq!(one == other, index == other_index, "{index} {other_index}");
        }
    }
}

/// SHA-256 of the fields behind their lengths, computed by Python's hashlib.
#[test]
fn the_name_of_an_entry() {
    assert_eq!(
        some_key().file_name(),
        "6dc27cf0f14beeee0109f6287679cb51281880892b1c6fa50bffa275697fea75.cubin"
    );
}

#[test]
fn a_compiler_that_fails_leaves_no_entry() {
    let dir = tempfile::tempdir().unwrap();
    let cache = Cache::at(dir.path().to_owned());
    assert_eq!(cache.code(some_key(), || Err("wrong")), Err("wrong"));
    assert_eq!(cache.holdings(), Holdings::default());
}

#[test]
fn a_damaged_entry_is_compiled_anew_and_mended() {
    let dir = tempfile::tempdir().unwrap();
    let cache = Cache::at(dir.path().to_owned());
    fetch(&cache, some_key());
    let path = entry(dir.path());
    let good = fs::read(&path).unwrap();
    let mut damaged: Vec<Vec<u8>> = (0..good.len()).map(|cut| good[..cut].to_vec()).collect();
    damaged.extend((0..good.len()).map(|at| {
        let mut bytes = good.clone();
        bytes[at] ^= 1;
        bytes
    }));
    damaged.push([&good[..], b"x"].concat());
    damaged.push(b"garbage".repeat(1000));
    for bytes in damaged {
        fs::write(&path, &bytes).unwrap();
        assert_eq!(
            fetch(&cache, some_key()),
            (CODE.to_vec(), true),
            "{bytes:?}"
        );
        assert_eq!(fs::read(&path).unwrap(), good);
    }
}

#[test]
fn an_entry_under_another_name_does_not_count() {
    let dir = tempfile::tempdir().unwrap();
    let cache = Cache::at(dir.path().to_owned());
    fetch(&cache, some_key());
    let other = key("13.0", &[], "text", &[]);
    fs::copy(entry(dir.path()), dir.path().join(other.file_name())).unwrap();
    assert!(fetch(&cache, other).1);
}

/// Root may write anywhere, so that the folder also stands where no folder can.
#[test]
fn a_folder_that_cannot_be_written_is_no_error() {
    let dir = tempfile::tempdir().unwrap();
    let locked = dir.path().join("locked");
    fs::create_dir(&locked).unwrap();
    fs::set_permissions(&locked, fs::Permissions::from_mode(0o500)).unwrap();
    fs::write(dir.path().join("file"), "").unwrap();
    for folder in [
        locked,
        dir.path().join("file/below"),
        PathBuf::from("/proc/no-such-folder"),
    ] {
        // Root is not kept out by permissions.
        let is_kept_out = !folder.ends_with("locked");
        let cache = Cache::at(folder);
        assert!(cache.check_writable().is_err() || !is_kept_out);
        for _ in 0..2 {
            assert_eq!(fetch(&cache, some_key()).0, CODE);
        }
    }
    assert!(fetch(&Cache::default(), some_key()).1);
    assert!(Cache::default().check_writable().is_ok());
    let new = dir.path().join("new");
    assert!(Cache::at(new.join("below")).check_writable().is_ok());
    assert!(!new.exists());
}

/// What a process left that was ended in the middle of writing; what another may be writing stays, and what is not ours.
#[test]
fn what_was_left_behind_is_removed_once_it_is_old() {
    let dir = tempfile::tempdir().unwrap();
    let cache = Cache::at(dir.path().to_owned());
    let minutes = |count: u64| SystemTime::now() - Duration::from_secs(60 * count);
    for (name, time) in [
        (".ulpdrift-old000", minutes(61)),
        (".ulpdrift-new000", minutes(59)),
        (
            ".ulpdrift-ahead0",
            minutes(0) + Duration::from_secs(1 << 20),
        ),
        (".other-old000", minutes(1000)),
    ] {
        let file = File::create(dir.path().join(name)).unwrap();
        file.set_modified(time).unwrap();
    }
    fetch(&cache, some_key());
    let old = File::options().append(true).open(entry(dir.path()));
    old.unwrap().set_modified(minutes(1000)).unwrap();
    cache.tidy();
    let left = fs::read_dir(dir.path()).unwrap().flatten();
    let left: BTreeSet<PathBuf> = left.map(|file| file.path()).collect();
    let names = [".other-old000", ".ulpdrift-ahead0", ".ulpdrift-new000"];
    let mut expected: BTreeSet<PathBuf> = names.map(|name| dir.path().join(name)).into();
    expected.insert(entry(dir.path()));
    assert_eq!(left, expected);
    Cache::at(dir.path().join("absent")).tidy();
    Cache::default().tidy();
}

#[test]
fn a_folder_in_the_place_of_an_entry_is_no_error() {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(entry(dir.path())).unwrap();
    let cache = Cache::at(dir.path().to_owned());
    assert_eq!(fetch(&cache, some_key()), (CODE.to_vec(), true));
    let left: Vec<_> = fs::read_dir(dir.path()).unwrap().flatten().collect();
    assert_eq!(left.len(), 1, "{left:?}");
}

/// Many rounds of reading, writing and spoiling one entry; run by several processes at once.
#[test]
#[ignore = "started by two_processes_at_once"]
fn child_fetches_time_and_again() {
    let Some(folder) = env::var_os("ULPDRIFT_TEST_CACHE") else {
        return;
    };
    let folder = PathBuf::from(folder);
    let cache = Cache::at(folder.clone());
    let large = vec![7; 1 << 16];
    for round in 0..200 {
        let code = cache.code(some_key(), || Ok::<_, Infallible>(large.clone()));
        assert_eq!(code.unwrap(), large);
        if round % 3 == 0 {
            // Whoever removed it first did what is to be done.
            let _ = fs::remove_file(entry(&folder));
        }
    }
}

#[test]
fn two_processes_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let child = || {
        Command::new(env::current_exe().unwrap())
            .args(["--exact", "--ignored", "-q"])
            .arg("backend::cuda::cache::tests::child_fetches_time_and_again")
            .env("ULPDRIFT_TEST_CACHE", dir.path())
            .spawn()
            .unwrap()
    };
    for mut child in [child(), child()] {
        assert!(child.wait().unwrap().success());
    }
    let left = fs::read_dir(dir.path()).unwrap().flatten();
    for file in left {
        assert_eq!(file.path(), entry(dir.path()), "a temporary file is left");
    }
}
