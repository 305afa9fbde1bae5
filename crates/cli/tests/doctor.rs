//! `cutout doctor`: the report on this machine and its verdict.

use crate::support::{Ended, folder, folder_with_model};

#[test]
fn the_machine_is_described() {
    let folder = folder_with_model();
    let text = folder.cutout(&["doctor"]).succeeds();
    for key in [
        "cutout ",
        "system ",
        "processor ",
        "features ",
        "instructions ",
        "f32 ",
        "bf16 ",
        "int8 ",
        "threads ",
        "memory ",
        "huge pages ",
        "GPU ",
        "ffmpeg ",
        "temp folder ",
        "self check ",
        "checkpoints ",
    ] {
        assert!(text.lines().any(|line| line.starts_with(key)), "{key:?} is not in:\n{text}");
    }
    assert!(text.contains("portable: passed"), "{text}");
    assert!(text.contains("strassen = false"), "{text}");
    let gpu = text.lines().find(|line| line.starts_with("GPU ")).unwrap();
    let last = text.lines().last().unwrap();
    let is_used = gpu.contains("used by --device auto");
    assert!(is_used || gpu.contains(" used: "), "{gpu}");
    assert_eq!(!is_used, last.starts_with("Models would run on the processor, with "), "{last}");
    assert!(last.ends_with("the small built-in one, and 1 checkpoint found."), "{last}");
}

#[test]
pub(crate) fn json_report() {
    let folder = folder();
    let facts = folder.cutout(&["doctor", "--json"]).json();
    assert_eq!(facts["version"], env!("CARGO_PKG_VERSION"));
    let checks = facts["self_check"].as_array().unwrap();
    assert_eq!(checks.len(), facts["instructions_available"].as_array().unwrap().len());
    assert!(checks.iter().all(|check| check["passed"] == true), "{checks:?}");
    assert_eq!(checks.last().unwrap()["instructions"], "portable");
    assert!(facts["threads"].as_u64().unwrap() > 0);
    assert!(facts["verdict"].as_str().unwrap().contains("no checkpoint was found"));
    assert_eq!(facts["checkpoints"], serde_json::json!([]));
    let is_used = facts["verdict"].as_str().unwrap().contains("on the GPU");
    assert_eq!(is_used, facts["cuda_all"][0] == 0, "{}", facts["cuda_all"]);
    if cfg!(target_os = "linux") {
        assert!(facts["memory_bytes"].as_u64() >= facts["memory_free_bytes"].as_u64());
        assert!(facts["memory_bytes"].as_u64().unwrap() > 1 << 20);
    }
}

#[test]
#[cfg(unix)]
fn programs_and_folders_are_tried() {
    use std::os::unix::fs::PermissionsExt;
    let folder = folder();
    folder.write("bin/ffmpeg", "#!/bin/sh\n");
    let run = || {
        let mut command = folder.command(&["doctor", "--json"]);
        command.env("PATH", folder.path("bin")).env("TMPDIR", folder.path("absent"));
        Ended::of(command.output().unwrap()).json()
    };
    assert!(run()["ffmpeg"].is_null(), "a file that cannot be run is no program");
    let executable = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(folder.path("bin/ffmpeg"), executable).unwrap();
    let facts = run();
    assert!(facts["ffmpeg"].as_str().unwrap().ends_with("bin/ffmpeg"));
    let problem = facts["temp_folder_problem"].as_str().unwrap();
    assert!(problem.starts_with("cannot be written"), "{problem}");
}
