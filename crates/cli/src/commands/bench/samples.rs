//! Measured times of one stage.

use std::time::{Duration, Instant};

use anyhow::Result;

/// Times of several runs, in milliseconds.
#[derive(Default)]
pub(super) struct Samples(Vec<f64>);

impl Samples {
    /// Runs `work` and records its time.
    pub(super) fn time<T>(&mut self, work: impl FnOnce() -> Result<T>) -> Result<T> {
        let start = Instant::now();
        let result = work()?;
        self.0.push(start.elapsed().as_secs_f64() * 1e3);
        Ok(result)
    }

    /// Records a time that was measured elsewhere.
    pub(super) fn push(&mut self, time: Duration) {
        self.0.push(time.as_secs_f64() * 1e3);
    }

    /// The median.
    pub(super) fn median(&self) -> f64 {
        self.quantile(0.5)
    }

    /// The interquartile range as a fraction of the median.
    pub(super) fn spread(&self) -> f64 {
        (self.quantile(0.75) - self.quantile(0.25)) / self.median()
    }

    /// The quantile `part` of the samples, linearly interpolated.
    fn quantile(&self, part: f64) -> f64 {
        let mut sorted = self.0.clone();
        sorted.sort_by(f64::total_cmp);
        let Some(last) = sorted.len().checked_sub(1) else { return f64::NAN };
        let position = part * last as f64;
        let below = position.floor() as usize;
        let above = (below + 1).min(last);
        sorted[below] + (sorted[above] - sorted[below]) * (position - below as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_and_spreads() {
        let samples = Samples(vec![8.0, 9.0, 10.0, 11.0, 1000.0]);
        assert_eq!(samples.median(), 10.0);
        assert_eq!(samples.spread(), 0.2);
    }
}
