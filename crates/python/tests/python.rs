//! Runs `python/tests` with pytest on the module that cargo built for this test. Skipped, with a line that says so, where there is no
//! Python 3.10 or pytest cannot be had.

use std::env::current_exe;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use cutout_testing::skip;

/// Name of the interpreter that makes the virtual environment.
const PYTHON: &str = if cfg!(windows) { "python" } else { "python3" };

/// Root of the repository.
fn root() -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    root.canonicalize().expect("the repository is there")
}

/// The interpreter of the environment in `folder`, or why there is none.
fn interpreter(folder: &Path) -> Result<PathBuf, String> {
    let script = root().join("python/tests/environment.py");
    let run = Command::new(PYTHON).arg(script).arg(folder).stdin(Stdio::null()).output();
    let run = run.map_err(|error| format!("{PYTHON}: {error}"))?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
    let last = |text: String| text.lines().last().unwrap_or_default().to_owned();
    if run.status.success() {
        Ok(PathBuf::from(last(text(&run.stdout))))
    } else {
        Err(last(text(&run.stderr)))
    }
}

/// The module that was built with this test: the newest, beside it or one folder above.
fn module() -> PathBuf {
    let (prefix, suffix) = (std::env::consts::DLL_PREFIX, std::env::consts::DLL_SUFFIX);
    let name = format!("{prefix}_cutout{suffix}");
    let executable = current_exe().expect("this program");
    let found = executable.ancestors().skip(1).take(2).map(|folder| folder.join(&name));
    let modified = |path: &PathBuf| fs::metadata(path).and_then(|data| data.modified()).ok();
    let newest = found.filter(|path| path.exists()).max_by_key(modified);
    newest.unwrap_or_else(|| panic!("cargo built no {name} for this test"))
}

/// Puts the package into `folder`: the Python files and the module under the name that Python looks for.
fn assemble(folder: &Path) -> io::Result<()> {
    if folder.exists() {
        fs::remove_dir_all(folder)?;
    }
    let package = folder.join("cutout");
    copy(&root().join("python/cutout"), &package)?;
    let extension = if cfg!(windows) { "pyd" } else { "abi3.so" };
    let place = package.join(format!("_cutout.{extension}"));
    // It is large; a second name for it is enough where the file system has that.
    fs::hard_link(module(), &place).or_else(|_| fs::copy(module(), &place).map(drop))
}

/// Copies the Python files of a folder and its subfolders.
fn copy(from: &Path, to: &Path) -> io::Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let (path, name) = entry.map(|entry| (entry.path(), entry.file_name()))?;
        let is_source = path.extension().is_some_and(|ending| ending == "py" || ending == "pyi");
        if path.is_dir() && name != "__pycache__" {
            copy(&path, &to.join(name))?;
        } else if is_source || name == "py.typed" {
            fs::copy(&path, to.join(name))?;
        }
    }
    Ok(())
}

/// Writes a line that is seen even if the test passes: what `eprintln!` writes is kept back then.
fn say(line: &str) {
    let mut stderr = io::stderr();
    writeln!(stderr, "python: {line}").expect("the terminal is there");
}

#[test]
fn the_tests_of_the_python_package_pass() {
    let executable = current_exe().unwrap();
    // target/debug/deps/python-…
    let target = executable.ancestors().nth(3).unwrap();
    let interpreter = match interpreter(&target.join("python")) {
        Ok(interpreter) => interpreter,
        Err(reason) => {
            return skip(&format!("the tests of the Python package did not run: {reason}"));
        }
    };
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("package");
    assemble(&folder).unwrap();
    let mut pytest = Command::new(interpreter);
    pytest.args(["-m", "pytest", "--quiet", "-rs", "-p", "no:cacheprovider", "python/tests"]);
    let pytest = pytest.current_dir(root()).env("PYTHONPATH", &folder).stdin(Stdio::null());
    let run = pytest.env("PYTHONDONTWRITEBYTECODE", "1").output().unwrap();
    let said = String::from_utf8_lossy(&run.stdout);
    assert!(run.status.success(), "{said}\n{}", String::from_utf8_lossy(&run.stderr));
    // Which tests were skipped, and why.
    said.lines().filter_map(|line| line.strip_prefix("SKIPPED ")).for_each(skip);
    said.lines().last().into_iter().for_each(say);
}
