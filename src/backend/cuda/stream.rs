//! A device's one stream, and what lives on it: memory, modules, events and graphs, each given back when it is let go.
//!
//! Everything runs on one stream, in whose order buffers are made, used and freed. What the driver says when something
//! is given back helps nobody: a device that has failed says so to the next call.
#![allow(unsafe_code)]

use std::{
    ffi::{CString, c_int, c_uint, c_ulonglong, c_void},
    marker::PhantomData,
    ptr,
    sync::Arc,
};

use cudarc::driver::{
    DeviceRepr, ValidAsZeroBits,
    sys::{
        CUcontext, CUdevice, CUdeviceptr, CUevent,
        CUfunction_attribute_enum::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, CUgraph,
        CUgraphExec, CUlaunchConfig, CUmodule, CUstream,
        CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL,
    },
};

use super::{
    driver::{Basics, Functions},
    error::Refusal,
};

/// `CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED`.
const MEMORY_POOLS: c_int = 115;
/// `CU_STREAM_NON_BLOCKING`: it does not wait for the default stream.
const NON_BLOCKING: c_uint = 1;
/// `CU_EVENT_DEFAULT`: it takes the time.
const WITH_TIME: c_uint = 0;
/// `CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH`.
const FREE_ON_LAUNCH: c_ulonglong = 1;

/// A stream of a device's primary context.
pub struct Stream {
    driver: Functions,
    device: CUdevice,
    context: CUcontext,
    /// Null until it has been made.
    stream: CUstream,
    /// Whether memory is taken and freed in the stream's order.
    has_pools: bool,
}

// SAFETY: contexts and streams may be used by any thread, and by several at once.
unsafe impl Send for Stream {}
// SAFETY: the same.
unsafe impl Sync for Stream {}

impl Stream {
    /// Takes device number `ordinal` of a driver that has been started.
    pub fn open(basics: &Basics, driver: Functions, ordinal: c_int) -> Result<Arc<Self>, Refusal> {
        let (mut device, mut pools, mut context) = (0, 0, ptr::null_mut());
        // SAFETY: it writes one device, one int, and one context.
        unsafe {
            basics.cuDeviceGet(&raw mut device, ordinal)?;
            basics.cuDeviceGetAttribute(&raw mut pools, MEMORY_POOLS, device)?;
            driver.cuDevicePrimaryCtxRetain(&raw mut context, device)?;
        }
        let mut opened = Self {
            driver,
            device,
            context,
            stream: ptr::null_mut(),
            has_pools: pools > 0,
        };
        opened.bind()?;
        // SAFETY: it writes one stream.
        unsafe { driver.cuStreamCreate(&raw mut opened.stream, NON_BLOCKING) }?;
        Ok(Arc::new(opened))
    }

    /// The stream as the driver and its libraries know it.
    pub fn raw(&self) -> CUstream {
        self.stream
    }

    /// Makes the context the current one of this thread.
    pub fn bind(&self) -> Result<(), Refusal> {
        let mut current = ptr::null_mut();
        // SAFETY: it writes one context.
        unsafe { self.driver.cuCtxGetCurrent(&raw mut current) }?;
        if current == self.context {
            return Ok(());
        }
        // SAFETY: the context is retained.
        unsafe { self.driver.cuCtxSetCurrent(self.context) }
    }

    /// Waits until everything is done.
    pub fn synchronize(&self) -> Result<(), Refusal> {
        self.bind()?;
        // SAFETY: the stream is alive.
        unsafe { self.driver.cuStreamSynchronize(self.stream) }
    }

    /// Memory for `count` values, whatever is in it.
    fn take<T>(self: &Arc<Self>, count: usize) -> Result<Buffer<T>, Refusal> {
        self.bind()?;
        let mut pointer = 0;
        let bytes = count.saturating_mul(size_of::<T>());
        // SAFETY: it writes one pointer; the stream is alive.
        unsafe {
            if self.has_pools {
                self.driver
                    .cuMemAllocAsync(&raw mut pointer, bytes, self.stream)?;
            } else {
                self.driver.cuMemAlloc_v2(&raw mut pointer, bytes)?;
            }
        }
        Ok(Buffer {
            stream: self.clone(),
            pointer,
            count,
            values: PhantomData,
        })
    }

    /// Memory for `count` values, zero.
    pub fn zeros<T: DeviceRepr + ValidAsZeroBits>(
        self: &Arc<Self>,
        count: usize,
    ) -> Result<Buffer<T>, Refusal> {
        let buffer = self.take(count)?;
        let Buffer { pointer, .. } = buffer;
        // SAFETY: the buffer has these bytes, and zero is a value of T.
        unsafe {
            self.driver
                .cuMemsetD8Async(pointer, 0, buffer.bytes(), self.stream)
        }?;
        Ok(buffer)
    }

    /// A copy of `values`.
    pub fn upload<T: DeviceRepr>(self: &Arc<Self>, values: &[T]) -> Result<Buffer<T>, Refusal> {
        let buffer = self.take(values.len())?;
        let (to, from) = (buffer.pointer, values.as_ptr().cast());
        // SAFETY: both have these bytes. Pageable memory has been read when the driver returns.
        unsafe {
            self.driver
                .cuMemcpyHtoDAsync_v2(to, from, buffer.bytes(), self.stream)
        }?;
        Ok(buffer)
    }

    /// The values of a buffer.
    pub fn download<T: DeviceRepr + Clone + Default>(
        &self,
        buffer: &Buffer<T>,
    ) -> Result<Vec<T>, Refusal> {
        self.bind()?;
        let mut values = vec![T::default(); buffer.count];
        let (to, from) = (values.as_mut_ptr().cast(), buffer.pointer);
        // SAFETY: both have these bytes. Pageable memory has been written when the driver returns.
        unsafe {
            self.driver
                .cuMemcpyDtoHAsync_v2(to, from, buffer.bytes(), self.stream)
        }?;
        Ok(values)
    }

    /// Copies a buffer to another of the same size.
    pub fn copy<T: DeviceRepr>(&self, from: &Buffer<T>, to: &mut Buffer<T>) -> Result<(), Refusal> {
        self.bind()?;
        let bytes = from.bytes().min(to.bytes());
        // SAFETY: both have these bytes.
        unsafe {
            self.driver
                .cuMemcpyDtoDAsync_v2(to.pointer, from.pointer, bytes, self.stream)
        }
    }

    /// Loads machine code.
    pub fn load(self: &Arc<Self>, code: &[u8]) -> Result<Arc<Module>, Refusal> {
        self.bind()?;
        let mut module = ptr::null_mut();
        // SAFETY: it writes one module. What it reads is a CUBIN, which says how long it is: NVRTC has just made it, or
        // it stood in the cache under its digest.
        unsafe {
            self.driver
                .cuModuleLoadData(&raw mut module, code.as_ptr().cast())
        }?;
        Ok(Arc::new(Module {
            stream: self.clone(),
            module,
        }))
    }

    /// Launches a function.
    ///
    /// # Safety
    /// The configuration names this stream. The arguments are those of the function, and point to values of their types
    /// and to buffers of the sizes that it takes.
    pub unsafe fn launch(
        &self,
        config: &CUlaunchConfig,
        function: &Function,
        arguments: &mut [*mut c_void],
    ) -> Result<(), Refusal> {
        self.bind()?;
        // SAFETY: the caller says so; the driver copies arguments and attributes before it returns.
        unsafe {
            self.driver.cuLaunchKernelEx(
                ptr::from_ref(config),
                function.function,
                arguments.as_mut_ptr(),
                ptr::null_mut(),
            )
        }
    }

    /// Begins to write down, rather than to do, what this thread asks for.
    pub fn begin_capture(&self) -> Result<(), Refusal> {
        self.bind()?;
        // SAFETY: the stream is alive.
        unsafe {
            self.driver
                .cuStreamBeginCapture_v2(self.stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL)
        }
    }

    /// What was written down; `None` if that is nothing.
    pub fn end_capture(self: &Arc<Self>) -> Result<Option<Graph>, Refusal> {
        self.bind()?;
        let mut graph = ptr::null_mut();
        // SAFETY: the stream is alive, and it writes one graph.
        unsafe { self.driver.cuStreamEndCapture(self.stream, &raw mut graph) }?;
        if graph.is_null() {
            return Ok(None);
        }
        let mut captured = Graph {
            stream: self.clone(),
            graph,
            executable: ptr::null_mut(),
        };
        // SAFETY: the graph is alive, and it writes one executable graph.
        unsafe {
            self.driver.cuGraphInstantiateWithFlags(
                &raw mut captured.executable,
                graph,
                FREE_ON_LAUNCH,
            )
        }?;
        Ok(Some(captured))
    }

    /// A mark behind everything asked for so far.
    pub fn mark(self: &Arc<Self>) -> Result<Event, Refusal> {
        self.bind()?;
        let mut event = ptr::null_mut();
        // SAFETY: it writes one event.
        unsafe { self.driver.cuEventCreate(&raw mut event, WITH_TIME) }?;
        let marked = Event {
            stream: self.clone(),
            event,
        };
        // SAFETY: event and stream are alive.
        unsafe { self.driver.cuEventRecord(event, self.stream) }?;
        Ok(marked)
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        let _ = self.bind();
        // SAFETY: all that used them is gone: it held them alive.
        unsafe {
            if !self.stream.is_null() {
                let _ = self.driver.cuStreamDestroy_v2(self.stream);
            }
            let _ = self.driver.cuDevicePrimaryCtxRelease_v2(self.device);
        }
    }
}

/// Values in a device's memory.
pub struct Buffer<T> {
    stream: Arc<Stream>,
    pointer: CUdeviceptr,
    count: usize,
    values: PhantomData<T>,
}

impl<T> Buffer<T> {
    /// Where they are, in the device's memory.
    pub fn pointer(&self) -> CUdeviceptr {
        self.pointer
    }

    fn bytes(&self) -> usize {
        self.count * size_of::<T>()
    }
}

impl<T> Drop for Buffer<T> {
    fn drop(&mut self) {
        let Self {
            stream, pointer, ..
        } = self;
        if !stream.has_pools {
            let _ = stream.synchronize();
        }
        // SAFETY: the pointer came from the function's counterpart and is not used again; what uses it on the stream is
        // ahead of this, or has been waited for.
        let _ = unsafe {
            if stream.has_pools {
                stream.driver.cuMemFreeAsync(*pointer, stream.stream)
            } else {
                stream.driver.cuMemFree_v2(*pointer)
            }
        };
    }
}

/// Machine code on a device.
pub struct Module {
    stream: Arc<Stream>,
    module: CUmodule,
}

// SAFETY: modules may be used by any thread, and by several at once.
unsafe impl Send for Module {}
// SAFETY: the same.
unsafe impl Sync for Module {}

impl Module {
    /// Its function `name`.
    pub fn function(self: &Arc<Self>, name: &str) -> Result<Function, Refusal> {
        let mut function = ptr::null_mut();
        // Every name is one of this program's own, without a NUL.
        let name = CString::new(name).unwrap_or_default();
        self.stream.bind()?;
        // SAFETY: module and name are alive, and it writes one function.
        unsafe {
            self.stream
                .driver
                .cuModuleGetFunction(&raw mut function, self.module, name.as_ptr())
        }?;
        Ok(Function {
            module: self.clone(),
            function,
        })
    }
}

impl Drop for Module {
    fn drop(&mut self) {
        let _ = self.stream.bind();
        // SAFETY: the functions of the module are gone: they held it alive.
        let _ = unsafe { self.stream.driver.cuModuleUnload(self.module) };
    }
}

/// A function of a module.
pub struct Function {
    module: Arc<Module>,
    function: cudarc::driver::sys::CUfunction,
}

// SAFETY: functions may be launched by any thread, and by several at once.
unsafe impl Send for Function {}
// SAFETY: the same.
unsafe impl Sync for Function {}

impl Function {
    /// Lets its blocks take so many bytes of shared memory.
    pub fn allow_shared(&self, bytes: c_int) -> Result<(), Refusal> {
        let stream = &self.module.stream;
        stream.bind()?;
        // SAFETY: the function is alive with its module.
        unsafe {
            stream.driver.cuFuncSetAttribute(
                self.function,
                CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                bytes,
            )
        }
    }
}

/// A point in a stream's work.
pub struct Event {
    stream: Arc<Stream>,
    event: CUevent,
}

impl Event {
    /// The time from here to a later point, once that is reached.
    pub fn milliseconds_until(&self, end: &Self) -> Result<f32, Refusal> {
        let Stream { driver, .. } = &*self.stream;
        let mut milliseconds = 0.0;
        self.stream.bind()?;
        // SAFETY: both events are alive and recorded, and it writes one float.
        unsafe {
            driver.cuEventSynchronize(self.event)?;
            driver.cuEventSynchronize(end.event)?;
            driver.cuEventElapsedTime_v2(&raw mut milliseconds, self.event, end.event)?;
        }
        Ok(milliseconds)
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        let _ = self.stream.bind();
        // SAFETY: the event is alive and not used again.
        let _ = unsafe { self.stream.driver.cuEventDestroy_v2(self.event) };
    }
}

/// Work written down, to be done time and again.
pub struct Graph {
    stream: Arc<Stream>,
    graph: CUgraph,
    /// Null until it has been made.
    executable: CUgraphExec,
}

impl Graph {
    /// Does it once.
    pub fn launch(&self) -> Result<(), Refusal> {
        let Stream { driver, stream, .. } = &*self.stream;
        self.stream.bind()?;
        // SAFETY: graph and stream are alive, and so are the buffers that the graph names, by who made it.
        unsafe { driver.cuGraphLaunch(self.executable, *stream) }
    }
}

impl Drop for Graph {
    fn drop(&mut self) {
        let Stream { driver, .. } = &*self.stream;
        // SAFETY: both are alive, and not used again.
        unsafe {
            if !self.executable.is_null() {
                let _ = driver.cuGraphExecDestroy(self.executable);
            }
            let _ = driver.cuGraphDestroy(self.graph);
        }
    }
}
