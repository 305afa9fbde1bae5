//! Facts about a checkpoint, and their JSON form.

use std::collections::BTreeMap;

use cutout_sam::{Inspection, inspect, stored_profile};
use cutout_weights::layout::{Misshapen, Named, Report, Unsuitable};
use cutout_weights::{Checkpoint, Metadata, MetadataValue, TensorInfo, WeightsError};
use serde_json::{Value, json};

/// Facts about a checkpoint.
pub(super) struct Facts<'a> {
    pub(super) checkpoint: &'a Checkpoint,
    /// Size of the file in bytes.
    pub(super) bytes: u64,
    pub(super) inspection: Result<Inspection, WeightsError>,
}

/// Number and size of the tensors of one element type.
#[derive(Clone, Copy, Default)]
pub(super) struct Share {
    pub(super) tensors: usize,
    pub(super) bytes: u64,
}

impl<'a> Facts<'a> {
    pub(super) fn of(checkpoint: &'a Checkpoint) -> Self {
        Facts { checkpoint, bytes: checkpoint.file_bytes(), inspection: inspect(checkpoint) }
    }

    /// Number of elements of all tensors.
    pub(super) fn parameters(&self) -> u64 {
        let elements = |info: &TensorInfo| info.shape.elements() as u64;
        self.checkpoint.tensors().iter().map(elements).fold(0, u64::saturating_add)
    }

    pub(super) fn element_types(&self) -> BTreeMap<String, Share> {
        let mut shares: BTreeMap<String, Share> = BTreeMap::new();
        for info in self.checkpoint.tensors() {
            let share = shares.entry(info.stored.to_string()).or_default();
            share.tensors += 1;
            share.bytes = share.bytes.saturating_add(info.bytes);
        }
        shares
    }

    pub(super) fn metadata(&self) -> &Metadata {
        self.checkpoint.metadata()
    }

    /// The configuration of the model; `None` if it is unknown.
    pub(super) fn config(&self) -> Option<Value> {
        let inside = self.inspection.as_ref().ok()?.inside.as_ref().ok()?;
        // Through text, which prints an `f32` as its shortest decimal, 1e-6.
        serde_json::from_str(&serde_json::to_string(&inside.config).ok()?).ok()
    }

    /// The profile that the file carries; `None` without one, or if it cannot be used.
    fn stored_profile(&self) -> Option<Value> {
        serde_json::to_value(stored_profile(self.checkpoint).ok()??).ok()
    }

    /// Comparison of the tensors with those the model needs; `None` if the model is unknown.
    pub(super) fn report(&self) -> Option<&Report> {
        Some(&self.inspection.as_ref().ok()?.inside.as_ref().ok()?.report)
    }

    /// Why the model cannot be run, without the file name; `None` if it can.
    pub(super) fn problem(&self) -> Option<String> {
        let message = match &self.inspection {
            Err(error) => error.to_string(),
            Ok(inspection) => inspection.problem()?,
        };
        let prefix = format!("{}: ", self.checkpoint.file());
        Some(message.strip_prefix(&prefix).unwrap_or(&message).to_owned())
    }

    pub(super) fn to_json(&self, with_tensors: bool) -> Value {
        let inspection = self.inspection.as_ref().ok();
        let shares = self
            .element_types()
            .into_iter()
            .map(|(name, share)| (name, json!({"tensors": share.tensors, "bytes": share.bytes})));
        let metadata = self.metadata().iter().map(|(key, value)| (key.clone(), plain(value)));
        let mut object = json!({
            "file": self.checkpoint.file(),
            "format": self.checkpoint.format().to_string(),
            "bytes": self.bytes,
            "model": inspection.map(|inspection| inspection.identity.to_string()),
            "layout": inspection.map(|inspection| inspection.dialect.to_string()),
            "runs": self.problem().is_none(),
            "problem": self.problem(),
            "config": self.config(),
            "tensor_count": self.checkpoint.tensors().len(),
            "parameters": self.parameters(),
            "element_types": shares.collect::<serde_json::Map<_, _>>(),
            "profile": self.stored_profile(),
            "metadata": metadata.collect::<serde_json::Map<_, _>>(),
            "report": self.report().map(report_json),
        });
        if with_tensors {
            let tensor = |info: &TensorInfo| {
                let ty = info.stored.to_string();
                json!({"name": info.name, "type": ty, "shape": &info.shape[..], "bytes": info.bytes})
            };
            object["tensors"] = self.checkpoint.tensors().iter().map(tensor).collect();
        }
        object
    }
}

fn report_json(report: &Report) -> Value {
    let named = |tensor: &Named| {
        let Named { name, shape, nearest } = tensor;
        json!({"name": name, "shape": &shape[..], "nearest": nearest})
    };
    let misshapen = |tensor: &Misshapen| {
        let Misshapen { name, expected, found } = tensor;
        json!({"name": name, "expected": &expected[..], "found": &found[..]})
    };
    let unsuitable = |tensor: &Unsuitable| json!({"name": tensor.name, "type": tensor.stored});
    json!({
        "missing": report.missing.iter().map(named).collect::<Vec<_>>(),
        "misshapen": report.misshapen.iter().map(misshapen).collect::<Vec<_>>(),
        "unsuitable": report.unsuitable.iter().map(unsuitable).collect::<Vec<_>>(),
        "unused": report.unused.iter().map(named).collect::<Vec<_>>(),
    })
}

fn plain(value: &MetadataValue) -> Value {
    match value {
        MetadataValue::Text(text) => json!(text),
        MetadataValue::Unsigned(number) => json!(number),
        MetadataValue::Signed(number) => json!(number),
        MetadataValue::Float(number) => json!(number),
        MetadataValue::Bool(truth) => json!(truth),
        MetadataValue::List(items) => items.iter().map(plain).collect(),
    }
}
