//! Handles, and the objects that they stand for.
//!
//! ```text
//!  a handle: a number that is given once ─▶ OBJECTS ─▶ the object, and how often it is retained
//! ```
//!
//! A driver's handles are pointers. Whoever uses one after its release may meet another object at
//! the same place, and nobody notices. These numbers are never given again, so that such a use is
//! an error of the call.

use std::any::Any;
use std::collections::HashMap;
use std::ffi::c_void;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};

use crate::status::Called;

/// A handle, or a pointer to data in either direction.
pub type Ptr = *mut c_void;

/// A kind of objects.
pub trait Object: Any + Send + Sync {
    /// The status of calls with a handle that is none of such an object.
    const INVALID: i32;
}

struct Known {
    object: Arc<dyn Any + Send + Sync>,
    references: usize,
}

#[derive(Default)]
struct Objects {
    given: usize,
    known: HashMap<usize, Known>,
}

/// The platform's and the device's handles are 1 and 2.
const FIRST: usize = 16;

fn objects() -> MutexGuard<'static, Objects> {
    static OBJECTS: LazyLock<Mutex<Objects>> = LazyLock::new(Mutex::default);
    OBJECTS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the handle of a new object, retained once.
pub fn add<T: Object>(object: Arc<T>) -> Ptr {
    let mut objects = objects();
    objects.given += 1;
    let handle = FIRST + objects.given;
    let known = Known {
        object,
        references: 1,
    };
    objects.known.insert(handle, known);
    handle as Ptr
}

/// Returns the object that `handle` stands for.
///
/// # Errors
/// The status of a handle that is none of such an object, or not any more.
pub fn find<T: Object>(handle: Ptr) -> Called<Arc<T>> {
    let objects = objects();
    let known = objects.known.get(&(handle as usize));
    let object = known.map(|known| Arc::clone(&known.object));
    object
        .and_then(|object| object.downcast().ok())
        .ok_or(T::INVALID)
}

/// Returns how often an object is retained.
pub fn references(handle: Ptr) -> usize {
    let objects = objects();
    let known = objects.known.get(&(handle as usize));
    known.map_or(0, |known| known.references)
}

/// Retains the object of `handle` once more.
///
/// # Errors
/// The errors of [`find`].
pub fn retain<T: Object>(handle: Ptr) -> Called<()> {
    find::<T>(handle)?;
    if let Some(known) = objects().known.get_mut(&(handle as usize)) {
        known.references += 1;
    }
    Ok(())
}

/// Releases the object of `handle` once.
///
/// # Errors
/// The errors of [`find`].
pub fn release<T: Object>(handle: Ptr) -> Called<()> {
    find::<T>(handle)?;
    let mut objects = objects();
    let Some(known) = objects.known.get_mut(&(handle as usize)) else {
        return Err(T::INVALID);
    };
    known.references -= 1;
    let is_last = known.references == 0;
    let gone = is_last.then(|| objects.known.remove(&(handle as usize)));
    drop(objects);
    // Outside of the lock: a queue waits for its thread.
    drop(gone);
    Ok(())
}

/// A context.
pub struct Context;

impl Object for Context {
    const INVALID: i32 = crate::status::INVALID_CONTEXT;
}
