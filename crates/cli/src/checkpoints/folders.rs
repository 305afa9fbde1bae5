//! The folders that are searched for checkpoints.

use std::fs;
use std::path::{Path, PathBuf};

use crate::environment::Environment;

/// A folder to search.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct SearchFolder {
    pub(super) folder: PathBuf,
    /// Search depth: 0 for the folder itself.
    pub(super) depth: usize,
}

/// Most models of the Hugging Face cache that are searched.
const MOST_REPOSITORIES: usize = 4096;

/// The usual folders that exist, in search order: around the current folder, in the home folder, then the caches of other
/// programs.
pub(super) fn usual(environment: &Environment) -> Vec<SearchFolder> {
    let mut folders = vec![within(".", 0), within("checkpoints", 1), within("model_weights", 1)];
    for root in ["models", "ComfyUI/models", "../ComfyUI/models"] {
        folders.extend(comfy(Path::new(root)));
    }
    if let Some(home) = &environment.home {
        folders.push(within(home.join("checkpoints"), 1));
        folders.extend(comfy(&home.join("ComfyUI/models")));
    }
    if let Some(hub) = hub(environment) {
        folders.extend(snapshots(&hub));
    }
    folders.extend(torch(environment).map(|torch| within(torch, 0)));
    folders.extend(
        environment.home.iter().map(|home| within(home.join(".cache/osam/models/blobs"), 0)),
    );
    folders.retain(|start| start.folder.is_dir());
    folders
}

fn within(folder: impl Into<PathBuf>, depth: usize) -> SearchFolder {
    SearchFolder { folder: folder.into(), depth }
}

/// ComfyUI's folders for segmentation models.
fn comfy(models: &Path) -> [SearchFolder; 3] {
    ["sams", "sam2", "checkpoints"].map(|kind| within(models.join(kind), 1))
}

/// The cache of Hugging Face's hub.
pub(super) fn hub(environment: &Environment) -> Option<PathBuf> {
    environment.hub_cache.clone().or_else(|| Some(environment.hugging_face()?.join("hub")))
}

/// The folder in which PyTorch keeps downloaded checkpoints.
pub(super) fn torch(environment: &Environment) -> Option<PathBuf> {
    let home = environment.torch.clone().or_else(|| Some(environment.caches()?.join("torch")));
    Some(home?.join("hub/checkpoints"))
}

/// The snapshots of every model in the cache: `models--owner--name/snapshots/commit/`.
fn snapshots(hub: &Path) -> Vec<SearchFolder> {
    let entries = fs::read_dir(hub).into_iter().flatten().filter_map(Result::ok);
    let models =
        entries.filter(|entry| entry.file_name().to_string_lossy().starts_with("models--"));
    let mut folders: Vec<PathBuf> =
        models.take(MOST_REPOSITORIES).map(|entry| entry.path().join("snapshots")).collect();
    folders.sort();
    folders.into_iter().map(|folder| within(folder, 2)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn environment_variables_set_the_hub_folder() {
        let folder = |text: &str| Some(PathBuf::from(text));
        let mut environment = Environment { home: folder("/home/me"), ..Environment::default() };
        assert_eq!(hub(&environment), folder("/home/me/.cache/huggingface/hub"));
        environment.caches = folder("/caches");
        assert_eq!(hub(&environment), folder("/caches/huggingface/hub"));
        environment.hugging_face = folder("/hf");
        assert_eq!(hub(&environment), folder("/hf/hub"));
        environment.hub_cache = folder("/hub");
        assert_eq!(hub(&environment), folder("/hub"));
        assert_eq!(hub(&Environment::default()), None);
    }
}
