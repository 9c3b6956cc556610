//! A shared library and its functions, looked up by name: what is missing is a value, not a panic.
#![allow(unsafe_code)]

use std::{
    error::Error,
    ffi::OsStr,
    fs,
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
}
