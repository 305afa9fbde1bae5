//! Medians, spreads, and ratios within rounds.

/// The middle sample, or the mean of the two middle ones. NaN without samples.
pub(crate) fn median(samples: &[f64]) -> f64 {
    quantile(samples, 0.5)
}

/// The interquartile range relative to the median. NaN without samples.
pub(crate) fn spread(samples: &[f64]) -> f64 {
    (quantile(samples, 0.75) - quantile(samples, 0.25)) / median(samples)
}

/// The median of `numerators[i] / denominators[i]`. Sample `i` of both is from the same round, so a slowdown of the whole
/// round cancels. Samples without a partner are ignored.
pub(crate) fn paired_ratio(numerators: &[f64], denominators: &[f64]) -> f64 {
    let ratios: Vec<f64> = numerators.iter().zip(denominators).map(|(a, b)| a / b).collect();
    median(&ratios)
}

/// The quantile `part` of the samples, with linear interpolation.
fn quantile(samples: &[f64], part: f64) -> f64 {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    let Some(last) = sorted.len().checked_sub(1) else { return f64::NAN };
    let position = part * last as f64;
    let below = position.floor() as usize;
    let above = (below + 1).min(last);
    sorted[below] + (sorted[above] - sorted[below]) * (position - below as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_of_odd_and_even_numbers_of_samples() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), 2.5);
        assert_eq!(median(&[7.0]), 7.0);
        assert!(median(&[]).is_nan());
    }

    #[test]
    fn a_spread_is_relative_and_ignores_outliers() {
        assert_eq!(spread(&[10.0, 10.0, 10.0]), 0.0);
        assert_eq!(spread(&[8.0, 9.0, 10.0, 11.0, 1000.0]), 0.2);
        assert_eq!(spread(&[80.0, 90.0, 100.0, 110.0, 10_000.0]), 0.2);
    }

    #[test]
    fn pairs_cancel_what_slows_whole_rounds() {
        let ceiling = [100.0, 50.0, 80.0];
        let kernel = [90.0, 45.0, 72.0];
        assert!((paired_ratio(&kernel, &ceiling) - 0.9).abs() < 1e-12);
        // With a shifted pairing the ratio differs.
        assert!((paired_ratio(&[45.0, 90.0], &ceiling[..2]) - 1.125).abs() < 1e-12);
        assert_eq!(paired_ratio(&[2.0, 4.0, 9.0], &[1.0, 2.0]), 2.0);
    }
}
