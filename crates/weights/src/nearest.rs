//! The most similar of several names, for suggestions in error messages.

/// Longest name that is compared, in bytes: the cost is the product of both lengths.
const LONGEST: usize = 128;
/// Most candidates compared with one name.
const MOST_CANDIDATES: usize = 2048;

/// The candidate with the smallest edit distance to `name`; `None` if every distance exceeds half the name's length.
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
        // The difference of the lengths is a lower bound of the edit distance.
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

/// Levenshtein distance: insertions, deletions and replacements that turn `from` into `to`.
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
    fn edit_distances_of_textbook_examples() {
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
