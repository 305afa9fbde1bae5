//! Natural order of file names.

use std::cmp::Ordering;
use std::iter::Peekable;
use std::str::Chars;

/// Natural order: runs of digits compare as numbers of any length, other characters case-insensitively. Names that differ
/// only in leading zeros or case are ordered by their characters.
pub(super) fn natural(a: &str, b: &str) -> Ordering {
    let (mut left, mut right) = (a.chars().peekable(), b.chars().peekable());
    loop {
        let order = match (left.peek(), right.peek()) {
            (None, None) => return a.cmp(b),
            (None, Some(_)) => return Ordering::Less,
            (Some(_), None) => return Ordering::Greater,
            (Some(x), Some(y)) if x.is_ascii_digit() && y.is_ascii_digit() => {
                numbers(&take_digits(&mut left), &take_digits(&mut right))
            }
            (Some(_), Some(_)) => {
                let lower = |letter: Option<char>| letter.into_iter().flat_map(char::to_lowercase);
                lower(left.next()).cmp(lower(right.next()))
            }
        };
        if order.is_ne() {
            return order;
        }
    }
}

/// Whether two names are the same number, as `7` and `007` are.
pub(super) fn same_number(a: &str, b: &str) -> bool {
    is_number(a) && is_number(b) && numbers(a, b).is_eq()
}

fn is_number(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_digit())
}

/// Compares strings of digits by value.
fn numbers(a: &str, b: &str) -> Ordering {
    let (a, b) = (a.trim_start_matches('0'), b.trim_start_matches('0'));
    a.len().cmp(&b.len()).then_with(|| a.cmp(b))
}

fn take_digits(letters: &mut Peekable<Chars<'_>>) -> String {
    std::iter::from_fn(|| letters.next_if(char::is_ascii_digit)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_sort_naturally() {
        let sorted = [
            "",
            "1",
            "2",
            "10",
            "99999999999999999999998",
            "99999999999999999999999",
            "a",
            "Frame 2",
            "frame 10",
            "frame 10b",
            "frame02",
            "frame2",
            "frame10",
        ];
        for (i, a) in sorted.iter().enumerate() {
            for (j, b) in sorted.iter().enumerate() {
                assert_eq!(natural(a, b), i.cmp(&j), "{a:?} and {b:?}");
            }
        }
    }

    #[test]
    fn leading_zeros_do_not_change_a_number() {
        assert!(same_number("7", "007") && same_number("0", "000"));
        assert!(!same_number("7", "70") && !same_number("a7", "a07") && !same_number("", ""));
    }
}
