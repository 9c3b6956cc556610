//! Files: small ones that somebody else wrote, of which never more is read than they can rightly have; those that are
//! written whole or not at all ([`mod@write`]); and those that grow by whole lines ([`line_log`]).

pub mod line_log;
pub mod write;

use std::{
    fs::File,
    io::{self, Read},
    path::Path,
};

/// More than any thresholds or recipe file.
pub const LARGEST_SETTINGS: u64 = 1 << 24;
/// More than any report: a million rows.
pub const LARGEST_REPORT: u64 = 1 << 31;
/// More than any file of recorded vectors.
pub const LARGEST_VECTORS: u64 = 1 << 30;

/// The bytes of a file, which may be a pipe.
///
/// # Errors
/// If it cannot be read, or has more than `most` bytes.
pub fn read(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?.take(most + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > most {
        let message = format!("it has more than {most} bytes, check that it is the right file");
        return Err(io::Error::new(io::ErrorKind::InvalidData, message));
    }
    Ok(bytes)
}

/// [`read`] as text.
///
/// # Errors
/// As [`read`], or if the file is not UTF-8.
pub fn read_text(path: &Path, most: u64) -> io::Result<String> {
    String::from_utf8(read(path, most)?)
        .map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "it is not UTF-8 text"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_endless_file_is_refused() {
        let error = read(Path::new("/dev/zero"), 1000).expect_err("endless");
        assert!(error.to_string().contains("more than 1000 bytes"));
    }

    #[test]
    fn a_file_of_just_that_size_is_read() {
        let file = tempfile::NamedTempFile::new().expect("a temporary file");
        std::fs::write(file.path(), "1234").expect("written");
        assert_eq!(read_text(file.path(), 4).expect("read"), "1234");
        assert!(read_text(file.path(), 3).is_err());
    }
}
