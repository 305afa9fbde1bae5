//! `cutout segment`: masks of one picture from prompts, phrases or exemplars.

use std::path::{Path, PathBuf};

use anyhow::{Result, bail};
use clap::Args;
use cutout_imaging::{Image, Rle, Threshold};
use cutout_sam::{Masks, Prompt, Sam, Scene};

use crate::claims::Claims;
use crate::options::{ModelOption, RunOptions};
use crate::output::{
    Annotation, Category, Document, Found, Info, MaskIndex, OutputOptions, Picture, write_raw,
};
use crate::progress::Progress;
use crate::prompts::{FindOptions, PromptOptions, parse_number, parse_share};
use crate::{picture, stdio};

use finding::Objects;

mod finding;

/// Segment objects given by points, boxes or an earlier mask, or find objects by phrase or example
#[derive(Args)]
#[command(after_help = "Examples:
  cutout segment truck.jpg --model sam_vit_b_01ec64.pth --point 520,380
      writes truck.mask.png and truck.overlay.png
  cutout segment truck.jpg -m vit_b.pth -p 520,380 -p 40,40,0 -o mask.png --cutout truck.png
      one point on the truck, one point not on it
  cutout segment truck.jpg -m vit_b.pth -b 70,270,1720,850 -b 1375,550,1650,800 --json
      two objects given by boxes, as JSON on standard output
  cutout segment truck.jpg -m vit_b.pth -p 520,380 --raw first.safetensors
  cutout segment truck.jpg -m vit_b.pth -p 520,380 -p 600,400,0 --mask-input first.safetensors
      a second click refines the first mask
  cutout segment street.jpg -m sam3.pt --text \"yellow bus\" --text tram -o found.json
      every yellow bus and every tram, as a COCO data set
  cutout segment street.jpg -m sam3.pt --text tram -o street.txt -o street.svg --simplify 1
      outlines that are within one pixel of the masks
  cutout segment street.jpg -m sam3.pt --exemplar 10,20,200,180 --exemplar -300,40,380,90
      objects like the one in the first box and unlike the one in the second
  cutout segment street.jpg -m sam3.pt --text tram --exemplar 410,90 --exemplar -300,40
      every tram, with one point on a tram and one point on another object")]
pub(crate) struct Segment {
    /// The picture: PNG, JPEG, WebP, BMP, TIFF or GIF
    image: PathBuf,
    #[command(flatten)]
    model: ModelOption,
    #[command(flatten)]
    prompts: PromptOptions,
    #[command(flatten)]
    finding: FindOptions,
    /// Keep masks with a predicted IoU above this; with --text or --exemplar, objects with a score above this (default 0.5)
    #[arg(long, value_name = "SCORE", value_parser = parse_share, allow_negative_numbers = true, help_heading = "Thresholds")]
    threshold: Option<f32>,
    /// Logit above which a pixel belongs to a mask
    #[arg(long, value_name = "LOGIT", default_value_t = 0.0, value_parser = parse_number, allow_negative_numbers = true, help_heading = "Thresholds")]
    mask_threshold: f32,
    /// Use an embedding written by --save-scene instead of encoding the picture again
    #[arg(long, value_name = "FILE", help_heading = "Embedding and raw output")]
    scene: Option<PathBuf>,
    /// Write the embedding of the picture, for later prompts
    #[arg(long, value_name = "FILE", help_heading = "Embedding and raw output")]
    save_scene: Option<PathBuf>,
    /// Write the model's output tensors as safetensors: image_embedding, low_res_logits, iou, masks, and object_score if the
    /// model predicts it; with --text or --exemplar: pred_logits, presence_logit, pred_boxes, pred_masks, semantic
    #[arg(long, value_name = "FILE", help_heading = "Embedding and raw output")]
    raw: Option<PathBuf>,
    #[command(flatten)]
    output: OutputOptions,
    #[command(flatten)]
    run: RunOptions,
}

impl Segment {
    pub(crate) fn run(mut self) -> Result<()> {
        if self.asks_for_nothing() {
            self.output = OutputOptions::usual(&self.image);
        }
        let model = self.model.source()?;
        self.claim(&mut self.run.claims(&model))?;
        if self.image.is_dir() {
            bail!(
                "{}: a folder; `segment` takes one picture, `everything` and `track` take folders",
                self.image.display()
            );
        }
        let image = picture::open(&self.image)?;
        let question = self.finding.question(&self.prompts, image.size(), self.threshold)?;
        let prompts = match question {
            Some(_) => Vec::new(),
            None => self.prompts.prompts(image.size())?,
        };
        let sam = model.start(&self.run)?;
        // Errors in prompts and phrases are reported before the slow part.
        question.iter().try_for_each(|find| sam.check_find(find, image.size()))?;
        let checked = prompts.iter().try_for_each(|prompt| sam.check_prompt(prompt, image.size()));
        checked.map_err(|error| self.prompts.named(error))?;
        let scene = self.scene(&sam, &image)?;
        let objects = match &question {
            Some(find) => self.find(&scene, find)?,
            None => self.shown_objects(&scene, &prompts)?,
        };
        self.write(&image, &sam, objects)
    }

    fn asks_for_nothing(&self) -> bool {
        self.output.is_empty() && self.raw.is_none() && self.save_scene.is_none()
    }

    /// Adds the inputs and outputs of this command to `claims`.
    fn claim(&self, claims: &mut Claims) -> Result<()> {
        claims.reads(&self.image);
        self.prompts.files().chain(self.scene.as_deref()).for_each(|file| claims.reads(file));
        self.raw.iter().chain(&self.save_scene).try_for_each(|path| claims.writes(path))?;
        self.output.claim(claims)
    }

    /// The masks of the prompts.
    fn shown_objects(&self, scene: &Scene, prompts: &[Prompt]) -> Result<Objects> {
        let answers = scene.segment_all(prompts)?;
        if let Some(path) = &self.raw {
            write_raw(path, scene, &answers)?;
        }
        let (annotations, shown) = self.annotations(&answers)?;
        self.note_dropped(&answers);
        let categories = vec![Category::of_any_object()];
        Ok(Objects { categories, annotations, shown, labels: Vec::new() })
    }

    /// Says which prompts have no mask above the threshold.
    fn note_dropped(&self, answers: &[Masks]) {
        let Some(threshold) = self.threshold else { return };
        for (index, masks) in answers.iter().enumerate() {
            let best = masks.best().iou();
            if best <= threshold {
                let prompt = index + 1;
                stdio::note(&format!(
                    "prompt {prompt}: no mask; the best predicted IoU is {best:.2} (see --threshold)"
                ));
            }
        }
    }

    /// The embedded picture.
    fn scene(&self, sam: &Sam, image: &Image) -> Result<Scene> {
        let scene = match &self.scene {
            Some(path) => {
                let scene = sam.load_scene(path)?;
                self.check_scene(path, &scene, image)?;
                scene
            }
            None => {
                let _progress =
                    Progress::spinner(format!("{}: encoding the picture", sam.description()));
                sam.embed(image)?
            }
        };
        if let Some(path) = &self.save_scene {
            scene.save(path)?;
        }
        Ok(scene)
    }

    /// Returns an error unless the scene was made from this picture.
    fn check_scene(&self, path: &Path, scene: &Scene, image: &Image) -> Result<()> {
        let (path, picture) = (path.display(), self.image.display());
        let (made_from, given) = (scene.size(), image.size());
        if made_from != given {
            bail!(
                "{path}: the scene was made from a picture of {made_from}, {picture} has {given}"
            );
        }
        if !scene.is_of(image) {
            bail!(
                "{path}: the scene was made from another picture of {made_from}, not from {picture}; without --scene the picture is encoded"
            );
        }
        Ok(())
    }

    fn write(&self, image: &Image, sam: &Sam, objects: Objects) -> Result<()> {
        let Objects { categories, annotations, shown, labels } = objects;
        let document = Document {
            info: Info { description: sam.description() },
            images: [Picture::new(1, &self.image, image.size())],
            categories,
            annotations,
        };
        let found = Found { image, document: &document, shown: &shown, labels: &labels };
        self.output.write(&found)?;
        let raw = self.raw.iter().chain(&self.save_scene).map(PathBuf::as_path);
        stdio::note_written(self.output.are_named(), self.output.paths().chain(raw));
        Ok(())
    }

    /// The records of all masks, and the pixels of the best candidate of each prompt.
    fn annotations(&self, answers: &[Masks]) -> Result<(Vec<Annotation>, Vec<Rle>)> {
        let threshold = Threshold { value: self.mask_threshold, ..Threshold::default() };
        let (mut annotations, mut shown) = (Vec::new(), Vec::new());
        for (prompt, masks) in answers.iter().enumerate() {
            for (candidate, segment) in masks.iter().enumerate() {
                if self.threshold.is_some_and(|least| segment.iou() <= least) {
                    continue;
                }
                let best = candidate == masks.best_index();
                let index = MaskIndex {
                    index: annotations.len(),
                    prompt,
                    best,
                    category_id: 1,
                    simplify: self.output.simplify(),
                };
                let (annotation, rle) = Annotation::new(&index, segment, threshold)?;
                annotations.push(annotation);
                if best {
                    shown.push(rle);
                }
            }
        }
        Ok((annotations, shown))
    }
}
