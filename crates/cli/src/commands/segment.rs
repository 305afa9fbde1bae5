//! `cutout segment`: a picture and prompts in, masks out.

use std::path::PathBuf;

use anyhow::{Result, bail};
use clap::Args;
use cutout_imaging::{DecodeLimits, Image, Rle, Threshold, open};
use cutout_sam::{Masks, Prompt, Sam, Scene};

use crate::options::{ModelOption, RunOptions};
use crate::output::{
    Annotation, Document, Found, OutputOptions, Picture, Place, check_folder, write_raw,
};
use crate::progress::Progress;
use crate::prompts::{FindOptions, PromptOptions, parse_number};
use crate::{interrupt, screen};

use finding::Objects;

mod finding;

/// Segment what points, boxes or an earlier mask show, or find what a phrase describes
#[derive(Args)]
#[command(after_help = "Examples:
  cutout segment truck.jpg --model sam_vit_b_01ec64.pth --point 520,380
      writes truck.mask.png and truck.overlay.png
  cutout segment truck.jpg -m vit_b.pth -p 520,380 -p 40,40,0 -o mask.png --cutout truck.png
      a point that is part of the truck and one that is not
  cutout segment truck.jpg -m vit_b.pth -b 70,270,1720,850 -b 1375,550,1650,800 --json
      two objects by their boxes, as JSON on standard output
  cutout segment truck.jpg -m vit_b.pth -p 520,380 --raw first.safetensors
  cutout segment truck.jpg -m vit_b.pth -p 520,380 -p 600,400,0 --mask-input first.safetensors
      a second click refines the first answer
  cutout segment street.jpg -m sam3.pt --text \"yellow bus\" --text tram -o found.json
      every yellow bus and every tram
  cutout segment street.jpg -m sam3.pt --exemplar 10,20,200,180 --exemplar -300,40,380,90
      everything like what is in the first box and not like what is in the second
  cutout segment street.jpg -m sam3.pt --text tram --exemplar 410,90 --exemplar -300,40
      every tram, with a point on one and a point on something that is none")]
pub(crate) struct Segment {
    /// The picture: PNG, JPEG, WebP, BMP, TIFF or GIF
    image: PathBuf,
    #[command(flatten)]
    model: ModelOption,
    #[command(flatten)]
    prompts: PromptOptions,
    #[command(flatten)]
    finding: FindOptions,
    /// Leave out masks whose predicted IoU, or objects whose score (0.5 if nothing is said), is not above this
    #[arg(long, value_name = "SCORE", value_parser = parse_number, allow_negative_numbers = true, help_heading = "Which masks")]
    threshold: Option<f32>,
    /// A pixel belongs to a mask where its logit is above this
    #[arg(long, value_name = "LOGIT", default_value_t = 0.0, value_parser = parse_number, allow_negative_numbers = true, help_heading = "Which masks")]
    mask_threshold: f32,
    /// Use an embedding that --save-scene wrote instead of encoding the picture again
    #[arg(long, value_name = "FILE", help_heading = "What the model makes of the picture")]
    scene: Option<PathBuf>,
    /// Keep the picture's embedding for later prompts
    #[arg(long, value_name = "FILE", help_heading = "What the model makes of the picture")]
    save_scene: Option<PathBuf>,
    /// Write the model's own tensors, as safetensors: image_embedding, low_res_logits, iou, masks, and object_score where
    /// the model has one; of phrases and exemplars pred_logits, presence_logit, pred_boxes, pred_masks, semantic
    #[arg(long, value_name = "FILE", help_heading = "What the model makes of the picture")]
    raw: Option<PathBuf>,
    #[command(flatten)]
    output: OutputOptions,
    #[command(flatten)]
    run: RunOptions,
}

impl Segment {
    pub(crate) fn run(self) -> Result<()> {
        self.output.check()?;
        self.raw.iter().chain(&self.save_scene).try_for_each(|path| check_folder(path))?;
        if self.image.is_dir() {
            bail!(
                "{}: a folder; `segment` takes one picture, `everything` and `track` take folders",
                self.image.display()
            );
        }
        let image = open(&self.image, &DecodeLimits::default())?;
        let question = self.finding.question(&self.prompts, image.size(), self.threshold)?;
        let prompts = match question {
            Some(_) => Vec::new(),
            None => self.prompts.prompts(image.size())?,
        };
        let sam = self.model.open(&self.run)?;
        // What is wrong with the question is said before the long part.
        question.iter().try_for_each(|find| sam.check_find(find, image.size()))?;
        prompts.iter().try_for_each(|prompt| sam.check_prompt(prompt, image.size()))?;
        let scene = self.scene(&sam, &image)?;
        let objects = match &question {
            Some(find) => self.find(&scene, find)?,
            None => self.shown_objects(&scene, &prompts)?,
        };
        self.write(&image, &sam, objects)
    }

    /// What the prompts show.
    fn shown_objects(&self, scene: &Scene, prompts: &[Prompt]) -> Result<Objects> {
        let answers = scene.segment_all(prompts)?;
        if let Some(path) = &self.raw {
            write_raw(path, scene, &answers)?;
        }
        let (annotations, shown) = self.annotations(&answers);
        Ok(Objects { categories: Vec::new(), annotations, shown, labels: Vec::new() })
    }

    /// The embedded picture.
    fn scene(&self, sam: &Sam, image: &Image) -> Result<Scene> {
        let scene = match &self.scene {
            Some(path) => {
                let scene = sam.load_scene(path)?;
                anyhow::ensure!(
                    scene.size() == image.size(),
                    "{}: made from a picture of {}, this one has {}",
                    path.display(),
                    scene.size(),
                    image.size()
                );
                scene
            }
            None => {
                let _progress =
                    Progress::spinner(format!("{} looks at the picture", sam.description()));
                sam.embed(image)?
            }
        };
        if let Some(path) = &self.save_scene {
            interrupt::writes_beside(path);
            scene.save(path)?;
        }
        Ok(scene)
    }

    fn write(&self, image: &Image, sam: &Sam, objects: Objects) -> Result<()> {
        let Objects { categories, annotations, shown, labels } = objects;
        let document = Document {
            image: Picture::new(&self.image, image.size()),
            model: sam.description(),
            categories,
            annotations,
        };
        let found = Found { image, document: &document, shown: &shown, labels: &labels };
        if !self.output.is_empty() || self.raw.is_some() || self.save_scene.is_some() {
            return self.output.write(&found);
        }
        let usual = OutputOptions::usual(&self.image);
        usual.write(&found)?;
        let names: Vec<String> = usual.paths().map(|path| path.display().to_string()).collect();
        screen::note(&format!("wrote {}", names.join(" and ")));
        Ok(())
    }

    /// The records of all masks, and the pixels of the best one of each prompt.
    fn annotations(&self, answers: &[Masks]) -> (Vec<Annotation>, Vec<Rle>) {
        let threshold = Threshold { value: self.mask_threshold, ..Threshold::default() };
        let (mut annotations, mut shown) = (Vec::new(), Vec::new());
        for (prompt, masks) in answers.iter().enumerate() {
            for (index, segment) in masks.iter().enumerate() {
                if self.threshold.is_some_and(|least| segment.iou() <= least) {
                    continue;
                }
                let best = index == masks.best_index();
                let place = Place { id: annotations.len(), prompt, best };
                let (annotation, rle) = Annotation::new(&place, segment, threshold);
                annotations.push(annotation);
                if best {
                    shown.push(rle);
                }
            }
        }
        (annotations, shown)
    }
}
