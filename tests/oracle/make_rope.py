"""Copies a checkpoint directory with rope of another kind: the same weights, the compressed layers turn otherwise.

    python make_rope.py CHECKPOINT_DIR COPY_DIR default|yarn

`yarn` has V4-Flash's numbers but for the original context, which is short enough to blend other pairs.
"""

import json
import shutil
import sys
from pathlib import Path

SCALING = {
    "default": {},
    "yarn": {"type": "yarn", "factor": 16, "beta_fast": 32, "beta_slow": 1, "original_max_position_embeddings": 4096},
}


def main():
    source, copy, kind = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]
    shutil.copytree(source, copy)
    path = copy / "config.json"
    config = json.loads(path.read_text())
    config = {key: value for key, value in config.items() if not key.startswith("rope_")}
    config["compress_rope_theta"] = 160000.0
    if SCALING[kind]:
        config["rope_scaling"] = SCALING[kind]
    path.write_text(json.dumps(config, indent=2) + "\n")


if __name__ == "__main__":
    main()
