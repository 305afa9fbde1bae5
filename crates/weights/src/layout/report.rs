//! Everything that is wrong between the tensors a model needs and those a checkpoint has.

use std::collections::BTreeMap;
use std::fmt;

use cutout_tensor::Shape;

use crate::nearest::nearest;

/// A tensor that only one side knows.
#[derive(Clone, Debug, PartialEq)]
pub struct Named {
    /// Its canonical name.
    pub name: String,
    /// Its shape.
    pub shape: Shape,
    /// The most similar name among those that only the other side knows.
    pub nearest: Option<String>,
}

/// A tensor whose shape is not the one needed.
#[derive(Clone, Debug, PartialEq)]
pub struct Misshapen {
    /// Its canonical name.
    pub name: String,
    /// The shape the model needs.
    pub expected: Shape,
    /// The shape in the checkpoint.
    pub found: Shape,
}

/// All differences at once.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Report {
    /// Needed and not there.
    pub missing: Vec<Named>,
    /// There with another shape.
    pub misshapen: Vec<Misshapen>,
    /// There and not needed.
    pub unused: Vec<Named>,
}

/// Names for which the nearest one is looked up; the rest are usually of the same kind.
const SUGGESTIONS: usize = 64;

impl Report {
    /// Compares what is needed with what was found.
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

    /// Whether the checkpoint holds what the model needs. Unused tensors do no harm.
    pub fn is_usable(&self) -> bool {
        self.missing.is_empty() && self.misshapen.is_empty()
    }

    /// Whether the checkpoint holds what the model needs and nothing else.
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
