//! Masks of many pictures as Parquet, one row per instance, in parts that are written once.
//!
//! ```text
//! folders, patterns, lists, ─ collect ─▶ items ─ Shard ─▶ parts of N items ─▶ decode ─▶ model ─▶ rows ─▶ part-….parquet
//! Parquet, tar archives                                                      threads  devices  a thread  _part-….done
//! ```
//!
//! The name of a part follows from its shard and its number, and its bytes from inputs, model and options alone. A part
//! appears whole; its mark, with the number of rows and the digest of the file, appears after it. Whoever repeats a part
//! writes the same bytes again, so that a run that was killed, or ran twice, leaves each instance once. A picture that
//! cannot be read becomes a row with an error.

mod input;
mod parquet_input;
mod parts;
mod rows;
mod run;
mod shard;
mod task;

pub use input::{Columns, InputError, Item, collect};
pub use parts::{Mark, PartError, mark_path, part_name};
pub use rows::{COLUMNS, Row};
pub use run::{Batch, BatchError, Event, Stages, Summary};
pub use shard::{Shard, ShardError};
pub use task::Task;
