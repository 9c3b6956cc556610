"""Copies a checkpoint directory as one of V4.1: the same weights in the delayed-pre order, the head unused.

    python make_v41.py CHECKPOINT_DIR COPY_DIR

There is no small checkpoint in that order to be had; the weights of one order are as good as those of
the other. The epsilon becomes V4.1's too.
"""

import json
import shutil
import sys
from pathlib import Path


def main():
    source, copy = Path(sys.argv[1]), Path(sys.argv[2])
    shutil.copytree(source, copy)
    path = copy / "config.json"
    config = json.loads(path.read_text())
    config.update(model_type="deepseek_v41", rms_norm_eps=1e-20)
    path.write_text(json.dumps(config, indent=2) + "\n")


if __name__ == "__main__":
    main()
