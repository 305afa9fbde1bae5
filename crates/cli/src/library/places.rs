//! The usual places.

use std::fs;
use std::path::{Path, PathBuf};

use crate::environment::Environment;

/// A folder to look into.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Place {
    pub(super) folder: PathBuf,
    /// How many folders deep.
    pub(super) depth: usize,
}

/// Models of the Hugging Face cache that are looked at.
const MOST_REPOSITORIES: usize = 4096;

/// The usual places that exist, nearest first: around the working directory, then the user's own folders, then what other
/// programs downloaded.
pub(super) fn usual(environment: &Environment) -> Vec<Place> {
    let mut places = vec![place(".", 0), place("checkpoints", 1), place("model_weights", 1)];
    for root in ["models", "ComfyUI/models", "../ComfyUI/models"] {
        places.extend(comfy(Path::new(root)));
    }
    if let Some(home) = &environment.home {
        places.push(place(home.join("checkpoints"), 1));
        places.extend(comfy(&home.join("ComfyUI/models")));
    }
    if let Some(hub) = hub(environment) {
        places.extend(snapshots(&hub));
    }
    let torch = environment.torch.clone().or_else(|| Some(environment.caches()?.join("torch")));
    places.extend(torch.map(|torch| place(torch.join("hub/checkpoints"), 0)));
    places.extend(
        environment.home.iter().map(|home| place(home.join(".cache/osam/models/blobs"), 0)),
    );
    places.retain(|place| place.folder.is_dir());
    places
}

fn place(folder: impl Into<PathBuf>, depth: usize) -> Place {
    Place { folder: folder.into(), depth }
}

/// ComfyUI's folders for models of this kind.
fn comfy(models: &Path) -> [Place; 3] {
    ["sams", "sam2", "checkpoints"].map(|kind| place(models.join(kind), 1))
}

/// The cache of Hugging Face's hub.
fn hub(environment: &Environment) -> Option<PathBuf> {
    let below_home = || Some(environment.hugging_face.as_ref()?.join("hub"));
    let usual = || Some(environment.caches()?.join("huggingface/hub"));
    environment.hub_cache.clone().or_else(below_home).or_else(usual)
}

/// The snapshots of every model in the cache: `models--owner--name/snapshots/commit/`.
fn snapshots(hub: &Path) -> Vec<Place> {
    let entries = fs::read_dir(hub).into_iter().flatten().filter_map(Result::ok);
    let models =
        entries.filter(|entry| entry.file_name().to_string_lossy().starts_with("models--"));
    let mut folders: Vec<PathBuf> =
        models.take(MOST_REPOSITORIES).map(|entry| entry.path().join("snapshots")).collect();
    folders.sort();
    folders.into_iter().map(|folder| place(folder, 2)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hub_is_where_its_variables_say() {
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
