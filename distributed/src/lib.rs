//! Workers of datafusion-distributed whose hash joins run on OpenCL devices.
