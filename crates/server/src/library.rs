//! Pictures with their features, by last use within a number of bytes.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cutout_imaging::{Image, Size};
use cutout_sam::{Sam, Scene};
use cutout_tensor::Tensor;
use ring::digest::{Context, SHA256};

use crate::problem::Problem;

/// Masks of a picture that can be refined: the newest of its answers.
const MASKS: usize = 12;

/// A picture that clients ask about.
pub(crate) struct Picture {
    /// SHA-256 of the model's name and the file.
    pub(crate) id: String,
    /// The model that answers.
    pub(crate) model: String,
    pub(crate) image: Image,
    /// Set by the first request that needs it.
    scene: Mutex<Option<Scene>>,
    masks: Mutex<Refinable>,
    scene_bytes: AtomicUsize,
}

/// Low-resolution logits of answers, by number.
#[derive(Default)]
struct Refinable {
    count: u64,
    newest: VecDeque<(u64, Tensor)>,
}

impl Picture {
    pub(crate) fn new(id: String, model: String, image: Image) -> Self {
        Picture {
            id,
            model,
            image,
            scene: Mutex::default(),
            masks: Mutex::default(),
            scene_bytes: AtomicUsize::new(0),
        }
    }

    /// Name of the picture of these bytes for a model.
    pub(crate) fn id_of(bytes: &[u8], model: &str) -> String {
        let mut context = Context::new(&SHA256);
        context.update(model.as_bytes());
        context.update(&[0]);
        context.update(bytes);
        context.finish().as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
    }

    pub(crate) fn size(&self) -> Size {
        self.image.size()
    }

    /// The features if they are there.
    pub(crate) fn scene(&self) -> Option<Scene> {
        lock(&self.scene).clone()
    }

    /// The features, computed where they are not there: only on the inference thread, so that a picture is never embedded
    /// twice. The second value says whether they were computed now.
    pub(crate) fn embed(&self, sam: &Sam) -> Result<(Scene, bool), Problem> {
        if let Some(scene) = self.scene() {
            return Ok((scene, false));
        }
        let scene = sam.embed(&self.image)?;
        *lock(&self.scene) = Some(scene.clone());
        Ok((scene, true))
    }

    /// Drops the features; a later request computes them again.
    fn forget_scene(&self) {
        *lock(&self.scene) = None;
        self.scene_bytes.store(0, Ordering::Relaxed);
    }

    /// Keeps the logits of an answer and returns the name they are refined by.
    pub(crate) fn keep(&self, logits: Tensor) -> String {
        let mut masks = lock(&self.masks);
        masks.count += 1;
        let number = masks.count;
        masks.newest.push_back((number, logits));
        if masks.newest.len() > MASKS {
            masks.newest.pop_front();
        }
        number.to_string()
    }

    /// The logits of an earlier answer; `None` if they are not kept any more.
    pub(crate) fn kept(&self, name: &str) -> Option<Tensor> {
        let number: u64 = name.parse().ok()?;
        let masks = lock(&self.masks);
        masks.newest.iter().find(|(own, _)| *own == number).map(|(_, logits)| logits.clone())
    }

    fn bytes(&self) -> usize {
        let logits = lock(&self.masks).newest.front().map_or(0, |(_, logits)| logits.ty().bytes());
        self.image.as_rgb().len() + self.scene_bytes.load(Ordering::Relaxed) + MASKS * logits
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The pictures of a server.
pub(crate) struct Library {
    shelf: Mutex<Shelf>,
    /// Names that clients gave to pictures, the newest last.
    aliases: Mutex<VecDeque<(String, String)>>,
    budget: usize,
}

#[derive(Default)]
struct Shelf {
    pictures: HashMap<String, Stored>,
    clock: u64,
}

struct Stored {
    picture: Arc<Picture>,
    last_used: u64,
}

/// Most names of clients for pictures.
const ALIASES: usize = 256;
/// Longest name of a client for a picture, in bytes.
const ALIAS_BYTES: usize = 200;

/// Use of a library.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Usage {
    pub(crate) pictures: usize,
    pub(crate) bytes: usize,
    pub(crate) budget: usize,
}

impl Library {
    /// A library that keeps this many bytes.
    pub(crate) fn new(budget: usize) -> Self {
        Library { shelf: Mutex::default(), aliases: Mutex::default(), budget }
    }

    /// Notes the name that a client gives to a picture. Names that are too long are ignored.
    pub(crate) fn name(&self, alias: &str, id: &str) {
        if alias.len() > ALIAS_BYTES {
            return;
        }
        let mut aliases = lock(&self.aliases);
        aliases.retain(|(known, _)| known != alias);
        aliases.push_back((alias.to_owned(), id.to_owned()));
        if aliases.len() > ALIASES {
            aliases.pop_front();
        }
    }

    /// The picture to which a client gave a name.
    pub(crate) fn alias(&self, alias: &str) -> Option<String> {
        let aliases = lock(&self.aliases);
        aliases.iter().find(|(known, _)| known == alias).map(|(_, id)| id.clone())
    }

    /// The picture of this name, now the last used.
    pub(crate) fn get(&self, id: &str) -> Option<Arc<Picture>> {
        let mut shelf = lock(&self.shelf);
        shelf.clock += 1;
        let now = shelf.clock;
        let stored = shelf.pictures.get_mut(id)?;
        stored.last_used = now;
        Some(Arc::clone(&stored.picture))
    }

    /// Adds a picture; the one that is there already if two clients add the same.
    pub(crate) fn add(&self, picture: Picture) -> Arc<Picture> {
        if let Some(known) = self.get(&picture.id) {
            return known;
        }
        let mut shelf = lock(&self.shelf);
        shelf.clock += 1;
        let (last_used, picture) = (shelf.clock, Arc::new(picture));
        let stored = Stored { picture: Arc::clone(&picture), last_used };
        shelf.pictures.insert(picture.id.clone(), stored);
        shelf.shrink(self.budget);
        picture
    }

    /// Notes the size of a picture's features after they were computed.
    pub(crate) fn note(&self, picture: &Picture, scene: &Scene) {
        let bytes = scene.bytes();
        if picture.scene_bytes.swap(bytes, Ordering::Relaxed) != bytes {
            lock(&self.shelf).shrink(self.budget);
        }
    }

    /// Forgets a picture. Whether it was there.
    pub(crate) fn remove(&self, id: &str) -> bool {
        lock(&self.shelf).pictures.remove(id).is_some()
    }

    /// Drops the features that a model made, as they keep the model in memory.
    pub(crate) fn forget_scenes(&self, model: &str) {
        for stored in lock(&self.shelf).pictures.values() {
            if stored.picture.model == model {
                stored.picture.forget_scene();
            }
        }
    }

    pub(crate) fn usage(&self) -> Usage {
        let shelf = lock(&self.shelf);
        Usage { pictures: shelf.pictures.len(), bytes: shelf.bytes(), budget: self.budget }
    }
}

impl Shelf {
    fn bytes(&self) -> usize {
        self.pictures.values().map(|stored| stored.picture.bytes()).sum()
    }

    /// Drops the pictures that were not used for the longest time until the others fit. The newest always stays.
    fn shrink(&mut self, budget: usize) {
        while self.pictures.len() > 1 && self.bytes() > budget {
            let oldest = self.pictures.iter().min_by_key(|(_, stored)| stored.last_used);
            let Some(id) = oldest.map(|(id, _)| id.clone()) else { return };
            self.pictures.remove(&id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn picture(id: &str) -> Picture {
        let image = Image::filled(Size::square(10), [0; 3]).unwrap();
        Picture::new(id.to_owned(), "m".to_owned(), image)
    }

    #[test]
    fn the_least_recently_used_picture_is_dropped() {
        let library = Library::new(700);
        library.add(picture("a"));
        library.add(picture("b"));
        assert!(library.get("a").is_some());
        library.add(picture("c"));
        assert_eq!(library.usage(), Usage { pictures: 2, bytes: 600, budget: 700 });
        assert!(library.get("b").is_none(), "b was used before a");
        assert!(library.get("a").is_some() && library.get("c").is_some());
        assert!(library.remove("a") && !library.remove("a"));
    }

    #[test]
    fn the_same_bytes_for_another_model_are_another_picture() {
        assert_ne!(Picture::id_of(b"x", "a"), Picture::id_of(b"x", "b"));
        assert_eq!(Picture::id_of(b"x", "a").len(), 64);
        // The name and the bytes cannot be confused.
        assert_ne!(Picture::id_of(b"x", "ab"), Picture::id_of(b"bx", "a"));
    }

    #[test]
    fn the_newest_masks_can_be_refined() {
        let picture = picture("a");
        let names: Vec<String> = (0..MASKS + 1)
            .map(|value| picture.keep(Tensor::from_vec([1], vec![value as f32]).unwrap()))
            .collect();
        assert!(picture.kept(&names[0]).is_none() && picture.kept("x").is_none());
        let kept = picture.kept(&names[1]).unwrap();
        assert_eq!(kept.to_vec::<f32>().unwrap(), [1.0]);
    }
}
