//! Files that remember something of a device from process to process.
//!
//! ```text
//!  <HORTON_CACHE_DIR, or the user's cache folder/horton-join>/
//!     <sha-256 of device, driver and what is remembered>.bin | .verdict
//! ```
//!
//! A file is written under another name and renamed, so that a reader sees all of it or nothing.
//! Files that another user could have written are not read, as programs in them run here. A
//! folder that cannot be written costs only time.

use std::fs::File;
use std::io::{ErrorKind, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use sha2::{Digest, Sha256};

use super::info::DeviceInfo;

/// Returns the path of the file that remembers `what` of a device and its driver.
pub(crate) fn cache_file(info: &DeviceInfo, what: &str, extension: &str) -> Option<PathBuf> {
    let folder = match std::env::var_os("HORTON_CACHE_DIR") {
        Some(folder) => PathBuf::from(folder),
        None => dirs::cache_dir()?.join("horton-join"),
    };
    let mut hash = Sha256::new();
    let platform = [&info.platform, &info.platform_version];
    for part in platform
        .into_iter()
        .chain([&info.name, &info.vendor, &info.version])
    {
        hash.update(part.as_bytes());
        hash.update([0]);
    }
    hash.update(what.as_bytes());
    Some(folder.join(format!("{:x}.{extension}", hash.finalize())))
}

/// Reads a file of the cache, unless another user could have written it.
pub(super) fn read_file(file: &Path) -> std::io::Result<Vec<u8>> {
    let mut file = open(file)?;
    let found = file.metadata()?;
    // Reading anything but a file, such as a pipe, could take forever.
    if !found.is_file() || !is_trusted(&found) {
        return Err(ErrorKind::PermissionDenied.into());
    }
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Opens a file, and not what a link there points to. What was opened is checked: another file may
/// have that name by then.
#[cfg(unix)]
fn open(file: &Path) -> std::io::Result<File> {
    use std::os::unix::fs::OpenOptionsExt;
    // Opening a pipe waits for its writer otherwise.
    let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK;
    File::options().read(true).custom_flags(flags).open(file)
}

/// Opens a file.
#[cfg(not(unix))]
fn open(file: &Path) -> std::io::Result<File> {
    File::open(file)
}

/// Returns whether only this user, and root, can have written a file.
#[cfg(target_os = "linux")]
fn is_trusted(file: &std::fs::Metadata) -> bool {
    use std::os::unix::fs::MetadataExt;
    // SAFETY: it only returns a number.
    let user = unsafe { libc::geteuid() };
    let writable_by_others = 0o022;
    (file.uid() == user || file.uid() == 0) && file.mode() & writable_by_others == 0
}

/// Trusts every file: owners are checked on Linux only.
#[cfg(not(target_os = "linux"))]
fn is_trusted(_: &std::fs::Metadata) -> bool {
    true
}

/// Reads such a file as text.
pub(crate) fn read_text(file: &Path) -> Option<String> {
    String::from_utf8(read_file(file).ok()?).ok()
}

/// Returns how long ago a file was written; `None` if the system does not say.
pub(super) fn age(file: &Path) -> Option<Duration> {
    std::fs::metadata(file)
        .ok()?
        .modified()
        .ok()?
        .elapsed()
        .ok()
}

/// Writes a file whose readers see all of its `parts` or nothing.
pub(crate) fn store_file(file: &Path, parts: &[&[u8]]) -> std::io::Result<()> {
    let folder = file.parent().unwrap_or(Path::new("."));
    std::fs::create_dir_all(folder)?;
    let mut scratch = tempfile::NamedTempFile::new_in(folder)?;
    for part in parts {
        scratch.write_all(part)?;
    }
    scratch.persist(file)?;
    Ok(())
}
