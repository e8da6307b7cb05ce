"""Calibration: fits a target's cost model to measured times of kernels and casts in onnxruntime on this machine.

from layoutopt.calibrate import calibrate
calibration = calibrate()
calibration.report.profile     # the text of a target file

kernel_case, grid             the kernels, which kernel_times times
kernel_shapes                 tables of the shapes of the kernels
roofline_fit, target_fit      fits of the target's numbers to the measurements
agreement                     agreement of predictions and measurements for held-out kernels
target_file                   the text of the calibrated target file
"""

from layoutopt.calibrate.calibration import Calibration, calibrate
from layoutopt.calibrate.calibration_report import CalibrationReport

__all__ = ["Calibration", "CalibrationReport", "calibrate"]
