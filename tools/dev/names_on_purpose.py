"""What of Reverb's names differs here on purpose, and why. A name ending in ".*" stands for all that begin like it."""

_MADE_BY = "made by `Client.{}`, whose signature is the same; its constructor takes what this package has inside"
_NATIVE = "of the compiled layer, whose constructors are no users' business; use `reverb.{}`"
_CHUNKER = (
    "of the compiled layer; `Client.trajectory_writer(chunk_length=...)` and `TrajectoryWriter.configure` say how columns are cut"
)
_COMPILED = "a compiled file of the wheel's own"
_PROTO3 = "Reverb's messages have no extensions"
_HEAPS = "a function of `min_heap`: the heaps are the classes `MinHeap` and `MaxHeap` here, which `isinstance` takes"

_INTERNAL = "the compiled layer's object, which has no counterpart here"

REASONS = {
    "reverb.Writer": _MADE_BY.format("writer"),
    "reverb.client.Writer": _MADE_BY.format("writer"),
    "reverb.TrajectoryWriter": _MADE_BY.format("trajectory_writer"),
    "reverb.trajectory_writer.TrajectoryWriter": _MADE_BY.format("trajectory_writer"),
    "reverb.structured_writer.StructuredWriter": _MADE_BY.format("structured_writer"),
    "reverb.item_selectors.MaxHeap": "a class, so that `isinstance` takes it; called alike",
    "reverb.item_selectors.MinHeap": "a class, so that `isinstance` takes it; called alike",
    "reverb.pybind.HeapSelector": _HEAPS,
    "reverb.reverb_types.Heap": _HEAPS,
    "reverb.rate_limiters.RateLimiter.internal_limiter": _INTERNAL,
    "reverb.server.Table.internal_table": _INTERNAL,
    "reverb.pybind.Client": _NATIVE.format("Client"),
    "reverb.pybind.Sampler": _NATIVE.format("Client.sample"),
    "reverb.pybind.Server": _NATIVE.format("Server"),
    "reverb.pybind.StructuredWriter": _NATIVE.format("Client.structured_writer"),
    "reverb.pybind.Table": _NATIVE.format("Table"),
    "reverb.pybind.TrajectoryWriter": _NATIVE.format("Client.trajectory_writer"),
    "reverb.pybind.Writer": _NATIVE.format("Client.writer"),
    "reverb.pybind.AutoTunedChunkerOptions": _CHUNKER,
    "reverb.pybind.ChunkerOptions": _CHUNKER,
    "reverb.pybind.ConstantChunkerOptions": _CHUNKER,
    "reverb.libpybind": "the compiled layer itself; what users touch of it is in `reverb.pybind`",
    "reverb.cc.ops": "TensorFlow operations in C++; here `TFClient` and the datasets use TensorFlow's own and two of Reverie's in C",
    "reverb.cc.ops.gen_reverb_ops": "as `reverb.cc.ops`",
    "reverb.cc.ops.libgen_reverb_ops_gen_op": _COMPILED,
    "reverb.libcheckpoint_cc_proto": _COMPILED,
    "reverb.libpatterns_cc_proto": _COMPILED,
    "reverb.libreverb_service_cc_proto": _COMPILED,
    "reverb.libschema_cc_proto": _COMPILED,
    "reverb.pip_package": "how the wheel is built",
    "reverb.platform.default.ensure_tf_install": "TensorFlow is needed by `TFClient` and the datasets only, which say so",
    "reverb.platform.default.load_op_library": "there is no library of operations to load",
    "reverb.server_executable.server_main.FLAGS": "absl's flags; the program reads its own, so that absl is not needed",
    "message.ClearExtension": _PROTO3,
    "message.Extensions": _PROTO3,
    "message.HasExtension": _PROTO3,
    "message.RegisterExtension": _PROTO3,
    "message.UnknownFields": "unknown fields are kept and written again, but cannot be listed",
}
