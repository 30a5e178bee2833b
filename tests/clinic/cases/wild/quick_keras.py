"""Keras 3 on torch: fit() with validation after each epoch. Expected: the training batches are the steps, not the 40
validation batches; no line of the script but fit() runs meanwhile, so that functions of Keras are named.

The truth is the number of batches that a callback counts, and a second py-spy on the bare program.
"""

import os

os.environ["KERAS_BACKEND"] = "torch"
import keras
import numpy as np


class Count(keras.callbacks.Callback):
    updates = 0

    def on_train_batch_end(self, batch: int, logs: object = None) -> None:
        self.updates += 1


keras.utils.set_random_seed(0)
random = np.random.default_rng(0)
x, y = random.standard_normal((64 * 120, 28, 28, 1)).astype("float32"), random.integers(0, 10, 64 * 120)
model = keras.Sequential(
    [
        keras.layers.Input((28, 28, 1)),
        keras.layers.Conv2D(8, 3, activation="relu"),
        keras.layers.MaxPooling2D(),
        keras.layers.Flatten(),
        keras.layers.Dense(10),
    ]
)
model.compile(optimizer="adam", loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True))
count = Count()
held_out = x[: 64 * 20], y[: 64 * 20]
model.fit(x, y, batch_size=64, epochs=2, validation_data=held_out, callbacks=[count], verbose=2)
print(f"steps {count.updates}")
