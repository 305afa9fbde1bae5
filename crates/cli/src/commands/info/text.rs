//! Facts about a checkpoint as text.

use cutout_sam::{Precision, StoredProfile, stored_profile};
use cutout_weights::layout::Report;
use serde_json::{Map, Value};

use super::facts::Facts;
use crate::format;

/// Most characters shown of a metadata value.
const LONGEST_VALUE: usize = 100;

/// Most characters of a line of the configuration.
const LONGEST_LINE: usize = 84;

/// Everything but the list of tensors.
pub(super) fn summary(facts: &Facts<'_>) -> String {
    let mut rows = Vec::new();
    let mut add = |key: &str, value: String| rows.push(vec![key.to_owned(), value]);
    add("file", facts.checkpoint.file().to_owned());
    add("format", format!("{}, {}", facts.checkpoint.format(), format::bytes(facts.bytes)));
    add("model", model(facts));
    let [tensors, parameters] =
        [facts.checkpoint.tensors().len() as u64, facts.parameters()].map(format::thousands);
    add("tensors", format!("{tensors}, with {parameters} parameters"));
    for (name, share) in facts.element_types() {
        let tensors = format::counted(share.tensors, "tensor");
        add(&format!("  {name}"), format!("{tensors}, {}", format::bytes(share.bytes)));
    }
    if let Some(Value::Object(parts)) = facts.config() {
        for (part, sizes) in ordered(&parts) {
            let lines = format::wrapped(&sizes_of(sizes), LONGEST_LINE);
            let keys = std::iter::once(words_of(part)).chain(std::iter::repeat(String::new()));
            keys.zip(lines).for_each(|(key, line)| add(&key, line));
        }
    }
    if facts.metadata().is_empty() {
        add("metadata", "none".to_owned());
    } else {
        add("metadata", format::counted(facts.metadata().len(), "key"));
    }
    for (key, value) in facts.metadata().iter().filter(|(key, _)| *key != StoredProfile::KEY) {
        add(&format!("  {key}"), shortened(&value.to_string()));
    }
    for (index, line) in stored_profile_lines(facts).into_iter().enumerate() {
        add(if index == 0 { "profile" } else { "" }, line);
    }
    if let Some(report) = facts.report() {
        add("fit", fit(report));
    }
    add("runs", runs(facts));
    let mut text = format::table(&rows);
    if let Some(report) = facts.report().filter(|report| !report.is_exact()) {
        for line in listed(report) {
            text.push_str(&format!("\n  {line}"));
        }
    }
    text
}

/// Most parts of a stored profile that are listed.
const MOST_PARTS: usize = 64;

/// The profile that the file carries: its precision, and the parts in another one.
fn stored_profile_lines(facts: &Facts<'_>) -> Vec<String> {
    let name = |precision: Precision| format!("{precision:?}").to_lowercase();
    match stored_profile(facts.checkpoint) {
        Ok(None) => Vec::new(),
        Err(error) => vec![format!("cannot be used: {}", shortened(&error.to_string()))],
        Ok(Some(StoredProfile { precision, parts })) => {
            let mut lines = vec![format!(
                "for --precision {}, with {} in another precision:",
                name(precision),
                format::counted(parts.len(), "part")
            )];
            let shown = parts.iter().take(MOST_PARTS);
            lines.extend(
                shown.map(|(part, precision)| {
                    format!("  {}: {}", shortened(part), name(*precision))
                }),
            );
            let more = parts.len().saturating_sub(MOST_PARTS);
            lines.extend((more > 0).then(|| format!("  and {more} more; --json lists all")));
            lines
        }
    }
}

/// Most unused tensors that are listed; an unused tracker has hundreds.
const MOST_UNUSED: usize = 32;

/// All missing and misshapen tensors, and the first unused ones.
fn listed(report: &Report) -> Vec<String> {
    let mut lines: Vec<String> = report.to_string().lines().map(str::to_owned).collect();
    let more = report.unused.len().saturating_sub(MOST_UNUSED);
    if more > 0 {
        lines.truncate(lines.len() - more);
        lines.push(format!("{} more not used; --json lists all", format::counted(more, "tensor")));
    }
    lines
}

/// One line per tensor.
pub(super) fn tensors(facts: &Facts<'_>) -> String {
    let row = |info: &cutout_weights::TensorInfo| {
        vec![info.stored.to_string(), info.shape.to_string(), info.name.clone()]
    };
    format::table(&facts.checkpoint.tensors().iter().map(row).collect::<Vec<_>>())
}

fn model(facts: &Facts<'_>) -> String {
    match &facts.inspection {
        Ok(found) => format!("{}, in the layout of {}", found.identity, found.dialect),
        Err(_) => "not recognised".to_owned(),
    }
}

fn runs(facts: &Facts<'_>) -> String {
    match facts.problem() {
        None => format!("yes: {}", abilities(facts)),
        Some(problem) => format!("no: {problem}"),
    }
}

/// What the model can do, by its components.
fn abilities(facts: &Facts<'_>) -> String {
    let config = facts.config();
    let has = |part: &str| config.as_ref().is_some_and(|config| !config[part].is_null());
    let slots = config.as_ref().and_then(|config| config["memory"]["multiplex"]["slots"].as_u64());
    let tracks = match slots {
        Some(slots) => format!("tracks objects through videos, up to {slots} in one pass"),
        None => "tracks objects through videos".to_owned(),
    };
    let all = [
        ("decoder", "segments by clicks, boxes and masks"),
        ("finder", "finds objects by phrases and exemplars"),
        ("memory", &tracks),
    ];
    let words: Vec<&str> =
        all.iter().filter(|(part, _)| has(part)).map(|(_, word)| *word).collect();
    words.join(", ")
}

fn fit(report: &Report) -> String {
    if report.is_exact() {
        return "every tensor the model needs is there, and no other".to_owned();
    }
    let Report { missing, misshapen, unsuitable, unused } = report;
    let unsuitable = match unsuitable.len() {
        0 => String::new(),
        many => format!(", {many} of an element type that no weight has"),
    };
    let (missing, misshapen, unused) = (missing.len(), misshapen.len(), unused.len());
    format!(
        "{missing} missing, {misshapen} of another shape{unsuitable}, {unused} not used (listed below)"
    )
}

/// The configuration of one component as text: "width 768, depth 12".
fn sizes_of(sizes: &Value) -> String {
    match sizes {
        Value::Null => "none".to_owned(),
        Value::Object(sizes) => {
            let size = |(name, value): (&String, &Value)| {
                format!("{} {}", words_of(name), sizes_of(value))
            };
            ordered(sizes).into_iter().map(size).collect::<Vec<_>>().join(", ")
        }
        Value::Array(items) => items.iter().map(sizes_of).collect::<Vec<_>>().join(" "),
        Value::String(text) => text.clone(),
        Value::Bool(_) | Value::Number(_) => sizes.to_string(),
    }
}

/// Keys that are shown first.
const FIRST: [&str; 10] = [
    "encoder",
    "decoder",
    "form",
    "image_size",
    "patch",
    "width",
    "depth",
    "stages",
    "heads",
    "mlp_width",
];

/// The entries of [`FIRST`], then the others by name.
fn ordered(sizes: &Map<String, Value>) -> Vec<(&String, &Value)> {
    let rank = |name: &str| FIRST.iter().position(|first| *first == name);
    let mut sizes: Vec<(&String, &Value)> = sizes.iter().collect();
    sizes.sort_by_key(|(name, _)| rank(name).unwrap_or(FIRST.len()));
    sizes
}

fn words_of(name: &str) -> String {
    name.replace('_', " ")
}

/// A text on one line, shortened to [`LONGEST_VALUE`] characters.
fn shortened(text: &str) -> String {
    let line: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    if line.chars().count() <= LONGEST_VALUE {
        return line;
    }
    let start: String = line.chars().take(LONGEST_VALUE).collect();
    format!("{start}… ({} characters)", format::thousands(text.chars().count() as u64))
}
