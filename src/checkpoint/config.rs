//! The few values of `config.json` that the arithmetic depends on.
//!
//! Only those are looked at, each is optional, and null counts as absent. V4.1 nests them in
//! `text_config`.

use std::{fs, path::Path};

use serde_json::Value;

use super::{
    error::{CheckpointError, quoted},
    json,
    names::MOST_LAYERS,
    rope::RopeConfig,
    shard::SYNTHETIC_KEY,
};

/// Larger than any real configuration, lists of what is not quantised included.
pub(crate) const LARGEST: u64 = 1 << 21;

/// What `config.json` says, where it says it.
#[derive(Debug, Default)]
pub struct Config {
    /// What names the family.
    pub model_type: Option<String>,
    /// The width of a stream.
    pub hidden_size: Option<usize>,
    /// How many streams.
    pub hc_mult: Option<usize>,
    /// Layers of the main stack.
    pub layers: Option<usize>,
    /// Layers that predict further tokens.
    pub mtp_layers: usize,
    /// Iterations of Sinkhorn.
    pub sinkhorn_iters: Option<u32>,
    /// The epsilon of the hyper-connections.
    pub hc_eps: Option<f64>,
    /// The epsilon of the norms.
    pub norm_eps: Option<f64>,
    /// How many keys attention selects.
    pub index_topk: Option<usize>,
    /// Heads of the indexer.
    pub index_heads: Option<usize>,
    /// The width of one of them.
    pub index_head_dim: Option<usize>,
    /// The rank of the query projection.
    pub q_lora_rank: Option<usize>,
    /// The rotary embedding of compressed keys, of which the configuration of another model says nothing.
    pub rope: Option<RopeConfig>,
    /// Rows and columns that share a scale of an FP8 weight.
    pub weight_block: Option<[usize; 2]>,
    /// Where experts clamp; 0: nowhere.
    pub swiglu_limit: Option<f64>,
    /// The layers whose attention has an indexer.
    pub indexer_layers: Vec<u32>,
    /// The configuration says that the weights are synthetic.
    pub synthetic: bool,
}

impl Config {
    /// Reads `path`; `None` if there is no such file.
    pub(crate) fn read(path: &Path) -> Result<Option<Self>, CheckpointError> {
        if fs::symlink_metadata(path).is_err_and(|e| e.kind() == std::io::ErrorKind::NotFound) {
            return Ok(None);
        }
        let check = "check that it is a configuration";
        let bytes = json::read(path, LARGEST, check, broken(path))?;
        Self::parse(path, &bytes).map(Some)
    }

    /// Takes the values from the text of a configuration; `path` is for messages.
    ///
    /// # Errors
    ///
    /// Text that is no JSON object, or a value that cannot be.
    pub fn parse(path: &Path, text: &[u8]) -> Result<Self, CheckpointError> {
        let broken = broken(path);
        let whole: Value = json::parse(text, &broken)?;
        if !whole.is_object() {
            return Err(broken(
                "it is not a JSON object".to_owned(),
                "download it again",
            ));
        }
        Self::of(path, &whole)
    }

    /// Takes the values from a parsed configuration; `path` is for messages.
    pub(super) fn of(path: &Path, whole: &Value) -> Result<Self, CheckpointError> {
        Reader { path, whole }.config()
    }
}

/// Makes an error of what is wrong with the configuration at `path` and what to do about it.
fn broken(path: &Path) -> impl Fn(String, &'static str) -> CheckpointError {
    move |found, advice| CheckpointError::Config {
        path: path.to_owned(),
        found,
        advice,
    }
}

/// Looks keys up with an error that names the key.
pub(super) struct Reader<'a> {
    path: &'a Path,
    whole: &'a Value,
}

impl Reader<'_> {
    fn config(&self) -> Result<Config, CheckpointError> {
        let model_type = self
            .get("model_type")
            .and_then(Value::as_str)
            .map(str::to_owned);
        Ok(Config {
            // The outer type names the family; the inner one of a composite may be generic.
            model_type: self.whole["model_type"]
                .as_str()
                .map(str::to_owned)
                .or(model_type),
            hidden_size: self.size("hidden_size", 1 << 20)?,
            hc_mult: self.size("hc_mult", 1 << 10)?,
            layers: self.size("num_hidden_layers", u64::from(MOST_LAYERS))?,
            mtp_layers: self.mtp_layers()?,
            sinkhorn_iters: self
                .size("hc_sinkhorn_iters", 1000)?
                .map(|iters| iters as u32),
            hc_eps: self.epsilon("hc_eps")?,
            norm_eps: self.epsilon("rms_norm_eps")?,
            index_topk: self.size("index_topk", 1 << 30)?,
            index_heads: self.size("index_n_heads", 1 << 20)?,
            index_head_dim: self.size("index_head_dim", 1 << 20)?,
            q_lora_rank: self.size("q_lora_rank", 1 << 24)?,
            rope: match self.is_v4() {
                true => Some(self.rope()?),
                false => None,
            },
            weight_block: self.weight_block()?,
            swiglu_limit: self.swiglu_limit()?,
            indexer_layers: self.indexer_layers(),
            synthetic: self.whole.get(SYNTHETIC_KEY).is_some(),
        })
    }

    pub(super) fn get(&self, key: &str) -> Option<&Value> {
        let nested = self.whole.get("text_config").and_then(|text| text.get(key));
        nested
            .or_else(|| self.whole.get(key))
            .filter(|value| !value.is_null())
    }

    /// An integer from 1 to `largest`.
    fn size(&self, key: &str, largest: u64) -> Result<Option<usize>, CheckpointError> {
        let Some(value) = self.get(key) else {
            return Ok(None);
        };
        match value.as_u64() {
            Some(size) if (1..=largest).contains(&size) => Ok(Some(size as usize)),
            _ => Err(self.wrong(key, value, &format!("an integer from 1 to {largest}"))),
        }
    }

    /// Zero is common here, unlike for the sizes.
    fn mtp_layers(&self) -> Result<usize, CheckpointError> {
        const KEY: &str = "num_nextn_predict_layers";
        match self.get(KEY) {
            None => Ok(0),
            Some(value) => match value.as_u64() {
                Some(count) if count <= 1 << 10 => Ok(count as usize),
                _ => Err(self.wrong(KEY, value, "an integer from 0 to 1024")),
            },
        }
    }

    fn weight_block(&self) -> Result<Option<[usize; 2]>, CheckpointError> {
        const KEY: &str = "weight_block_size";
        pub(crate) const LARGEST: u64 = 1 << 20;
        let quantization = self.get("quantization_config");
        let Some(value) = quantization
            .and_then(|quantization| quantization.get(KEY))
            .filter(|value| !value.is_null())
        else {
            return Ok(None);
        };
        let side = |value: &Value| value.as_u64().filter(|side| (1..=LARGEST).contains(side));
        let sides = value.as_array().map(|sides| sides.iter().map(side));
        match sides.map(Iterator::collect::<Vec<_>>).as_deref() {
            Some(&[Some(rows), Some(columns)]) => Ok(Some([rows as usize, columns as usize])),
            _ => Err(self.wrong(
                KEY,
                value,
                &format!("two integers from 1 to {LARGEST}, such as [128, 128]"),
            )),
        }
    }

    fn swiglu_limit(&self) -> Result<Option<f64>, CheckpointError> {
        const KEY: &str = "swiglu_limit";
        let Some(value) = self.get(KEY) else {
            return Ok(None);
        };
        match value.as_f64() {
            Some(limit) if (0.0..=1e6).contains(&limit) => Ok(Some(limit)),
            _ => Err(self.wrong(KEY, value, "a number from 0 to 1e6")),
        }
    }

    fn is_v4(&self) -> bool {
        self.whole["model_type"] == "deepseek_v4"
    }

    /// V4's layers that compress keys by 4; the official spelling, then transformers'.
    fn indexer_layers(&self) -> Vec<u32> {
        if !self.is_v4() {
            return Vec::new();
        }
        let layers_where = |key: &str, is_indexed: &dyn Fn(&Value) -> bool| -> Vec<u32> {
            let kinds = self.get(key).and_then(Value::as_array);
            let indexed = kinds
                .into_iter()
                .flatten()
                .zip(0..)
                .filter(|(kind, _)| is_indexed(kind));
            indexed.map(|(_, layer)| layer).collect()
        };
        let by_ratio = layers_where("compress_ratios", &|ratio| *ratio == 4);
        match by_ratio.is_empty() {
            true => layers_where("layer_types", &|kind| {
                *kind == "compressed_sparse_attention"
            }),
            false => by_ratio,
        }
    }

    fn epsilon(&self, key: &str) -> Result<Option<f64>, CheckpointError> {
        let Some(value) = self.get(key) else {
            return Ok(None);
        };
        match value.as_f64() {
            Some(eps) if (0.0..1.0).contains(&eps) => Ok(Some(eps)),
            _ => Err(self.wrong(key, value, "a number from 0 to 1")),
        }
    }

    pub(super) fn wrong(&self, key: &str, value: &Value, expected: &str) -> CheckpointError {
        self.broken(format!(
            "{key} is {}, expected {expected}",
            quoted(&value.to_string())
        ))
    }

    pub(super) fn broken(&self, found: String) -> CheckpointError {
        CheckpointError::Config {
            path: self.path.to_owned(),
            found,
            advice: "mend it, or remove the file to use the family's documented values",
        }
    }
}
