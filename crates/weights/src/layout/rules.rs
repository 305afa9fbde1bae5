//! Renaming of tensors by tables of rules.

/// One rule of a table. In `from`, `{}` matches a number and a final `*` the rest of the name; in `to`, they insert the
/// matched text.
pub(super) struct Rule {
    pub(super) from: &'static str,
    pub(super) to: &'static str,
    pub(super) how: How,
}

/// Change of the tensor itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum How {
    /// None: the tensor is only renamed.
    Whole,
    /// None: the file may hold the tensor under several names.
    Copy,
    /// Each row becomes a tensor; `#` in the new name is the row number.
    Rows,
    /// The tensor is number 0, 1 or 2 of three that are stacked along the first axis.
    Stacked(usize),
}

/// A rule that only renames.
pub(super) const fn whole(from: &'static str, to: &'static str) -> Rule {
    Rule { from, to, how: How::Whole }
}

/// The new name or names of a tensor.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Renamed {
    Whole(String),
    Copy(String),
    /// The text before and after the row number.
    Rows(String, String),
    /// The name of the stacked tensor, and the index in the stack.
    Stacked(String, usize),
}

/// Applies the tables in order. In each table the first matching rule is applied; without a match the name is kept.
pub(super) fn rename(name: &str, stages: &[&[Rule]]) -> Renamed {
    let mut current = name.to_owned();
    let mut how = How::Whole;
    for stage in stages {
        let hit = stage.iter().find_map(|rule| Some((rule, matches(rule.from, &current)?)));
        if let Some((rule, parts)) = hit {
            current = fill(rule.to, &parts);
            how = if how == How::Whole { rule.how } else { how };
        }
    }
    match (how, current.split_once('#')) {
        (How::Rows, Some((front, back))) => Renamed::Rows(front.to_owned(), back.to_owned()),
        (How::Copy, _) => Renamed::Copy(current),
        (How::Stacked(index), _) => Renamed::Stacked(current, index),
        (How::Whole | How::Rows, _) => Renamed::Whole(current),
    }
}

/// The text matched by each placeholder of a pattern, or `None` if the name does not match.
fn matches<'n>(pattern: &str, name: &'n str) -> Option<Vec<&'n str>> {
    let mut parts = Vec::new();
    let mut rest = name;
    let (body, open) = match pattern.strip_suffix('*') {
        Some(body) => (body, true),
        None => (pattern, false),
    };
    for (index, literal) in body.split("{}").enumerate() {
        if index > 0 {
            let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
            if digits == 0 {
                return None;
            }
            parts.push(&rest[..digits]);
            rest = &rest[digits..];
        }
        rest = rest.strip_prefix(literal)?;
    }
    if open && !rest.is_empty() {
        parts.push(rest);
        return Some(parts);
    }
    (!open && rest.is_empty()).then_some(parts)
}

/// Replaces the placeholders of a template by the parts.
fn fill(template: &str, parts: &[&str]) -> String {
    let mut parts = parts.iter();
    let mut filled = String::new();
    let mut rest = template;
    while let Some(at) = rest.find(['{', '*']) {
        filled.push_str(&rest[..at]);
        filled.push_str(parts.next().expect("a rule uses no more placeholders than it matches"));
        rest = rest[at..].strip_prefix("{}").unwrap_or(&rest[at + 1..]);
    }
    filled.push_str(rest);
    filled
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn placeholders_match_numbers_and_the_rest() {
        assert_eq!(matches("a.{}.norm{}.*", "a.10.norm2.weight"), Some(vec!["10", "2", "weight"]));
        assert_eq!(matches("a.*", "a."), None);
        assert_eq!(matches("a.{}", "a.x"), None);
        assert_eq!(matches("a.{}", "a.1.b"), None);
        assert_eq!(matches("a", "a"), Some(vec![]));
        assert_eq!(fill("b.{}.n{}.*", &["10", "2", "w.x"]), "b.10.n2.w.x");
    }

    #[test]
    fn tables_are_applied_in_order() {
        let first = [whole("old.*", "new.*"), whole("new.*", "never.*")];
        let second =
            [Rule { from: "new.points", to: "new.#.point", how: How::Rows }, whole("new.*", "x.*")];
        let stages = [&first[..], &second[..]];
        assert_eq!(rename("old.w", &stages), Renamed::Whole("x.w".into()));
        assert_eq!(rename("other", &stages), Renamed::Whole("other".into()));
        assert_eq!(rename("old.points", &stages), Renamed::Rows("new.".into(), ".point".into()));
    }

    #[test]
    fn no_rule_inserts_more_than_it_matches() {
        for stage in super::super::names::all() {
            for rule in stage {
                let holes = |text: &str| text.matches("{}").count() + text.matches('*').count();
                assert!(holes(rule.to) <= holes(rule.from), "{} -> {}", rule.from, rule.to);
                assert_eq!(rule.how == How::Rows, rule.to.contains('#'), "{}", rule.to);
            }
        }
    }
}
