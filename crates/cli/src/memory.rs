//! Memory use of this process; `None` on systems without `/proc`.

/// Resident memory in MiB.
pub(crate) fn resident_mib() -> Option<f64> {
    status("VmRSS:")
}

/// Peak resident memory in MiB.
pub(crate) fn peak_mib() -> Option<f64> {
    status("VmHWM:")
}

/// Forgets the peak so far: the next one counts from what is resident now. Does nothing where the system cannot.
pub(crate) fn reset_peak() {
    // Errors are ignored: then the peak is that of the whole process.
    let _ignored = std::fs::write("/proc/self/clear_refs", "5");
}

fn status(key: &str) -> Option<f64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix(key))?;
    let kib: f64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib / 1024.0)
}
