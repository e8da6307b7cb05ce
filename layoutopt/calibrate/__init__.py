"""Calibration: fits a target's cost model to measured times of kernels and casts in onnxruntime on this machine.

from layoutopt.calibrate import calibrate
calibrate().profile           # the text of a target file

grid                          the kernels, which kernel_times times
roofline_fit, target_fit      fits of the target's numbers to the measurements, and the calibrated target file
agreement                     agreement of predictions and measurements for held-out kernels
"""

from layoutopt.calibrate.calibration import CalibrationReport, calibrate

__all__ = ["CalibrationReport", "calibrate"]
