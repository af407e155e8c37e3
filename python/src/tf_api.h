/* What we call of TensorFlow's C API (tensorflow/c/kernels.h, ops.h, tf_tensor.h, tf_status.h): found at run time in the TensorFlow that
 * the process has loaded. Nothing is linked against it, and nothing of it is needed to build. */
#ifndef RV_PYTHON_TF_API_H
#define RV_PYTHON_TF_API_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct TF_OpDefinitionBuilder TF_OpDefinitionBuilder;
typedef struct TF_ShapeInferenceContext TF_ShapeInferenceContext;
typedef struct TF_KernelBuilder TF_KernelBuilder;
typedef struct TF_OpKernelConstruction TF_OpKernelConstruction;
typedef struct TF_OpKernelContext TF_OpKernelContext;
typedef struct TF_Tensor TF_Tensor;
typedef struct TF_Status TF_Status;

/* TF_DataType and TF_Code are numbers: those of rv_dtype and rv_code. X(what it returns, its name after "TF_", its parameters) */
#define TF_FUNCTIONS(X)                                                                                                          \
  X(TF_OpDefinitionBuilder *, NewOpDefinitionBuilder, (const char *))                                                            \
  X(void, OpDefinitionBuilderAddInput, (TF_OpDefinitionBuilder *, const char *))                                                 \
  X(void, OpDefinitionBuilderAddOutput, (TF_OpDefinitionBuilder *, const char *))                                                \
  X(void, OpDefinitionBuilderAddAttr, (TF_OpDefinitionBuilder *, const char *))                                                  \
  X(void, OpDefinitionBuilderSetIsStateful, (TF_OpDefinitionBuilder *, bool))                                                    \
  X(void, OpDefinitionBuilderSetShapeInferenceFunction,                                                                          \
    (TF_OpDefinitionBuilder *, void (*)(TF_ShapeInferenceContext *, TF_Status *)))                                               \
  X(void, ShapeInferenceContextSetUnknownShape, (TF_ShapeInferenceContext *, TF_Status *))                                       \
  X(void, RegisterOpDefinition, (TF_OpDefinitionBuilder *, TF_Status *))                                                         \
  X(TF_KernelBuilder *, NewKernelBuilder,                                                                                        \
    (const char *, const char *, void *(*)(TF_OpKernelConstruction *), void (*)(void *, TF_OpKernelContext *),                   \
     void (*)(void *)))                                                                                                          \
  X(void, RegisterKernelBuilder, (const char *, TF_KernelBuilder *, TF_Status *))                                                \
  X(void, GetInput, (TF_OpKernelContext *, int, TF_Tensor **, TF_Status *))                                                      \
  X(void, SetOutput, (TF_OpKernelContext *, int, const TF_Tensor *, TF_Status *))                                                \
  X(TF_Tensor *, AllocateOutput, (TF_OpKernelContext *, int, int, const int64_t *, int, size_t, TF_Status *))                    \
  X(void, OpKernelContext_Failure, (TF_OpKernelContext *, TF_Status *))                                                          \
  X(TF_Tensor *, NewTensor, (int, const int64_t *, int, void *, size_t, void (*)(void *, size_t, void *), void *))               \
  X(void *, TensorData, (const TF_Tensor *))                                                                                     \
  X(size_t, TensorByteSize, (const TF_Tensor *))                                                                                 \
  X(void, DeleteTensor, (TF_Tensor *))                                                                                           \
  X(TF_Status *, NewStatus, (void))                                                                                              \
  X(void, DeleteStatus, (TF_Status *))                                                                                           \
  X(void, SetStatus, (TF_Status *, int, const char *))                                                                           \
  X(int, GetCode, (const TF_Status *))                                                                                           \
  X(const char *, Message, (const TF_Status *))

typedef struct tf_api {
#define TF_MEMBER(returns, name, parameters) returns(*name) parameters;
  TF_FUNCTIONS(TF_MEMBER)
#undef TF_MEMBER
} tf_api;

/* False: the process has not loaded TensorFlow, or one that lacks the function *missing. */
bool tf_api_find(tf_api *api, const char **missing);

/* An element of a tensor of strings (tensorflow/core/platform/ctstring.h); TensorFlow frees it. */
typedef struct tf_string {
  union {
    struct {
      uint8_t size; /* times 4 */
      char text[23];
    } small;
    struct {
      size_t size; /* times 4, plus 1 */
      size_t capacity;
      char *text; /* malloc */
    } large;
  } as;
} tf_string;
/* `out` is one that TensorFlow has just made, empty. False: no memory. */
bool tf_string_set(tf_string *out, const void *data, size_t size);

#endif
