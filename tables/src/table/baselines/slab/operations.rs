//! The operations of a slab hash on a batch of keys.

use crate::device::{Buffer, Queue};
use crate::error::Result;
use crate::table::api::Items;
use crate::table::baselines::batch::Batch;

use super::launch::{Counter, Operations};
use super::table::SlabHash;

impl SlabHash {
    /// Does REPLACE for every item: a key that is already stored gets the new value. Of a key that
    /// is given more than once, one value counts. Returns the number of keys that were added.
    ///
    /// # Errors
    /// [`Error::NoRoom`](crate::error::Error::NoRoom) if slabs run out: every item that is not
    /// rejected is stored, and nothing is lost. [`Error::Invalid`](crate::error::Error::Invalid)
    /// with the number of values over [`MAX_VALUE`](super::MAX_VALUE), or keys over
    /// [`MAX_KEY`](super::MAX_KEY) in a table of keys.
    /// [`Error::DeviceMemory`](crate::error::Error::DeviceMemory) and OpenCL's own.
    pub fn replace(&mut self, queue: &mut Queue, items: Items<'_>) -> Result<usize> {
        self.store(queue, "replace_keys", items)
    }

    /// Does INSERT for every item: stores another instance, whether the key is there or not.
    ///
    /// # Errors
    /// As [`replace`](Self::replace).
    pub fn insert_instances(&mut self, queue: &mut Queue, items: Items<'_>) -> Result<usize> {
        self.store(queue, "insert_keys", items)
    }

    fn store(
        &mut self,
        queue: &mut Queue,
        kernel: &'static str,
        items: Items<'_>,
    ) -> Result<usize> {
        let n = items.count()?;
        let counts = self.run(
            queue,
            &Operations::for_keys(kernel, items.keys, items.values, n),
        )?;
        Ok(counts.get(Counter::Added))
    }

    /// Does SEARCH for the first `n` of `keys`; `values[i]` receives a value (the key itself in a
    /// table of keys) or [`MISS`](super::MISS).
    ///
    /// # Errors
    /// [`Error::Invalid`](crate::error::Error::Invalid) if a buffer is shorter than `n` or `n`
    /// exceeds 2^31; OpenCL's own.
    pub fn search(
        &self,
        queue: &mut Queue,
        keys: &Buffer<u32>,
        values: &Buffer<u32>,
        n: usize,
    ) -> Result<()> {
        let operations = Operations {
            answers: Some(values),
            ..Operations::for_keys("search_keys", keys, None, n)
        };
        self.launch(queue, &operations)
    }

    /// Counts the instances of the first `n` of `keys` into `counts`.
    ///
    /// # Errors
    /// As [`search`](Self::search).
    pub fn count(
        &self,
        queue: &mut Queue,
        keys: &Buffer<u32>,
        counts: &Buffer<u32>,
        n: usize,
    ) -> Result<()> {
        let operations = Operations {
            answers: Some(counts),
            ..Operations::for_keys("count_keys", keys, None, n)
        };
        self.launch(queue, &operations)
    }

    /// Does SEARCHALL for all of `keys`. Returns offsets, one more than keys, and values: those of
    /// key i are `values[offsets[i]..offsets[i + 1]]`, in no order.
    ///
    /// # Errors
    /// [`Error::Invalid`](crate::error::Error::Invalid) if there are more than 2^32 - 1 values; as
    /// [`search`](Self::search).
    pub fn search_all(
        &self,
        queue: &mut Queue,
        keys: &Buffer<u32>,
    ) -> Result<(Buffer<u32>, Buffer<u32>)> {
        self.list_instances(queue, keys)
    }

    /// Does DELETE for the first `n` of `keys`: removes the first instance of each. Returns how
    /// many there were.
    ///
    /// # Errors
    /// As [`search`](Self::search).
    pub fn delete(&mut self, queue: &mut Queue, keys: &Buffer<u32>, n: usize) -> Result<usize> {
        let counts = self.run(queue, &Operations::for_keys("delete_keys", keys, None, n))?;
        Ok(counts.get(Counter::Removed))
    }

    /// Does DELETEALL for the first `n` of `keys`: removes all instances. Returns how many there
    /// were.
    ///
    /// # Errors
    /// As [`search`](Self::search).
    pub fn delete_all(&mut self, queue: &mut Queue, keys: &Buffer<u32>, n: usize) -> Result<usize> {
        let counts = self.run(
            queue,
            &Operations::for_keys("delete_all_keys", keys, None, n),
        )?;
        Ok(counts.get(Counter::Removed))
    }

    /// Does operations of all kinds, side by side; `answers[i]` receives what
    /// [`Kind`](crate::table::baselines::batch::Kind) says. Where slabs run out and a SlabAlloc
    /// grows, the operations without room are done in another launch.
    ///
    /// # Errors
    /// As [`replace`](Self::replace); [`Error::Invalid`](crate::error::Error::Invalid) if the
    /// buffers differ in length. Operations of unknown kinds do nothing, and their answers are left
    /// as they were.
    pub fn apply(
        &mut self,
        queue: &mut Queue,
        batch: Batch<'_>,
        answers: &Buffer<u32>,
    ) -> Result<()> {
        let operations = Operations {
            kernel: "apply_batch",
            kinds: Some(batch.kinds),
            keys: batch.keys,
            values: Some(batch.values),
            answers: Some(answers),
            n: batch.len()?,
        };
        self.run(queue, &operations)?;
        Ok(())
    }
}
