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

/// All differences.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Report {
    /// Needed tensors that the checkpoint lacks.
    pub missing: Vec<Named>,
    /// Needed tensors that have another shape in the checkpoint.
    pub misshapen: Vec<Misshapen>,
    /// Tensors of the checkpoint that the model does not need.
    pub unused: Vec<Named>,
}

/// Most names for which a similar one is searched; in longer lists the rest usually differ in the same way.
const SUGGESTIONS: usize = 64;

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

    /// Whether the checkpoint holds all needed tensors with the right shapes. Unused tensors are accepted.
    pub fn is_usable(&self) -> bool {
        self.missing.is_empty() && self.misshapen.is_empty()
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
        let unused = self.unused.iter().map(|tensor| named("not used", tensor));
        f.write_str(&missing.chain(misshapen).chain(unused).collect::<Vec<_>>().join("\n"))
    }
}

impl std::error::Error for Report {}
