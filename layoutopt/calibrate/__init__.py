"""A measured cost model: how long do the kernels and casts that matter take in the installed onnxruntime, on this machine?

from layoutopt.calibrate import calibrate
calibration = calibrate(Path("measurements.json"))
calibration.report.profile     # the text of a target file

case, grid      which kernels, and the models that they are timed in
timing, state   measuring them in turns, and keeping what has been measured
fit, fitting    the numbers of the target that are nearest to the measurements
agreement       how near that is, over kernels that were not fitted to
profile         the target file
"""

from layoutopt.calibrate.report import CalibrationReport
from layoutopt.calibrate.run import Calibration, calibrate

__all__ = ["Calibration", "CalibrationReport", "calibrate"]
