//! The most similar of several names, for messages.

/// Names longer than this are never compared; the work is the product of two lengths.
const LONGEST: usize = 256;
/// Candidates looked at for one name.
const MOST_CANDIDATES: usize = 8192;

/// The candidate with the fewest edits to `name`, unless more than half of the name would have to change.
pub(crate) fn nearest<'a>(
    name: &str,
    candidates: impl IntoIterator<Item = &'a str>,
) -> Option<&'a str> {
    if name.len() > LONGEST {
        return None;
    }
    let mut best = None;
    let mut fewest = name.len() / 2 + 1;
    for candidate in candidates.into_iter().take(MOST_CANDIDATES) {
        // The lengths alone already need so many edits.
        if candidate.len() > LONGEST || candidate.len().abs_diff(name.len()) >= fewest {
            continue;
        }
        let edits = edit_distance(name.as_bytes(), candidate.as_bytes());
        if edits < fewest {
            (best, fewest) = (Some(candidate), edits);
        }
    }
    best
}

/// Insertions, deletions and replacements that turn one name into the other.
fn edit_distance(from: &[u8], to: &[u8]) -> usize {
    let mut row: Vec<usize> = (0..=to.len()).collect();
    for (i, byte) in from.iter().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, other) in to.iter().enumerate() {
            let replaced = diagonal + usize::from(byte != other);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[to.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances_are_the_textbook_ones() {
        for (from, to, edits) in
            [("", "", 0), ("kitten", "sitting", 3), ("abc", "", 3), ("flaw", "lawn", 2)]
        {
            assert_eq!(edit_distance(from.as_bytes(), to.as_bytes()), edits, "{from} {to}");
        }
    }

    #[test]
    fn only_similar_names_are_suggested() {
        let names = ["neck.0.weight", "neck.2.weight", "pos_embed"];
        assert_eq!(nearest("neck.2.weights", names), Some("neck.2.weight"));
        assert_eq!(nearest("completely different", names), None);
    }
}
