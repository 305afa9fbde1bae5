//! Thousands of damaged files: no panic, and no more memory than the stated limit.
#![allow(unsafe_code, reason = "a global allocator that counts is unsafe to implement")]
#![allow(clippy::unwrap_used, reason = "test code may panic")]

mod support;

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use cutout_weights::{Checkpoint, limits};
use support::torch_file::{Pickle, Zip, dict, torch_file};
use support::{Random, fixture};

/// Damaged variants of each file.
const VARIANTS: usize = 5000;

/// Limit of the peak memory for opening and reading a whole file of this length, in bytes.
const fn allowed(length: usize) -> usize {
    64 * length + (1 << 20)
}

struct Counting;

static NOW: AtomicUsize = AtomicUsize::new(0);
static MOST: AtomicUsize = AtomicUsize::new(0);

// SAFETY: every call is forwarded to the system allocator with unchanged arguments.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let now = NOW.fetch_add(layout.size(), Ordering::Relaxed) + layout.size();
        MOST.fetch_max(now, Ordering::Relaxed);
        // SAFETY: the caller guarantees a valid `layout`.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        NOW.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller guarantees that `pointer` was allocated with `layout`.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Runs `work` and measures its peak allocation, in bytes.
fn peak<T>(work: impl FnOnce() -> T) -> (T, usize) {
    let before = NOW.load(Ordering::Relaxed);
    MOST.store(before, Ordering::Relaxed);
    let result = work();
    (result, MOST.load(Ordering::Relaxed).saturating_sub(before))
}

/// Opens a file and reads all of it. Returns how many tensors were read.
fn read(bytes: Arc<Vec<u8>>) -> usize {
    let checkpoint = match Checkpoint::from_bytes("damaged", bytes) {
        Ok(checkpoint) => checkpoint,
        Err(error) => {
            assert!(error.to_string().starts_with("damaged: "));
            return 0;
        }
    };
    let mut whole = 0;
    for info in checkpoint.tensors() {
        match checkpoint.tensor(&info.name) {
            Ok(tensor) => {
                assert_eq!(tensor.shape(), &info.shape);
                // Access both ends, because a view alone reads nothing.
                let _ = (tensor.elements() <= 4096).then(|| tensor.to_f64_vec());
                whole += 1;
            }
            Err(error) => assert!(!error.to_string().is_empty()),
        }
    }
    whole
}

/// One damaged variant of a file.
fn damage(original: &[u8], random: &mut Random) -> Vec<u8> {
    let mut bytes = original.to_vec();
    for _ in 0..=random.below(3) {
        if bytes.is_empty() {
            break;
        }
        // Favours both ends: headers are at the start, zip directories at the end.
        let near = bytes.len().min(512);
        let at = match random.below(3) {
            0 => random.below(near),
            1 => bytes.len() - 1 - random.below(near),
            _ => random.below(bytes.len()),
        };
        match random.below(8) {
            0..=2 => bytes[at] ^= 1 << random.below(8),
            3 => bytes[at] = random.next() as u8,
            4 => bytes.truncate(at),
            5 | 6 => overwrite(&mut bytes[at..], random),
            _ => {
                let piece = bytes[at..(at + 1 + random.below(64)).min(bytes.len())].to_vec();
                let to = random.below(bytes.len());
                bytes.splice(to..to, piece);
            }
        }
    }
    bytes
}

/// Overwrites bytes that may be a length with an extreme number.
fn overwrite(bytes: &mut [u8], random: &mut Random) {
    let numbers =
        [u64::MAX, u64::MAX >> 1, 1 << 63, 1 << 32, u64::from(u32::MAX), 1 << 40, 0, 1 << 20];
    let number = numbers[random.below(numbers.len())].to_le_bytes();
    let length = [2, 4, 8][random.below(3)].min(bytes.len());
    bytes[..length].copy_from_slice(&number[..length]);
}

fn originals() -> Vec<(String, Vec<u8>)> {
    let mut files = Vec::new();
    for name in [
        "flat.pt",
        "model.pt",
        "strided.pt",
        "training.pt",
        "protocol4.pt",
        "deflated.pt",
        "complex.pt",
        "flat.safetensors",
        "quantised.safetensors",
        "quantised.gguf",
    ] {
        files.push((name.to_owned(), std::fs::read(fixture(name)).unwrap()));
    }
    let pickle = dict(|pickle| {
        let pickle = pickle.text("w");
        pickle.tensor(|p| p.storage("FloatStorage", "0", 64), 0, &[8, 8], &[1, 8])
    });
    for how in [Zip::Stored, Zip::Deflated, Zip::Wide] {
        let file = torch_file(&pickle, &[("0", &[0; 256])], how);
        files.push(("made by hand".to_owned(), file));
    }
    files
}

// A single test, so that no other test allocates at the same time.
#[test]
fn damaged_files_neither_panic_nor_exceed_the_memory_limit() {
    let mut random = Random(0x5eed);
    let (mut opened, mut refused) = (0, 0);
    for (name, original) in originals() {
        let length = original.len();
        let whole = read(Arc::new(original.clone()));
        assert!(whole > 0, "{name} itself cannot be read");
        for variant in 0..VARIANTS {
            let bytes = Arc::new(damage(&original, &mut random));
            let (read, peak) = peak(|| read(bytes));
            assert!(peak <= allowed(length), "{name}, variant {variant}: {peak} bytes");
            *(if read > 0 { &mut opened } else { &mut refused }) += 1;
        }
        for cut in (0..length).step_by(length.div_ceil(200)) {
            let (read, peak) = peak(|| read(Arc::new(original[..cut].to_vec())));
            assert_eq!(read, 0, "{name} cut at {cut} was accepted");
            assert!(peak <= allowed(length), "{name}, cut at {cut}: {peak} bytes");
        }
    }
    // Both outcomes must be common; otherwise the damage is too small or too large for a useful test.
    assert!(opened > 1000 && refused > 1000, "{opened} read, {refused} refused");
    bombs();
}

/// Small files that declare huge contents.
fn bombs() {
    // A pickle that exceeds its limit after decompression.
    let zeros = vec![b'N'; 8 << 20];
    let file = torch_file(&zeros, &[], Zip::Deflated);
    let inflated = 2 * zeros.len() + limits::MAX_PICKLE_STACK * 64;
    let (_, used) = peak(|| read(Arc::new(file)));
    assert!(used < inflated, "{used} bytes");
    // A deflated storage of which a tensor needs the last elements, and one that spans it all with two.
    let storage = vec![0; 64 << 20];
    let elements = (storage.len() / 4) as i64;
    let pickle = dict(|pickle| {
        let storage = |p: Pickle| p.storage("FloatStorage", "0", elements);
        let pickle = pickle.text("w").tensor(storage, elements - 64, &[8, 8], &[8, 1]);
        pickle.text("wide").tensor(storage, 0, &[2], &[elements - 1])
    });
    let file = Arc::new(torch_file(&pickle, &[("0", &storage)], Zip::Deflated));
    drop(storage);
    let (_, used) = peak(|| assert_eq!(read(file), 1));
    assert!(used < 1 << 20, "{used} bytes");
    // A header of the largest allowed length in a file that ends before it.
    let mut header = limits::MAX_HEADER_BYTES.to_le_bytes().to_vec();
    header.extend(b"{\"a\":");
    let (_, used) = peak(|| read(Arc::new(header)));
    assert!(used < 1 << 16, "{used} bytes");
    let mut lists = b"GGUF\x03\0\0\0".to_vec();
    lists.extend([0u64, 1, 1].iter().flat_map(|field| field.to_le_bytes()));
    lists.extend(b"k\x09\0\0\0\0\0\0\0");
    lists.extend(limits::MAX_METADATA_VALUES.to_le_bytes());
    let (_, used) = peak(|| read(Arc::new(lists)));
    assert!(used < 1 << 16, "{used} bytes");
}
