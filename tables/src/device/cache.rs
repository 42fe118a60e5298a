//! Files that remember something of a device from process to process.
//!
//! ```text
//!  <HORTON_CACHE_DIR, or the user's cache folder/horton-join>/
//!     <sha-256 of device, driver and what is remembered>.bin | .verdict
//!        = sha-256 of the file's name and its contents ‖ contents
//! ```
//!
//! A file is written under another name and renamed, so that a reader sees all of it or nothing.
//! Files that another user could have written are not read, as programs in them run here. Nor are
//! links, pipes, and files that are damaged or have had another name: whoever may write to the
//! folder, and to none of the user's files, may still give one the name of another. A folder that
//! cannot be written costs only time.

use std::fs::File;
use std::io::{ErrorKind, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
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

/// Reads the contents of a file of the cache, unless another user could have written it.
///
/// # Errors
/// `PermissionDenied` for such a file, and for what is no file; `InvalidData` for one that is
/// damaged or has had another name; others of the system.
pub(super) fn read_file(file: &Path) -> std::io::Result<Vec<u8>> {
    let mut opened = open(file)?;
    let found = opened.metadata()?;
    // Reading anything but a file, such as a pipe, could take forever.
    if !found.is_file() || !is_trusted(&found) {
        warn_once(file);
        return Err(ErrorKind::PermissionDenied.into());
    }
    let mut stored = Vec::new();
    opened.read_to_end(&mut stored)?;
    match stored.split_at_checked(SUM_BYTES) {
        Some((sum, contents)) if sum == checksum(file, contents) => Ok(stored.split_off(SUM_BYTES)),
        _ => Err(ErrorKind::InvalidData.into()),
    }
}

/// Bytes of a SHA-256.
const SUM_BYTES: usize = 32;

/// Returns the checksum of a file's name and contents.
fn checksum(file: &Path, contents: &[u8]) -> [u8; SUM_BYTES] {
    let mut hash = Sha256::new();
    let name = file.file_name().unwrap_or_default();
    hash.update(name.as_encoded_bytes());
    hash.update([0]);
    hash.update(contents);
    hash.finalize().into()
}

/// Warns once in this process that a file is not read.
fn warn_once(file: &Path) {
    static WARNED: AtomicBool = AtomicBool::new(false);
    if !WARNED.swap(true, Ordering::Relaxed) {
        log::warn!(
            "'{}' and others like it are not read: another user could have written them, or they \
             are no files; kernels are compiled again for each process until you delete them",
            file.display()
        );
    }
}

/// Opens a file, and not what a link there points to. The opened file is checked: another file may
/// have that name by then.
#[cfg(unix)]
fn open(file: &Path) -> std::io::Result<File> {
    use std::os::unix::fs::OpenOptionsExt;
    // Opening a pipe waits for its writer otherwise.
    let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK;
    let opened = File::options().read(true).custom_flags(flags).open(file);
    opened.inspect_err(|error| {
        if error.raw_os_error() == Some(libc::ELOOP) {
            warn_once(file);
        }
    })
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

/// Writes a file whose readers see all of its `contents` or nothing.
pub(crate) fn store_file(file: &Path, contents: &[u8]) -> std::io::Result<()> {
    let folder = file.parent().unwrap_or(Path::new("."));
    std::fs::create_dir_all(folder)?;
    let mut scratch = tempfile::NamedTempFile::new_in(folder)?;
    scratch.write_all(&checksum(file, contents))?;
    scratch.write_all(contents)?;
    scratch.persist(file)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The kind of error that reading `file` ends with.
    fn refused(file: &Path) -> ErrorKind {
        read_file(file).unwrap_err().kind()
    }

    #[test]
    fn files_that_are_torn_or_have_had_another_name_are_not_read() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("x.bin");
        assert_eq!(refused(&file), ErrorKind::NotFound);
        for contents in [&b"binary"[..], b""] {
            store_file(&file, contents).unwrap();
            assert_eq!(read_file(&file).unwrap(), contents);
        }
        store_file(&file, b"binary").unwrap();
        let whole = std::fs::read(&file).unwrap();
        let mut changed = whole.clone();
        changed[SUM_BYTES] ^= 1;
        for damaged in [&whole[..whole.len() - 1], &changed, b"short", b""] {
            std::fs::write(&file, damaged).unwrap();
            assert_eq!(refused(&file), ErrorKind::InvalidData);
        }
        std::fs::write(&file, &whole).unwrap();
        let other = folder.path().join("y.bin");
        std::fs::hard_link(&file, &other).unwrap();
        assert_eq!(refused(&other), ErrorKind::InvalidData);
        assert_eq!(read_file(&file).unwrap(), b"binary");
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn what_others_could_have_written_or_is_no_file_is_not_read() {
        use std::os::unix::fs::{PermissionsExt, symlink};

        let folder = tempfile::tempdir().unwrap();
        let place = |name: &str| folder.path().join(name);
        let file = place("x.bin");
        store_file(&file, b"binary").unwrap();
        for mode in [0o620, 0o602, 0o666] {
            std::fs::set_permissions(&file, PermissionsExt::from_mode(mode)).unwrap();
            assert_eq!(refused(&file), ErrorKind::PermissionDenied, "{mode:o}");
        }
        std::fs::set_permissions(&file, PermissionsExt::from_mode(0o644)).unwrap();
        assert!(read_file(&file).is_ok());
        let link = place("link.bin");
        symlink(&file, &link).unwrap();
        let error = read_file(&link).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::ELOOP));
        let inner = place("folder.bin");
        std::fs::create_dir(&inner).unwrap();
        assert_eq!(refused(&inner), ErrorKind::PermissionDenied);
        let pipe = place("pipe.bin");
        let path = std::ffi::CString::new(pipe.as_os_str().as_encoded_bytes()).unwrap();
        // SAFETY: the path ends with a NUL.
        assert_eq!(unsafe { libc::mkfifo(path.as_ptr(), 0o600) }, 0);
        assert_eq!(
            refused(&pipe),
            ErrorKind::PermissionDenied,
            "and nobody waits"
        );
        // They are replaced, but for a folder.
        for place in [link, pipe] {
            store_file(&place, b"new").unwrap();
            assert_eq!(read_file(&place).unwrap(), b"new");
        }
        assert_eq!(read_file(&file).unwrap(), b"binary");
        assert!(store_file(&inner, b"new").is_err());
    }
}
