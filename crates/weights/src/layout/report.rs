//! Differences between the tensors a model needs and those a checkpoint has.

use std::collections::BTreeMap;
use std::fmt;

use cutout_tensor::Shape;

use crate::nearest::nearest;

/// A tensor that only the model or only the checkpoint has.
#[derive(Clone, Debug, PartialEq)]
pub struct Named {
    /// Canonical name.
    pub name: String,
    /// Shape.
    pub shape: Shape,
    /// The most similar name among those that only the other one has.
    pub nearest: Option<String>,
}

/// A tensor with the wrong shape.
#[derive(Clone, Debug, PartialEq)]
pub struct Misshapen {
    /// Canonical name.
    pub name: String,
    /// The shape the model needs.
    pub expected: Shape,
    /// The shape in the checkpoint.
    pub found: Shape,
}

/// A tensor whose elements are no weights, for instance quantised integers without their scales.
#[derive(Clone, Debug, PartialEq)]
pub struct Unsuitable {
    /// Canonical name.
    pub name: String,
    /// Element type in the file.
    pub stored: String,
}

/// All differences.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Report {
    /// Needed tensors that the checkpoint lacks.
    pub missing: Vec<Named>,
    /// Needed tensors that have another shape in the checkpoint.
    pub misshapen: Vec<Misshapen>,
    /// Needed tensors whose elements are no floats and cannot be loaded as such.
    pub unsuitable: Vec<Unsuitable>,
    /// Tensors of the checkpoint that the model does not need.
    pub unused: Vec<Named>,
}

/// Most names for which a similar one is searched; in longer lists the rest usually differ in the same way.
const SUGGESTIONS: usize = 16;

impl Report {
    /// Compares the needed tensors with those found.
    pub fn compare(
        needed: impl IntoIterator<Item = (String, Shape)>,
        mut found: BTreeMap<String, Shape>,
    ) -> Report {
        let mut report = Report::default();
        let mut missing = Vec::new();
        for (name, expected) in needed {
            match found.remove(&name) {
                None => missing.push((name, expected)),
                Some(shape) if shape == expected => {}
                Some(found) => report.misshapen.push(Misshapen { name, expected, found }),
            }
        }
        let unused: Vec<(String, Shape)> = found.into_iter().collect();
        report.missing = with_nearest(&missing, &unused);
        report.unused = with_nearest(&unused, &missing);
        report
    }

    /// Whether the checkpoint holds all needed tensors with the right shapes and types. Unused tensors are accepted.
    pub fn is_usable(&self) -> bool {
        self.missing.is_empty() && self.misshapen.is_empty() && self.unsuitable.is_empty()
    }

    /// Why the checkpoint is not usable, on one line: how many tensors of each kind, and the first of them.
    pub fn summary(&self) -> String {
        let count = |number: usize| match number {
            1 => "1 tensor".to_owned(),
            many => format!("{many} tensors"),
        };
        let mut reasons = Vec::new();
        if let [first, ..] = &self.missing[..] {
            let verb = if self.missing.len() == 1 { "is" } else { "are" };
            reasons.push(format!("{} {verb} missing ({})", count(self.missing.len()), first.name));
        }
        if let [Misshapen { name, expected, found }, ..] = &self.misshapen[..] {
            let (number, verb) = (self.misshapen.len(), "of another shape");
            let first = format!("{name}: expected {expected}, found {found}");
            reasons.push(format!("{} {verb} ({first})", count(number)));
        }
        if let [Unsuitable { name, stored }, ..] = &self.unsuitable[..] {
            let number = count(self.unsuitable.len());
            reasons.push(format!(
                "{number} of an element type that no weight has ({name}: {stored}; expected f32, f16, bf16, f64 or a quantised type of GGUF)"
            ));
        }
        reasons.join(", ")
    }

    /// Whether the checkpoint holds exactly the needed tensors.
    pub fn is_exact(&self) -> bool {
        self.is_usable() && self.unused.is_empty()
    }
}

fn with_nearest(own: &[(String, Shape)], other: &[(String, Shape)]) -> Vec<Named> {
    let names = || other.iter().map(|(name, _)| name.as_str());
    let one = |(index, (name, shape)): (usize, &(String, Shape))| Named {
        name: name.clone(),
        shape: shape.clone(),
        nearest: (index < SUGGESTIONS).then(|| nearest(name, names()).map(str::to_owned)).flatten(),
    };
    own.iter().enumerate().map(one).collect()
}

/// One line per tensor.
impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let named = |kind: &str, named: &Named| {
            let nearest = named.nearest.as_ref().map(|name| format!(" (did you mean {name}?)"));
            format!("{}: {kind} {}{}", named.name, named.shape, nearest.unwrap_or_default())
        };
        let missing = self.missing.iter().map(|tensor| named("missing", tensor));
        let misshapen = self.misshapen.iter().map(|tensor| {
            let Misshapen { name, expected, found } = tensor;
            format!("{name}: expected {expected}, the checkpoint has {found}")
        });
        let unsuitable = self.unsuitable.iter().map(|tensor| {
            let Unsuitable { name, stored } = tensor;
            format!("{name}: elements of type {stored} are no weights")
        });
        let unused = self.unused.iter().map(|tensor| named("not used", tensor));
        let lines = missing.chain(misshapen).chain(unsuitable).chain(unused);
        f.write_str(&lines.collect::<Vec<_>>().join("\n"))
    }
}

impl std::error::Error for Report {}
