//! Counters in the text format of Prometheus.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use crate::server::App;

/// Upper bounds of the buckets of a histogram, in seconds.
const BUCKETS: [f64; 10] = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 30.0];

/// Counters of requests.
#[derive(Default)]
pub(crate) struct Metrics {
    routes: Mutex<BTreeMap<String, Route>>,
}

#[derive(Default)]
struct Route {
    statuses: BTreeMap<u16, u64>,
    buckets: [u64; BUCKETS.len()],
    count: u64,
    seconds: f64,
}

impl Metrics {
    /// Counts an answered request. Routes are those of the router, so that there are few.
    pub(crate) fn count(&self, route: &str, status: u16, time: Duration) {
        let mut routes = self.routes.lock().unwrap_or_else(PoisonError::into_inner);
        let route = routes.entry(route.to_owned()).or_default();
        let seconds = time.as_secs_f64();
        *route.statuses.entry(status).or_default() += 1;
        for (count, bound) in route.buckets.iter_mut().zip(BUCKETS) {
            *count += u64::from(seconds <= bound);
        }
        route.count += 1;
        route.seconds += seconds;
    }

    /// All counters.
    pub(crate) fn text(&self, app: &App) -> String {
        let usage = app.library.usage();
        let (clips, clip_bytes) = app.clips.usage();
        let loaded =
            app.models.iter().filter_map(|entry| entry.peek(cutout_sam::Sam::weight_bytes));
        let loaded: Vec<usize> = loaded.collect();
        let mut text = String::new();
        let single = [
            ("cutout_pictures", "gauge", usage.pictures as u64),
            ("cutout_library_bytes", "gauge", usage.bytes as u64),
            ("cutout_clips", "gauge", clips as u64),
            ("cutout_clip_bytes", "gauge", clip_bytes),
            ("cutout_queue_jobs", "gauge", app.engine.waiting() as u64),
            ("cutout_models_loaded", "gauge", loaded.len() as u64),
            ("cutout_weight_bytes", "gauge", loaded.iter().sum::<usize>() as u64),
            ("cutout_previews_dropped_total", "counter", app.engine.dropped()),
            ("cutout_jobs_refused_total", "counter", app.engine.refused()),
            ("cutout_jobs_left_total", "counter", app.engine.left()),
        ];
        for (name, kind, value) in single {
            let _infallible = writeln!(text, "# TYPE {name} {kind}\n{name} {value}");
        }
        self.write_routes(&mut text);
        text
    }

    fn write_routes(&self, text: &mut String) {
        let routes = self.routes.lock().unwrap_or_else(PoisonError::into_inner);
        let mut line = |name: &str, labels: String, value: f64| {
            let _infallible = writeln!(text, "{name}{{{labels}}} {value}");
        };
        for (route, counts) in routes.iter() {
            for (status, count) in &counts.statuses {
                let labels = format!("route=\"{route}\",status=\"{status}\"");
                line("cutout_requests_total", labels, *count as f64);
            }
            const SECONDS: &str = "cutout_request_seconds";
            for (bound, count) in BUCKETS.iter().zip(counts.buckets) {
                let labels = format!("route=\"{route}\",le=\"{bound}\"");
                line(&format!("{SECONDS}_bucket"), labels, count as f64);
            }
            let own = format!("route=\"{route}\"");
            line(&format!("{SECONDS}_bucket"), format!("{own},le=\"+Inf\""), counts.count as f64);
            line(&format!("{SECONDS}_sum"), own.clone(), counts.seconds);
            line(&format!("{SECONDS}_count"), own, counts.count as f64);
        }
    }
}
