//! The synthetic models' dimensions and the tensors they consist of, in the official layout.

use std::{fmt, str::FromStr};

use serde_json::{Value, json};

use super::super::{
    CheckpointError, Site,
    dtype::StoredType,
    names::{EMBEDDING, EXPERT_PARTS, Group, expert_name, hc_name, norm_name},
    shard::SYNTHETIC_KEY,
};

/// A model that can be made up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SyntheticModel {
    /// The dimensions of DeepSeek-V4-Flash.
    Flash,
    /// The dimensions of DeepSeek-V4-Pro.
    Pro,
    /// The dimensions of DeepSeek-V4.1-Flash; hyper-connections, norms and embedding only.
    V41,
    /// Hidden 256 and four layers: the whole pipeline in milliseconds.
    Tiny,
}

impl SyntheticModel {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Flash, Self::Pro, Self::V41, Self::Tiny];

    pub(in super::super) fn dims(self) -> Dims {
        match self {
            Self::Flash => Dims {
                hidden: 4096,
                expert: 2048,
                layers: 43,
                norm_eps: 1e-6,
                index: Some(IndexDims {
                    q_lora: 1024,
                    heads: 64,
                    topk: 512,
                }),
            },
            Self::Pro => Dims {
                hidden: 7168,
                expert: 3072,
                layers: 61,
                norm_eps: 1e-6,
                index: Some(IndexDims {
                    q_lora: 1536,
                    heads: 64,
                    topk: 1024,
                }),
            },
            Self::V41 => Dims {
                hidden: 5120,
                expert: 2304,
                layers: 40,
                norm_eps: 1e-20,
                index: None,
            },
            Self::Tiny => Dims {
                hidden: 256,
                expert: 128,
                layers: 4,
                norm_eps: 1e-6,
                index: Some(IndexDims {
                    q_lora: 128,
                    heads: 8,
                    topk: 16,
                }),
            },
        }
    }

    /// How strongly attention compresses keys, per layer, MTP layers included: 4 has an indexer.
    fn compress_ratios(self) -> Vec<u32> {
        let alternating = |times: usize| [4, 128].repeat(times);
        match self {
            Self::Flash => [vec![0, 0], alternating(20), vec![4, 0]].concat(),
            Self::Pro => [vec![128, 128], alternating(29), vec![4, 0]].concat(),
            Self::V41 => [vec![0, 0], vec![2; 18], vec![1; 20], vec![0; 3]].concat(),
            Self::Tiny => vec![0, 0, 4, 128],
        }
    }

    fn has_indexer(self, layer: u32) -> bool {
        self.compress_ratios().get(layer as usize) == Some(&4)
    }

    /// The side of an FP8 weight's scale block.
    pub(super) fn block(self) -> usize {
        match self {
            Self::V41 => 32,
            _ => 128,
        }
    }

    /// The shared expert of one layer: as much as all else of it, and more.
    pub(in super::super) fn expert_tensors(self, layer: u32) -> Vec<TensorSpec> {
        let (d, inter, block) = (self.dims().hidden, self.dims().expert, self.block());
        let matrices = EXPERT_PARTS.into_iter().zip([
            (Role::ExpertGate, [inter, d]),
            (Role::ExpertDown, [d, inter]),
            (Role::ExpertUp, [inter, d]),
        ]);
        let of_matrix = |(part, (role, shape)): (&str, (Role, [usize; 2]))| {
            let tensor = |name: &str, dtype, shape: [usize; 2]| TensorSpec {
                layer: Some(layer),
                site: Some(Site::Ffn),
                group: Group::SharedExpert,
                role,
                name: format!("{}.{name}", expert_name(layer, part)),
                dtype,
                shape: shape.to_vec(),
            };
            [
                tensor("weight", StoredType::F8E4M3, shape),
                tensor("scale", StoredType::F8E8M0, shape.map(|side| side / block)),
            ]
        };
        matrices.flat_map(of_matrix).collect()
    }

    /// The tensors of one layer, its shared expert aside.
    pub(in super::super) fn layer_tensors(self, layer: u32) -> Vec<TensorSpec> {
        let dims = self.dims();
        let (width, mixes) = (HC * dims.hidden, (2 + HC) * HC);
        let mut tensors = Vec::new();
        let mut add = |role, site: Option<Site>, group, name: String, dtype, shape: &[usize]| {
            let shape = shape.to_vec();
            tensors.push(TensorSpec {
                layer: Some(layer),
                site,
                group,
                role,
                name,
                dtype,
                shape,
            });
        };
        for site in Site::ALL {
            let mut hc = |role, part, shape: &[usize]| {
                let name = hc_name(layer, site, part);
                add(role, Some(site), Group::Hc, name, StoredType::F32, shape);
            };
            hc(Role::HcFunction, "fn", &[mixes, width]);
            hc(Role::HcBase, "base", &[mixes]);
            hc(Role::HcScale, "scale", &[3]);
        }
        for site in Site::ALL {
            let name = norm_name(Some((layer, site)));
            add(
                Role::Norm,
                Some(site),
                Group::Norm,
                name,
                StoredType::Bf16,
                &[dims.hidden],
            );
        }
        let Some(index) = dims.index.filter(|_| self.has_indexer(layer)) else {
            return tensors;
        };
        let rows = index.heads * INDEX_HEAD_DIM;
        let mut attn = |role, part: &str, dtype, shape: &[usize]| {
            add(
                role,
                None,
                Group::Indexer,
                format!("layers.{layer}.attn.{part}"),
                dtype,
                shape,
            );
        };
        let block = self.block();
        let blocks = |rows: usize, columns: usize| [rows / block, columns / block];
        use StoredType::{Bf16, F8E4M3, F8E8M0, F32};
        attn(
            Role::QueryDown,
            "wq_a.weight",
            F8E4M3,
            &[index.q_lora, dims.hidden],
        );
        attn(
            Role::QueryDown,
            "wq_a.scale",
            F8E8M0,
            &blocks(index.q_lora, dims.hidden),
        );
        attn(Role::QueryNorm, "q_norm.weight", Bf16, &[index.q_lora]);
        attn(
            Role::IndexQuery,
            "indexer.wq_b.weight",
            F8E4M3,
            &[rows, index.q_lora],
        );
        attn(
            Role::IndexQuery,
            "indexer.wq_b.scale",
            F8E8M0,
            &blocks(rows, index.q_lora),
        );
        attn(
            Role::IndexWeights,
            "indexer.weights_proj.weight",
            Bf16,
            &[index.heads, dims.hidden],
        );
        let keys = [2 * INDEX_HEAD_DIM, dims.hidden];
        attn(Role::IndexKey, "indexer.compressor.wkv.weight", Bf16, &keys);
        attn(
            Role::IndexGate,
            "indexer.compressor.wgate.weight",
            Bf16,
            &keys,
        );
        attn(
            Role::IndexApe,
            "indexer.compressor.ape",
            F32,
            &[4, 2 * INDEX_HEAD_DIM],
        );
        attn(
            Role::IndexNorm,
            "indexer.compressor.norm.weight",
            Bf16,
            &[INDEX_HEAD_DIM],
        );
        tensors
    }

    /// The tensors that belong to no layer.
    pub(in super::super) fn closing_tensors(self) -> Vec<TensorSpec> {
        let hidden = self.dims().hidden;
        let closing = |role, group, name: &str, dtype, shape: &[usize]| TensorSpec {
            layer: None,
            site: None,
            group,
            role,
            name: name.to_owned(),
            dtype,
            shape: shape.to_vec(),
        };
        let mut tensors = Vec::new();
        if self != Self::V41 {
            let head = |role, name, shape: &[usize]| {
                closing(role, Group::Head, name, StoredType::F32, shape)
            };
            tensors.push(head(Role::HcFunction, "hc_head_fn", &[HC, HC * hidden]));
            tensors.push(head(Role::HcBase, "hc_head_base", &[HC]));
            tensors.push(head(Role::HcScale, "hc_head_scale", &[1]));
        }
        let bf16 = StoredType::Bf16;
        let norm = norm_name(None);
        tensors.push(closing(Role::Norm, Group::Norm, &norm, bf16, &[hidden]));
        let shape = [VOCABULARY, hidden];
        tensors.push(closing(
            Role::Embedding,
            Group::Embedding,
            EMBEDDING,
            bf16,
            &shape,
        ));
        tensors
    }

    /// The `config.json` of the model; `seed` and the marker go into it.
    pub(in super::super) fn config(self, seed: u64) -> Value {
        let dims = self.dims();
        let mut model = json!({
            "hidden_size": dims.hidden,
            "vocab_size": VOCABULARY,
            "num_hidden_layers": dims.layers,
            "num_nextn_predict_layers": 0,
            "hc_mult": HC,
            "hc_sinkhorn_iters": 20,
            "hc_eps": 1e-6,
            "rms_norm_eps": dims.norm_eps,
            "compress_ratios": self.compress_ratios(),
            "moe_intermediate_size": dims.expert,
            "n_shared_experts": 1,
            "swiglu_limit": 10.0,
            "quantization_config": {
                "quant_method": "fp8",
                "fmt": "e4m3",
                "scale_fmt": "ue8m0",
                "weight_block_size": [self.block(), self.block()],
            },
        });
        if let Some(index) = dims.index {
            model["q_lora_rank"] = index.q_lora.into();
            model["index_n_heads"] = index.heads.into();
            model["index_head_dim"] = INDEX_HEAD_DIM.into();
            model["index_topk"] = index.topk.into();
            model["qk_rope_head_dim"] = ROPE_DIMS.into();
            model["compress_rope_theta"] = 160_000.into();
            model["rope_scaling"] = json!({
                "type": "yarn",
                "factor": 16,
                "original_max_position_embeddings": 65_536,
                "beta_fast": 32,
                "beta_slow": 1,
            });
        }
        let mut config = match self {
            Self::V41 => json!({ "model_type": "deepseek_v41", "text_config": model }),
            _ => {
                model["model_type"] = "deepseek_v4".into();
                model
            }
        };
        config[SYNTHETIC_KEY] = json!({ "model": self.to_string(), "seed": seed });
        config
    }
}

impl fmt::Display for SyntheticModel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Flash => "flash",
            Self::Pro => "pro",
            Self::V41 => "v4.1",
            Self::Tiny => "tiny",
        })
    }
}

impl FromStr for SyntheticModel {
    type Err = CheckpointError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::ALL
            .into_iter()
            .find(|model| model.to_string() == text)
            .ok_or_else(|| CheckpointError::UnknownSynthetic(text.to_owned()))
    }
}

/// Residual streams.
pub(super) const HC: usize = 4;

/// Tokens of the embedding, of which a real model has 129,280: enough for as many different rows as a run has.
const VOCABULARY: usize = 1024;

const INDEX_HEAD_DIM: usize = 128;

/// How much of a head turns with its position.
const ROPE_DIMS: usize = 64;

/// A synthetic model's dimensions.
#[derive(Clone, Copy, Debug)]
pub(in super::super) struct Dims {
    pub(in super::super) hidden: usize,
    /// Hidden units of the shared expert.
    expert: usize,
    pub(in super::super) layers: u32,
    norm_eps: f64,
    index: Option<IndexDims>,
}

#[derive(Clone, Copy, Debug)]
struct IndexDims {
    q_lora: usize,
    heads: usize,
    topk: usize,
}

/// What a tensor does, and so how it is distributed. The numbers key the random streams and are
/// part of every synthetic checkpoint: never renumber.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(in super::super) enum Role {
    HcFunction = 1,
    HcBase = 2,
    HcScale = 3,
    Norm = 4,
    QueryDown = 5,
    QueryNorm = 6,
    IndexQuery = 7,
    IndexWeights = 8,
    IndexKey = 9,
    IndexGate = 10,
    IndexApe = 11,
    IndexNorm = 12,
    Embedding = 13,
    ExpertGate = 14,
    ExpertDown = 15,
    ExpertUp = 16,
}

/// A tensor to be made.
#[derive(Clone, Debug)]
pub(in super::super) struct TensorSpec {
    pub(in super::super) layer: Option<u32>,
    pub(in super::super) site: Option<Site>,
    pub(in super::super) group: Group,
    pub(in super::super) role: Role,
    pub(in super::super) name: String,
    pub(in super::super) dtype: StoredType,
    pub(in super::super) shape: Vec<usize>,
}
