//! `cargo xtask kernels`: compiles the CUDA kernels with NVRTC and writes the bundles and their manifest.
//!
//! NVRTC comes from a wheel (`nvidia-cuda-nvrtc-cu12`) that was unpacked anywhere; no toolkit, driver or GPU is needed.
#![allow(unsafe_code, reason = "NVRTC is a C library")]

use std::collections::BTreeMap;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::ptr::{null, null_mut};

use anyhow::{Context, Result, bail, ensure};
use cutout_cuda::bundle::{self, CodeRange, KernelRecord, Manifest, Resources, UnitRecord};
use cutout_cuda::variants::{Family, Unit, units};
use cutout_testing::fixtures::sha256;
use flate2::Compression;
use flate2::write::ZlibEncoder;
use libloading::os::unix::{Library, RTLD_GLOBAL, RTLD_NOW, Symbol};

/// PTX version that the bundle claims: drivers from 525 on read it.
const PTX_VERSION: &str = ".version 8.0";

/// Compiles every unit. `folder` holds `libnvrtc.so.*` and `libnvrtc-builtins.so.*`; `only` restricts messages to units whose
/// name contains it (nothing is written then).
pub(crate) fn build(folder: &Path, only: Option<&str>) -> Result<()> {
    let compiler = Nvrtc::open(folder)?;
    let kernels = Path::new(env!("CARGO_MANIFEST_DIR")).join("../cuda/kernels");
    let sources = read_sources(&kernels)?;
    // Headers are included by file name alone, from every folder.
    let headers = sources.iter().filter(|(name, _)| name.ends_with(".cuh"));
    let headers: Vec<(String, &String)> =
        headers.map(|(name, text)| (file_name(Path::new(name)), text)).collect();
    let digests = sources.iter().map(|(name, text)| (name.clone(), sha256(text.as_bytes())));
    let mut manifest = Manifest {
        compiler: compiler.version()?,
        sources: digests.collect(),
        ..Manifest::default()
    };
    let mut bundles: BTreeMap<Family, Vec<u8>> = BTreeMap::new();
    for unit in units() {
        if only.is_some_and(|part| !unit.name.contains(part)) {
            continue;
        }
        let text = sources.get(unit.source).with_context(|| format!("no file {}", unit.source))?;
        let digest = unit_digest(&compiler.version()?, &unit, text, &headers);
        if !reuse(&unit, &digest, &mut manifest, &mut bundles) {
            add_unit(&compiler, &unit, text, &headers, (&mut manifest, &mut bundles))?;
        }
        if let Some(record) = manifest.units.get_mut(&unit.name) {
            record.digest = digest;
        }
    }
    if only.is_some() {
        return Ok(());
    }
    for (family, bundle) in &bundles {
        let name = format!("bundle-{}.bin", format!("{family:?}").to_lowercase());
        std::fs::write(kernels.join(&name), bundle)?;
        println!("{name}: {} bytes", bundle.len());
    }
    let text = serde_json::to_string_pretty(&manifest)?;
    std::fs::write(kernels.join("manifest.json"), text + "\n")?;
    Ok(())
}

/// The sources of a folder and its subfolders, by path below the folder.
fn read_sources(folder: &Path) -> Result<BTreeMap<String, String>> {
    let mut sources = BTreeMap::new();
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        let name = file_name(&path);
        if path.is_dir() {
            let below = read_sources(&path)?;
            sources
                .extend(below.into_iter().map(|(inner, text)| (format!("{name}/{inner}"), text)));
        } else if name.ends_with(".cu") || name.ends_with(".cuh") {
            sources.insert(name, std::fs::read_to_string(&path)?);
        }
    }
    Ok(sources)
}

fn file_name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

/// What a unit is made from: its source and the headers that it includes, directly or not.
fn unit_digest(compiler: &str, unit: &Unit, text: &str, headers: &[(String, &String)]) -> String {
    let mut all = format!("{compiler}\n{:?}\n{text}", unit.options());
    let mut included = vec![false; headers.len()];
    while let Some(index) = headers
        .iter()
        .zip(&included)
        .position(|((name, _), known)| !known && all.contains(&format!("#include \"{name}\"")))
    {
        included[index] = true;
        let (name, text) = &headers[index];
        all += &format!("\n{name}\n{text}");
    }
    sha256(all.as_bytes())
}

/// Takes a unit over from the bundles that this program was built with, if it was made from the same.
fn reuse(
    unit: &Unit,
    digest: &str,
    manifest: &mut Manifest,
    bundles: &mut BTreeMap<Family, Vec<u8>>,
) -> bool {
    let known = bundle::manifest();
    let Some(record) = known.units.get(&unit.name).filter(|record| record.digest == digest) else {
        return false;
    };
    let mut record = record.clone();
    for (family, range) in &mut record.code {
        let Some(code) = bundle::compressed(*family, &unit.name) else { return false };
        let bundle = bundles.entry(*family).or_default();
        range.offset = bundle.len();
        bundle.extend(code);
    }
    let kernels = known.kernels.iter().filter(|(_, kernel)| kernel.unit == unit.name);
    manifest.kernels.extend(kernels.map(|(name, kernel)| (name.clone(), kernel.clone())));
    manifest.units.insert(unit.name.clone(), record);
    true
}

/// Compiles one unit for all its families and records it.
fn add_unit(
    compiler: &Nvrtc,
    unit: &Unit,
    text: &str,
    headers: &[(String, &String)],
    (manifest, bundles): (&mut Manifest, &mut BTreeMap<Family, Vec<u8>>),
) -> Result<()> {
    let mut record = UnitRecord { options: unit.options(), ..UnitRecord::default() };
    for &family in unit.families() {
        let mut options = unit.options();
        options.push(format!("--gpu-architecture={}", family.target()));
        if family != Family::Ptx80 {
            options.push("--ptxas-options=-v".to_owned());
        }
        let compiled = compiler
            .compile(unit.source, text, headers, &options)
            .with_context(|| format!("{} for {}", unit.name, family.target()))?;
        let code = match family {
            Family::Ptx80 => lowered_version(&compiled.ptx)?.into_bytes(),
            Family::Sm90a | Family::Sm80 => compiled.cubin,
        };
        for (name, parameters) in entries(&compiled.ptx) {
            let kernel = manifest.kernels.entry(name.clone()).or_default();
            ensure!(
                kernel.unit.is_empty() || kernel.unit == unit.name,
                "{name} is in {} and in {}",
                kernel.unit,
                unit.name
            );
            kernel.unit = unit.name.clone();
            kernel.parameters = parameters;
            if family != Family::Ptx80 {
                record_resources(kernel, family, &name, &compiled.log);
            }
        }
        let bundle = bundles.entry(family).or_default();
        let mut packed = ZlibEncoder::new(Vec::new(), Compression::best());
        packed.write_all(&code)?;
        let packed = packed.finish()?;
        let range = CodeRange { offset: bundle.len(), length: packed.len(), plain: code.len() };
        bundle.extend(packed);
        record.code.insert(family, range);
    }
    print_unit(unit, manifest);
    manifest.units.insert(unit.name.clone(), record);
    Ok(())
}

fn print_unit(unit: &Unit, manifest: &Manifest) {
    for (name, kernel) in manifest.kernels.iter().filter(|(_, kernel)| kernel.unit == unit.name) {
        let resources = kernel.resources.iter().map(|(family, r)| {
            format!(
                "{family:?}: {} registers, {} B spilled, {} B shared",
                r.registers, r.spills, r.shared
            )
        });
        println!("{name}: {}", resources.collect::<Vec<_>>().join("; "));
    }
}

/// The PTX with its version lowered to one that older drivers read.
fn lowered_version(ptx: &str) -> Result<String> {
    let line =
        ptx.lines().find(|line| line.starts_with(".version")).context("PTX has no version")?;
    Ok(ptx.replacen(line, PTX_VERSION, 1))
}

/// The kernels of a PTX text and the sizes of their parameters.
fn entries(ptx: &str) -> Vec<(String, Vec<usize>)> {
    let mut found = Vec::new();
    for part in ptx.split(".entry ").skip(1) {
        let Some((name, rest)) = part.split_once('(') else { continue };
        let Some((list, _)) = rest.split_once(')') else { continue };
        let parameters = list.split(',').filter(|text| text.contains(".param"));
        found.push((name.trim().to_owned(), parameters.map(parameter_bytes).collect()));
    }
    found
}

/// Size of a parameter such as `.param .align 8 .b8 name[48]` or `.param .u64 name`.
fn parameter_bytes(text: &str) -> usize {
    if let Some((_, length)) = text.rsplit_once('[') {
        return length.trim_end_matches(|c: char| !c.is_ascii_digit()).parse().unwrap_or(0);
    }
    let types = text.split_whitespace().filter_map(|word| word.strip_prefix('.'));
    let bits =
        types.filter_map(|word| word.get(1..)?.parse::<usize>().ok()).find(|bits| *bits >= 8);
    bits.unwrap_or(0) / 8
}

/// Registers, spills and shared memory of a kernel from the assembler's log.
fn record_resources(kernel: &mut KernelRecord, family: Family, name: &str, log: &str) {
    let mut resources = Resources::default();
    let mut lines = log.lines().skip_while(|line| {
        !(line.contains("Compiling entry function") && line.contains(&format!("'{name}'")))
    });
    lines.next();
    for line in lines.take_while(|line| !line.contains("Compiling entry function")) {
        let number_before = |marker: &str| {
            let (before, _) = line.split_once(marker)?;
            before.split_whitespace().last()?.parse::<u32>().ok()
        };
        resources.spills += number_before(" bytes spill stores").unwrap_or(0);
        resources.registers = number_before(" registers").unwrap_or(resources.registers);
        resources.shared = number_before(" bytes smem").unwrap_or(resources.shared);
    }
    kernel.resources.insert(family, resources);
}

/// What NVRTC makes of a source.
struct Compiled {
    ptx: String,
    cubin: Vec<u8>,
    log: String,
}

type Program = *mut c_void;

/// The library, with the functions that are used.
struct Nvrtc {
    library: Library,
    /// Must be open, with its symbols visible, before the library compiles anything.
    _builtins: Library,
}

impl Nvrtc {
    fn open(folder: &Path) -> Result<Nvrtc> {
        let find = |prefix: &str| -> Result<PathBuf> {
            let entries =
                std::fs::read_dir(folder).with_context(|| folder.display().to_string())?;
            let names = entries.filter_map(|entry| Some(entry.ok()?.path()));
            let matches = |path: &PathBuf| {
                path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(prefix))
            };
            let path = names.into_iter().find(matches);
            path.with_context(|| format!("{} has no {prefix}*", folder.display()))
        };
        let open = |path: PathBuf| {
            // SAFETY: loading NVRTC runs its initialisers, which touch nothing of this program.
            unsafe { Library::open(Some(&path), RTLD_NOW | RTLD_GLOBAL) }
                .with_context(|| path.display().to_string())
        };
        let builtins = open(find("libnvrtc-builtins.so")?)?;
        Ok(Nvrtc { library: open(find("libnvrtc.so")?)?, _builtins: builtins })
    }

    fn function<T>(&self, name: &str) -> Result<Symbol<T>> {
        // SAFETY: every caller names the type that nvrtc.h declares for this function.
        unsafe { self.library.get(name.as_bytes()) }.with_context(|| name.to_owned())
    }

    fn version(&self) -> Result<String> {
        let get: Symbol<unsafe extern "C" fn(*mut c_int, *mut c_int) -> c_int> =
            self.function("nvrtcVersion")?;
        let (mut major, mut minor) = (0, 0);
        // SAFETY: both point to integers that live through the call.
        let result = unsafe { get(&mut major, &mut minor) };
        ensure!(result == 0, "nvrtcVersion fails with {result}");
        Ok(format!("NVRTC {major}.{minor}"))
    }

    fn compile(
        &self,
        name: &str,
        text: &str,
        headers: &[(String, &String)],
        options: &[String],
    ) -> Result<Compiled> {
        let program = self.create(name, text, headers)?;
        let compile: Symbol<unsafe extern "C" fn(Program, c_int, *const *const c_char) -> c_int> =
            self.function("nvrtcCompileProgram")?;
        let options = options.iter().map(|text| CString::new(text.as_str()));
        let options = options.collect::<Result<Vec<CString>, _>>()?;
        let pointers: Vec<*const c_char> = options.iter().map(|text| text.as_ptr()).collect();
        // SAFETY: the program was just created; the options live through the call.
        let result =
            unsafe { compile(program, c_int::try_from(pointers.len())?, pointers.as_ptr()) };
        let log = self.output(program, "nvrtcGetProgramLogSize", "nvrtcGetProgramLog")?;
        let log = String::from_utf8_lossy(&log).into_owned();
        if result != 0 {
            bail!("NVRTC fails with {result}:\n{log}");
        }
        for line in log.lines().filter(|line| line.contains("warning") || line.contains("C75")) {
            println!("{name}: {line}");
        }
        let ptx = self.output(program, "nvrtcGetPTXSize", "nvrtcGetPTX")?;
        let cubin = self.output(program, "nvrtcGetCUBINSize", "nvrtcGetCUBIN").unwrap_or_default();
        let ptx = CStr::from_bytes_until_nul(&ptx)?.to_str()?.to_owned();
        self.destroy(program)?;
        Ok(Compiled { ptx, cubin, log })
    }

    fn create(&self, name: &str, text: &str, headers: &[(String, &String)]) -> Result<Program> {
        type Create = unsafe extern "C" fn(
            *mut Program,
            *const c_char,
            *const c_char,
            c_int,
            *const *const c_char,
            *const *const c_char,
        ) -> c_int;
        let create: Symbol<Create> = self.function("nvrtcCreateProgram")?;
        let (text, name) = (CString::new(text)?, CString::new(name)?);
        let mut strings = Vec::new();
        for (name, text) in headers {
            strings.push((CString::new(name.as_str())?, CString::new(text.as_str())?));
        }
        let names: Vec<*const c_char> = strings.iter().map(|(name, _)| name.as_ptr()).collect();
        let texts: Vec<*const c_char> = strings.iter().map(|(_, text)| text.as_ptr()).collect();
        let (names_at, texts_at) =
            if names.is_empty() { (null(), null()) } else { (names.as_ptr(), texts.as_ptr()) };
        let mut program = null_mut();
        let count = c_int::try_from(headers.len())?;
        // SAFETY: all strings end with zero and live through the call; NVRTC copies them.
        let result = unsafe {
            create(&mut program, text.as_ptr(), name.as_ptr(), count, texts_at, names_at)
        };
        ensure!(result == 0, "nvrtcCreateProgram fails with {result}");
        Ok(program)
    }

    fn output(&self, program: Program, size: &str, get: &str) -> Result<Vec<u8>> {
        let size: Symbol<unsafe extern "C" fn(Program, *mut usize) -> c_int> =
            self.function(size)?;
        let copy: Symbol<unsafe extern "C" fn(Program, *mut u8) -> c_int> = self.function(get)?;
        let mut bytes = 0;
        // SAFETY: the program exists and `bytes` lives through the call.
        let result = unsafe { size(program, &mut bytes) };
        ensure!(result == 0, "{get} fails with {result}");
        let mut output = vec![0; bytes];
        // SAFETY: NVRTC writes the number of bytes that it just told.
        let result = unsafe { copy(program, output.as_mut_ptr()) };
        ensure!(result == 0, "{get} fails with {result}");
        Ok(output)
    }

    fn destroy(&self, mut program: Program) -> Result<()> {
        let destroy: Symbol<unsafe extern "C" fn(*mut Program) -> c_int> =
            self.function("nvrtcDestroyProgram")?;
        // SAFETY: the program exists and is not used afterwards.
        let result = unsafe { destroy(&mut program) };
        ensure!(result == 0, "nvrtcDestroyProgram fails with {result}");
        Ok(())
    }
}
