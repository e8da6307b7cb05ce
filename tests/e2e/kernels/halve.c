/* A library of kernels for onnxruntime: test.kernels::Halve, y = x / 2 on float32 tensors of any shape.
 *
 * The headers of onnxruntime are no part of its Python package. So this file declares the few parts of the C interface that it
 * uses: functions by their place in OrtApi, which never changes, and the fields of OrtCustomOp up to interface version 8.
 */
#include <stddef.h>
#include <stdint.h>

typedef void *(*Call)();

enum {
    CREATE_DOMAIN = 26, DOMAIN_ADD = 27, ADD_DOMAIN = 28, TENSOR_DATA = 51, DIMENSION_COUNT = 61, DIMENSIONS = 62,
    ELEMENT_COUNT = 64, TYPE_AND_SHAPE = 65, KERNEL_INPUT = 90, KERNEL_OUTPUT = 91, FLOAT = 1, REQUIRED = 0
};

typedef struct { const Call *(*api)(uint32_t version); } ApiBase;

typedef struct CustomOp {
    uint32_t version;
    void *(*create)(const struct CustomOp *, const Call *, const void *);
    const char *(*name)(const struct CustomOp *);
    const char *(*provider)(const struct CustomOp *);
    int (*input_type)(const struct CustomOp *, size_t);
    size_t (*input_count)(const struct CustomOp *);
    int (*output_type)(const struct CustomOp *, size_t);
    size_t (*output_count)(const struct CustomOp *);
    void (*compute)(void *, void *);
    void (*destroy)(void *);
    int (*input_characteristic)(const struct CustomOp *, size_t);
    int (*output_characteristic)(const struct CustomOp *, size_t);
} CustomOp;

static const Call *ort;

static void *create(const CustomOp *op, const Call *api, const void *info) { return (void *)api; }
static const char *name(const CustomOp *op) { return "Halve"; }
static const char *provider(const CustomOp *op) { return NULL; }
static int type(const CustomOp *op, size_t index) { return FLOAT; }
static size_t one(const CustomOp *op) { return 1; }
static void destroy(void *kernel) {}
static int characteristic(const CustomOp *op, size_t index) { return REQUIRED; }

static void compute(void *kernel, void *context) {
    void *input, *output, *shape;
    int64_t extents[16];
    size_t rank, count;
    float *x, *y;
    ort[KERNEL_INPUT](context, (size_t)0, &input);
    ort[TYPE_AND_SHAPE](input, &shape);
    ort[DIMENSION_COUNT](shape, &rank);
    ort[DIMENSIONS](shape, extents, rank);
    ort[ELEMENT_COUNT](shape, &count);
    ort[KERNEL_OUTPUT](context, (size_t)0, extents, rank, &output);
    ort[TENSOR_DATA](input, &x);
    ort[TENSOR_DATA](output, &y);
    for (size_t index = 0; index < count; index++) y[index] = x[index] / 2;
}

static const CustomOp HALVE = {8, create, name, provider, type, one, type, one, compute, destroy, characteristic, characteristic};

void *RegisterCustomOps(void *options, const ApiBase *base) {
    void *domain;
    ort = base->api(8);
    ort[CREATE_DOMAIN]("test.kernels", &domain);
    ort[DOMAIN_ADD](domain, &HALVE);
    return ort[ADD_DOMAIN](options, domain);
}
