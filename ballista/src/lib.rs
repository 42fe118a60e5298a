//! Ballista executors whose hash joins run on OpenCL devices.
