//! What a header costs: it is streamed, so that memory stays below a fixed amount or twice the header.

use std::{
    fmt::Write as _,
    fs,
    io::{BufWriter, Read, Write as _},
    process::{Command, Stdio},
};

use crate::support::{Directory, Raw};

/// Layers of interest in the header: as many as it takes for a list that no pipe holds, so that the process waits at its
/// end for somebody to read.
const LAYERS: u32 = 200;

/// Writes a file whose header has `bytes` bytes, of tensors of no interest but for those layers.
fn write(directory: &Directory, bytes: usize) -> String {
    let raw = (0..LAYERS).fold(Raw::default(), |raw, layer| {
        raw.layer(&format!("layers.{layer}."))
    });
    let content = raw.bytes();
    let own = raw.header_text();
    let data = &content[8 + own.len()..];

    let mut header = String::with_capacity(bytes);
    header.push_str(own.strip_suffix('}').unwrap());
    let mut end = data.len();
    for number in 0.. {
        let before = header.len();
        let (layer, expert) = (number / 256, number % 256);
        write!(
            header,
            ",\"model.layers.{layer}.mlp.experts.{expert}.down_proj.weight\":{{\"dtype\":\"U8\",\"shape\":[1],\
             \"data_offsets\":[{end},{}]}}",
            end + 1
        )
        .unwrap();
        if header.len() >= bytes {
            header.truncate(before);
            break;
        }
        end += 1;
    }
    header.push('}');
    header.extend(std::iter::repeat_n(' ', bytes - header.len()));
    assert_eq!(header.len(), bytes);

    let path = directory.path("a.safetensors");
    let mut file = BufWriter::new(fs::File::create(&path).unwrap());
    file.write_all(&(bytes as u64).to_le_bytes()).unwrap();
    file.write_all(header.as_bytes()).unwrap();
    file.write_all(data).unwrap();
    let file = file.into_inner().unwrap();
    file.set_len((8 + bytes + end) as u64).unwrap();
    directory.spec("a.safetensors")
}

/// The most memory that `inspect` of it had resident, in bytes.
fn peak(spec: &str) -> u64 {
    let mut child = Command::new(env!("CARGO_BIN_EXE_ulpdrift"))
        .args(["inspect", spec])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdout = child.stdout.take().unwrap();
    // The list is written at once, when all is read: whoever sees its beginning can look at a process that waits.
    stdout.read_exact(&mut [0]).unwrap();
    let status = fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap();
    let mut rest = String::new();
    stdout.read_to_string(&mut rest).unwrap();
    assert!(child.wait().unwrap().success());
    assert!(rest.contains("200 of 200 layers") && rest.len() > 1 << 16);
    let line = status.lines().find(|line| line.starts_with("VmHWM:"));
    let kilobytes: u64 = line
        .unwrap()
        .split_whitespace()
        .nth(1)
        .unwrap()
        .parse()
        .unwrap();
    kilobytes << 10
}

#[test]
fn a_header_costs_less_than_twice_its_length() {
    const LEAST: u64 = 64 << 20;
    for bytes in [1 << 20, 50 << 20, 100_000_000] {
        let directory = Directory::new();
        let peak = peak(&write(&directory, bytes));
        let allowed = LEAST.max(2 * bytes as u64);
        println!("header of {bytes} bytes: {peak} bytes resident of {allowed}");
        assert!(peak <= allowed, "header of {bytes} bytes: {peak} resident");
    }
}
