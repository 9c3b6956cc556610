//! Kernels with one thing wrong each, `fixtures/kernels/wrong.toml`: dropped in with --kernels on a device, each
//! has to be noticed, and our own text in the same place must not be.

use std::{
    ffi::OsStr,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result, bail, ensure};
use serde::Deserialize;
use serde_json::Value;
use ulpdrift::backend::cuda::source::{Kernel, Sources};

/// One of them; the fields are explained in the file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WrongKernel {
    pub name: String,
    pub what: String,
    pub file: String,
    before: String,
    after: String,
    pub variant: String,
    #[serde(default = "usual_tokens")]
    pub tokens: usize,
    structural: bool,
    slope: Option<f64>,
}

fn usual_tokens() -> usize {
    64
}

/// All of them.
pub fn all() -> Result<Vec<WrongKernel>> {
    #[derive(Deserialize)]
    struct List {
        kernel: Vec<WrongKernel>,
    }
    let list: List = toml::from_str(include_str!("../../fixtures/kernels/wrong.toml"))?;
    Ok(list.kernel)
}

/// The tool, and the compiler it is to use.
pub struct Tool {
    pub binary: PathBuf,
    pub nvrtc: Option<PathBuf>,
}

/// What the tool says of a kernel.
struct Seen {
    /// Whether the crosscheck fails at stage `dot`.
    differs: bool,
    /// Whether a run fails.
    fails: bool,
    verdict: String,
    bound_ratio: f64,
    slope: f64,
}

impl WrongKernel {
    /// Our own text of its file.
    pub fn right_text(&self) -> Result<String> {
        let sources = Sources::default();
        let headers = sources.headers();
        let header = headers.iter().find(|(name, _)| *name == self.file);
        let kernel = Kernel::ALL
            .into_iter()
            .find(|kernel| kernel.file() == self.file);
        let text = header
            .map(|(_, text)| *text)
            .or_else(|| Some(sources.text(kernel?)));
        let text = text.with_context(|| format!("{}: no file {}", self.name, self.file))?;
        Ok(text.to_owned())
    }

    /// Its own text.
    pub fn text(&self) -> Result<String> {
        let (
            right,
            Self {
                name, file, before, ..
            },
        ) = (self.right_text()?, self);
        ensure!(right.contains(before), "{name}: {file} has no '{before}'");
        Ok(right.replace(before, &self.after))
    }

    /// Runs it, and our own in its place; what was seen, in a line.
    pub fn check(&self, tool: &Tool) -> Result<String> {
        let folder = tempfile::tempdir()?;
        let right = self.seen(tool, folder.path(), &self.right_text()?)?;
        ensure!(
            !right.differs && !right.fails,
            "{}: our own {} is not accepted in its own place: {right}",
            self.name,
            self.file
        );
        let wrong = self.seen(tool, folder.path(), &self.text()?)?;
        self.is_noticed(&wrong)
            .with_context(|| format!("{}, {}: {wrong}", self.name, self.what))?;
        Ok(format!("{}: {wrong}", self.name))
    }

    fn is_noticed(&self, wrong: &Seen) -> Result<()> {
        ensure!(wrong.differs, "the crosscheck finds no difference");
        let is_structural = wrong.verdict == "structural";
        ensure!(
            is_structural == self.structural && wrong.fails == self.structural,
            "verdict {} and exit code {}, expected structural: {}",
            wrong.verdict,
            u8::from(wrong.fails),
            self.structural
        );
        let is_within = wrong.bound_ratio <= 1.0;
        ensure!(is_within != self.structural, "the bound says otherwise");
        if let Some(slope) = self.slope {
            let off = (wrong.slope / slope - 1.0).abs();
            ensure!(off <= 0.1, "expected a slope of {slope:e}");
        }
        Ok(())
    }

    fn seen(&self, tool: &Tool, folder: &Path, text: &str) -> Result<Seen> {
        fs::write(folder.join(&self.file), text)?;
        let (crosschecked, printed) = self.run(tool, folder, &["--crosscheck".as_ref()])?;
        let differs = printed.contains(&format!("{}: dot differs first", self.variant));
        ensure!(
            differs == crosschecked,
            "exit code and table disagree: {printed}"
        );
        let out = folder.join("out");
        let flags = ["--format", "json", "--out"].map(OsStr::new);
        let (fails, _) = self.run(tool, folder, &[&flags[..], &[out.as_ref()]].concat())?;
        let report = fs::read(out.join("report.json"))?;
        let report: Value = serde_json::from_slice(&report)?;
        let replaced = &report["run"]["backend"]["kernels"];
        ensure!(
            *replaced == serde_json::json!([self.file]),
            "the report names {replaced}"
        );
        let records = report["records"].as_array().context("no records")?;
        let dot = records.iter().find(|record| record["stage"] == "dot");
        let measure = |name: &str| {
            let value = dot.and_then(|dot| dot[name].as_f64());
            value.with_context(|| format!("no {name}"))
        };
        let verdict = report["verdicts"][0]["verdict"].as_str();
        Ok(Seen {
            differs,
            fails,
            verdict: verdict.context("no verdict")?.to_owned(),
            bound_ratio: measure("bound_ratio")?,
            slope: measure("slope")?,
        })
    }

    /// Whether the tool fails a check, and what it prints.
    fn run(&self, tool: &Tool, folder: &Path, flags: &[&OsStr]) -> Result<(bool, String)> {
        let mut command = Command::new(&tool.binary);
        command.args(["run", "--backend", "cuda", "--quiet", "--layers", "0"]);
        command.args(["--sites", "attn", "--variants", &self.variant]);
        command.args(["--tokens", &self.tokens.to_string(), "--kernels"]);
        command.arg(folder).args(flags);
        if let Some(nvrtc) = &tool.nvrtc {
            command.arg("--nvrtc").arg(nvrtc);
        }
        let output = command.output()?;
        let printed = String::from_utf8_lossy(&output.stdout).into_owned();
        match output.status.code() {
            Some(code @ (0 | 1)) => Ok((code == 1, printed)),
            code => bail!(
                "{command:?}: exit code {code:?}: {}",
                String::from_utf8_lossy(&output.stderr)
            ),
        }
    }
}

impl std::fmt::Display for Seen {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self {
            verdict,
            bound_ratio,
            slope,
            ..
        } = self;
        let dot = if self.differs { "differs" } else { "agrees" };
        write!(
            f,
            "dot {dot}, bound_ratio {bound_ratio:.3}, slope {slope:.1e}, verdict {verdict}"
        )
    }
}
