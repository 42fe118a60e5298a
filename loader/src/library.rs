//! Opens the OpenCL library once, at the first call that needs it, and keeps it open for good:
//! drivers run threads and exit handlers of their own, so closing it is never safe.

use std::ffi::OsString;
use std::sync::OnceLock;
use std::{env, fmt};

use libloading::Library;

/// The environment variable that names the library to open instead of the system's: a path, or
/// a name to be searched for. It is read once; if that library cannot be opened, none is.
pub const LIBRARY_VARIABLE: &str = "HORTON_OPENCL_LIBRARY";

#[cfg(windows)]
const NAMES: &[&str] = &["OpenCL.dll"];
#[cfg(target_vendor = "apple")]
const NAMES: &[&str] = &["/System/Library/Frameworks/OpenCL.framework/OpenCL"];
/// The name that loaders install; then the one on Android, or left by development files alone.
#[cfg(not(any(windows, target_vendor = "apple")))]
const NAMES: &[&str] = &["libOpenCL.so.1", "libOpenCL.so"];

/// The result of opening the OpenCL library.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LoaderStatus {
    /// The library with this name or path was opened; it may still have no platform.
    Loaded(String),
    /// None was: the system's reasons, one for each name tried, separated by `; `.
    Missing(String),
}

impl fmt::Display for LoaderStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Loaded(name) => write!(f, "OpenCL library {name}"),
            Self::Missing(reasons) => write!(f, "no OpenCL library ({reasons})"),
        }
    }
}

/// Says which OpenCL library this process uses, or why it has none. The first call opens it.
///
/// ```
/// println!("{}", horton_opencl_loader::status());
/// ```
pub fn status() -> &'static LoaderStatus {
    &opened().1
}

/// Returns the function called `name`, or `None` when there is no library or no such function in
/// it.
///
/// # Safety
/// `F` is a function pointer type with the signature of the library's `name`.
pub(crate) unsafe fn symbol<F: Copy>(name: &str) -> Option<F> {
    let library = opened().0.as_ref()?;
    // SAFETY: the type is right by the caller's promise; the pointer may be copied out because
    // the library stays open as long as the process lives.
    unsafe { library.get::<F>(name.as_bytes()) }
        .ok()
        .map(|function| *function)
}

fn opened() -> &'static (Option<Library>, LoaderStatus) {
    static OPENED: OnceLock<(Option<Library>, LoaderStatus)> = OnceLock::new();
    OPENED.get_or_init(|| match env::var_os(LIBRARY_VARIABLE) {
        Some(name) if !name.is_empty() => first_of([name]),
        _ => first_of(NAMES.iter().map(OsString::from)),
    })
}

fn first_of(names: impl IntoIterator<Item = OsString>) -> (Option<Library>, LoaderStatus) {
    let mut reasons = Vec::new();
    for name in names {
        match open(&name) {
            Ok(library) => {
                let name = name.to_string_lossy().into_owned();
                return (Some(library), LoaderStatus::Loaded(name));
            }
            Err(error) => reasons.push(error.to_string()),
        }
    }
    (None, LoaderStatus::Missing(reasons.join("; ")))
}

/// Returns `RTLD_NOW`: a library that lacks something of its own is refused here, instead of ending
/// the process at some later call. `RTLD_LOCAL`: its names stay its own.
#[cfg(unix)]
fn open(name: &OsString) -> Result<Library, libloading::Error> {
    use libloading::os::unix;
    // SAFETY: runs the library's initialisers, as linking it would have done at program start.
    unsafe { unix::Library::open(Some(name), unix::RTLD_NOW | unix::RTLD_LOCAL) }.map(Library::from)
}

#[cfg(windows)]
fn open(name: &OsString) -> Result<Library, libloading::Error> {
    // SAFETY: runs the library's initialisers, as linking it would have done at program start.
    unsafe { Library::new(name) }
}
