//! `cargo xtask deps`: the crates depend on each other in one direction only.

use anyhow::{Result, bail};

use crate::metadata::{packages, read, text};

/// The workspace crates that each crate may depend on, dev-dependencies excepted.
const ALLOWED: &[(&str, &[&str])] = &[
    ("cutout-tensor", &[]),
    ("cutout-parallel", &[]),
    ("cutout-files", &[]),
    ("cutout-jpeg", &[]),
    ("cutout-graph", &["cutout-tensor"]),
    ("cutout-cpu", &["cutout-graph", "cutout-parallel", "cutout-tensor"]),
    ("cutout-cuda", &["cutout-graph", "cutout-tensor"]),
    ("cutout-weights", &["cutout-files", "cutout-tensor"]),
    (
        "cutout-sam",
        &[
            "cutout-cpu",
            "cutout-cuda",
            "cutout-files",
            "cutout-graph",
            "cutout-imaging",
            "cutout-parallel",
            "cutout-tensor",
            "cutout-weights",
        ],
    ),
    ("cutout-imaging", &["cutout-files", "cutout-jpeg", "cutout-parallel", "cutout-tensor"]),
    ("cutout-video", &["cutout-files", "cutout-imaging"]),
    ("cutout", &["cutout-graph", "cutout-imaging", "cutout-sam", "cutout-tensor", "cutout-video"]),
    ("cutout-batch", &["cutout-files", "cutout-imaging", "cutout-sam"]),
    ("cutout-python", &["cutout", "cutout-cli"]),
    (
        "cutout-server",
        &["cutout-files", "cutout-imaging", "cutout-sam", "cutout-tensor", "cutout-video"],
    ),
    (
        "cutout-cli",
        &[
            "cutout-batch",
            "cutout-files",
            "cutout-imaging",
            "cutout-sam",
            "cutout-server",
            "cutout-tensor",
            "cutout-video",
            "cutout-weights",
        ],
    ),
    ("cutout-testing", &["cutout-graph", "cutout-tensor"]),
    (
        "cutout-fuzz",
        &[
            "cutout-graph",
            "cutout-imaging",
            "cutout-sam",
            "cutout-server",
            "cutout-testing",
            "cutout-video",
            "cutout-weights",
        ],
    ),
    ("cutout-bench", &["cutout-cpu", "cutout-graph", "cutout-parallel", "cutout-tensor"]),
    ("xtask", &["cutout-cpu", "cutout-cuda", "cutout-graph", "cutout-tensor", "cutout-testing"]),
];

/// Fails if a crate has a dependency outside the table, or is missing from it.
pub(crate) fn check() -> Result<()> {
    let metadata = read(&["--no-deps"])?;
    let mut problems = Vec::new();
    for package in packages(&metadata) {
        let name = text(package, "name");
        let Some((_, allowed)) = ALLOWED.iter().find(|(known, _)| *known == name) else {
            problems.push(format!("{name} is not in the table of crates/xtask/src/deps.rs"));
            continue;
        };
        let dependencies = package["dependencies"].as_array().into_iter().flatten();
        for dependency in dependencies.filter(|dependency| dependency["kind"] != "dev") {
            let other = text(dependency, "name");
            let ours = ALLOWED.iter().any(|(known, _)| *known == other);
            if ours && !allowed.contains(&other) {
                problems.push(format!("{name} may not depend on {other}"));
            }
        }
    }
    if !problems.is_empty() {
        bail!("{}", problems.join("\n"));
    }
    println!("deps: all dependencies are in the table");
    Ok(())
}
