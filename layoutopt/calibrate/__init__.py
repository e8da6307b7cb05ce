"""Calibration: fits a target's cost model to measured times of kernels and casts in onnxruntime on this machine.

from layoutopt.calibrate import calibrate
calibrate().profile           # the text of a target file

probes       the kernels, which kernel_times times
calibration  the target's numbers from the times, and the text of the calibrated target file
"""

from layoutopt.calibrate.calibration import CalibrationReport, calibrate

__all__ = ["CalibrationReport", "calibrate"]
