"""Writes a checkpoint whose weights lie between those of two others.

    python blend.py --first BEFORE --second AFTER --share 0.75 --output FILE

Weights between a model and what further training made of it are often better than either on pictures unlike
those of the training.
"""

import argparse

from export import load_checkpoint, save_half


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--first", required=True)
    parser.add_argument("--second", required=True)
    parser.add_argument("--share", type=float, default=0.75, help="of the second checkpoint")
    parser.add_argument("--output", required=True)
    options = parser.parse_args()
    (first, configuration), (second, other) = load_checkpoint(options.first), load_checkpoint(options.second)
    if configuration != other:
        raise SystemExit("the checkpoints are of different models")
    state = {name: value * (1 - options.share) + second[name] * options.share for name, value in first.items()}
    save_half(state, configuration, options.output)


if __name__ == "__main__":
    main()
