//! Comparison of everything a program returns.

use cutout_graph::Named;
use cutout_tensor::{Tolerance, compare};

/// Compares two lists of outputs: the same names in the same order, the same types, and every element within
/// `tolerance`. The error names the first difference.
pub fn compare_outputs(
    actual: &[Named],
    expected: &[Named],
    tolerance: Tolerance,
) -> Result<(), String> {
    let names = |outputs: &[Named]| -> Vec<String> {
        outputs.iter().map(|(name, tensor)| format!("{name}: {}", tensor.ty())).collect()
    };
    let (found, wanted) = (names(actual), names(expected));
    if found != wanted {
        return Err(format!("outputs {found:?} instead of {wanted:?}"));
    }
    for ((name, actual), (_, expected)) in actual.iter().zip(expected) {
        let difference = compare(actual, expected, tolerance).map_err(|error| error.to_string())?;
        if !difference.within {
            return Err(format!("output {name}: {difference}"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use cutout_tensor::Tensor;

    use super::*;

    #[test]
    fn missing_renamed_and_wrong_outputs_are_errors() {
        let output = |name: &str, value: f32| (name.to_owned(), Tensor::scalar(value));
        let expected = [output("a", 1.0), output("b", 2.0)];
        let check = |actual: &[Named]| compare_outputs(actual, &expected, Tolerance::Rounding);
        assert_eq!(check(&expected), Ok(()));
        assert!(check(&expected[..1]).unwrap_err().contains("instead of [\"a: f32[]\", \"b"));
        assert!(check(&[output("a", 1.0), output("c", 2.0)]).is_err());
        assert!(check(&[output("b", 2.0), output("a", 1.0)]).is_err());
        assert!(check(&[output("a", 1.0), output("b", 2.5)]).unwrap_err().starts_with("output b"));
        let integer = ("b".to_owned(), Tensor::scalar(2i64));
        assert!(check(&[output("a", 1.0), integer]).is_err());
    }
}
