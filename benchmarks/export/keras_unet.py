"""U-Nets of Keras, channels-last, by tf2onnx, random weights.

    python benchmarks/export/keras_unet.py [NAME ...]

`keras_unet` is the network of Ronneberger et al. (batch norms, transposed convolutions) at 256 x 256. `keras_unet_mobilenetv2`
is the one of TensorFlow's tutorial of image segmentation: MobileNetV2 of keras.applications, whose activations are skip
connections, and pix2pix upsampling. `keras_unet_mobilenetv3` has the encoder MobileNetV3Small, `keras_unet_upsampling` Pads and
bilinear upsampling. tf2onnx writes one or two Transposes into three of them, and 120 into that with MobileNetV3.

Needs tensorflow and tf2onnx; tensorflow 2.21.0, keras 3.15.1 (Apache-2.0) and tf2onnx 1.17.0 were used.
"""

import os
import sys
from collections.abc import Iterable

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"

import keras
import numpy as np
import onnx
import tensorflow as tf
import tf2onnx
from keras import layers
from skeleton import write

Value = keras.KerasTensor


def unet() -> keras.Model:
    image = keras.Input((256, 256, 3), name="image")
    x, skips = image, []
    for filters in (32, 64, 128, 256):
        x = twice(x, filters)
        skips.append(x)
        x = layers.MaxPooling2D()(x)
    x = twice(x, 512)
    for filters, skip in zip((256, 128, 64, 32), reversed(skips), strict=True):
        x = layers.Conv2DTranspose(filters, 2, strides=2, padding="same")(x)
        x = twice(layers.Concatenate()([x, skip]), filters)
    return keras.Model(image, layers.Conv2D(1, 1, activation="sigmoid")(x))


def twice(x: Value, filters: int) -> Value:
    for _ in range(2):
        x = layers.Conv2D(filters, 3, padding="same", use_bias=False)(x)
        x = layers.ReLU()(layers.BatchNormalization()(x))
    return x


def unet_mobilenetv2() -> keras.Model:
    base = keras.applications.MobileNetV2(input_shape=(128, 128, 3), include_top=False, weights=None)
    names = (
        "block_1_expand_relu",
        "block_3_expand_relu",
        "block_6_expand_relu",
        "block_13_expand_relu",
        "block_16_project",
    )
    *skips, x = (base.get_layer(name).output for name in names)
    for filters, skip in zip((512, 256, 128, 64), reversed(skips), strict=True):
        x = layers.Conv2DTranspose(filters, 3, strides=2, padding="same", use_bias=False)(x)
        x = layers.ReLU()(layers.BatchNormalization()(x))
        x = layers.Concatenate()([x, skip])
    return keras.Model(base.input, layers.Conv2DTranspose(3, 3, strides=2, padding="same")(x))


def unet_upsampling() -> keras.Model:
    """Bilinear upsampling in place of transposed convolutions, Pads at one side, and LeakyReLU."""
    image = keras.Input((200, 200, 3), name="image")
    x, skips = image, []
    for filters in (16, 32, 64):
        x = layers.LeakyReLU(0.2)(layers.BatchNormalization()(layers.Conv2D(filters, 3, padding="same")(x)))
        skips.append(x)
        x = layers.LeakyReLU(0.2)(layers.Conv2D(filters, 3, strides=2)(layers.ZeroPadding2D(((0, 1), (0, 1)))(x)))
    for filters, skip in zip((64, 32, 16), reversed(skips), strict=True):
        x = layers.UpSampling2D(interpolation="bilinear")(x)
        x = layers.Concatenate()([x, skip])
        x = layers.LeakyReLU(0.2)(layers.BatchNormalization()(layers.Conv2D(filters, 3, padding="same")(x)))
        x = layers.SpatialDropout2D(0.1)(x)
    return keras.Model(image, layers.Softmax()(layers.Conv2D(4, 1)(x)))


def unet_mobilenetv3() -> keras.Model:
    """The encoder of which tf2onnx writes most Transposes: squeeze-and-excite, hard swish, Pads; bilinear upsampling."""
    base = keras.applications.MobileNetV3Small(input_shape=(224, 224, 3), include_top=False, weights=None)
    largest = {layer.output.shape[1]: layer.output for layer in base.layers if len(layer.output.shape) == 4}
    x = largest[7]
    for extent, filters in ((14, 128), (28, 64), (56, 32), (112, 16)):
        x = layers.UpSampling2D(interpolation="bilinear")(x)
        x = layers.Concatenate()([x, largest[extent]])
        x = layers.Conv2D(filters, 3, padding="same", activation="relu")(x)
    x = layers.UpSampling2D(interpolation="bilinear")(x)
    return keras.Model(base.input, layers.Conv2D(2, 1, activation="softmax")(x))


def lively(model: keras.Model, feed: np.ndarray) -> None:
    """Give batch norms random scales and biases, and the means and variances of what they read."""
    generator = np.random.default_rng(0)
    norms = [layer for layer in model.layers if isinstance(layer, layers.BatchNormalization)]
    for norm in norms:
        norm.gamma.assign(generator.uniform(0.5, 1.5, norm.gamma.shape))
        norm.beta.assign(generator.normal(0, 0.3, norm.beta.shape))
    for norm in norms:
        read = keras.Model(model.input, norm.input).predict(feed, verbose=0)
        axes = tuple(range(read.ndim - 1))
        norm.moving_mean.assign(read.mean(axes))
        norm.moving_variance.assign(read.var(axes))


NETWORKS = {
    "keras_unet": unet,
    "keras_unet_mobilenetv2": unet_mobilenetv2,
    "keras_unet_mobilenetv3": unet_mobilenetv3,
    "keras_unet_upsampling": unet_upsampling,
}


def main(names: Iterable[str]) -> None:
    for name in names:
        keras.utils.set_random_seed(0)
        model = NETWORKS[name]()
        feed = np.random.default_rng(0).random((1, *model.input.shape[1:]), dtype=np.float32)
        lively(model, feed)
        signature = [tf.TensorSpec(feed.shape, tf.float32, name="image")]
        exported, _ = tf2onnx.convert.from_keras(model, signature, opset=18)
        assert isinstance(exported, onnx.ModelProto)
        write(exported, name, {exported.graph.input[0].name: feed})


if __name__ == "__main__":
    main(sys.argv[1:] or NETWORKS)
