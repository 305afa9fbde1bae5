//! The same work with PyTorch, by a script.

use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::Options;
use crate::work::Row;

/// Adds PyTorch's times to the rows. Work that the script cannot do has none.
pub(crate) fn add(rows: &mut [Row], options: &Options) {
    let Some(python) = &options.python else { return };
    let beside =
        || PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/bench_cuda.py"));
    let script = options.script.clone().unwrap_or_else(beside);
    let described: Vec<Value> = rows
        .iter()
        .enumerate()
        .filter(|(_, row)| !row.described.is_null())
        .map(|(index, row)| json!({ "row": index, "name": row.name, "work": row.described }))
        .collect();
    let mut child = Command::new(python)
        .arg(script)
        .args(&options.passed)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(Value::from(described).to_string().as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    for line in String::from_utf8_lossy(&output.stdout).lines() {
        let Ok(answer) = serde_json::from_str::<Value>(line) else { continue };
        let index = answer["row"].as_u64().and_then(|index| usize::try_from(index).ok());
        let Some(row) = index.and_then(|index| rows.get_mut(index)) else { continue };
        row.eager = answer["eager_ms"].as_f64().or(row.eager);
        row.compiled = answer["compiled_ms"].as_f64().or(row.compiled);
    }
    if !output.status.success() {
        println!("PyTorch stopped with {}", output.status);
    }
}
