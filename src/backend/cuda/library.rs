//! A shared library and its functions, looked up by name: what is missing is a value, not a panic.
#![allow(unsafe_code)]

use std::{
    env,
    error::Error,
    ffi::OsStr,
    fs::{self, File},
    io::Read,
    ops::Range,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
};

use libloading::Library;

/// Why a library is not there.
#[derive(Debug)]
pub enum Missing {
    /// The loader finds no file of this name.
    NotFound,
    /// It finds one that does not load; what it said.
    Unloadable(String),
}

/// Loads `name`: a path, or a file name that the loader looks for (`LD_LIBRARY_PATH` and the
/// system's folders).
pub fn load(name: &OsStr) -> Result<Library, Missing> {
    let path = Path::new(name);
    if path.is_absolute() && path.exists() {
        is_whole(path).map_err(Missing::Unloadable)?;
    } else if let Some(folders) = env::var_os(LOADERS_PATH) {
        found_is_whole(path, &folders).map_err(Missing::Unloadable)?;
    }
    // SAFETY: loading runs the library's initialisers. These are NVIDIA's own libraries, or what the
    // user put in their place; they have no requirements on the caller.
    unsafe { Library::new(name) }.map_err(|error| {
        // The loader's own words are the cause of libloading's "dlopen failed".
        let reason = error.source().unwrap_or(&error).to_string();
        // Only about this very file: a library that it depends on may be what is missing.
        let absent = format!(
            "{}: cannot open shared object file: No such file",
            name.display()
        );
        if reason.starts_with(&absent) {
            Missing::NotFound
        } else {
            Missing::Unloadable(reason)
        }
    })
}

/// Whether the file is whole that the loader finds in these folders: the first of that name that it can open
/// (ld.so(8): separated by colons or semicolons, an empty one is the working directory).
fn found_is_whole(name: &Path, folders: &OsStr) -> Result<(), String> {
    let folders = folders.as_bytes().split(|byte| matches!(byte, b':' | b';'));
    for folder in folders {
        let path = Path::new(OsStr::from_bytes(folder)).join(name);
        if !path.exists() {
            continue;
        }
        is_whole(&path).map_err(|reason| format!("{}: {reason}", path.display()))?;
        if File::open(&path).is_ok() {
            break;
        }
    }
    Ok(())
}

/// What would take the process down or keep it waiting if it were loaded: no regular file, or one that ends
/// before its own headers say, as a download that broke off does.
fn is_whole(path: &Path) -> Result<(), String> {
    let about = fs::metadata(path).map_err(|error| error.to_string())?;
    if !about.is_file() {
        return Err("it is no regular file".to_owned());
    }
    let mut header = [0; ELF_HEADER];
    let read = File::open(path).and_then(|mut file| file.read_exact(&mut header));
    // What is no ELF the loader has a sentence for.
    if read.is_err() || !header.starts_with(ELF_64_LITTLE) {
        return Ok(());
    }
    let number = |at: Range<usize>| {
        let bytes = header[at].iter().rev();
        bytes.fold(0_u64, |number, &byte| number << 8 | u64::from(byte))
    };
    // The table of sections, which linkers write last: e_shoff, e_shnum, e_shentsize.
    let table = number(60..62) * number(58..60);
    let end = number(40..48).saturating_add(table);
    if about.len() < end {
        return Err(format!(
            "it ends after {} bytes, {end} expected",
            about.len()
        ));
    }
    Ok(())
}

/// Where the loader looks first.
const LOADERS_PATH: &str = "LD_LIBRARY_PATH";
/// Bytes of a 64-bit ELF header (System V ABI, ELF-64 object file format).
const ELF_HEADER: usize = 64;
/// Its first bytes on any machine that we run on.
const ELF_64_LITTLE: &[u8] = b"\x7fELF\x02\x01";

/// Where the library came from that holds `address`.
pub fn path_of(address: usize) -> Option<PathBuf> {
    let maps = fs::read_to_string("/proc/self/maps").ok()?;
    maps.lines()
        .find_map(|line| mapped_path(line, address))
        .map(Path::to_path_buf)
}

/// The file of a line of /proc/self/maps (`start-end perms offset device inode path`), if it is
/// mapped there and the address lies between.
fn mapped_path(line: &str, address: usize) -> Option<&Path> {
    let (range, _) = line.split_once(' ')?;
    let (start, end) = range.split_once('-')?;
    let start = usize::from_str_radix(start, 16).ok()?;
    let end = usize::from_str_radix(end, 16).ok()?;
    let path = line.find('/').map(|at| Path::new(&line[at..]));
    path.filter(|_| (start..end).contains(&address))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: &str =
        "7f10-7f20 r-xp 00001000 fe:01 42                    /opt/a folder/libx.so.1";

    #[test]
    fn the_file_behind_an_address() {
        let path = Some(Path::new("/opt/a folder/libx.so.1"));
        assert_eq!(mapped_path(LINE, 0x7f10), path);
        assert_eq!(mapped_path(LINE, 0x7f1f), path);
        assert_eq!(mapped_path(LINE, 0x7f20), None);
        assert_eq!(mapped_path(LINE, 0x7f0f), None);
        assert_eq!(
            mapped_path("7f10-7f20 rw-p 00000000 00:00 0 [heap]", 0x7f10),
            None
        );
    }

    #[test]
    fn absent_and_unloadable_are_told_apart() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("libx.so");
        assert!(matches!(load(file.as_os_str()), Err(Missing::NotFound)));
        fs::write(&file, "no library").unwrap();
        let Err(Missing::Unloadable(reason)) = load(file.as_os_str()) else {
            panic!("loaded a text");
        };
        assert!(reason.contains("libx.so"), "{reason}");
    }

    /// This very program as the library: any ELF file will do, and it is whole.
    #[test]
    fn a_library_that_ends_early_is_not_loaded() {
        let whole = std::env::current_exe().unwrap();
        assert_eq!(is_whole(&whole), Ok(()));
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("libx.so");
        let bytes = fs::read(&whole).unwrap();
        for length in [64, bytes.len() / 2, bytes.len() - 1] {
            fs::write(&file, &bytes[..length]).unwrap();
            let Err(Missing::Unloadable(reason)) = load(file.as_os_str()) else {
                panic!("loaded {length} bytes");
            };
            let found = format!("it ends after {length} bytes, {} expected", bytes.len());
            assert!(reason.starts_with(&found), "{reason}");
        }
        let Err(Missing::Unloadable(reason)) = load(dir.path().as_os_str()) else {
            panic!("loaded a folder");
        };
        assert_eq!(reason, "it is no regular file");
    }

    /// As the loader goes through its folders: what it passes over is not looked at.
    #[test]
    fn the_file_that_the_loader_finds_first_has_to_be_whole() {
        let dir = tempfile::tempdir().unwrap();
        let whole = fs::read(env::current_exe().unwrap()).unwrap();
        let put = |folder: &str, bytes: &[u8]| {
            let folder = dir.path().join(folder);
            fs::create_dir_all(&folder).unwrap();
            fs::write(folder.join("libx.so"), bytes).unwrap();
        };
        put("cut", &whole[..100]);
        put("whole", &whole);
        fs::create_dir(dir.path().join("empty")).unwrap();
        let path = |folders: &str| folders.replace('@', &format!("{}/", dir.path().display()));
        let asked =
            |folders: &str| found_is_whole(Path::new("libx.so"), OsStr::new(&path(folders)));
        for good in [
            "",
            "@whole",
            "@whole:@cut",
            "@absent:@empty;@whole:@cut",
            "::",
        ] {
            assert_eq!(asked(good), Ok(()), "{good}");
        }
        for bad in ["@cut", "@cut:@whole", ":@empty;@cut:@whole"] {
            let reason = asked(bad).unwrap_err();
            let found = path("@cut/libx.so: it ends after 100 bytes, ");
            assert!(reason.starts_with(&found), "{reason}");
        }
    }
}
