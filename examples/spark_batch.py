"""Masks of a folder of pictures with Spark: `spark-submit examples/spark_batch.py PICTURES OUT [CHECKPOINT]`.

The model is opened once in each worker process. Spark commits the output of a task once, whatever it repeats.
"""

import sys

import pyarrow as pa
from pyspark.sql import SparkSession

from cutout.batch import Segmenter

_SEGMENTERS: dict = {}


def segmented(model):
    """A function of Arrow batches for `mapInArrow`."""

    def run(batches):
        segmenter = _SEGMENTERS.setdefault(model, Segmenter(model, points_per_side=16))
        for batch in batches:
            table = pa.table({"id": batch.column("path"), "bytes": batch.column("content")})
            yield from segmenter(table).to_batches()

    return run


COLUMNS = (
    "id string, shard int, instance int, phrase string, score float, presence float, predicted_iou float, stability float, "
    "area long, bbox array<float>, height int, width int, rle binary, polygon binary, error string, model string, options_hash string"
)


def main(pictures, output, model=None):
    spark = SparkSession.builder.appName("cutout").getOrCreate()
    files = spark.read.format("binaryFile").option("recursiveFileLookup", "true").load(pictures)
    files.select("path", "content").mapInArrow(segmented(model), COLUMNS).write.mode("errorifexists").parquet(output)
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
