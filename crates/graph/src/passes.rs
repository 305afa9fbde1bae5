//! The passes, in the order they run.

/// Names of all passes.
pub const NAMES: &[&str] = &["fold_constants", "fuse_epilogues"];
