//! What is not a file of tensors, and paths that lead nowhere.

use std::{fs, os::unix::fs::symlink, process::Command};

use super::{check, good, refused};
use crate::support::{Directory, Raw, text};

const FILE: &str = "model.safetensors";

fn written(
    name: &'static str,
    content: impl AsRef<[u8]> + 'static,
) -> impl Fn(&Directory) -> String {
    move |directory| {
        directory.write(name, content.as_ref());
        name.to_owned()
    }
}

fn layer(number: u32) -> Vec<u8> {
    Raw::default().layer(&format!("layers.{number}.")).bytes()
}

/// Names a place in the directory that this makes.
fn made(name: &'static str, make: impl Fn(&Directory)) -> impl Fn(&Directory) -> String {
    move |directory| {
        make(directory);
        name.to_owned()
    }
}

#[test]
fn other_formats_under_our_name() {
    const LFS: &str = "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n";
    check(
        vec![
            refused(
                "a Git-LFS pointer",
                &["Git-LFS pointer", "git lfs pull"],
                written(FILE, LFS),
            ),
            refused(
                "a zip archive",
                &["zip archive", "renaming does not"],
                written(FILE, b"PK\x03\x04\x14\0\x08\x08\x08\x08\0\0"),
            ),
            refused(
                "a pickle of protocol 2",
                &["a Python pickle"],
                written(FILE, b"\x80\x02\x8a\x0al\xfc\x9cF\xf9 j\xa8P\x19"),
            ),
            refused(
                "a pickle of protocol 4",
                &["a Python pickle"],
                written(FILE, b"\x80\x04\x95\x0a\0\0\0\0\0\0\0}\x94\x8c\x01a"),
            ),
            refused(
                "a pickle of protocol 5",
                &["a Python pickle"],
                written(FILE, b"\x80\x05\x95\x0a\0\0\0\0\0\0\0}\x94\x8c\x01a"),
            ),
            refused(
                "GGUF under our name",
                &["a GGUF file", "safetensors checkpoint it was made from"],
                written(FILE, b"GGUF\x03\0\0\0\x10\0\0\0\0\0\0\0"),
            ),
            refused(
                "GGUF under its own",
                &["'v4.gguf'", "a GGUF file"],
                written("v4.gguf", b"GGUF\x03\0\0\0\x10\0\0\0\0\0\0\0"),
            ),
            refused(
                "a page of a web server",
                &["HTML", "download the file again"],
                written(FILE, "<!DOCTYPE html><html></html>"),
            ),
            refused(
                "a NumPy array",
                &["a NumPy array"],
                written(FILE, b"\x93NUMPY\x01\0v\0{'descr': '<f4'}"),
            ),
            refused(
                "a text",
                &["not a safetensors file", "limit"],
                written(FILE, "random text that is nothing"),
            ),
            refused(
                "zeros",
                &["would have 0 bytes"],
                written(FILE, [0_u8; 4096]),
            ),
        ],
        11,
    );
}

#[test]
fn paths() {
    check(
        vec![
            refused(
                "nothing there",
                &["'absent' is not a checkpoint", "no such file or directory"],
                |_| "absent".to_owned(),
            ),
            refused(
                "an empty name",
                &["'' is not a checkpoint", "it is empty"],
                |_| String::new(),
            ),
            refused(
                "an empty directory",
                &["the directory is empty"],
                made("d", |directory| {
                    fs::create_dir(directory.path("d")).unwrap();
                }),
            ),
            refused(
                "a directory of other things",
                &["holds no weights"],
                made("d", |directory| {
                    directory.write("d/readme.txt", "hello");
                }),
            ),
            refused(
                "a directory of pickles",
                &["PyTorch pickles"],
                made("d", |directory| {
                    directory.write("d/pytorch_model.bin", "PK");
                }),
            ),
            refused(
                "a directory of GGUF files",
                &["GGUF files"],
                made("d", |directory| {
                    directory.write("d/v4-q4.gguf", "GGUF");
                }),
            ),
            refused(
                "a directory of hidden files",
                &["holds no weights"],
                made("d", |directory| {
                    directory.write("d/._model.safetensors", "x");
                }),
            ),
            refused(
                "a dangling link",
                &[
                    "symbolic link to 'gone'",
                    "does not exist",
                    "finish the download",
                ],
                made(FILE, |directory| {
                    symlink("gone", directory.path(FILE)).unwrap();
                }),
            ),
            refused(
                "a link to itself",
                &[FILE, "symbolic links"],
                made(FILE, |directory| {
                    symlink(FILE, directory.path(FILE)).unwrap();
                }),
            ),
            refused(
                "two links in a circle",
                &["symbolic links"],
                made(FILE, |directory| {
                    symlink("b", directory.path(FILE)).unwrap();
                    symlink(FILE, directory.path("b")).unwrap();
                }),
            ),
            good(
                "a link to a file",
                made(FILE, |directory| {
                    directory.write("blob", layer(0));
                    symlink("blob", directory.path(FILE)).unwrap();
                }),
            ),
            refused(
                "a directory named as a file",
                &["is a directory, expected a file"],
                made("d", |directory| {
                    fs::create_dir_all(directory.path("d/model.safetensors")).unwrap();
                }),
            ),
            refused(
                "a file taken for a directory",
                &["cannot read", "ot a directory"],
                made("f/model.safetensors", |directory| {
                    directory.write("f", "x");
                }),
            ),
            refused(
                "a pipe",
                &["not a regular file"],
                made("pipe.safetensors", |directory| {
                    let status = Command::new("mkfifo")
                        .arg(directory.path("pipe.safetensors"))
                        .status();
                    assert!(status.unwrap().success());
                }),
            ),
            refused("a device", &["not a regular file"], |_| {
                "/dev/zero".to_owned()
            }),
            refused(
                "a name of control characters",
                &["'x\\n\\u{1b}[2J'"],
                |_| "x\n\u{1b}[2J".to_owned(),
            ),
            refused("a name of 5000 bytes", &["cannot read 'aaa"], |_| {
                "a".repeat(5000)
            }),
        ],
        17,
    );
}

#[test]
fn lists_of_files() {
    let two = |second: fn() -> Vec<u8>| {
        move |directory: &Directory| {
            directory.write("a.safetensors", layer(0));
            directory.write("b.safetensors", second());
            "a.safetensors,b.safetensors".to_owned()
        }
    };
    let in_directory = |second: fn() -> Vec<u8>| {
        move |directory: &Directory| {
            directory.write("d/model-00001-of-00002.safetensors", layer(0));
            directory.write("d/model-00002-of-00002.safetensors", second());
            text(&directory.path("d"))
        }
    };
    check(
        vec![
            good("two files", two(|| layer(1))),
            good(
                "a comma in a file's name",
                written("a,b.safetensors", layer(0)),
            ),
            refused(
                "a file named twice",
                &[
                    "'layers.0.hc_attn_",
                    "is in 'a.safetensors' and in 'a.safetensors'",
                ],
                |directory| {
                    directory.write("a.safetensors", layer(0));
                    "a.safetensors,a.safetensors".to_owned()
                },
            )
            .but_shown(),
            refused(
                "a tensor in two files",
                &["is in 'a.safetensors' and in 'b.safetensors'"],
                two(|| layer(0)),
            )
            .but_shown(),
            refused(
                "one file of two",
                &["'b.safetensors'", "does not exist"],
                |directory| {
                    directory.write("a.safetensors", layer(0));
                    "a.safetensors,b.safetensors".to_owned()
                },
            )
            .but_shown(),
            refused(
                "an empty name in a list",
                &["cannot read ''"],
                |directory| {
                    directory.write("a.safetensors", layer(0));
                    "a.safetensors,,".to_owned()
                },
            )
            .but_shown(),
            refused(
                "a broken file of two",
                &["'b.safetensors'", "it is empty"],
                two(Vec::new),
            )
            .but_shown(),
            good("shards without an index", in_directory(|| layer(1))).noting("has no index"),
            refused(
                "shards without an index, one cut short",
                &["model-00002", "truncated"],
                in_directory(|| {
                    let mut bytes = layer(1);
                    bytes.truncate(bytes.len() - 1);
                    bytes
                }),
            )
            .but_shown(),
            refused(
                "shards without an index that hold the same",
                &["is in 'model-00001", "and in 'model-00002"],
                in_directory(|| layer(0)),
            )
            .but_shown(),
        ],
        10,
    );
}

#[test]
fn the_local_cache() {
    const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";
    let model = "home/.cache/huggingface/hub/models--org--model";
    let cached = move |spec: &'static str, reference: &'static str, commit: &'static str| {
        move |directory: &Directory| {
            directory.write(&format!("{model}/refs/main"), reference);
            directory.write(&format!("{model}/blobs/b0"), layer(0));
            let snapshot = format!("{model}/snapshots/{commit}");
            fs::create_dir_all(directory.path(&snapshot)).unwrap();
            symlink(
                "../../blobs/b0",
                directory.path(&format!("{snapshot}/{FILE}")),
            )
            .unwrap();
            spec.to_owned()
        }
    };
    check(
        vec![
            good(
                "a model of the cache",
                cached(
                    "org/model",
                    "0123456789abcdef0123456789abcdef01234567\n",
                    COMMIT,
                ),
            )
            .noting("org/model (commit 0123456789abcdef0123456789abcdef01234567)"),
            good(
                "a commit of the cache",
                cached(
                    "org/model@0123456789abcdef0123456789abcdef01234567",
                    "",
                    COMMIT,
                ),
            ),
            refused(
                "no cache",
                &[
                    "there is no",
                    ".cache/huggingface/hub'",
                    "(from HOME)",
                    "hf download org/model",
                    "`ulpdrift fetch`",
                ],
                |_| "org/model".to_owned(),
            ),
            refused(
                "another model's cache",
                &["has no models--org--other"],
                cached("org/other", COMMIT, COMMIT),
            ),
            refused(
                "a revision that is not there",
                &["no revision 'v2'", "refs: 'main'", "--revision v2"],
                cached("org/model@v2", COMMIT, COMMIT),
            ),
            refused(
                "references by their whole names",
                &["refs: 'feature/x', 'main', 'refs/pr/1'; snapshots: '0123"],
                move |directory| {
                    for name in ["feature/x", "refs/pr/1"] {
                        directory.write(&format!("{model}/refs/{name}"), COMMIT);
                    }
                    cached("org/model@feature", COMMIT, COMMIT)(directory)
                },
            ),
            refused(
                "a reference that cannot be followed",
                &["refs/v3'", "symbolic links", "check the file and its disk"],
                move |directory| {
                    let spec = cached("org/model@v3", COMMIT, COMMIT)(directory);
                    let link = directory.path(&format!("{model}/refs/v3"));
                    symlink("v3", link).unwrap();
                    spec
                },
            ),
            refused(
                "a snapshot that is gone",
                &["whose snapshot is gone", "'fedcba98'"],
                cached("org/model", COMMIT, "fedcba98"),
            ),
            refused(
                "a reference that leads elsewhere",
                &["'../../../etc'", "is no commit"],
                cached("org/model", "../../../etc", COMMIT),
            ),
            refused(
                "a file whose content is gone",
                &["symbolic link to '../../blobs/b0'", "finish the download"],
                move |directory| {
                    let spec = cached("org/model", COMMIT, COMMIT)(directory);
                    fs::remove_file(directory.path(&format!("{model}/blobs/b0"))).unwrap();
                    spec
                },
            ),
            good("a path wins over the cache", |directory| {
                directory.write("org/model/model.safetensors", layer(0));
                directory.write(
                    "home/.cache/huggingface/hub/models--org--model/refs/main",
                    "../x",
                );
                "org/model".to_owned()
            }),
        ],
        11,
    );
}
